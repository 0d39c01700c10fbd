//! A point in time on the holder's own clock.

use std::time::Duration;

/// Two clock readings taken together: time since boot, and the time of day.
///
/// A lease must never look younger than it is. Each clock alone can make it so:
/// one that stops in suspend or while a virtual machine is paused loses that
/// time, and the time of day can be stepped back. So an instant is the *pair*,
/// and the time between two instants is the larger of the two differences: what
/// goes wrong with either clock can only shorten a lease. That is also why
/// instants have no order and can't be reduced to one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instant {
    boot_nanos: u64,
    real_nanos: u64,
}

impl Instant {
    /// An instant from the time since boot (suspend included) and the time of day.
    ///
    /// Readings beyond 584 years are taken as 584 years.
    pub fn new(boot: Duration, real: Duration) -> Self {
        Self {
            boot_nanos: nanos(boot),
            real_nanos: nanos(real),
        }
    }

    /// The time of day, in milliseconds since 1970.
    pub fn unix_millis(self) -> u64 {
        self.real_nanos / 1_000_000
    }

    /// The time of day, in microseconds since 1970.
    pub fn unix_micros(self) -> u64 {
        self.real_nanos / 1_000
    }

    /// The time that has passed since `earlier`: never less than either clock says.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// The same in nanoseconds.
    pub(crate) fn nanos_since(self, earlier: Instant) -> u64 {
        let boot = self.boot_nanos.saturating_sub(earlier.boot_nanos);
        let real = self.real_nanos.saturating_sub(earlier.real_nanos);
        boot.max(real)
    }
}

pub(crate) fn nanos(reading: Duration) -> u64 {
    u64::try_from(reading.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot: u64, real: u64) -> Instant {
        Instant::new(Duration::from_millis(boot), Duration::from_millis(real))
    }

    #[test]
    fn the_larger_difference_counts() {
        let suspended = at(100, 9_000).since(at(0, 0));
        let stepped_back = at(100, 0).since(at(0, 5_000));
        assert_eq!(suspended, Duration::from_secs(9));
        assert_eq!(stepped_back, Duration::from_millis(100));
    }

    #[test]
    fn clocks_that_both_went_back_count_as_no_time() {
        assert_eq!(at(0, 0).since(at(5, 5)), Duration::ZERO);
    }
}
