//! Lengths of time, many of them, and what most of them are like.

use std::time::Duration;

/// Lengths of time, counted in steps of about 3 %: an hour of them takes no
/// more memory than a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    counts: Vec<u64>,
    count: u64,
    most: Duration,
}

/// How many steps there are from a length to its double, as a power of two.
const FINENESS: u32 = 5;
const STEPS: usize = 1 << FINENESS;

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        let step = step(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        if self.counts.len() <= step {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
        self.count += 1;
        self.most = self.most.max(time);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The longest, to the nanosecond.
    pub(super) fn most(&self) -> Duration {
        self.most
    }

    pub(super) fn median(&self) -> Duration {
        self.percentile(50)
    }

    /// So many of a hundred are no longer than this; zero when there are none.
    pub(super) fn percentile(&self, of_a_hundred: u64) -> Duration {
        let rank = (self.count * of_a_hundred).div_ceil(100).max(1);
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(end(step)).min(self.most);
            }
        }
        Duration::ZERO
    }
}

/// The step that a length is counted in.
fn step(nanos: u64) -> usize {
    match nanos.checked_ilog2() {
        Some(power) if power >= FINENESS => {
            let shift = power - FINENESS;
            let within = (nanos >> shift) as usize & (STEPS - 1);
            (shift as usize + 1) * STEPS + within
        }
        // Short ones have a step of their own each.
        _ => nanos as usize,
    }
}

/// The longest length in a step.
fn end(step: usize) -> u64 {
    match (step / STEPS).checked_sub(1) {
        None => step as u64,
        Some(shift) => {
            let begin = ((STEPS + step % STEPS) as u64) << shift;
            begin + ((1 << shift) - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_in_the_step_that_ends_with_it_or_soon_after() {
        let mut last = 0;
        for nanos in (0..100_000).chain([1_000_000_007, u64::MAX / 3, u64::MAX]) {
            let at = step(nanos);
            assert!(at >= last, "{nanos}");
            let end = end(at);
            assert!(end >= nanos && end - nanos <= nanos / 32, "{nanos}: {end}");
            last = at;
        }
    }

    #[test]
    fn percentiles_are_those_of_what_was_added() {
        let mut times = Times::default();
        assert_eq!(times.median(), Duration::ZERO);
        for millis in 1..=1000 {
            times.add(Duration::from_millis(millis));
        }
        for (percent, millis) in [(50, 500), (99, 990)] {
            let off = times.percentile(percent).as_secs_f64() * 1000.0 / f64::from(millis);
            assert!((1.0..1.04).contains(&off), "{percent}: {off}");
        }
        assert_eq!(times.percentile(100), Duration::from_secs(1));
        assert_eq!(
            (times.most(), times.count()),
            (Duration::from_secs(1), 1000)
        );
    }
}
