//! How long a lease lasts, and how its holder hears of its end.

use std::time::{Duration, Instant};

use redlatch::{Error, Guard, Loss, Redlatch};
use redlatch_testkit::RedisServer;

use crate::support::{
    KEY, LONG, are_empty, armed, closes_empty, eventually, is_held_by, patient, renewals,
};

/// Loss is final, whatever the nodes say later.
async fn assert_lost(guard: Guard, loss: Loss) {
    let lost = |error: Error| match error {
        Error::Lost(lost) => lost.loss,
        other => panic!("{other}"),
    };
    assert_eq!(guard.lost().await.loss, loss);
    assert_eq!(lost(guard.ensure_held().unwrap_err()), loss);
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(lost(guard.renew(LONG).await.unwrap_err()), loss);
    assert_eq!(lost(guard.release().await.unwrap_err()), loss);
}

#[tokio::test]
async fn the_holder_hears_of_the_end_before_it_comes() {
    let fleet = armed(5);
    let ttl = Duration::from_secs(5);
    let drift = ttl / 100 + Duration::from_millis(2);
    let latch = patient(fleet.urls()).ttl(ttl);
    let latch = latch.node_timeout(Duration::from_millis(500));
    let latch = latch.build().await.unwrap();
    // Taken before the first request goes out, so the lease ends later than this says.
    let asked = Instant::now();
    let guard = latch.mutex("job").renewal(false).lock().await.unwrap();
    for server in fleet.iter() {
        server.freeze();
    }
    let lost = guard.lost().await;
    let told = asked.elapsed();
    assert_eq!(lost.loss, Loss::Expired);
    assert!(told < ttl - drift, "told after {told:?}");
    for server in fleet.iter() {
        server.thaw();
    }
    assert_lost(guard, Loss::Expired).await;
}

#[tokio::test]
async fn a_lease_that_no_quorum_can_renew_is_lost_for_good() {
    for frozen in [3, 5] {
        let fleet = armed(5);
        let latch = patient(fleet.urls()).node_timeout(Duration::from_millis(50));
        let latch = latch.build().await.unwrap();
        let job = latch.mutex("job").ttl(Duration::from_millis(600));
        let guard = job.lock().await.unwrap();
        for server in &fleet[..frozen] {
            server.freeze();
        }
        let lost = guard.lost().await;
        for server in &fleet[..frozen] {
            server.thaw();
        }
        assert_lost(guard, lost.loss).await;
        assert_eq!(lost.loss, Loss::Expired);
        eventually("no key", || are_empty(&fleet)).await;
    }
}

#[tokio::test]
async fn a_key_deleted_on_a_quorum_is_a_loss_at_the_next_renewal() {
    for nodes in [1, 5] {
        let fleet = armed(nodes);
        let latch = patient(fleet.urls()).build().await.unwrap();
        let job = latch.mutex("job").ttl(Duration::from_secs(6));
        let guard = job.lock().await.unwrap();
        eventually("the key on all nodes", || is_held_by(&fleet, &guard)).await;
        for server in &fleet[..nodes / 2 + 1] {
            server.command(&["DEL", KEY]);
        }
        guard.ensure_held().unwrap();
        assert_lost(guard, Loss::Taken).await;
        closes_empty(&latch, &fleet).await;
    }
}

#[tokio::test]
async fn a_key_deleted_on_a_minority_is_no_loss() {
    let fleet = armed(5);
    let latch = patient(fleet.urls()).build().await.unwrap();
    let guard = latch.mutex("job").ttl(Duration::from_secs(6));
    let guard = guard.lock().await.unwrap();
    eventually("the key on all nodes", || is_held_by(&fleet, &guard)).await;
    for server in &fleet[..2] {
        server.command(&["DEL", KEY]);
    }
    renewals(&fleet[4], 1).await;
    guard.renew(LONG).await.unwrap();
    guard.release().await.unwrap();
    closes_empty(&latch, &fleet).await;
}

