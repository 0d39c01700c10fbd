//! Ttl, drift, and how much of a lease is left.

use std::fmt;
use std::time::Duration;

/// The length of lease that is asked for, in whole milliseconds.
///
/// From 1 ms to one day. Zero would be no lease, and a longer one would defeat
/// what a lease is for: that a holder who vanishes frees the lock soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl {
    millis: u32,
}

impl Ttl {
    /// The longest lease that can be asked for: one day.
    pub const MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// A ttl from a duration; what is finer than a millisecond is cut off.
    pub fn new(ttl: Duration) -> Result<Self, TtlError> {
        if ttl > Self::MAX {
            return Err(TtlError::TooLong(ttl));
        }
        match u32::try_from(ttl.as_millis()) {
            Ok(0) => Err(TtlError::Zero),
            Ok(millis) => Ok(Self { millis }),
            Err(_) => Err(TtlError::TooLong(ttl)),
        }
    }

    /// The same as a duration.
    pub fn duration(self) -> Duration {
        Duration::from_millis(u64::from(self.millis))
    }

    /// The same in milliseconds, as a node wants it.
    pub fn millis(self) -> u64 {
        u64::from(self.millis)
    }

    /// The part of the lease that is given up so that clocks may run at
    /// different rates: 1 % of the ttl, rounded up, and 2 ms.
    pub fn drift(self) -> Duration {
        Duration::from_millis(u64::from(self.millis).div_ceil(100) + 2)
    }

    /// What is left of a lease of this length that is `age` old on the holder's
    /// own clock: ttl − age − drift, and never less than nothing.
    pub fn validity(self, age: Duration) -> Duration {
        self.duration()
            .saturating_sub(age)
            .saturating_sub(self.drift())
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.duration())
    }
}

/// Why a duration is no ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlError {
    /// Shorter than a millisecond.
    Zero,
    /// Longer than [`Ttl::MAX`].
    TooLong(Duration),
}

impl fmt::Display for TtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => write!(f, "a ttl must be at least one millisecond"),
            Self::TooLong(ttl) => write!(
                f,
                "a ttl of {} s is longer than a day; ask for a short one and let it be renewed",
                ttl.as_secs()
            ),
        }
    }
}

impl std::error::Error for TtlError {}
