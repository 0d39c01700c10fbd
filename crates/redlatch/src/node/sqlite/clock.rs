//! The clock that all processes of this machine share.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// One run of this machine, from boot to boot.
///
/// The time since boot goes on in suspend and is never stepped, and it is the
/// same for every process. It means nothing after the next boot.
#[derive(Clone, Debug)]
pub(super) struct Boot {
    /// What the kernel calls it.
    pub(super) id: Arc<str>,
    /// By how much this process's time since boot is ahead of the kernel's, in
    /// milliseconds: containers can have a time of their own.
    ahead: i64,
}

impl Boot {
    pub(super) fn read() -> io::Result<Self> {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        // A kernel without it has one time for all.
        let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        Ok(Self {
            id: id.trim().into(),
            ahead: offset(&offsets),
        })
    }

    /// Another boot, that much later, for tests.
    #[cfg(test)]
    pub(super) fn again(&self, id: &str, millis_later: i64) -> Self {
        Self {
            id: id.into(),
            ahead: self.ahead - millis_later,
        }
    }

    /// The milliseconds since this boot.
    pub(super) fn age(&self) -> i64 {
        millis(ClockId::Boottime) - self.ahead
    }
}

/// The time of day, in milliseconds since 1970.
pub(super) fn time_of_day() -> i64 {
    millis(ClockId::Realtime)
}

fn millis(clock: ClockId) -> i64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    let nanos = u32::try_from(tv_nsec).unwrap_or(0);
    tv_sec.saturating_mul(1000)
        + i64::try_from(Duration::from_nanos(nanos.into()).as_millis()).unwrap_or(0)
}

/// What a time namespace adds to the time since boot, in milliseconds.
fn offset(offsets: &str) -> i64 {
    let line = offsets
        .lines()
        .find_map(|line| line.strip_prefix("boottime"))
        .unwrap_or_default();
    let mut numbers = line.split_whitespace().map(|number| number.parse::<i64>());
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let (seconds, nanos) = (next(), next());
    seconds * 1000 + nanos / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_container_is_set_right() {
        let offsets = "monotonic           0         0\nboottime         1000   5000000\n";
        assert_eq!(offset(offsets), 1_000_005);
        assert_eq!(offset("boottime -3 0\n"), -3000);
        assert_eq!(offset(""), 0);
    }

    #[test]
    fn a_boot_has_a_name_and_goes_on() {
        let boot = Boot::read().unwrap();
        assert!(!boot.id.is_empty());
        let age = boot.age();
        assert!(age > 0 && boot.age() >= age);
        assert!(boot.again("other", 1000).age() >= age + 1000);
    }
}
