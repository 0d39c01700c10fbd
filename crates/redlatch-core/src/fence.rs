//! Ballots and fences: numbers that grow with every new holder of a lock.

use std::fmt;

use crate::request::Key;

/// The part of a fence that the nodes agree on: time in milliseconds, then ten
/// bits that tell apart what was proposed in the same millisecond.
///
/// A node grants a ballot only when it is higher than any that it has granted
/// in the same [slot] before. Two quorums share a node, so of two acquisitions
/// of which one completed before the other began, the later has the higher
/// ballot, whatever the clients' clocks say. Time is in it only so that a
/// proposal is usually high enough at once, and so that nodes which forgot
/// their slots can be told a [floor](crate::rules::Guard::floor).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot(u64);

impl Ballot {
    const TIE_BITS: u32 = 10;

    /// The highest ballot that a script's numbers can hold exactly.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The ballot for this millisecond; of `tie` the last ten bits count.
    pub fn at(millis: u64, tie: u64) -> Self {
        let scaled = millis.saturating_mul(1 << Self::TIE_BITS);
        Self((scaled | (tie & ((1 << Self::TIE_BITS) - 1))).min(Self::MAX.0))
    }

    /// A ballot from its number.
    pub fn new(number: u64) -> Self {
        Self(number.min(Self::MAX.0))
    }

    /// The lowest ballot above this one.
    pub fn next(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// The ballot as a number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The millisecond in it.
    pub fn millis(self) -> u64 {
        self.0 >> Self::TIE_BITS
    }
}

/// The ballots that were sent for one token: the highest, and whether there was
/// any other.
///
/// A node that has the token has granted one of them. Where there was only one,
/// the node's slot has it already, unless somebody has deleted the slots, and a
/// release has nothing to raise there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ballots {
    highest: Ballot,
    is_one: bool,
}

impl Ballots {
    /// This one, which is the first.
    pub fn one(ballot: Ballot) -> Self {
        Self {
            highest: ballot,
            is_one: true,
        }
    }

    /// This one, and maybe others below it.
    pub fn up_to(highest: Ballot) -> Self {
        Self {
            highest,
            is_one: false,
        }
    }

    /// This one is sent from now on, if it is higher.
    pub fn raise(&mut self, ballot: Ballot) {
        if ballot > self.highest {
            *self = Self::up_to(ballot);
        }
    }

    /// The highest of them.
    pub fn highest(self) -> Ballot {
        self.highest
    }

    /// Whether there is only one.
    pub fn is_one(self) -> bool {
        self.is_one
    }
}

/// A number that grows with every new holder of a lock; a resource refuses
/// anything lower than it has seen.
///
/// It fits a signed 64-bit integer, as databases have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    const HANDOFF_BITS: u32 = 10;

    /// How many holders can follow each other on one ballot.
    pub const HANDOVERS: u64 = (1 << Self::HANDOFF_BITS) - 1;

    /// The fence of the holder that won this ballot.
    pub fn of(ballot: Ballot) -> Self {
        Self(ballot.0 << Self::HANDOFF_BITS)
    }

    /// The fence of the next holder, to whom the lease is handed in the same
    /// process. Nothing when there have been too many on this ballot.
    pub fn handed_on(self) -> Option<Self> {
        (self.0 & Self::HANDOVERS < Self::HANDOVERS).then(|| Self(self.0 + 1))
    }

    /// A fence from its number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The ballot that it was won with.
    pub fn ballot(self) -> Ballot {
        Ballot::new(self.0 >> Self::HANDOFF_BITS)
    }

    /// The fence as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many slots a node keeps ballots in, however many locks there are.
pub const SLOTS: u32 = 1 << 16;

/// The slot of a lock: FNV-1a over the key, folded to 16 bits.
///
/// Locks that share a slot only cost each other one more round trip.
pub fn slot(key: &Key) -> u16 {
    let hash = key.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (hash >> 16) as u16 ^ hash as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_ballot_stays_one_until_a_higher_one_is_sent() {
        let (low, high) = (Ballot::at(1, 0), Ballot::at(2, 0));
        let mut ballots = Ballots::one(low);
        ballots.raise(low);
        assert_eq!(ballots, Ballots::one(low));
        ballots.raise(high);
        assert_eq!(ballots, Ballots::up_to(high));
        ballots.raise(low);
        assert_eq!(ballots, Ballots::up_to(high));
    }

    #[test]
    fn ballots_order_by_time_then_tie() {
        assert!(Ballot::at(2, 0) > Ballot::at(1, 1023));
        assert!(Ballot::at(1, 1) > Ballot::at(1, 0));
        assert_eq!(Ballot::at(1, 1024), Ballot::at(1, 0));
        assert_eq!(Ballot::at(7, 3).millis(), 7);
    }

    #[test]
    fn numbers_stay_exact_in_scripts_and_databases() {
        assert_eq!(Ballot::at(u64::MAX, u64::MAX).number(), (1 << 53) - 1);
        assert_eq!(Ballot::new(u64::MAX).next().number(), (1 << 53) - 1);
        assert!(Fence::of(Ballot::new(u64::MAX)).number() <= i64::MAX as u64);
        let year_2200 = 7_258_118_400_000;
        assert_eq!(Ballot::at(year_2200, 0).millis(), year_2200);
    }

    #[test]
    fn fences_grow_by_hand_over_and_never_reach_the_next_ballot() {
        let mut fence = Fence::of(Ballot::at(7, 0));
        let next = Fence::of(Ballot::at(7, 0).next());
        let mut count = 0;
        while let Some(higher) = fence.handed_on() {
            assert!(fence < higher && higher < next);
            assert_eq!(higher.ballot(), fence.ballot());
            fence = higher;
            count += 1;
        }
        assert_eq!(count, Fence::HANDOVERS);
    }

    #[test]
    fn slots_are_those_of_the_published_hash() {
        // FNV-1a 32 of "" is 811c9dc5, of "a" e40c292c, of "foobar" bf9cf968.
        assert_eq!(slot(&Key::new("")), 0x811c ^ 0x9dc5);
        assert_eq!(slot(&Key::new("a")), 0xe40c ^ 0x292c);
        assert_eq!(slot(&Key::new("foobar")), 0xbf9c ^ 0xf968);
    }
}
