//! Renews every lease of a client, and tells holders of a loss, from one task.

use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redlatch_core::{Loss, Step, Ttl};
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
    /// Those that are due at the same tick: in no order, so that one is taken
    /// out at once. Nothing may be left of them.
    leases: BTreeMap<Tick, Vec<Arc<Cell>>>,
    /// When the task will look again; never, when there is nothing.
    planned: Option<Tick>,
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

    /// The tick at which `wait` has passed. It comes later by up to a 256th of
    /// it, so that what is due at about the same time is done in one go. That is
    /// far less than the notice at which a holder is told of a loss.
    fn tick_after(&self, now: Instant, wait: Duration) -> Tick {
        let grain = 1 << (millis(wait) / 256).max(1).ilog2();
        let due = millis(now.duration_since(self.start) + wait) + 1;
        due.next_multiple_of(grain)
    }

    /// Puts a new lease in, and tells the task when it would look too late.
    fn put(&self, cell: &Arc<Cell>, clock: &dyn Clock) {
        let now = Instant::now();
        let mut inner = self.lock();
        let mut state = cell.lock();
        let due = match state.lease.next(clock.now()) {
            Step::Wait(wait) => self.tick_after(now, wait),
            Step::Renew(_) | Step::Lost(_) => self.tick(now),
        };
        inner.put(cell, &mut state, due);
        if inner.planned.is_none_or(|planned| due < planned) {
            self.wake.notify_one();
        }
    }

    fn remove(&self, cell: &Cell) {
        let mut inner = self.lock();
        let mut state = cell.lock();
        state.released = true;
        state.lease.release();
        let slot = state.slot;
        drop(state);
        inner.remove(cell, slot);
    }

    /// Does what is to be done about the leases that are due at `now`, or about
    /// all of them: adds those that are to be renewed to `waiting`.
    fn attend(
        &self,
        now: Instant,
        all: bool,
        clock: &dyn Clock,
        waiting: &mut VecDeque<(Arc<Cell>, Ttl)>,
    ) {
        let due = self.lock().take_due(match all {
            true => Tick::MAX,
            false => self.tick(now),
        });
        let mut due = due.into_iter().flatten().peekable();
        let mut lost = Vec::new();
        // In portions, so that nobody is kept waiting, and the time is right.
        while due.peek().is_some() {
            let (now, time) = (Instant::now(), clock.now());
            let mut inner = self.lock();
            for cell in due.by_ref().take(BATCH) {
                let mut state = cell.lock();
                if state.released {
                    continue;
                }
                let (wait, renewal) = state.attend(time);
                match wait {
                    Ok(wait) => inner.put(&cell, &mut state, self.tick_after(now, wait)),
                    Err(loss) => lost.push((cell.clone(), loss)),
                }
                drop(state);
                waiting.extend(renewal.map(|ttl| (cell, ttl)));
            }
        }
        for (cell, loss) in lost {
            cell.tell(loss);
        }
    }

    /// When to look again.
    fn plan(&self, now: Instant) -> Option<Instant> {
        let mut inner = self.lock();
        let heartbeat = self.tick(now) + millis(HEARTBEAT);
        inner.planned = inner.first_due().map(|first| first.min(heartbeat));
        let planned = inner.planned.map(Duration::from_millis);
        planned.map(|planned| self.start + planned)
    }
}

impl Inner {
    fn put(&mut self, cell: &Arc<Cell>, state: &mut State, due: Tick) {
        let cells = self.leases.entry(due).or_default();
        let place = cells.len() as u32;
        cells.push(cell.clone());
        state.slot = Slot { due, place };
    }

    /// Takes a lease out, if it is still where it was put.
    fn remove(&mut self, cell: &Cell, Slot { due, place }: Slot) {
        let at = place as usize;
        let Some(cells) = self.leases.get_mut(&due) else {
            return;
        };
        if cells.get(at).is_some_and(|found| ptr::eq(&**found, cell)) {
            cells.swap_remove(at);
            if let Some(moved) = cells.get(at) {
                moved.lock().slot.place = place;
            }
        }
    }

    fn take_due(&mut self, now: Tick) -> Vec<Vec<Arc<Cell>>> {
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

async fn keep(driver: Arc<Driver>, proposals: Arc<Proposals>, queue: Arc<Queue>) {
    let mut waiting: VecDeque<(Arc<Cell>, Ttl)> = VecDeque::new();
    let mut batches = FuturesUnordered::new();
    let mut healing = FuturesUnordered::new();
    let mut before = (Instant::now(), driver.now());
    loop {
        let now = Instant::now();
        let clock = driver.now();
        let jumped = clock.since(before.1) > now.duration_since(before.0) + JUMP;
        before = (now, clock);
        queue.attend(now, jumped, &**driver.clock(), &mut waiting);
        while batches.len() < BATCHES && !waiting.is_empty() {
            let size = waiting.len().min(BATCH);
            let batch = waiting.drain(..size).collect();
            batches.push(Renewal::send(&driver, batch).decide(&driver));
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
            Some(decided) = batches.next() => healing.push(decided.heal(&driver, &proposals)),
            Some(()) = healing.next() => {}
            () = queue.wake.notified() => {}
            () = look_again => {}
        }
    }
}
