//! Fences grow with every new holder, whatever the clocks say.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redlatch::core::Instant;
use redlatch::{Clock, Redlatch, SystemClock};
use redlatch_testkit::RedisServer;

use crate::support::{armed, build, client, patient, renewals};

/// The machine's clock, with the time of day set wrong by so many seconds.
#[derive(Debug)]
pub(crate) struct Wrong(pub(crate) i64);

impl Clock for Wrong {
    fn now(&self) -> Instant {
        let now = SystemClock.now();
        let since = now.since(Instant::new(Duration::ZERO, Duration::ZERO));
        let real = Duration::from_millis(now.unix_millis());
        let real = match u64::try_from(self.0) {
            Ok(ahead) => real + Duration::from_secs(ahead),
            Err(_) => real - Duration::from_secs(self.0.unsigned_abs()),
        };
        Instant::new(since, real)
    }
}

async fn with_clock(urls: &[String], seconds: i64) -> Redlatch {
    let builder = Redlatch::builder().nodes(urls);
    build(builder.clock(Arc::new(Wrong(seconds)))).await
}

#[tokio::test]
async fn every_new_holder_has_a_higher_fence() {
    let server = RedisServer::start();
    let latches = [client(&server).await, client(&server).await];
    let mut last = 0;
    for round in 0..50 {
        let guard = latches[round % 2].mutex("job").lock().await.unwrap();
        assert!(guard.fence() > last);
        assert!(i64::try_from(guard.fence()).is_ok());
        last = guard.fence();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_fence_stays_the_same_through_renewals() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let job = latch.mutex("job").ttl(Duration::from_millis(900));
    let guard = job.lock().await.unwrap();
    let fence = guard.fence();
    renewals(&server, 2).await;
    guard.renew(Duration::from_secs(2)).await.unwrap();
    assert_eq!(guard.fence(), fence);
    assert_eq!(guard.lease().fence(), fence);
}

#[tokio::test]
async fn one_round_trip_is_enough_when_clocks_agree() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    for _ in 0..20 {
        let guard = latch.mutex("job").lock().await.unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(server.calls("evalsha"), 40, "an acquire and a release each");
}

#[tokio::test]
async fn clients_whose_clocks_are_hours_wrong_take_turns_in_order() {
    let fleet = armed(3);
    let urls = fleet.urls();
    let hours = [0, 3600, -3600, 86_400, -86_400, 20, -20];
    let mut latches = Vec::new();
    for seconds in hours {
        latches.push(with_clock(&urls, seconds).await);
    }
    let mut last = 0;
    for round in 0..42 {
        let latch = &latches[round % latches.len()];
        let guard = latch.mutex("job").try_lock().await.unwrap();
        let guard = guard.expect("a wrong clock costs round trips, not the lock");
        assert!(guard.fence() > last, "round {round}");
        last = guard.fence();
        guard.release().await.unwrap();
        latch
            .mutex("other")
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_client_learns_how_wrong_its_clock_is() {
    let server = RedisServer::start();
    for seconds in [7200, -7200] {
        let right = client(&server).await;
        let wrong = with_clock(&[server.url()], seconds).await;
        let cycle = async |latch: &Redlatch| {
            let guard = latch.mutex("job").lock().await.unwrap();
            guard.release().await.unwrap();
            // Two clients in the same millisecond may need another round trip.
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        cycle(&right).await;
        cycle(&wrong).await;
        let before = server.calls("evalsha");
        for _ in 0..10 {
            cycle(&right).await;
            cycle(&wrong).await;
        }
        assert_eq!(
            server.calls("evalsha"),
            before + 40,
            "no round trip too many"
        );
    }
}

#[tokio::test]
async fn fences_grow_while_nodes_come_and_go() {
    let fleet = armed(5);
    let latch = build(Redlatch::builder().nodes(fleet.urls())).await;
    let mut last = 0;
    for round in 0..10 {
        // Another two are frozen each time, so quorums overlap in one node only.
        let frozen = [&fleet[round % 5], &fleet[(round + 1) % 5]];
        frozen.iter().for_each(|server| server.freeze());
        let guard = latch.mutex("job").lock().await.unwrap();
        assert!(guard.fence() > last, "round {round}");
        last = guard.fence();
        frozen.iter().for_each(|server| server.thaw());
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_forced_release_gives_the_next_holder_a_higher_fence() {
    let fleet = armed(3);
    let latch = build(Redlatch::builder().nodes(fleet.urls())).await;
    let first = latch.mutex("job").lock().await.unwrap();
    assert!(latch.force_release("job").await.unwrap());
    let second = latch.mutex("job").lock().await.unwrap();
    assert!(second.fence() > first.fence());
    assert!(first.release().await.unwrap_err().is_lost());
    second.ensure_held().unwrap();
    second.release().await.unwrap();
}

#[tokio::test]
async fn a_plain_lock_is_the_bare_command_and_has_no_fence() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let job = latch.mutex("job").fencing(false);
    let guard = job.lock().await.unwrap();
    assert_eq!(guard.fence(), 0);
    assert_eq!(server.calls("evalsha"), 0);
    assert_eq!(server.keys(), ["redlatch:job"], "and no book is kept");
    // Plain and fenced exclude each other.
    assert!(latch.mutex("job").try_lock().await.unwrap().is_none());
    guard.renew(Duration::from_secs(20)).await.unwrap();
    guard.release().await.unwrap();
    let fenced = latch.mutex("job").lock().await.unwrap();
    assert!(job.try_lock().await.unwrap().is_none());
    fenced.release().await.unwrap();
}

/// As a list, which is how Redis keeps a small hash, it would be gone through for every
/// lock.
#[tokio::test]
async fn the_ballots_are_a_table_from_the_first_one_on() {
    let server = RedisServer::start();
    let latch = patient([server.url()]).build().await.unwrap();
    // One that goes by itself; then others that go together, and are new.
    for together in [1, 64] {
        server.command(&["HDEL", "redlatch:__fence", "about"]);
        let locks = (0..together).map(|number| {
            let mutex = latch.mutex(format!("job-{number}"));
            async move { mutex.lock().await.unwrap().release().await.unwrap() }
        });
        futures_util::future::join_all(locks).await;
        let about = server.command(&["HGET", "redlatch:__fence", "about"]);
        assert!(about.as_text().starts_with("redlatch: "), "{together}");
        let encoding = server.command(&["OBJECT", "ENCODING", "redlatch:__fence"]);
        assert_eq!(encoding.as_text(), "hashtable");
    }
}

/// Machines that sleep for a minute between any two looks at the clock.
#[derive(Debug, Default)]
struct Sleepy(AtomicU32);

impl Clock for Sleepy {
    fn now(&self) -> Instant {
        let slept = Duration::from_secs(60) * self.0.fetch_add(1, Ordering::Relaxed);
        let now = SystemClock.now();
        let since = now.since(Instant::new(Duration::ZERO, Duration::ZERO));
        Instant::new(since + slept, Duration::from_millis(now.unix_millis()))
    }
}

/// The nodes that took it away first may have forgotten it since.
#[tokio::test]
async fn a_lock_is_not_said_to_be_taken_away_when_that_took_longer_than_a_quarantine() {
    let server = RedisServer::start();
    let holder = client(&server).await;
    let guard = holder.mutex("job").lock().await.unwrap();
    let sleepy = Redlatch::builder().nodes([server.url()]);
    let sleepy = build(sleepy.clock(Arc::new(Sleepy::default()))).await;
    let forced = sleepy.force_release("job").await;
    assert!(forced.unwrap_err().is_no_quorum());
    drop(guard);
    assert!(!holder.force_release("job").await.unwrap());
}

#[tokio::test]
async fn the_memory_of_fences_is_bounded_however_many_names_there_are() {
    const NAMES: usize = 100_000;
    let server = RedisServer::start();
    // A thousand at once, on a machine that has other things to do as well.
    let latch = patient([server.url()]).build().await.unwrap();
    for chunk in 0..NAMES / 1000 {
        let locks = (0..1000).map(|number| {
            let mutex = latch.mutex(format!("job-{chunk}-{number}"));
            async move { mutex.lock().await.unwrap().release().await.unwrap() }
        });
        futures_util::future::join_all(locks).await;
    }
    let slots = server.command(&["HLEN", "redlatch:__fence"]).as_int() - 1;
    assert!((48_000..=65_536).contains(&slots), "{slots}");
    let bytes = server.command(&["MEMORY", "USAGE", "redlatch:__fence", "SAMPLES", "0"]);
    assert!(bytes.as_int() < 8 << 20, "{bytes} bytes");
    println!("{NAMES} names, {slots} slots, {bytes} bytes");
    assert!(server.locks().is_empty());
}
