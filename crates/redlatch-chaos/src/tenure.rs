//! For how long a holder could rely on its lease, as it saw it.

use std::time::Duration;

use redlatch::Lease;
use redlatch_core::Loss;

use crate::history::{End, clock};

/// How often a holder looks.
const LOOK: Duration = Duration::from_millis(5);

/// Looks at a lease again and again.
///
/// The time is always read *before* the lease: whatever happens in between, a stop of the whole
/// process included, makes the period look shorter than it was, never longer.
pub(crate) struct Tenure {
    lease: Lease,
    acquired: u64,
    /// When it was last looked at and held.
    seen: u64,
    /// Until when it was valid, at most, by what was seen so far.
    deadline: u64,
}

impl Tenure {
    /// To be called as soon as the lock is had.
    pub(crate) fn begin(lease: Lease) -> Self {
        let acquired = clock();
        let mut tenure = Self {
            lease,
            acquired,
            seen: acquired,
            deadline: acquired,
        };
        tenure.look();
        tenure
    }

    /// Spends some time looking.
    pub(crate) async fn watch(&mut self, length: Duration) {
        let end = tokio::time::Instant::now() + length;
        loop {
            let next = (tokio::time::Instant::now() + LOOK).min(end);
            tokio::time::sleep_until(next).await;
            self.look();
            if next == end {
                break;
            }
        }
    }

    /// To be called before the lock is given back: when it was acquired, last seen, and ended.
    pub(crate) fn end(mut self) -> (u64, u64, u64, End) {
        let (ended, end) = match self.look() {
            true => (self.seen, End::Released),
            false => {
                let by_time = match self.lease.ensure_held() {
                    Err(redlatch::Error::Lost(lost)) => lost.loss == Loss::Expired,
                    _ => true,
                };
                // Taken away some time after it was last seen; run out at its deadline, or a
                // little before, when the word came.
                let ended = if by_time {
                    self.deadline.min(clock())
                } else {
                    self.seen
                };
                (ended, End::Lost)
            }
        };
        (self.acquired, self.seen, ended, end)
    }

    fn look(&mut self) -> bool {
        let now = clock();
        let remaining = self.lease.remaining();
        let held = !remaining.is_zero();
        if held {
            self.seen = now;
            self.deadline = self.deadline.max(now + remaining.as_nanos() as u64);
        }
        held
    }
}
