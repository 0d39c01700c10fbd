//! One task keeps every lease of a client.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redlatch::core::{Instant, Request};
use redlatch::node::{Call, CallAll, Charter, Node, NodeError, Ready};
use redlatch::{Clock, Guard, Loss, MemoryNode, Redlatch, SystemClock};
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
    // Beside those two.
    let renewals = || server.calls("pexpire") - 2;
    eventually("all are renewed", || renewals() >= LEASES as u64).await;
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

/// A node that does all that it is asked to, but answers late.
struct Late {
    inner: MemoryNode,
    by_millis: Arc<AtomicU64>,
}

impl Late {
    async fn delay(by_millis: Arc<AtomicU64>) {
        let by = Duration::from_millis(by_millis.load(Ordering::Relaxed));
        tokio::time::sleep(by).await;
    }
}

impl Node for Late {
    fn enlist(&mut self, charter: Charter) {
        self.inner.enlist(charter);
    }

    fn name(&self) -> &str {
        "late"
    }

    fn call(&self, request: Request, limit: Duration) -> Call {
        let (answer, delay) = (
            self.inner.call(request, limit),
            Self::delay(self.by_millis.clone()),
        );
        Box::pin(async move {
            delay.await;
            answer.await
        })
    }

    fn call_all(&self, requests: Vec<Request>, limit: Duration) -> CallAll {
        let (answers, delay) = (
            self.inner.call_all(requests, limit),
            Self::delay(self.by_millis.clone()),
        );
        Box::pin(async move {
            delay.await;
            answers.await
        })
    }

    fn ready(
        &self,
        limit: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Ready, NodeError>> + Send>> {
        self.inner.ready(limit)
    }
}

/// The runtime's clock, which a test can stop.
#[derive(Debug)]
struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Instant {
        let now = self.0.elapsed();
        Instant::new(now, now)
    }
}

/// A client of one node that answers as late as is said, and so many leases.
async fn many(ttl: Duration, count: usize) -> (Redlatch, Arc<AtomicU64>, Vec<Guard>) {
    let by_millis = Arc::new(AtomicU64::new(0));
    let clock = Arc::new(RuntimeClock(tokio::time::Instant::now()));
    let node = Late {
        inner: MemoryNode::with_clock(clock.clone()),
        by_millis: by_millis.clone(),
    };
    let builder = Redlatch::builder().node(node).clock(clock).ttl(ttl);
    let latch = builder.node_timeout(Duration::from_millis(250));
    let latch = latch.build().await.unwrap();
    let locks = (0..count).map(|number| {
        let mutex = latch.mutex(format!("job-{number}"));
        async move { mutex.lock().await.unwrap() }
    });
    let guards = futures_util::future::join_all(locks).await;
    (latch, by_millis, guards)
}

#[tokio::test(start_paused = true)]
async fn leases_are_kept_although_each_answer_takes_long() {
    // A thousand renewals at a time, each in 200 ms, would be ten thousand in
    // the two seconds that are left when they come due.
    let (_latch, by_millis, guards) = many(Duration::from_secs(3), 12_000).await;
    by_millis.store(200, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(9)).await;
    let held = guards.iter().filter(|guard| guard.ensure_held().is_ok());
    assert_eq!(held.count(), guards.len());
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_does_not_wait_behind_many_long_ones() {
    // They all come due in the same moment, and take two seconds.
    let (latch, by_millis, guards) = many(Duration::from_secs(30), 10_000).await;
    let short = latch.mutex("short").ttl(Duration::from_millis(1500));
    let short = short.lock().await.unwrap();
    by_millis.store(200, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(15)).await;
    short.ensure_held().unwrap();
    let held = guards.iter().filter(|guard| guard.ensure_held().is_ok());
    assert_eq!(held.count(), guards.len());
}
