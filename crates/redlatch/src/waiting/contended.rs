//! Which locks others wanted too when we gave them back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redlatch_core::{Key, fence};
use tokio::time::Instant;

/// A memory of fixed size: locks that fall into the same slot are taken for each
/// other, and one of them stands in a queue then that nobody else stands in.
pub(super) struct Contended {
    start: Instant,
    /// When one of the locks in each slot was given back, in milliseconds since the start.
    slots: [AtomicU64; 64],
}

/// For how long it is remembered.
const RECENT: Duration = Duration::from_millis(100);

impl Default for Contended {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            slots: [const { AtomicU64::new(0) }; 64],
        }
    }
}

impl Contended {
    pub(super) fn note(&self, key: &Key) {
        self.slot(key).store(self.now(), Ordering::Relaxed);
    }

    pub(super) fn is_noted(&self, key: &Key) -> bool {
        let noted = self.slot(key).load(Ordering::Relaxed);
        noted > 0 && self.now() - noted < RECENT.as_millis() as u64
    }

    fn now(&self) -> u64 {
        // Zero means never.
        1 + self.start.elapsed().as_millis() as u64
    }

    fn slot(&self, key: &Key) -> &AtomicU64 {
        &self.slots[usize::from(fence::slot(key)) % self.slots.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_remembered_for_a_moment() {
        let contended = Contended::default();
        let key = Key::new("k");
        assert!(!contended.is_noted(&key));
        contended.note(&key);
        assert!(contended.is_noted(&key));
        tokio::time::advance(RECENT).await;
        assert!(!contended.is_noted(&key));
    }
}
