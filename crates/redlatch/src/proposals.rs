//! Which ballots a client proposes.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use redlatch_core::Ballot;

use crate::random;

/// Proposes ballots by the client's clock, as far as the nodes find it right.
///
/// A ballot that is too low or too far ahead costs one more round trip, so a
/// client whose clock is wrong learns from the replies how much it is.
#[derive(Debug)]
pub(crate) struct Proposals {
    /// What to add to our clock to get the nodes', in milliseconds.
    correction: AtomicI64,
    /// Tells apart what this client proposes in the same millisecond, and
    /// begins anywhere so that clients rarely propose the same.
    tie: AtomicU64,
}

/// Clocks that differ by no more milliseconds are good enough; a reply's way
/// takes about as long.
const CLOSE: u64 = 2;

impl Proposals {
    pub(crate) fn new() -> Self {
        Self {
            correction: AtomicI64::new(0),
            tie: AtomicU64::new(random::number()),
        }
    }

    /// A ballot for this time on our clock, in milliseconds.
    pub(crate) fn next(&self, now: u64) -> Ballot {
        let correction = self.correction.load(Ordering::Relaxed);
        let tie = self.tie.fetch_add(1, Ordering::Relaxed);
        Ballot::at(now.saturating_add_signed(correction), tie)
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
    use super::*;

    #[test]
    fn ballots_follow_the_clock_and_differ() {
        let proposals = Proposals::new();
        let (one, other) = (proposals.next(1_000), proposals.next(1_000));
        assert_ne!(one, other);
        assert_eq!(one.millis(), 1_000);
    }

    #[test]
    fn a_wrong_clock_is_corrected_by_what_nodes_say() {
        let proposals = Proposals::new();
        proposals.learn(1_000, 1_002);
        assert_eq!(proposals.next(2_000).millis(), 2_000, "close enough");
        proposals.learn(1_000, 3_601_000);
        assert_eq!(proposals.next(2_000).millis(), 3_602_000);
        proposals.learn(3_601_000, 1_000);
        assert_eq!(proposals.next(3_602_000).millis(), 2_000);
        assert_eq!(proposals.next(0).millis(), 0);
    }
}
