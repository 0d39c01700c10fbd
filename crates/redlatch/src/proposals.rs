//! Which ballots a client proposes.

use std::sync::atomic::{AtomicI64, Ordering};

use redlatch_core::{Ballot, Instant};

/// Proposes ballots by the client's clock, as far as the nodes find it right.
///
/// A ballot that is too low or too far ahead costs one more round trip, so a
/// client whose clock is wrong learns from the replies how much it is.
#[derive(Debug)]
pub(crate) struct Proposals {
    /// What to add to our clock to get the nodes', in milliseconds.
    correction: AtomicI64,
}

/// Clocks that differ by no more milliseconds are good enough; a reply's way
/// takes about as long.
const CLOSE: u64 = 2;

impl Proposals {
    pub(crate) fn new() -> Self {
        Self {
            correction: AtomicI64::new(0),
        }
    }

    /// A ballot for this time on our clock. The microseconds tell apart what is
    /// proposed in the same millisecond: who comes later proposes more.
    pub(crate) fn next(&self, now: Instant) -> Ballot {
        let correction = self.correction.load(Ordering::Relaxed);
        let millis = now.unix_millis().saturating_add_signed(correction);
        Ballot::at(millis, now.unix_micros() % 1000)
    }

    /// A node's clock shows `theirs` when ours shows `ours`.
    pub(crate) fn learn(&self, ours: u64, theirs: u64) {
        let difference = i64::try_from(theirs).unwrap_or(i64::MAX) - ours as i64;
        let known = self.correction.load(Ordering::Relaxed);
        if known.abs_diff(difference) > CLOSE {
            self.correction.store(difference, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::new(Duration::ZERO, Duration::from_micros(micros))
    }

    #[test]
    fn ballots_follow_the_clock() {
        let proposals = Proposals::new();
        let (one, other) = (proposals.next(at(1_000_001)), proposals.next(at(1_000_002)));
        assert!(one < other);
        assert_eq!([one, other].map(Ballot::millis), [1_000, 1_000]);
        assert!(proposals.next(at(1_000_999)) < proposals.next(at(1_001_000)));
    }

    #[test]
    fn a_wrong_clock_is_corrected_by_what_nodes_say() {
        let proposals = Proposals::new();
        let next = |millis: u64| proposals.next(at(millis * 1000)).millis();
        proposals.learn(1_000, 1_002);
        assert_eq!(next(2_000), 2_000, "close enough");
        proposals.learn(1_000, 3_601_000);
        assert_eq!(next(2_000), 3_602_000);
        proposals.learn(3_601_000, 1_000);
        assert_eq!(next(3_602_000), 2_000);
        assert_eq!(next(0), 0);
    }
}
