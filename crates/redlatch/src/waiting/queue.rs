//! Who waits in this process, in the order in which they came.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlatch_core::{Ballot, Key, Terms, Ticket, Token, Ttl};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::contended::Contended;
use crate::attempt::Parked;
use crate::guard::Guard;
use crate::reaper::Orphan;

/// How long a new head trusts that the holder in its own process is quick, and
/// for how long one who has just come looks by itself whether it is the head.
pub(crate) const LONGEST_REST: Duration = Duration::from_millis(50);

/// The queues of a client, one for each lock that somebody waits for.
///
/// Only the head of a queue speaks to the nodes, for all in it: they share one
/// place in the queues of the nodes. A holder in the same process that is done
/// may hand its lease to the head, without a word to any node.
pub(crate) struct Queues {
    queues: Mutex<HashMap<Key, Queue>>,
    /// How many there are: mostly none, and then nobody need lock them.
    number: AtomicUsize,
    /// Gives up a place in the queues of the nodes.
    leave: Box<dyn Fn(Orphan) + Send + Sync>,
    /// A token that names no lease.
    nobody: Token,
    contended: Contended,
}

/// Those who wait for one lock.
#[derive(Default)]
struct Queue {
    seats: VecDeque<Arc<Seat>>,
    /// Their place in the queues of the nodes, if they have one, and how it is
    /// given up.
    place: Option<(Ticket, Orphan)>,
    /// What they have asked for and may still get.
    parked: Option<Parked>,
}

impl Queue {
    fn join(&mut self, wish: Wish) -> Arc<Seat> {
        let seat = Arc::new(Seat {
            wish,
            state: Mutex::new(State {
                is_head: self.seats.is_empty(),
                ..State::default()
            }),
            changed: Notify::new(),
        });
        self.seats.push_back(seat.clone());
        seat
    }

    /// Whether this was parked by the attempt with this order and the ticket of now.
    fn was_last(&self, parked: &Parked, order: u64) -> bool {
        let ticket = self.place.as_ref().map(|(ticket, _)| &ticket.name);
        parked.order == order && ticket == Some(&parked.ticket)
    }

    /// Takes out what is to be given up on the nodes when nobody waits any more.
    fn take_orphan(&mut self, key: &Key) -> Option<Orphan> {
        let place = self.place.take();
        match self.parked.take() {
            Some(parked) => {
                let ticket = place.map(|(ticket, _)| ticket.name);
                Some(parked.orphan(key).with(ticket))
            }
            None => place.map(|(_, orphan)| orphan),
        }
    }
}

/// What somebody who waits wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) terms: Terms,
    pub(crate) fencing: bool,
}

impl Wish {
    /// Whether a lease like this will do, when it is handed over. For another ttl, or
    /// a bound of its own, it needs a lease of its own.
    pub(crate) fn is_met_by(&self, ttl: Ttl, fencing: bool) -> bool {
        let terms = &self.terms;
        let is_same = terms.ttl == ttl && self.fencing == fencing;
        is_same && terms.renewal && terms.max_hold.is_none()
    }
}

/// Somebody in this process has got the lock: until when the next one need not ask
/// the nodes, if it is to be handed a lease like this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub(crate) until: Instant,
    pub(crate) ttl: Ttl,
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
    /// When it looks by itself: it need not be woken for a rest that ends later.
    looks_at: Option<Instant>,
    /// Whether it is out of the queue: to be handed a lease, or with one that it won.
    is_taken: bool,
    /// A lease that was handed over, until its new holder takes it.
    guard: Option<Guard>,
    /// A place in the queues of the nodes that nobody needs any more, once we
    /// are done: a request of ours that asks for it may still be under way.
    leaves: Option<Orphan>,
}

impl Queues {
    /// Queues that nobody stands in; `leave` gives up a place in the queues of
    /// the nodes, by a token that names no lease.
    pub(crate) fn new(nobody: Token, leave: impl Fn(Orphan) + Send + Sync + 'static) -> Self {
        Self {
            queues: Mutex::default(),
            number: AtomicUsize::new(0),
            leave: Box::new(leave),
            nobody,
            contended: Contended::default(),
        }
    }

    /// A lock that others want too is given back.
    pub(crate) fn note_contended(&self, key: &Key) {
        self.contended.note(key);
    }

