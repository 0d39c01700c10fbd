use std::task::{Context, Poll, Wake, Waker};

use futures_util::FutureExt;

use super::*;

fn wish() -> Wish {
    Wish {
        terms: Terms {
            ttl: Ttl::new(Duration::from_secs(10)).unwrap(),
            renewal: true,
            max_hold: None,
        },
        fencing: true,
    }
}

/// The same, with a bound of its own.
fn bounded() -> Wish {
    let mut wish = wish();
    wish.terms.max_hold = Some(Duration::from_secs(60));
    wish
}

/// A rest for those who want the same.
fn rest(until: Instant) -> Rest {
    let ttl = wish().terms.ttl;
    Rest {
        until,
        ttl,
        fencing: true,
    }
}

#[tokio::test]
async fn turns_come_in_order_and_nothing_is_left_behind() {
    let queues = Queues::new(Token::parse("nobody").unwrap(), |_| {});
    let key = Key::new("k");
    let first = queues.join(&key, wish());
    let second = queues.join(&key, wish());
    let third = queues.join(&key, wish());
    assert_eq!(queues.count(&key), 3);
    assert!(matches!(first.turn(None).await, Some(Turn::Head)));
    let soon = Some(Instant::now() + Duration::from_millis(5));
    assert!(second.turn(soon).await.is_none());

    drop(second);
    drop(first);
    assert!(matches!(third.turn(None).await, Some(Turn::Head)));
    drop(third);
    assert!(queues.join_others(&key, wish()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_left_wakes_the_next() {
    let queues = Queues::new(Token::parse("nobody").unwrap(), |_| {});
    let key = Key::new("k");
    let (first, second) = (queues.join(&key, wish()), queues.join(&key, wish()));
    let waits = second.turn(None);
    tokio::pin!(waits);
    assert!(waits.as_mut().now_or_never().is_none());
    let left = Instant::now();
    drop(first);
    assert!(matches!(waits.await, Some(Turn::Head)));
    assert_eq!(left.elapsed(), Duration::ZERO, "it found out by itself");
}

/// How often somebody was woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_lock_goes_around_quickly_only_who_gets_it_is_woken() {
    let queues = Queues::new(Token::parse("nobody").unwrap(), |_| {});
    let key = Key::new("k");
    let places: Vec<_> = (0..3).map(|_| queues.join(&key, wish())).collect();
    let wakes: [Arc<Wakes>; 3] = Default::default();
    let mut turns: Vec<_> = places
        .iter()
        .map(|place| Box::pin(place.turn(None)))
        .collect();
    let mut poll = |at: usize| {
        let waker = Waker::from(wakes[at].clone());
        turns[at].as_mut().poll(&mut Context::from_waker(&waker))
    };
    let woken = |at: usize| wakes[at].0.load(Ordering::Relaxed);
    let take_head = || queues.take_head(&key, rest(Instant::now() + LONGEST_REST), |_| true);
    assert!((1..3).all(|at| poll(at).is_pending()));

    // The second need not hear that it is the first now: it looks by itself.
    take_head().unwrap();
    assert_eq!(woken(1), 0);
    tokio::time::advance(LONGEST_REST + Duration::from_millis(1)).await;
    assert_eq!(woken(1), 1);
    assert!(matches!(poll(1), Poll::Ready(Some(Turn::Head))));

    // The third did that in vain, and does it no more: it must be told.
    assert!(poll(2).is_pending());
    let before = woken(2);
    take_head().unwrap();
    assert_eq!(woken(2), before + 1);
    assert!(poll(2).is_pending(), "it rests");
}

#[tokio::test(start_paused = true)]
async fn one_who_would_look_too_late_is_woken_to_rest() {
    let queues = Queues::new(Token::parse("nobody").unwrap(), |_| {});
    let key = Key::new("k");
    let (_first, second) = (queues.join(&key, wish()), queues.join(&key, wish()));
    let length = Duration::from_millis(5);
    let started = Instant::now();
    let taking = async {
        tokio::time::sleep(length).await;
        queues.take_head(&key, rest(Instant::now() + length), |_| true)
    };
    let (turn, taken) = tokio::join!(second.turn(None), taking);
    assert!(matches!(turn, Some(Turn::Head)) && taken.is_some());
    // The timer counts in milliseconds.
    let waited = started.elapsed();
    assert!(waited >= 2 * length && waited < 3 * length, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_with_a_lease_lets_the_next_one_rest() {
    let queues = Queues::new(Token::parse("nobody").unwrap(), |_| {});
    let key = Key::new("k");
    let others: [_; 3] = std::array::from_fn(|_| queues.join(&key, wish()));
    let bounded = queues.join(&key, bounded());
    let [first, second, third] = others;
    let length = Duration::from_millis(30);
    let started = Instant::now();
    first.leave_with_lease(rest(started + length));
    assert_eq!(
        queues.count(&key),
        3,
        "it has left once, and nobody else has"
    );
    assert!(matches!(second.turn(None).await, Some(Turn::Head)));
    assert_eq!(started.elapsed(), length);

    // Up to when it can't be handed the lease any more.
    second.leave_with_lease(rest(Instant::now() + length));
    assert!(third.turn(None).now_or_never().is_none(), "it rests");
    queues.poke(&key);
    assert!(matches!(third.turn(None).await, Some(Turn::Head)));
    assert_eq!(started.elapsed(), length);

    // It needs a lease of its own.
    third.leave_with_lease(rest(Instant::now() + length));
    assert!(matches!(bounded.turn(None).await, Some(Turn::Head)));
    assert_eq!(started.elapsed(), length);
}
