//! Renews every lease of a client, and tells holders of a loss, from one task.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redlatch_core::{Instant as Time, Loss, Step, Ttl};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::driver::Driver;
use crate::lease::{Cell, State};
use crate::proposals::Proposals;
use crate::renewal::Renewal;

/// How often the clocks are compared while a lease is held. Timers stop while
/// a machine is suspended; this finds out soon after it goes on.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// By how much the holder's clock may run ahead of the timers before every
/// lease is looked at anew.
const JUMP: Duration = Duration::from_millis(20);

/// How many renewals are sent in one go, and how many such batches may be under
/// way: enough to keep a server busy, few enough to let other requests between.
const BATCH: usize = 256;
const BATCHES: usize = 4;

/// How many may be under way when leases have come so near to their end that
/// those few don't keep up: on a busy machine an answer takes long, however
/// little there is to do. What is held then counts for more than what is asked for.
const HURRIED_BATCHES: usize = 24;

/// Keeps the leases that it is given.
pub(crate) struct Keeper {
    queue: Arc<Queue>,
    task: AbortHandle,
}

impl Keeper {
    pub(crate) fn start(driver: Arc<Driver>, proposals: Arc<Proposals>) -> Self {
        let queue = Arc::new(Queue::new());
        let task = tokio::spawn(keep(driver, proposals, queue.clone())).abort_handle();
        Self { queue, task }
    }

    /// Keeps this lease from now on.
    pub(crate) fn watch(&self, cell: &Arc<Cell>) {
        self.queue.put(cell, cell.clock());
    }

    /// Keeps `next` in place of the lease that was handed on to it.
    pub(crate) fn replace(&self, cell: &Cell, next: &Arc<Cell>) {
        if !self.queue.replace(cell, next) {
            self.watch(next);
        }
        cell.tell(Loss::Released);
    }