    /// Whether others wanted this lock too when we gave it back just now, so
    /// that it is best to stand in the queue from the start.
    pub(crate) fn is_contended(&self, key: &Key) -> bool {
        self.contended.is_noted(key)
    }

    /// How many wait for this lock.
    pub(crate) fn count(&self, key: &Key) -> usize {
        self.lock().get(key).map_or(0, |queue| queue.seats.len())
    }

    /// Takes the last place in the queue for this lock. It is left when the
    /// place is dropped.
    pub(crate) fn join(&self, key: &Key, wish: Wish) -> Place<'_> {
        let mut queues = self.lock();
        let seat = queues.entry(key.clone()).or_default().join(wish);
        self.number.store(queues.len(), Ordering::Release);
        Place {
            queues: self,
            key: key.clone(),
            seat,
        }
    }

    /// The same, if anybody waits for this lock.
    pub(crate) fn join_others(&self, key: &Key, wish: Wish) -> Option<Place<'_>> {
        if !self.are_any() {
            return None;
        }
        let seat = self.lock().get_mut(key)?.join(wish);
        let (queues, key) = (self, key.clone());
        Some(Place { queues, key, seat })
    }

    /// Takes the head out of the queue for this lock, to be handed a lease, if
    /// there is one whom `fits` accepts. The next one rests.
    pub(crate) fn take_head(
        &self,
        key: &Key,
        rest: Rest,
        fits: impl FnOnce(&Wish) -> bool,
    ) -> Option<Taken> {
        self.change(key, Some(rest), |queue| {
            queue.seats.front().filter(|seat| fits(&seat.wish))?;
            let seat = queue.seats.pop_front()?;
            let mut state = seat.lock();
            state.is_taken = true;
            if queue.seats.is_empty() {
                state.leaves = queue.take_orphan(key);
            }
            drop(state);
            Some(Taken(seat))
        })
    }

    /// A holder in this process gives the lock back to the nodes, or will hand it to
    /// nobody: the head need not rest any longer.
    pub(crate) fn poke(&self, key: &Key) {
        if self.are_any()
            && let Some(head) = self.lock().get(key).and_then(|queue| queue.seats.front())
            && head.lock().rest.take().is_some()
        {
            head.changed.notify_one();
        }
    }

    /// Changes who waits for this lock, and makes the first of them the head. A
    /// queue that nobody stands in leaves nothing behind, here and on the nodes.
    fn change<T>(
        &self,
        key: &Key,
        rest: Option<Rest>,
        change: impl FnOnce(&mut Queue) -> Option<T>,
    ) -> Option<T> {
        if !self.are_any() {
            return None;
        }
        let mut queues = self.lock();
        let queue = queues.get_mut(key)?;
        let changed = change(queue);
        if let Some(first) = queue.seats.front() {
            let mut state = first.lock();
            if !state.is_head {
                let will_do = |rest: &Rest| first.wish.is_met_by(rest.ttl, rest.fencing);
                let rest = rest.filter(will_do).map(|rest| rest.until);
                state.is_head = true;
                state.rest = rest;
                // Where the lock goes around quickly, it is handed over before
                // the next one looks: one task is woken for each, not two.
                if state.looks_at.is_none_or(|looks_at| rest < Some(looks_at)) {
                    first.changed.notify_one();
                }
            }
            return changed;
        }
        let orphan = queues.remove(key);
        self.number.store(queues.len(), Ordering::Release);
        let orphan = orphan.and_then(|mut queue| queue.take_orphan(key));
        drop(queues);
        if let Some(orphan) = orphan {
            (self.leave)(orphan);
        }
        changed
    }

    /// Whether anybody waits for any lock. One who comes just now asks the nodes.
    fn are_any(&self) -> bool {
        self.number.load(Ordering::Acquire) > 0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Queue>> {
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
        // Once, to see whether we have become the head meanwhile.
        let mut look_after = Some(LONGEST_REST);
        loop {
            let look_at = {
                let mut state = self.seat.lock();
                if state.guard.is_some() {
                    return Some(Turn::Handed);
                }
                let now = Instant::now();
                state.rest = state.rest.filter(|rest| now < *rest);
                if state.is_head && state.rest.is_none() {
                    return Some(Turn::Head);
                }
                state.looks_at = look_after.take().map(|after| now + after);
                state.rest.or(state.looks_at)
            };
            let wake = [look_at, deadline].into_iter().flatten().min();
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

    /// A place in the queues of the nodes is about to be asked for, or asked for
    /// again: the one of those who wait here, or else a new one.
    pub(crate) fn enrol(&self, ttl: Ttl, new: impl FnOnce() -> Ticket) -> Option<Ticket> {
        let mut queues = self.queues.lock();
        let queue = queues.get_mut(&self.key)?;
        let ticket = queue.place.take().map_or_else(new, |(ticket, _)| ticket);
        // No lease is meant by it: an attempt of ours may just win one.
        let nobody = &self.queues.nobody;
        let orphan = Orphan::new(&self.key, nobody, ttl, None).with(Some(ticket.name.clone()));
        queue.place = Some((ticket.clone(), orphan));
        Some(ticket)
    }

    /// A request of ours is parked: those after us take it up should we leave.
    /// Gives back what nobody will take up: an older one, or this one when
    /// nobody waits any more.
    pub(crate) fn park(&self, parked: Parked) -> Option<Parked> {
        let mut queues = self.queues.lock();
        match queues.get_mut(&self.key).map(|queue| &mut queue.parked) {
            Some(Some(newer)) if newer.order > parked.order => Some(parked),
            Some(place) => place.replace(parked),
            None => Some(parked),
        }
    }

    /// Whether this was parked by the attempt with this order, and with the ticket
    /// that those who wait here still have: then the next one takes its place.
    pub(crate) fn was_last(&self, parked: &Parked, order: u64) -> bool {
        let queues = self.queues.lock();
        let queue = queues.get(&self.key);
        queue.is_some_and(|queue| queue.was_last(parked, order))
    }

    /// The ballot that was proposed by the attempt with this order, and when, if
    /// it is worth to be proposed again.
    pub(crate) fn proposed(&self, order: u64, turn: Duration) -> Option<(Ballot, Instant)> {
        let queues = self.queues.lock();
        let queue = queues.get(&self.key)?;
        let parked = queue.parked.as_ref()?;
        let was_last = queue.was_last(parked, order);
        was_last.then(|| parked.proposed(turn)).flatten()
    }

    /// Does something with what is parked, if anything is.
    pub(crate) fn parked<T>(&self, act: impl FnOnce(&mut Parked) -> T) -> Option<T> {
        let mut queues = self.queues.lock();
        queues.get_mut(&self.key)?.parked.as_mut().map(act)
    }

    /// What is parked, if it is the one. Whoever takes it sees to it that it is
    /// used or given back.
    pub(crate) fn take_parked(&self, is: impl Fn(&Parked) -> bool) -> Option<Parked> {
        let mut queues = self.queues.lock();
        let parked = &mut queues.get_mut(&self.key)?.parked;
        parked.take_if(|parked| is(parked))
    }

    /// Our turn has come on the nodes: those after us take a new place there.
    pub(crate) fn served(&self) {
        if let Some(queue) = self.queues.lock().get_mut(&self.key) {
            queue.place = None;
        }
    }

    /// Leaves the queue with a lease that was won. The next one rests.
    pub(crate) fn leave_with_lease(self, rest: Rest) {
        self.leave(Some(rest));
        self.seat.lock().is_taken = true;
    }

    fn leave(&self, rest: Option<Rest>) {
        let strike = |queue: &mut Queue| queue.seats.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
        if planted!(WakeUpLost) {
            if let Some(queue) = self.queues.lock().get_mut(&self.key) {
                strike(queue);
            }
            return;
        }
        self.queues.change(&self.key, rest, |queue| {
            strike(queue);
            Some(())
        });
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
        if !self.seat.lock().is_taken {
            self.leave(None);
        }
        // Nobody takes it out any more, if nobody has.
        let mut state = self.seat.lock();
        let (leaves, unwanted) = (state.leaves.take(), state.guard.take());
        drop(state);
        if let Some(leaves) = leaves {
            (self.queues.leave)(leaves);
        }
        // Handed over and not taken: dropped, it goes to the next one.
        drop(unwanted);
    }
}
