//! Once per slot: work that one of many is to do, and no other after it.

use std::time::Duration;

use crate::client::Redlatch;
use crate::error::Result;
use crate::guard::Guard;
use crate::mutex::Mutex;

/// Work that is to be done once per slot, such as a day or an hour, by
/// whichever machine comes first. Made by [`Redlatch::once`].
///
/// The record that a slot was done *is* a lease, on a lock named after the work
/// and the slot, that is left to run out by itself: it has all the guarantees
/// that a lock has, over all nodes and whatever the clocks say, for as long as
/// it is kept. Keep it for longer than the machines can disagree about the slot.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let latch = redlatch::Redlatch::in_memory().await?;
/// let report = latch.once("report", "2026-11-16");
/// if let Some(slot) = report.begin().await? {
///     // … write the report …
///     slot.done().await?;
/// }
/// assert!(report.begin().await?.is_none()); // by nobody a second time
/// # Ok::<_, redlatch::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `begin` is called"]
pub struct Once {
    mutex: Mutex,
    keep: Duration,
}

impl Once {
    pub(crate) fn new(latch: &Redlatch, name: &str, slot: &str) -> Self {
        let longest = latch.max_ttl();
        let keep = Duration::from_secs(60 * 60);
        Self {
            mutex: latch.mutex(format!("{name}:once:{slot}")),
            keep: longest.map_or(keep, |longest| keep.min(longest)),
        }
    }

    /// How long the slot stays taken when the one that works on it vanishes.
    /// Default: the client's ttl.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.mutex = self.mutex.ttl(ttl);
        self
    }

    /// For how long it is remembered that the slot was done. At most a day,
    /// and with the restart guard on at most its
    /// [`max_ttl`](crate::Builder::max_ttl), since a node that forgets is kept
    /// out for that long only. Default: an hour, or `max_ttl` if that is shorter.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// Begins to work on the slot. Nothing when it was done before, or when
    /// somebody is at it.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`]; also when the record can't be kept for as long as
    /// [`keep`](Once::keep) says.
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::try_lock`].
    pub async fn begin(&self) -> Result<Option<Slot>> {
        self.mutex.client.settings.ttl(self.keep)?;
        let keep = self.keep;
        let guard = self.mutex.try_lock().await?;
        Ok(guard.map(|guard| Slot { guard, keep }))
    }
}

/// A slot that is being worked on. When it is dropped, the slot is free again.
#[derive(Debug)]
#[must_use = "the slot is given back as soon as this is dropped"]
pub struct Slot {
    guard: Guard,
    keep: Duration,
}

impl Slot {
    /// Records that the slot was done.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) when it was lost before that, and
    /// somebody else may have done it as well;
    /// [`Error::NoQuorum`](crate::Error::NoQuorum) when too few nodes answered.
    /// The record is then shorter than wanted.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped, the slot is given back.
    pub async fn done(self) -> Result<()> {
        let recorded = self.guard.renew(self.keep).await;
        // Also when that failed: what there is of the record stays.
        let _ = self.guard.detach();
        recorded
    }

    /// Gives the slot back undone, so that another can try.
    ///
    /// # Errors
    ///
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::release`].
    pub async fn give_back(self) -> Result<()> {
        self.guard.release().await
    }
}
