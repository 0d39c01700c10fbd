//! How large a run of the model is, and how its time maps to milliseconds.

use std::time::Duration;

use redlatch_core::{Ballot, Instant, Ttl};

use crate::force::ForceRule;
use crate::variant::Variant;

/// The milliseconds in one tick of the model's time.
///
/// With a ttl just short of two ticks, a lease is valid in the tick it was
/// asked for and in the next, and its key is gone at the one after: nothing is
/// lost by rounding. A quarantine (11,999 ms) ends at the third tick, and a
/// ballot may be one tick ahead (5,999 ms).
pub const TICK: u64 = 5_000;

/// The ttl of every lease, and the longest that the nodes allow.
pub const TTL: u64 = 2 * TICK - 1;

/// The node clocks' reading at tick 0: late enough for client clocks far behind.
const START: u64 = 100 * TICK;

/// When the nodes were armed: so early that their floor is below any proposal.
pub(crate) const ARMED: u64 = TICK;

/// What happens in a run at most. Every number is a budget over the whole run.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many nodes there are.
    pub nodes: usize,
    /// The last tick.
    pub ticks: u8,
    /// What the clients' wall clocks may be: each pair is a way to begin.
    pub clocks: Vec<[Clock; 2]>,
    /// How many tokens each client asks for.
    pub attempts: [u8; 2],
    /// How often each attempt proposes again after LOW.
    pub proposals: u8,
    /// How many rounds of EXTEND each lease gets.
    pub extends: u8,
    /// How many times a holder sends REJOIN to the nodes that have lost its key.
    pub rejoins: u8,
    /// How many times a client sends the ACQUIREs of its attempt once more.
    pub resends: u8,
    /// How many times a node restarts or is emptied.
    pub crashes: u8,
    /// In which ways.
    pub kinds: Vec<Crash>,
    /// How many times an administrator takes the lock away.
    pub forces: u8,
    /// What a node does then.
    pub force: ForceRule,
    /// The administrator's wall clock.
    pub administrator: Clock,
    /// For how many ticks after it was sent a FORCE counts what nodes answer.
    pub force_window: u8,
    /// How many times a stranger deletes the key on one node.
    pub deletes: u8,
    /// How many times a stranger deletes the key on all nodes at once.
    pub wipes: u8,
    /// Whether holders release, or just vanish.
    pub releases: bool,
    /// The rules as they are, or broken in one way.
    pub variant: Variant,
    /// Whether to check what goes beyond the promises: that a lease is not
    /// extended once another one has been won after it.
    pub superseded: bool,
    /// Whether to check that what was released on a node stays released there.
    pub strays: bool,
    /// Whether nodes that have the same role count as the same state. Traces
    /// are easier to read without: with it, nodes change places.
    pub symmetry: bool,
}

impl Config {
    /// Two clients that ask once each, over so many nodes, and nothing goes
    /// wrong but messages: the least that is of interest.
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes,
            ticks: 2,
            clocks: vec![[Clock::Right, Clock::Right]],
            attempts: [1, 1],
            proposals: 0,
            extends: 0,
            rejoins: 0,
            resends: 0,
            crashes: 0,
            kinds: Crash::ALL.to_vec(),
            forces: 0,
            force: ForceRule::ByBallot,
            administrator: Clock::Right,
            force_window: 0,
            deletes: 0,
            wipes: 0,
            releases: false,
            variant: Variant::None,
            superseded: false,
            strays: false,
            symmetry: true,
        }
    }
}

/// How wrong a client's wall clock is. Ballots are made from it, leases are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// So far behind that its ballots are low for the whole run.
    Behind,
    /// As the nodes' clocks.
    Right,
    /// Ahead by one tick, as far as the nodes tolerate.
    Ahead,
    /// Ahead by more than the nodes tolerate.
    Wild,
}

impl Clock {
    /// The ballot that a client with this clock proposes.
    pub(crate) fn ballot(self, now: u8) -> Ballot {
        // No tie: two clients that propose in the same millisecond propose the same.
        let now = millis(now);
        Ballot::at(
            match self {
                Self::Behind => now - 40 * TICK,
                Self::Right => now,
                Self::Ahead => now + TICK,
                Self::Wild => now + 20 * TICK,
            },
            0,
        )
    }
}

/// What becomes of a node's memory when it goes down and comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Crash {
    /// It restarts with all its data: only its run is new.
    Kept,
    /// It restarts empty.
    Emptied,
    /// It restarts with what it had at the beginning of this tick.
    RolledBack,
    /// FLUSHALL: everything is gone, its guard too, and the run is the same.
    Flushed,
}

impl Crash {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Kept, Self::Emptied, Self::RolledBack, Self::Flushed];
}

/// The node clocks' reading at a tick.
pub(crate) fn millis(tick: u8) -> u64 {
    START + u64::from(tick) * TICK
}

/// The same on the clock by which a holder counts its lease.
pub(crate) fn instant(tick: u8) -> Instant {
    let reading = Duration::from_millis(millis(tick));
    Instant::new(reading, reading)
}

/// [`TTL`] as the rules want it.
pub(crate) fn ttl() -> Ttl {
    Ttl::new(Duration::from_millis(TTL)).expect("a ttl of some seconds is allowed")
}

/// A ballot as a person reads it: its tick, and how much is above that.
pub(crate) fn show(ballot: Ballot) -> String {
    let ticks = ballot.millis() as f64 / TICK as f64 - START as f64 / TICK as f64;
    let above = ballot.number() - Ballot::at(ballot.millis(), 0).number();
    match above {
        0 => format!("{ticks}"),
        above => format!("{ticks}+{above}"),
    }
}
