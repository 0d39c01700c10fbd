//! What the tests share.

use std::time::Duration;

use redlatch::{Builder, Error, Guard, NoQuorum, Redlatch};
use redlatch_testkit::{Fleet, RedisServer};
use tokio::time::Instant;

/// The key of the lock `job`.
pub(crate) const KEY: &str = "redlatch:job";

/// Longer than any busy machine needs for an answer, so that what ends sooner
/// has not waited for a node that is silent.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(5);

/// So long that no key goes by itself while a test runs.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// How long a test waits for what must happen; well within [`LONG`].
const DEADLINE: Duration = Duration::from_secs(20);

/// A client with time to spare.
pub(crate) fn patient(urls: impl IntoIterator<Item = impl Into<String>>) -> Builder {
    Redlatch::builder()
        .nodes(urls)
        .node_timeout(NODE_TIMEOUT)
        .ttl(LONG)
}

/// New servers that may grant at once: their restart guards are armed.
pub(crate) fn armed(nodes: usize) -> Fleet {
    let fleet = Fleet::start(nodes);
    arm(&fleet);
    fleet
}

/// Arms the restart guards of these servers. Blocks, on a thread of its own, so
/// that it can be used in async tests and in others.
pub(crate) fn arm(fleet: &Fleet) {
    if fleet.len() == 1 {
        return;
    }
    let urls = fleet.urls();
    let work = async {
        let admin = Redlatch::builder().nodes(urls).admin().await.unwrap();
        for status in admin.assume_fresh().await {
            assert!(status.is_armed(), "{status}");
        }
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || runtime.block_on(work));
    });
}

/// A client of one server.
pub(crate) async fn client(server: &RedisServer) -> Redlatch {
    build(Redlatch::builder().nodes([server.url()])).await
}

pub(crate) async fn build(builder: Builder) -> Redlatch {
    // A busy machine is no reason to call a healthy node too slow.
    let builder = builder.node_timeout(Duration::from_millis(500));
    builder.build().await.unwrap()
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn eventually(
    what: &str,
    mut condition: impl FnMut() -> bool,
) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + DEADLINE;
        while !condition() {
            assert!(Instant::now() < deadline, "{place}: never seen: {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Waits until the lock `job` can be taken at the first try.
pub(crate) async fn eventually_locked(latch: &Redlatch) -> Guard {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match latch.mutex("job").try_lock().await {
            Ok(Some(guard)) => return guard,
            other => assert!(Instant::now() < deadline, "still {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until every node gets the lock `job`, and frees it again.
pub(crate) async fn eventually_everywhere(latch: &Redlatch, nodes: usize) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let guard = eventually_locked(latch).await;
        let held = latch.inspect("job").await.unwrap();
        drop(guard);
        if held.is_some_and(|held| held.on_nodes == nodes) {
            return;
        }
        assert!(Instant::now() < deadline, "a node never gets it");
    }
}

/// Runs `work`, which must not wait for a node that is silent.
#[track_caller]
pub(crate) fn at_once<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let place = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(NODE_TIMEOUT, work).await {
            Ok(done) => done,
            Err(_) => panic!("{place}: it waited for a silent node"),
        }
    }
}

/// The reasons of the nodes, where too few of them answered.
#[track_caller]
pub(crate) fn no_quorum<T>(result: Result<T, Error>) -> Box<NoQuorum> {
    match result {
        Err(Error::NoQuorum(error)) => error,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("no error at all"),
    }
}

/// Whether none of the servers has any key.
pub(crate) fn are_empty(servers: &[RedisServer]) -> bool {
    servers.iter().all(|server| server.locks().is_empty())
}

/// Gives the client's releases their time, and sees that they left no key.
#[track_caller]
pub(crate) fn closes_empty(latch: &Redlatch, servers: &[RedisServer]) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        latch.close().await;
        for server in servers {
            assert_eq!(server.locks(), [""; 0], "{place}: {server:?}");
        }
    }
}

/// Whether the lock `job` belongs to this guard, on every one of the servers.
pub(crate) fn is_held_by(servers: &[RedisServer], guard: &Guard) -> bool {
    let token = guard.token().as_str().as_bytes();
    let has = |server: &RedisServer| server.get(KEY).as_deref() == Some(token);
    servers.iter().all(has)
}

/// Waits until the lease on this server was renewed so many times.
pub(crate) async fn renewals(server: &RedisServer, times: usize) {
    let mut left = server.pttl(KEY);
    let mut seen = 0;
    let grows = || {
        let now = server.pttl(KEY);
        assert!(now > 0, "the key is gone after {seen} renewals");
        seen += usize::from(now > left);
        left = now;
        seen >= times
    };
    eventually("a renewal", grows).await;
}
