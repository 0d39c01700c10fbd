//! The holder's own clock.

use std::fmt;
use std::time::Duration;

use redlatch_core::Instant;

/// Reads the time for a client's leases.
///
/// Programs use [`SystemClock`], which is the default. A test can bring a clock
/// of its own and let it stop, jump or run backwards.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Instant;
}

/// The machine's clocks: the time since boot, suspend included, and the time of day.
///
/// Elsewhere than on Linux the time since boot can't be read without unsafe
/// code, and the standard library's clock takes its place.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[cfg(target_os = "linux")]
    fn now(&self) -> Instant {
        use rustix::time::{ClockId, Timespec, clock_gettime};
        let read = |clock| {
            let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
            // A time of day before 1970 reads as 1970; the other clock then counts.
            let seconds = u64::try_from(tv_sec).unwrap_or(0);
            let nanos = u32::try_from(tv_nsec).unwrap_or(0);
            Duration::new(seconds, nanos)
        };
        Instant::new(read(ClockId::Boottime), read(ClockId::Realtime))
    }

    #[cfg(not(target_os = "linux"))]
    fn now(&self) -> Instant {
        use std::sync::LazyLock;
        use std::time::SystemTime;
        static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        let real = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Instant::new(START.elapsed(), real.unwrap_or(Duration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_goes_on() {
        let early = SystemClock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(SystemClock.now().since(early) >= Duration::from_millis(2));
    }
}