    /// Has nothing more to do with this lease: its guard is gone.
    pub(crate) fn forget(&self, cell: &Cell) {
        self.queue.remove(cell);
        cell.tell(Loss::Released);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The leases in the order in which something is to be done about them.
struct Queue {
    inner: Mutex<Inner>,
    wake: Notify,
    /// What ticks are counted from.
    start: Instant,
}

#[derive(Default)]
struct Inner {
    /// By the tick at which they are due. One that is taken out leaves a gap, so
    /// that the others stay in their places; the last of them is never a gap.
    leases: BTreeMap<Tick, Vec<Option<Arc<Cell>>>>,
    /// When the task will look again; never, when there is nothing.
    planned: Option<Tick>,
    /// Whether a lease was put in since that was planned.
    used: bool,
}

/// Milliseconds since the keeper started.
type Tick = u64;

/// Where a lease was put: it may have been taken out since.
#[derive(Clone, Copy, Default)]
pub(crate) struct Slot {
    due: Tick,
    place: u32,
}

impl Queue {
    fn new() -> Self {
        Self {
            inner: Mutex::default(),
            wake: Notify::new(),
            start: Instant::now(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self, now: Instant) -> Tick {
        millis(now.duration_since(self.start))
    }

    /// The tick at which `wait` has passed.
    fn tick_after(&self, now: Instant, wait: Duration) -> Tick {
        millis(now.duration_since(self.start) + wait) + 1
    }

    /// When to look at a lease again after `wait`: later by up to a 256th of it,
    /// so that what is due at about the same time is done in one go, but never
    /// later than its holder is to be told of its end.
    fn due_after(&self, wait: Duration, state: &mut State, now: Instant, time: Time) -> Tick {
        let grain = 1 << (millis(wait) / 256).max(1).ilog2();
        let due = self.tick_after(now, wait).next_multiple_of(grain);
        let end = self.tick_after(now, state.lease.until_notice(time));
        due.min(end - end % grain)
    }

    /// Puts a new lease in, and tells the task when it would look too late. Says
    /// whether it was told.
    fn put(&self, cell: &Arc<Cell>, clock: &dyn Clock) -> bool {
        let now = Instant::now();
        let mut inner = self.lock();
        let mut state = cell.lock();
        let due = self.due(&mut state, now, clock.now());
        inner.put(cell, &mut state, due);
        let told = inner.planned.is_none_or(|planned| due < planned);
        if told {
            self.wake.notify_one();
        }
        told
    }

    /// Plans anew for leases whose renewal is decided.
    fn settle<'a>(&self, cells: impl Iterator<Item = &'a Arc<Cell>>, clock: &dyn Clock) {
        let (now, time) = (Instant::now(), clock.now());
        let mut inner = self.lock();
        for cell in cells {
            let mut state = cell.lock();
            state.renewing = false;
            if !state.is_released() {
                inner.remove(cell, state.slot);
                let due = self.due(&mut state, now, time);
                inner.put(cell, &mut state, due);
            }
        }
    }

    /// When something is to be done about a lease.
    fn due(&self, state: &mut State, now: Instant, time: Time) -> Tick {
        match state.lease.next(time) {
            Step::Wait(wait) => self.due_after(wait, state, now, time),
            Step::Renew(_) | Step::Lost(_) => self.tick(now),
        }
    }

    fn remove(&self, cell: &Cell) {
        let mut inner = self.lock();
        let mut state = cell.lock();
        state.release();
        inner.remove(cell, state.slot);
    }

    /// Puts `next` where this one was: when its terms are the same, and it is not
    /// being renewed, the same is due at the same time. False when it was taken
    /// out instead.
    fn replace(&self, cell: &Cell, next: &Arc<Cell>) -> bool {
        let mut inner = self.lock();
        let mut state = cell.lock();
        state.release();
        let mut next_state = next.lock();
        if let Some(place) = inner.find(cell, state.slot)
            && state.lease.terms() == next_state.lease.terms()
            && !state.renewing
        {
            *place = Some(next.clone());
            next_state.slot = state.slot;
            return true;
        }
        inner.remove(cell, state.slot);
        false
    }

    /// Does what is to be done about the leases that are due at `now`, or about
    /// all of them: adds those that are to be renewed to `waiting`.
    fn attend(&self, now: Instant, all: bool, clock: &dyn Clock, waiting: &mut Waiting) {
        let due = self.lock().take_due(match all {
            true => Tick::MAX,
            false => self.tick(now),
        });
        let mut due = due.into_iter().flatten().flatten().peekable();
        let mut lost = Vec::new();
        // In portions, so that nobody is kept waiting, and the time is right.
        while due.peek().is_some() {
            let (now, time) = (Instant::now(), clock.now());
            let mut inner = self.lock();
            for cell in due.by_ref().take(BATCH) {
                let mut state = cell.lock();
                if state.is_released() {
                    continue;
                }
                let (wait, renewal) = match state.attend(time) {
                    Ok(attended) => attended,
                    Err(loss) => {
                        drop(state);
                        lost.push((cell, loss));
                        continue;
                    }
                };
                let due = self.due_after(wait, &mut state, now, time);
                inner.put(&cell, &mut state, due);
                drop(state);
                if let Some(ttl) = renewal {
                    waiting.put(due, cell, ttl);
                }
            }
        }
        for (cell, loss) in lost {
            cell.tell(loss);
        }
    }

    /// When to look again.
    ///
    /// Once more when the last lease is gone: where many are taken and given back
    /// soon, one after the other, the task need not be told of each.
    fn plan(&self, now: Instant) -> Option<Instant> {
        let mut inner = self.lock();
        let heartbeat = self.tick(now) + millis(HEARTBEAT);
        let used = std::mem::take(&mut inner.used);
        inner.planned = match inner.first_due() {
            Some(first) => Some(first.min(heartbeat)),
            None => used.then_some(heartbeat),
        };
        let planned = inner.planned.map(Duration::from_millis);
        planned.map(|planned| self.start + planned)
    }
}

impl Inner {
    fn put(&mut self, cell: &Arc<Cell>, state: &mut State, due: Tick) {
        let cells = self.leases.entry(due).or_default();
        let place = cells.len() as u32;
        cells.push(Some(cell.clone()));
        state.slot = Slot { due, place };
        self.used = true;
    }

    /// Takes a lease out, if it is still where it was put.
    fn remove(&mut self, cell: &Cell, slot: Slot) {
        if let Some(found) = self.find(cell, slot) {
            *found = None;
        }
        let Some(cells) = self.leases.get_mut(&slot.due) else {
            return;
        };
        while let Some(None) = cells.last() {
            cells.pop();
        }
        if cells.is_empty() {
            // For the next lease that is due then; more are not to be expected.
            cells.shrink_to(4);
        }
    }

    /// Where a lease is, if it is still where it was put.
    fn find(&mut self, cell: &Cell, Slot { due, place }: Slot) -> Option<&mut Option<Arc<Cell>>> {
        let place = self.leases.get_mut(&due)?.get_mut(place as usize)?;
        place
            .as_ref()
            .is_some_and(|found| ptr::eq(&**found, cell))
            .then_some(place)
    }

    fn take_due(&mut self, now: Tick) -> Vec<Vec<Option<Arc<Cell>>>> {
        let mut due = Vec::new();
        while let Some(first) = self
            .leases
            .first_entry()
            .filter(|first| *first.key() <= now)
        {
            due.push(first.remove());
        }
        due
    }

    /// When the first lease is due. Those before it that are gone have left
    /// nothing, and room that the next one could have used until now.
    fn first_due(&mut self) -> Option<Tick> {
        loop {
            let first = self.leases.first_entry()?;
            match first.get().is_empty() {
                true => first.remove(),
                false => return Some(*first.key()),
            };
        }
    }
}

/// Leases that are to be renewed, by when their holders are told that they end:
/// the first to end goes first, since one that is late or short must not wait
/// behind many that have time.
#[derive(Default)]
struct Waiting {
    leases: BTreeMap<Tick, Vec<(Arc<Cell>, Ttl)>>,
}

impl Waiting {
    fn put(&mut self, end: Tick, cell: Arc<Cell>, ttl: Ttl) {
        self.leases.entry(end).or_default().push((cell, ttl));
    }

    /// How many batches may be under way.
    fn most_batches(&self, now: Tick) -> usize {
        let Some((end, leases)) = self.leases.first_key_value() else {
            return 0;
        };
        // They are due when two thirds are left.
        let late = |ttl: Ttl| end.saturating_sub(now) < ttl.millis() / 2;
        match leases.first().is_some_and(|(_, ttl)| late(*ttl)) {
            true => HURRIED_BATCHES,
            false => BATCHES,
        }
    }

    fn next_batch(&mut self) -> Vec<(Arc<Cell>, Ttl)> {
        let mut batch = Vec::with_capacity(BATCH);
        while let Some(mut first) = self.leases.first_entry() {
            let leases = first.get_mut();
            let rest = leases.len().saturating_sub(BATCH - batch.len());
            batch.extend(leases.drain(rest..));
            if rest > 0 {
                break;
            }
            first.remove();
        }
        batch
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

async fn keep(driver: Arc<Driver>, proposals: Arc<Proposals>, queue: Arc<Queue>) {
    let mut waiting = Waiting::default();
    let mut batches = FuturesUnordered::new();
    let mut healing = FuturesUnordered::new();
    let mut before = (Instant::now(), driver.now());
    loop {
        let now = Instant::now();
        let clock = driver.now();
        let jumped = clock.since(before.1) > now.duration_since(before.0) + JUMP;
        before = (now, clock);
        queue.attend(now, jumped, &**driver.clock(), &mut waiting);
        while batches.len() < waiting.most_batches(queue.tick(now)) {
            let renewal = Renewal::send(&driver, waiting.next_batch());
            batches.extend(renewal.map(|renewal| renewal.decide(&driver)));
        }
        let look_again = async {
            match queue.plan(Instant::now()) {
                Some(planned) => tokio::time::sleep_until(planned).await,
                None => std::future::pending().await,
            }
        };
        // What is under way comes first, and is bounded by what is handed in.
        tokio::select! {
            biased;
            Some(decided) = batches.next() => {
                queue.settle(decided.cells(), &**driver.clock());
                healing.push(decided.heal(&driver, &proposals));
            }
            Some(()) = healing.next() => {}
            () = queue.wake.notified() => {}
            () = look_again => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use redlatch_core::{Key, Lease, Terms, Token};

    use super::*;
    use crate::clock::SystemClock;

    fn cell() -> Arc<Cell> {
        cell_with(true)
    }

    fn cell_with(renewal: bool) -> Arc<Cell> {
        let terms = Terms {
            ttl: Ttl::new(Duration::from_secs(10)).unwrap(),
            renewal,
            max_hold: None,
        };
        let (key, token) = (Key::new("k"), Token::parse("t").unwrap());
        let lease = Lease::granted(terms, SystemClock.now(), terms.ttl);
        Cell::new("k".into(), key, token, None, Arc::new(SystemClock), lease)
    }

    #[test]
    fn the_task_is_not_told_of_each_lease_that_is_given_back_soon() {
        let queue = Queue::new();
        let now = Instant::now();
        let cycle = || {
            let cell = cell();
            let told = queue.put(&cell, &SystemClock);
            queue.remove(&cell);
            told
        };
        assert!(cycle(), "nobody looks without being told");
        // Told, it comes too late to see the lease.
        assert!(queue.plan(now).is_some());
        assert!(!cycle() && !cycle(), "it will look by itself");
        assert!(queue.plan(now).is_some());
        assert_eq!(queue.plan(now), None, "nothing was put in meanwhile");
        assert!(cycle());
    }

    #[test]
    fn a_lease_that_is_handed_on_keeps_its_place() {
        let queue = Queue::new();
        let (cell, next, last) = (cell(), cell(), cell());
        queue.put(&cell, &SystemClock);
        let due = queue.lock().first_due();
        assert!(queue.replace(&cell, &next));
        assert!(cell.lock().is_released());
        assert_eq!(queue.lock().first_due(), due);
        queue.remove(&next);
        assert_eq!(queue.lock().first_due(), None);

        // What is under way for one of them is not the affair of the other.
        queue.put(&next, &SystemClock);
        next.lock().renewing = true;
        assert!(!queue.replace(&next, &last));
        assert_eq!(queue.lock().first_due(), None);
    }

    #[test]
    fn a_lease_that_is_handed_on_with_other_terms_is_planned_anew() {
        let queue = Queue::new();
        let (cell, next) = (cell_with(false), cell());
        // Not to be renewed: something is to be done at its end.
        queue.put(&cell, &SystemClock);
        assert!(!queue.replace(&cell, &next));
        assert_eq!(queue.lock().first_due(), None);
    }

    #[test]
    fn a_lease_that_is_being_looked_at_has_no_place() {
        let queue = Queue::new();
        let (cell, next) = (cell(), cell());
        queue.put(&cell, &SystemClock);
        let taken = queue.lock().take_due(Tick::MAX);
        assert_eq!(taken.len(), 1);
        assert!(!queue.replace(&cell, &next));
        assert_eq!(queue.lock().first_due(), None);
    }
}
