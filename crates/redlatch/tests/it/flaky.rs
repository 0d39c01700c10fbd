//! What the engine does when a node fails at just the wrong moment: over a
//! node in memory that fails on demand, because no server can be told to fail
//! so precisely.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlatch::core::{Ballots, Fence, Key, Request};
use redlatch::node::{Call, Charter, Node, NodeError, NodeErrorKind, Ready, Watching};
use redlatch::{MemoryNode, Redlatch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::fences::Wrong;
use crate::support::{LONG, eventually};

#[derive(Clone)]
struct Flaky {
    inner: MemoryNode,
    is_down: Arc<AtomicBool>,
    /// Answers everything but an acquire.
    grants_nothing: bool,
    acquires: Arc<AtomicU32>,
    releases: Arc<AtomicU32>,
    /// How many releases are to fail.
    failing_releases: Arc<AtomicU32>,
    /// The ballots that came with the last release.
    ballots: Arc<Mutex<Option<Ballots>>>,
}

impl Flaky {
    fn new(inner: &MemoryNode) -> Self {
        Self {
            inner: inner.clone(),
            is_down: Arc::default(),
            grants_nothing: false,
            acquires: Arc::default(),
            releases: Arc::default(),
            failing_releases: Arc::default(),
            ballots: Arc::default(),
        }
    }

    fn fails(&self, request: &Request) -> bool {
        let fails = match request {
            Request::Acquire { .. } => {
                self.acquires.fetch_add(1, SeqCst);
                self.grants_nothing
            }
            Request::Release { ballots, .. } => {
                *self.ballots.lock().unwrap() = *ballots;
                self.releases.fetch_add(1, SeqCst);
                let left = |left: u32| left.checked_sub(1);
                let failing = &self.failing_releases;
                failing.fetch_update(SeqCst, SeqCst, left).is_ok()
            }
            _ => false,
        };
        fails || self.is_down.load(SeqCst)
    }
}

fn down<T>() -> Result<T, NodeError> {
    Err(NodeError::new(NodeErrorKind::Unreachable, "down"))
}

impl Node for Flaky {
    fn enlist(&mut self, charter: Charter) {
        self.inner.enlist(charter);
    }

    fn name(&self) -> &str {
        "flaky"
    }

    fn call(&self, request: Request, limit: Duration) -> Call {
        let node = self.clone();
        Box::pin(async move {
            if node.fails(&request) {
                return down();
            }
            node.inner.call(request, limit).await
        })
    }

    fn watch(&self, key: Key, limit: Duration) -> Watching {
        match self.is_down.load(SeqCst) {
            true => Box::pin(async { down() }),
            false => self.inner.watch(key, limit),
        }
    }

    fn ready(
        &self,
        limit: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Ready, NodeError>> + Send>> {
        self.inner.ready(limit)
    }
}

/// Somebody who waits for the lock `job`, for ever.
async fn waiter(latch: &Redlatch) -> JoinHandle<redlatch::Guard> {
    let job = latch.mutex("job");
    let waiter = tokio::spawn(async move { job.lock().await.unwrap() });
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    waiter
}

#[tokio::test]
async fn a_lease_that_ran_out_while_it_was_handed_over_is_not_taken_for_one() {
    let memory = MemoryNode::new();
    let node = Flaky::new(&memory);
    let ttl = Duration::from_millis(1200);
    let latch = Redlatch::builder()
        .node(node.clone())
        .ttl(ttl)
        .handovers(32, LONG)
        .build()
        .await
        .unwrap();
    let other = Redlatch::builder().node(memory).ttl(LONG);
    let other = other.build().await.unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();
    let job = latch.mutex("job");
    let mut waiting = tokio::spawn(async move {
        let guard = job.lock().await.unwrap();
        let was_held = guard.ensure_held();
        (guard, was_held)
    });
    // The waiter tries again at what it takes for the lease's end, just after
    // the node has gone; the holder has renewed, and has time left.
    sleep(ttl - Duration::from_millis(100)).await;
    node.is_down.store(true, SeqCst);
    let tried = node.acquires.load(SeqCst);
    eventually("an attempt in vain", || node.acquires.load(SeqCst) > tried).await;
    drop(guard);
    // The lease that was handed over runs out, and another one gets the lock.
    let held = other.mutex("job").lock().await.unwrap();
    node.is_down.store(false, SeqCst);
    // On a machine so busy that it was not handed over, it waits its turn.
    let soon = tokio::time::timeout(Duration::from_secs(2), &mut waiting).await;
    held.ensure_held().unwrap();
    held.release().await.unwrap();
    let (_guard, was_held) = match soon {
        Ok(done) => done.unwrap(),
        Err(_) => waiting.await.unwrap(),
    };
    was_held.expect("lock returned with a lease that was lost");
}

#[tokio::test]
async fn a_release_that_fails_is_repeated_however_long_nothing_was_released_before() {
    let memory = MemoryNode::new();
    let node = Flaky::new(&memory);
    let latch = Redlatch::builder().node(node.clone());
    let latch = latch
        .node_timeout(Duration::from_millis(20))
        .build()
        .await
        .unwrap();
    drop(latch.mutex("other").lock().await.unwrap());
    eventually("nothing is held", || memory.is_empty()).await;
    let job = latch.mutex("job").ttl(Duration::from_secs(2));
    let guard = job.lock().await.unwrap();
    sleep(Duration::from_millis(2500)).await; // longer than its ttl
    node.failing_releases.store(2, SeqCst);
    let before = node.releases.load(SeqCst);
    drop(guard);
    // Left to its ttl, it would not be sent a third time.
    eventually("a release that did not fail", || {
        node.releases.load(SeqCst) == before + 3
    })
    .await;
    eventually("nothing is held", || memory.is_empty()).await;
}

#[tokio::test]
async fn a_node_that_answers_but_does_not_grant_is_not_asked_without_end() {
    let nodes = [(); 3].map(|()| MemoryNode::new());
    // Somebody's leftover on the first one, and the second one grants nothing.
    let leftover = Redlatch::builder()
        .node(nodes[0].clone())
        .ttl(LONG)
        .build()
        .await
        .unwrap();
    let _left = leftover.mutex("job").lock().await.unwrap();
    let mut bad = Flaky::new(&nodes[1]);
    bad.grants_nothing = true;
    let latch = Redlatch::builder()
        .node(nodes[0].clone())
        .node(bad.clone())
        .node(nodes[2].clone())
        .restart_guard(false)
        .build()
        .await
        .unwrap();
    let error = latch
        .mutex("job")
        .lock_timeout(Duration::from_secs(1))
        .await;
    assert!(error.is_err());
    let attempts = bad.acquires.load(SeqCst);
    assert!(attempts < 60, "{attempts} attempts in a second");
}

#[tokio::test]
async fn an_adopted_lease_is_not_handed_around() {
    let memory = MemoryNode::new();
    let builder = || {
        Redlatch::builder()
            .node(memory.clone())
            .ttl(LONG)
            .handovers(32, LONG)
    };
    let (one, other) = (
        builder().build().await.unwrap(),
        builder().build().await.unwrap(),
    );
    let exporter = one.mutex("job").lock().await.unwrap();
    let adopter = other.mutex("job").adopt(exporter.export()).await.unwrap();
    let waiting = waiter(&other).await;
    drop(adopter); // which frees the lock for both
    let next = waiting.await.unwrap();
    assert_ne!(next.token(), exporter.token());
    assert!(exporter.renew(LONG).await.unwrap_err().is_lost());
    next.ensure_held().unwrap();
}

#[tokio::test]
async fn a_release_knows_whether_its_ballot_was_the_only_one() {
    let memory = MemoryNode::new();
    let node = Flaky::new(&memory);
    let latch = Redlatch::builder().node(node.clone()).ttl(LONG);
    let latch = latch.build().await.unwrap();
    let job = latch.mutex("job");
    // What a release carries, and the ballot of the lease that it gives back.
    let released = async |guard: redlatch::Guard| {
        let ballot = Fence::new(guard.fence()).ballot();
        guard.release().await.unwrap();
        (node.ballots.lock().unwrap().unwrap(), ballot)
    };
    let (ballots, won) = released(job.lock().await.unwrap()).await;
    assert_eq!(ballots, Ballots::one(won));

    // Somebody whose clock is ahead has had it: the first proposal is too low.
    let ahead = Redlatch::builder()
        .node(memory)
        .clock(Arc::new(Wrong(5)))
        .build()
        .await
        .unwrap();
    drop(ahead.mutex("job").lock().await.unwrap());
    ahead.close().await;
    let (ballots, won) = released(job.lock().await.unwrap()).await;
    assert_eq!(ballots, Ballots::up_to(won));

    // Whoever takes a lease over does not know what was sent for it.
    let job = latch.mutex("another job");
    let exported = job.lock().await.unwrap().detach();
    let (ballots, won) = released(job.adopt(exported).await.unwrap()).await;
    assert_eq!(ballots, Ballots::up_to(won));
}

#[tokio::test]
async fn a_lease_that_has_joined_a_node_again_has_had_other_ballots() {
    let nodes = [0; 3].map(|_| Flaky::new(&MemoryNode::new()));
    let mut builder = Redlatch::builder().restart_guard(false);
    for node in &nodes {
        builder = builder.node(node.clone());
    }
    let latch = builder.ttl(Duration::from_millis(1200)).build();
    let latch = latch.await.unwrap();
    nodes[2].is_down.store(true, SeqCst);
    let guard = latch.mutex("job").lock().await.unwrap();
    let is_asked = || nodes[2].acquires.load(SeqCst) == 1;
    eventually("the third node was asked", is_asked).await;
    nodes[2].is_down.store(false, SeqCst);
    eventually("the lease on all nodes", || nodes[2].inner.len() == 1).await;
    let won = Fence::new(guard.fence()).ballot();
    guard.release().await.unwrap();
    let ballots = nodes[0].ballots.lock().unwrap().unwrap();
    assert!(ballots.highest() > won && !ballots.is_one(), "{ballots:?}");
}

#[tokio::test]
async fn settings_beyond_all_clocks_do_no_harm() {
    let builder = Redlatch::builder().node(MemoryNode::new());
    let latch = builder
        .handovers(u32::MAX, Duration::MAX)
        .build()
        .await
        .unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();
    let (second, third) = (waiter(&latch).await, waiter(&latch).await);
    drop(guard);
    drop(second.await.unwrap());
    drop(third.await.unwrap());
    let server = redlatch_testkit::RedisServer::start();
    let builder = Redlatch::builder().nodes([server.url()]);
    builder
        .connect_timeout(Duration::MAX)
        .build()
        .await
        .unwrap();
}

/// Two who wait for the lock `job` until somebody else gives it back, one of whom
/// has it then.
async fn one_of_two_has_it(node: &Flaky) -> (redlatch::Guard, JoinHandle<redlatch::Guard>) {
    let other = Redlatch::builder().node(node.inner.clone()).ttl(LONG);
    let other = other.build().await.unwrap();
    let builder = Redlatch::builder().node(node.clone()).ttl(LONG);
    let latch = builder.handovers(32, LONG).build().await.unwrap();
    let guard = other.mutex("job").lock().await.unwrap();
    let (first, second) = (waiter(&latch).await, waiter(&latch).await);
    guard.release().await.unwrap();
    (first.await.unwrap(), second)
}

// The runtime's clock stands still while somebody has something to do.
#[tokio::test(start_paused = true)]
async fn one_who_is_to_be_handed_the_lease_does_not_ask_for_another() {
    let node = Flaky::new(&MemoryNode::new());
    let (first, second) = one_of_two_has_it(&node).await;
    let before = node.acquires.load(SeqCst);
    sleep(Duration::from_millis(40)).await;
    assert_eq!(node.acquires.load(SeqCst), before, "it rests");
    sleep(Duration::from_millis(40)).await;
    assert!(node.acquires.load(SeqCst) > before, "not for ever");
    first.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_who_will_not_be_handed_the_lease_asks_at_once() {
    let node = Flaky::new(&MemoryNode::new());
    let (first, second) = one_of_two_has_it(&node).await;
    let (before, begin) = (node.acquires.load(SeqCst), tokio::time::Instant::now());
    let _known_elsewhere = first.export();
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert!(node.acquires.load(SeqCst) > before);
    first.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
}
