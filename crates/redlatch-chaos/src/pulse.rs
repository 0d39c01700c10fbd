//! When the machine itself stood still.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::history::clock;

const BEAT: Duration = Duration::from_millis(10);

/// Later than this, a beat says that this process could not run.
const LATE: u64 = 150_000_000;

/// A thread that sleeps a moment, again and again, and notes when that took long.
///
/// A busy machine can keep everybody from running for seconds. No lock is had then, which is not
/// the doing of the fault at that time.
pub(crate) struct Pulse(Arc<Mutex<Vec<(u64, u64)>>>);

impl Pulse {
    pub(crate) fn start() -> Self {
        let stalls: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
        let noted = Arc::downgrade(&stalls);
        std::thread::spawn(move || {
            let mut last = clock();
            while let Some(stalls) = noted.upgrade() {
                std::thread::sleep(BEAT);
                let now = clock();
                if now - last > LATE {
                    let mut stalls = stalls.lock().unwrap_or_else(PoisonError::into_inner);
                    stalls.push((last, now));
                }
                last = now;
            }
        });
        Self(stalls)
    }

    /// All stalls so far, from and to.
    pub(crate) fn stalls(&self) -> Vec<(u64, u64)> {
        let stalls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stalls.clone()
    }
}
