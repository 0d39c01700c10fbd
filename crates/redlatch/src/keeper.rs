//! Renews every lease of a client, and tells holders of a loss, from one task.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redlatch_core::{Loss, Step, Ttl};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::driver::Driver;
use crate::lease::Cell;
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
        let queue = Arc::new(Queue::default());
        let task = tokio::spawn(keep(driver, proposals, queue.clone())).abort_handle();
        Self { queue, task }
    }

    /// Keeps this lease from now on.
    pub(crate) fn watch(&self, cell: &Arc<Cell>) {
        let earlier = match cell.step() {
            Step::Wait(wait) => self.queue.put(cell, Instant::now() + wait),
            Step::Renew(_) => self.queue.put(cell, Instant::now()),
            Step::Lost(_) => false,
        };
        if earlier {
            self.queue.wake.notify_one();
        }
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
#[derive(Default)]
struct Queue {
    inner: Mutex<Inner>,
    wake: Notify,
}

#[derive(Default)]
struct Inner {
    leases: BTreeMap<(Instant, u64), Arc<Cell>>,
    /// Tells leases apart that are due at the same instant.
    next: u64,
    /// When the task will look again; never, when there is nothing.
    planned: Option<Instant>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a lease in; true when the task must be told, because it would look
    /// too late.
    fn put(&self, cell: &Arc<Cell>, due: Instant) -> bool {
        let mut inner = self.lock();
        let mut state = cell.lock();
        if state.released {
            return false;
        }
        let slot = (due, inner.next);
        inner.next += 1;
        inner.leases.insert(slot, cell.clone());
        state.slot = Some(slot);
        inner.planned.is_none_or(|planned| due < planned)
    }

    fn remove(&self, cell: &Cell) {
        let mut inner = self.lock();
        let mut state = cell.lock();
        state.released = true;
        state.lease.release();
        if let Some(slot) = state.slot.take() {
            inner.leases.remove(&slot);
        }
    }

    /// Takes out what is due at `now`, or all of it.
    fn take_due(&self, now: Instant, all: bool) -> Vec<Arc<Cell>> {
        let mut inner = self.lock();
        let later = match all {
            true => BTreeMap::new(),
            false => inner.leases.split_off(&(now + Duration::from_nanos(1), 0)),
        };
        let due = std::mem::replace(&mut inner.leases, later);
        due.into_values()
            .inspect(|cell| cell.lock().slot = None)
            .collect()
    }

    /// When to look again.
    fn plan(&self, now: Instant) -> Option<Instant> {
        let mut inner = self.lock();
        let first = inner.leases.first_key_value().map(|((due, _), _)| *due);
        inner.planned = first.map(|first| first.min(now + HEARTBEAT));
        inner.planned
    }
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
        for cell in queue.take_due(now, jumped) {
            attend(cell, &driver, &queue, &mut waiting);
        }
        while batches.len() < BATCHES && !waiting.is_empty() {
            let size = waiting.len().min(BATCH);
            let batch = waiting.drain(..size).collect();
            batches.push(Renewal::send(&driver, batch).decide());
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

/// Does what is to be done about one lease, and puts it back into the queue.
fn attend(
    cell: Arc<Cell>,
    driver: &Driver,
    queue: &Queue,
    waiting: &mut VecDeque<(Arc<Cell>, Ttl)>,
) {
    loop {
        match cell.step() {
            Step::Wait(wait) => {
                // A timer has a resolution of a millisecond: never spin on less.
                let wait = wait.max(Duration::from_millis(1));
                queue.put(&cell, Instant::now() + wait);
                return;
            }
            Step::Renew(ttl) => {
                let mut state = cell.lock();
                state.lease.extending(driver.now());
                let renewing = std::mem::replace(&mut state.renewing, true);
                drop(state);
                if !renewing {
                    waiting.push_back((cell.clone(), ttl));
                }
            }
            Step::Lost(_) => return,
        }
    }
}
