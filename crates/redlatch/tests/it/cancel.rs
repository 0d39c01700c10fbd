//! Whatever is dropped half-way leaves nothing behind.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use redlatch::{Guard, Mutex, Redlatch, Result};
use redlatch_testkit::{Fleet, Proxy, RedisServer};

use crate::support::{KEY, LONG, armed, closes_empty, eventually, is_held_by, patient};

/// Polls `work` as often as it asks for it, but `times` times at most, and
/// then drops it. The result, when it came to one.
async fn poll_times<F: Future>(work: F, times: usize) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut left = times;
    poll_fn(|context| {
        while left > 0 {
            left -= 1;
            match work.as_mut().poll(context) {
                Poll::Ready(output) => return Poll::Ready(Some(output)),
                Poll::Pending if left > 0 => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        Poll::Ready(None)
    })
    .await
}

/// The ways to ask for a lock.
#[derive(Clone, Copy, Debug)]
enum Way {
    Lock,
    LockTimeout,
    TryLock,
}

const WAYS: [Way; 3] = [Way::Lock, Way::LockTimeout, Way::TryLock];

impl Way {
    async fn ask(self, mutex: Mutex) -> Result<Guard> {
        match self {
            Self::Lock => mutex.lock().await,
            Self::LockTimeout => mutex.lock_timeout(LONG).await,
            Self::TryLock => Ok(mutex.try_lock().await?.expect("nobody else has it")),
        }
    }
}

/// Servers behind proxies.
struct Place {
    fleet: Fleet,
    proxies: Vec<Proxy>,
    /// By how much each answer comes later than the one of the node before.
    step: Duration,
}

impl Place {
    fn new(nodes: usize, step: Duration) -> Self {
        let fleet = armed(nodes);
        Self {
            proxies: fleet.proxies(),
            fleet,
            step,
        }
    }

    async fn client(&self) -> Redlatch {
        self.proxies.iter().for_each(Proxy::heal);
        let urls = self.proxies.iter().map(Proxy::url);
        let latch = patient(urls).build().await.unwrap();
        for (at, proxy) in (1..).zip(&self.proxies) {
            proxy.delay(at * self.step / 2);
        }
        latch
    }
}

const AT_ONCE: Duration = Duration::ZERO;
const STAGGERED: Duration = Duration::from_millis(4);

/// Cancels one way of asking at every await; how many there were.
async fn cancel_acquire(way: Way, place: &Place) -> usize {
    for times in 0..1000 {
        let latch = place.client().await;
        let asked = poll_times(way.ask(latch.mutex("job")), times).await;
        let done = asked.map(|guard| drop(guard.unwrap())).is_some();
        closes_empty(&latch, &place.fleet).await;
        if done {
            return times;
        }
    }
    panic!("{way:?} is polled without end")
}

#[tokio::test]
async fn an_acquire_cancelled_at_any_await_leaves_no_key_on_one_node() {
    for step in [AT_ONCE, STAGGERED] {
        let place = Place::new(1, step);
        for way in WAYS {
            assert!(cancel_acquire(way, &place).await > 1);
        }
    }
}

#[tokio::test]
async fn an_acquire_cancelled_at_any_await_leaves_no_key_on_five_nodes() {
    for step in [AT_ONCE, STAGGERED] {
        let place = Place::new(5, step);
        for way in WAYS {
            assert!(cancel_acquire(way, &place).await > 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_runs_out_of_time_leaves_no_key() {
    let place = Place::new(5, STAGGERED);
    for micros in (0..16_000).step_by(400) {
        let limit = Duration::from_micros(micros);
        for way in WAYS {
            let latch = place.client().await;
            let _ = tokio::time::timeout(limit, way.ask(latch.mutex("job"))).await;
            closes_empty(&latch, &place.fleet).await;
        }
    }
}

#[tokio::test]
async fn an_acquire_cancelled_while_it_waits_leaves_the_holder_alone() {
    let place = Place::new(5, STAGGERED);
    let fleet = &place.fleet;
    let holder = patient(fleet.urls()).build().await.unwrap();
    let guard = holder.mutex("job").lock().await.unwrap();
    eventually("the key on all nodes", || is_held_by(fleet, &guard)).await;
    for times in 0..20 {
        let latch = place.client().await;
        let job = latch.mutex("job");
        // Once it watches nothing wakes it: it is then cancelled where it rests.
        let soon = Duration::from_millis(300);
        let polled = tokio::time::timeout(soon, poll_times(job.lock(), times)).await;
        assert!(!matches!(polled, Ok(Some(_))));
        latch.close().await;
        assert!(is_held_by(fleet, &guard));
    }
    guard.release().await.unwrap();
    closes_empty(&holder, fleet).await;
}

#[tokio::test]
async fn an_acquire_cancelled_before_it_was_sent_is_never_sent() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let latch = patient([proxy.url()]).build().await.unwrap();
    proxy.hold();
    proxy.disconnect();
    eventually("a new connection", || proxy.accepted() == 2).await;
    for way in WAYS {
        for times in [0, 1] {
            assert!(
                poll_times(way.ask(latch.mutex("job")), times)
                    .await
                    .is_none()
            );
        }
    }
    proxy.heal();
    closes_empty(&latch, std::slice::from_ref(&server)).await;
    assert_eq!(server.calls("set"), 0);
}

/// Cancels a release at every await; how many there were.
async fn cancel_release(place: &Place) -> usize {
    for times in 0..1000 {
        let latch = place.client().await;
        let guard = latch.mutex("job").lock().await.unwrap();
        let released = poll_times(guard.release(), times).await;
        closes_empty(&latch, &place.fleet).await;
        if let Some(released) = released {
            released.unwrap();
            return times;
        }
    }
    panic!("a release is polled without end")
}

#[tokio::test]
async fn a_release_cancelled_at_any_await_still_frees_the_lock() {
    for nodes in [1, 5] {
        for step in [AT_ONCE, STAGGERED] {
            assert!(cancel_release(&Place::new(nodes, step)).await > 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_runs_out_of_time_still_frees_the_lock() {
    let place = Place::new(5, STAGGERED);
    for micros in (0..16_000).step_by(400) {
        let latch = place.client().await;
        let guard = latch.mutex("job").lock().await.unwrap();
        let _ = tokio::time::timeout(Duration::from_micros(micros), guard.release()).await;
        closes_empty(&latch, &place.fleet).await;
    }
}

#[tokio::test]
async fn a_renewal_cancelled_at_any_await_leaves_the_lease_held() {
    let place = Place::new(5, STAGGERED);
    let latch = place.client().await;
    let guard = latch.mutex("job").lock().await.unwrap();
    for times in 0.. {
        let renewed = poll_times(guard.renew(2 * LONG), times).await;
        guard.ensure_held().unwrap();
        if let Some(renewed) = renewed {
            renewed.unwrap();
            break;
        }
    }
    guard.release().await.unwrap();
    closes_empty(&latch, &place.fleet).await;
}

#[tokio::test]
async fn a_cancelled_run_drops_its_body_and_frees_the_lock() {
    let fleet = armed(3);
    let latch = patient(fleet.urls()).build().await.unwrap();
    let job = latch.mutex("job");
    let (inside, mut entered) = tokio::sync::oneshot::channel();
    let (dropped, was_dropped) = tokio::sync::oneshot::channel::<()>();
    let run = job.run(|lease| async move {
        let _dropped = dropped;
        lease.ensure_held()?;
        let _ = inside.send(());
        std::future::pending::<Result<()>>().await
    });
    tokio::select! {
        _ = run => panic!("the body never ends"),
        entered = &mut entered => entered.unwrap(),
    }
    assert!(was_dropped.await.is_err());
    closes_empty(&latch, &fleet).await;
}

#[tokio::test]
async fn a_guard_dropped_outside_the_runtime_frees_the_lock() {
    let server = RedisServer::start();
    let latch = Redlatch::connect(&server.url()).await.unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    eventually("no key", || server.get(KEY).is_none()).await;
}
