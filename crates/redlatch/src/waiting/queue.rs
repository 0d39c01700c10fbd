//! Who waits in this process, in the order in which they came.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlatch_core::{Key, Terms};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::guard::Guard;

/// How long a new head trusts that the holder in its own process is quick.
const LONGEST_REST: Duration = Duration::from_millis(50);

/// The queues of a client, one for each lock that somebody waits for.
///
/// Only the head of a queue speaks to the nodes. A holder in the same process
/// that is done may hand its lease to the head, without a word to any node.
#[derive(Default)]
pub(crate) struct Queues {
    queues: Mutex<HashMap<Key, VecDeque<Arc<Seat>>>>,
}

/// What somebody who waits wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) terms: Terms,
    pub(crate) fencing: bool,
}

/// One who waits.
struct Seat {
    wish: Wish,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    is_head: bool,
    /// Until when there is no use in asking the nodes: one before us in this
    /// process has just got the lock, and may hand it on.
    rest: Option<Instant>,
    /// A lease that was handed over, until its new holder takes it.
    guard: Option<Guard>,
}

impl Queues {
    /// Whether anybody waits for this lock.
    pub(crate) fn is_waited_for(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    /// Takes the last place in the queue for this lock. It is left when the
    /// place is dropped.
    pub(crate) fn join(&self, key: &Key, wish: Wish) -> Place<'_> {
        let mut queues = self.lock();
        let queue = queues.entry(key.clone()).or_default();
        let seat = Arc::new(Seat {
            wish,
            state: Mutex::new(State {
                is_head: queue.is_empty(),
                ..State::default()
            }),
            changed: Notify::new(),
        });
        queue.push_back(seat.clone());
        Place {
            queues: self,
            key: key.clone(),
            seat,
        }
    }

    /// Takes the head out of the queue for this lock, to be handed a lease, if
    /// there is one whom `fits` accepts. The next one may `rest` a while before
    /// it asks the nodes: the lock is in good hands.
    pub(crate) fn take_head(
        &self,
        key: &Key,
        rest: Duration,
        fits: impl FnOnce(&Wish) -> bool,
    ) -> Option<Taken> {
        let mut queues = self.lock();
        let queue = queues.get_mut(key)?;
        queue.front().filter(|seat| fits(&seat.wish))?;
        let seat = queue.pop_front()?;
        promote(
            &mut queues,
            key,
            Some(Instant::now() + rest.min(LONGEST_REST)),
        );
        Some(Taken(seat))
    }

    /// A holder in this process gives the lock back to the nodes: the head need
    /// not rest any longer.
    pub(crate) fn poke(&self, key: &Key) {
        if let Some(head) = self.lock().get(key).and_then(VecDeque::front)
            && head.lock().rest.take().is_some()
        {
            head.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, VecDeque<Arc<Seat>>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who was taken out of the queue to be handed a lease.
pub(crate) struct Taken(Arc<Seat>);

impl Taken {
    /// Hands it over. One who has left meanwhile drops it, and so it goes to
    /// the next one.
    pub(crate) fn hand(self, guard: Guard) {
        self.0.lock().guard = Some(guard);
        self.0.changed.notify_one();
    }
}

/// Makes the first in the queue its head; a queue that nobody stands in leaves
/// nothing behind.
fn promote(queues: &mut HashMap<Key, VecDeque<Arc<Seat>>>, key: &Key, rest: Option<Instant>) {
    let Some(queue) = queues.get(key) else { return };
    let Some(first) = queue.front() else {
        queues.remove(key);
        return;
    };
    let mut state = first.lock();
    if !state.is_head {
        (state.is_head, state.rest) = (true, rest);
        first.changed.notify_one();
    }
}

impl Seat {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue for a lock, until it is dropped.
pub(crate) struct Place<'a> {
    queues: &'a Queues,
    key: Key,
    seat: Arc<Seat>,
}

/// What one who waits comes to.
pub(crate) enum Turn {
    /// It is the head of the queue: it may speak to the nodes.
    Head,
    /// It was handed the lock.
    Handed,
}

impl Place<'_> {
    /// Waits for our turn. Nothing when it does not come before the deadline.
    pub(crate) async fn turn(&self, deadline: Option<Instant>) -> Option<Turn> {
        loop {
            let rest = {
                let mut state = self.seat.lock();
                if state.guard.is_some() {
                    return Some(Turn::Handed);
                }
                state.rest = state.rest.filter(|rest| Instant::now() < *rest);
                if state.is_head && state.rest.is_none() {
                    return Some(Turn::Head);
                }
                state.rest
            };
            let wake = [rest, deadline].into_iter().flatten().min();
            let changed = self.seat.changed.notified();
            match wake {
                None => changed.await,
                Some(wake) => {
                    let slept = timeout_at(wake, changed).await.is_err();
                    if slept && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return self.is_handed().then_some(Turn::Handed);
                    }
                }
            }
        }
    }

    /// The guard that was handed over, if one was.
    pub(crate) fn handed(&self) -> Option<Guard> {
        self.seat.lock().guard.take()
    }

    /// Whether a guard was handed over and not yet taken.
    pub(crate) fn is_handed(&self) -> bool {
        self.seat.lock().guard.is_some()
    }

    /// Waits until a guard is handed over.
    pub(crate) async fn hand(&self) {
        while !self.is_handed() {
            self.seat.changed.notified().await;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        {
            let mut queues = self.queues.lock();
            if let Some(queue) = queues.get_mut(&self.key) {
                queue.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
            }
            promote(&mut queues, &self.key, None);
        }
        // Handed over and not taken: dropped, it goes to the next one.
        drop(self.handed());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use redlatch_core::Ttl;

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

    #[tokio::test]
    async fn turns_come_in_order_and_nothing_is_left_behind() {
        let queues = Queues::default();
        let key = Key::new("k");
        let first = queues.join(&key, wish());
        let second = queues.join(&key, wish());
        let third = queues.join(&key, wish());
        assert!(queues.is_waited_for(&key));
        assert!(matches!(first.turn(None).await, Some(Turn::Head)));
        let soon = Some(Instant::now() + Duration::from_millis(5));
        assert!(second.turn(soon).await.is_none());

        drop(second);
        drop(first);
        assert!(matches!(third.turn(None).await, Some(Turn::Head)));
        drop(third);
        assert!(!queues.is_waited_for(&key));
    }

    #[tokio::test]
    async fn a_place_that_is_left_wakes_the_next() {
        let queues = Queues::default();
        let key = Key::new("k");
        let (first, second) = (queues.join(&key, wish()), queues.join(&key, wish()));
        let waits = second.turn(None);
        tokio::pin!(waits);
        assert!(waits.as_mut().now_or_never().is_none());
        drop(first);
        assert!(matches!(waits.await, Some(Turn::Head)));
    }
}
