//! How long a refused contender waits before it tries again.

use std::time::Duration;

/// Random delays that grow with each refusal, up to a limit.
///
/// The randomness keeps contenders that were refused together from trying
/// again together; the growth keeps a lock that is held long from costing much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest first delay.
    pub first: Duration,
    /// The longest delay of all.
    pub limit: Duration,
}

impl Backoff {
    /// The delay after the given number of refusals (the first is 1).
    ///
    /// `random` is any u64, evenly spread; the delay is evenly spread over the
    /// upper half of the time that this refusal allows.
    pub fn delay(&self, refusals: u32, random: u64) -> Duration {
        let doublings = refusals.saturating_sub(1).min(32);
        let longest = self
            .first
            .saturating_mul(1 << doublings.min(31))
            .min(self.limit);
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        let half = nanos / 2;
        Duration::from_nanos(nanos - half + scale(random, half))
    }
}

/// Maps an evenly spread u64 to an evenly spread number from 0 to `most`.
fn scale(random: u64, most: u64) -> u64 {
    ((u128::from(random) * (u128::from(most) + 1)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        first: Duration::from_millis(10),
        limit: Duration::from_millis(200),
    };

    #[test]
    fn delays_double_up_to_the_limit() {
        let longest = |refusals| BACKOFF.delay(refusals, u64::MAX).as_millis();
        let shortest = |refusals| BACKOFF.delay(refusals, 0).as_millis();
        assert_eq!([1, 2, 3, 6, 40].map(longest), [10, 20, 40, 200, 200]);
        assert_eq!([1, 2, 3, 6, 40].map(shortest), [5, 10, 20, 100, 100]);
    }
}
