//! One task keeps every lease of a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redlatch::core::Instant;
use redlatch::{Clock, Loss, Redlatch, SystemClock};
use redlatch_testkit::RedisServer;

use crate::support::{armed, build, eventually};

/// The machine's clock, and as much ahead of it as a test wants.
#[derive(Debug, Default)]
struct Ahead {
    millis: AtomicU64,
}

impl Clock for Ahead {
    fn now(&self) -> Instant {
        let ahead = Duration::from_millis(self.millis.load(Ordering::Relaxed));
        let start = Instant::new(Duration::ZERO, Duration::ZERO);
        let now = SystemClock.now().since(start) + ahead;
        Instant::new(now, now)
    }
}

#[tokio::test]
async fn a_hundred_thousand_leases_are_kept_by_as_many_tasks_as_one() {
    const LEASES: usize = 100_000;
    let server = RedisServer::start();
    let clock = Arc::new(Ahead::default());
    let latch = Redlatch::builder()
        .nodes([server.url()])
        .clock(clock.clone())
        .node_timeout(Duration::from_secs(5))
        .ttl(Duration::from_secs(600))
        .build()
        .await
        .unwrap();
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let mut guards = vec![latch.mutex("first").lock().await.unwrap()];
    let with_one = tasks();
    for chunk in 0..LEASES / 1000 {
        let locks = (0..1000).map(|number| {
            let mutex = latch.mutex(format!("job-{chunk}-{number}"));
            async move { mutex.lock().await.unwrap() }
        });
        guards.extend(futures_util::future::join_all(locks).await);
    }
    assert_eq!(tasks(), with_one);

    // All of them come due at the same moment.
    server.command(&["PEXPIRE", "redlatch:job-0-0", "1000"]);
    server.command(&["PEXPIRE", "redlatch:job-99-999", "100000"]);
    clock.millis.store(250_000, Ordering::Relaxed);
    eventually("all are renewed", || {
        server.calls("evalsha") >= LEASES as u64
    })
    .await;
    let renewed = |key: &str| server.pttl(key) > 500_000;
    eventually("the last one too", || renewed("redlatch:job-99-999")).await;
    assert_eq!(tasks(), with_one);
    let held = guards.iter().filter(|guard| guard.ensure_held().is_ok());
    assert!(
        held.count() >= LEASES,
        "all but perhaps the one that was cut short"
    );
    drop(guards);
    latch.close().await;
    let left = server.command(&["DBSIZE"]).as_int();
    assert_eq!(left, 1, "nothing but the slots of fences");
}

#[tokio::test]
async fn a_suspended_machine_hears_of_the_loss_when_it_goes_on() {
    let server = RedisServer::start();
    let clock = Arc::new(Ahead::default());
    let builder = Redlatch::builder().nodes([server.url()]);
    let latch = build(builder.clock(clock.clone())).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    let watcher = tokio::spawn({
        let lease = guard.lease();
        async move { lease.lost().await }
    });
    // The timers slept through it; the clock did not.
    clock.millis.store(10_000, Ordering::Relaxed);
    assert!(guard.ensure_held().is_err());
    assert_eq!(watcher.await.unwrap().loss, Loss::Expired);
    // Loss is final, also when the clock is set back.
    clock.millis.store(0, Ordering::Relaxed);
    assert!(guard.ensure_held().is_err());
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn a_frozen_node_does_not_hold_up_the_renewals_of_the_others() {
    let fleet = armed(3);
    let builder = Redlatch::builder().nodes(fleet.urls());
    let latch = build(builder.ttl(Duration::from_secs(3))).await;
    let mut guards = Vec::new();
    for number in 0..2_000 {
        guards.push(latch.mutex(format!("job-{number}")).lock().await.unwrap());
    }
    fleet[0].freeze();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(7);
    while tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(100)).await;
        for guard in &guards {
            guard.ensure_held().unwrap();
        }
    }
    drop(guards);
    fleet[0].thaw();
    latch.close().await;
}

#[tokio::test]
async fn release_ends_renewal_also_while_one_is_under_way() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let latch = build(Redlatch::builder().nodes([proxy.url()])).await;
    let mutex = latch.mutex("job").ttl(Duration::from_millis(900));
    let guard = mutex.lock().await.unwrap();
    let view = guard.lease();
    proxy.delay(Duration::from_millis(100));
    eventually("a renewal is under way", || {
        view.remaining() < Duration::from_millis(590)
    })
    .await;
    guard.release().await.unwrap();
    assert_eq!(view.lost().await.loss, Loss::Released);
    let calls = server.calls("evalsha");
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(
        server.calls("evalsha"),
        calls,
        "nothing is renewed any more"
    );
    assert!(server.locks().is_empty());
}