#[tokio::test]
async fn a_lock_taken_away_by_force_is_a_loss() {
    let fleet = armed(3);
    let latch = patient(fleet.urls()).build().await.unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();
    eventually("the key on all nodes", || is_held_by(&fleet, &guard)).await;
    assert!(latch.force_release("job").await.unwrap());
    assert!(!latch.force_release("job").await.unwrap());
    assert!(guard.renew(LONG).await.unwrap_err().is_lost());
    assert_lost(guard, Loss::Taken).await;
}

#[tokio::test]
async fn a_lease_is_renewed_for_as_long_as_it_is_held() {
    for nodes in [1, 5] {
        let fleet = armed(nodes);
        let latch = patient(fleet.urls()).node_timeout(Duration::from_millis(100));
        let latch = latch.build().await.unwrap();
        let ttl = Duration::from_millis(500);
        let guard = latch.mutex("job").ttl(ttl).lock().await.unwrap();
        let start = Instant::now();
        let mut times = 0;
        while start.elapsed() < 5 * ttl {
            renewals(&fleet[0], 1).await;
            times += 1;
            assert!(is_held_by(&fleet[..1], &guard));
            guard.ensure_held().unwrap();
        }
        // Each adds at most one ttl to what was left.
        assert!(times >= 4, "{times} renewals in {:?}", start.elapsed());
        drop(guard);
        eventually("no key", || are_empty(&fleet)).await;
    }
}

#[tokio::test]
async fn without_renewal_a_lease_ends_by_itself() {
    let server = RedisServer::start();
    let latch = Redlatch::connect(&server.url()).await.unwrap();
    let job = latch.mutex("job").ttl(Duration::from_millis(500));
    let guard = job.renewal(false).lock().await.unwrap();
    let mut left = server.pttl(KEY);
    let ended = || {
        let now = server.pttl(KEY);
        assert!(now <= left, "renewed");
        left = now;
        now == -2
    };
    eventually("its end", ended).await;
    assert_eq!(server.calls("evalsha"), 1, "the acquire alone");
    assert_lost(guard, Loss::Expired).await;
}

#[tokio::test]
async fn without_renewal_a_lease_is_renewed_by_hand() {
    let server = RedisServer::start();
    let latch = patient([server.url()]).build().await.unwrap();
    let job = latch.mutex("job").renewal(false);
    let guard = job.lock().await.unwrap();
    guard.renew(3 * LONG).await.unwrap();
    assert!(server.pttl(KEY) > 2 * LONG.as_millis() as i64);
    assert!(guard.remaining() > 2 * LONG);
    // It never shortens a lease.
    guard.renew(LONG).await.unwrap();
    assert!(server.pttl(KEY) > 2 * LONG.as_millis() as i64);
    assert!(guard.remaining() > 2 * LONG);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn max_hold_ends_a_lease_that_is_renewed() {
    for nodes in [1, 5] {
        let fleet = armed(nodes);
        let latch = patient(fleet.urls()).node_timeout(Duration::from_millis(100));
        let latch = latch.build().await.unwrap();
        let job = latch.mutex("job").ttl(Duration::from_millis(600));
        let max_hold = Duration::from_millis(1500);
        let asked = Instant::now();
        let guard = job.max_hold(max_hold).lock().await.unwrap();
        renewals(&fleet[0], 1).await;
        assert_eq!(guard.lost().await.loss, Loss::MaxHold);
        let lasted = asked.elapsed();
        assert!(lasted > Duration::from_millis(600), "it was renewed");
        // Nobody releases it, so it goes by itself.
        eventually("its end", || are_empty(&fleet)).await;
        assert_lost(guard, Loss::MaxHold).await;
    }
}

#[tokio::test]
async fn no_lease_is_longer_than_max_hold() {
    let server = RedisServer::start();
    let latch = Redlatch::connect(&server.url()).await.unwrap();
    let max_hold = Duration::from_millis(400);
    let job = latch.mutex("job").ttl(LONG).max_hold(max_hold);
    let guard = job.lock().await.unwrap();
    assert!(server.pttl(KEY) <= 400);
    guard.renew(LONG).await.unwrap();
    assert!(server.pttl(KEY) <= 400);
    eventually("its end", || server.get(KEY).is_none()).await;
    assert_lost(guard, Loss::MaxHold).await;
}
