//! What everything in one simulation shares: the true time, the network, the
//! clocks, and the trace.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlatch_core::Instant;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::random::Random;

/// The time of day at which every simulation begins, in microseconds.
const BEGIN: u64 = 1_700_000_000_000_000;

#[derive(Debug)]
pub(crate) struct World {
    start: tokio::time::Instant,
    state: Mutex<State>,
    changed: Notify,
    /// Whether the lines of the trace are kept, and not just their hash.
    keep_trace: bool,
}

#[derive(Debug)]
struct State {
    random: Random,
    links: Vec<Vec<Path>>,
    hash: u64,
    trace: Vec<String>,
}

/// How one client's messages to one node fare, and the replies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    /// So many faults hold up what is sent, and what is answered.
    pub(crate) to: u32,
    pub(crate) from: u32,
    /// The longest delay in milliseconds that faults add.
    pub(crate) slow: u64,
}

impl World {
    pub(crate) fn new(seed: u64, clients: usize, nodes: usize, keep_trace: bool) -> Arc<Self> {
        Arc::new(Self {
            start: tokio::time::Instant::now(),
            state: Mutex::new(State {
                random: Random::new(seed, 1),
                links: vec![vec![Path::default(); nodes]; clients],
                hash: 0xcbf2_9ce4_8422_2325,
                trace: Vec::new(),
            }),
            changed: Notify::new(),
            keep_trace,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The true time since the beginning, in microseconds.
    pub(crate) fn micros(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Notes what happened: the same seed gives the same trace.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        let line = format!("{:>9} {}", self.micros(), line());
        let mut state = self.lock();
        for byte in line.bytes() {
            state.hash = (state.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if self.keep_trace {
            state.trace.push(line);
        }
    }

    pub(crate) fn trace(&self) -> (u64, Vec<String>) {
        let mut state = self.lock();
        (state.hash, std::mem::take(&mut state.trace))
    }

    /// Changes the path between a client and a node.
    pub(crate) fn change(&self, client: usize, node: usize, change: impl FnOnce(&mut Path)) {
        change(&mut self.lock().links[client][node]);
        self.changed.notify_waiters();
    }

    /// When a message that is sent now arrives, if nothing holds it up.
    pub(crate) fn arrival(&self, client: usize, node: usize) -> tokio::time::Instant {
        let mut state = self.lock();
        let slow = state.links[client][node].slow;
        let mut delay = state.random.pick(&[0, 0, 0, 1, 1, 2]);
        if slow > 0 {
            delay += state.random.between(0, slow);
        }
        tokio::time::Instant::now() + Duration::from_millis(delay)
    }

    /// Waits while messages on this path are held up.
    pub(crate) async fn pass(&self, client: usize, node: usize, to: bool) {
        loop {
            let changed = self.changed.notified();
            let path = self.lock().links[client][node].clone();
            if (if to { path.to } else { path.from }) == 0 {
                return;
            }
            changed.await;
        }
    }

    /// The same for a new connection, which needs both ways.
    pub(crate) async fn shake_hands(&self, client: usize, node: usize) {
        self.pass(client, node, true).await;
        self.pass(client, node, false).await;
        let arrival = self.arrival(client, node);
        tokio::time::sleep_until(arrival).await;
    }
}

/// A clock that runs at its own rate, and may be stepped.
#[derive(Debug)]
pub(crate) struct Ticker {
    world: Arc<World>,
    /// In millionths of the true rate.
    rate: u64,
    /// What it shows more than the true time; first that since boot, then that
    /// of the day.
    ahead: Mutex<(i64, i64)>,
}

impl Ticker {
    pub(crate) fn new(
        world: &Arc<World>,
        random: &mut Random,
        most_ahead_millis: u64,
    ) -> Arc<Self> {
        let most = most_ahead_millis * 1000;
        let ahead = random.between(0, 2 * most) as i64 - most as i64;
        Arc::new(Self {
            world: world.clone(),
            // Two clocks differ by less than the drift margin of 1 %.
            rate: random.between(997_000, 1_003_000),
            ahead: Mutex::new((0, ahead)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, (i64, i64)> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Steps the time since boot and the time of day, in milliseconds.
    pub(crate) fn step(&self, boot: i64, day: i64) {
        let mut ahead = self.lock();
        *ahead = (ahead.0 + boot * 1000, ahead.1 + day * 1000);
    }

    fn ticked(&self) -> u64 {
        (u128::from(self.world.micros()) * u128::from(self.rate) / 1_000_000) as u64
    }

    /// The time of day, in microseconds.
    pub(crate) fn day_micros(&self) -> u64 {
        (BEGIN + self.ticked()).saturating_add_signed(self.lock().1)
    }
}

impl redlatch::Clock for Ticker {
    fn now(&self) -> Instant {
        let boot = self.ticked().saturating_add_signed(self.lock().0);
        let [boot, day] = [boot, self.day_micros()].map(Duration::from_micros);
        Instant::new(boot, day)
    }
}

/// Holds up what a client does while it is paused.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    opened: Notify,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::Relaxed);
        self.opened.notify_waiters();
    }

    pub(crate) async fn pass(&self) {
        loop {
            let opened = self.opened.notified();
            if !self.closed.load(Ordering::Relaxed) {
                return;
            }
            opened.await;
        }
    }
}

/// Sleeps for so many milliseconds of true time.
pub(crate) async fn rest(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}
