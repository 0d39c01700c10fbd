//! Once per slot: work that one of many is to do, and no other after it.

use std::time::Duration;

use crate::client::Redlatch;
use crate::error::Result;
use crate::mutex::Mutex;

/// How long the lease of a question is, where nodes are as quick as usual.
const SHORTEST: Duration = Duration::from_secs(1);

/// Whether the work of a slot, such as a day or an hour, has been done by
/// anybody. Made by [`Redlatch::once`].
///
/// Ask and record while holding the lock of the work, which keeps others out
/// meanwhile. The record *is* a lease on a lock of its own that is left to run
/// out by itself: it has all the guarantees that a lock has, over all nodes and
/// whatever the clocks say, for as long as it is kept. Keep it for longer than
/// the machines can disagree about the slot.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let latch = redlatch::Redlatch::in_memory().await?;
/// let guard = latch.mutex("report").lock().await?;
/// let today = latch.once("report", "2026-11-16");
/// if !today.is_done().await? {
///     // … write the report …
///     today.record().await?;
/// }
/// guard.release().await?;
/// assert!(today.is_done().await?);
/// # Ok::<_, redlatch::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Once {
    mutex: Mutex,
    keep: Duration,
}

impl Once {
    /// For how long a slot is remembered unless something else is asked for, or
    /// makes it shorter.
    pub const USUAL_MEMORY: Duration = Duration::from_secs(60 * 60);

    pub(crate) fn new(latch: &Redlatch, name: &str, slot: &str) -> Self {
        let keep = Self::USUAL_MEMORY;
        let longest = latch.max_ttl();
        Self {
            mutex: latch.mutex(format!("{name}:once:{slot}")),
            keep: longest.map_or(keep, |longest| keep.min(longest)),
        }
    }

    /// For how long it is remembered that the slot was done. At most a day,
    /// and with the restart guard on at most its
    /// [`max_ttl`](crate::Builder::max_ttl), since a node that forgets is kept
    /// out for that long only. Default: an hour, or `max_ttl` if that is shorter.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// Whether the slot was done. Nodes that may have forgotten it are not
    /// believed, where the [restart guard](crate::Builder::restart_guard) is
    /// on: then this is an error once too few others are left. With the guard
    /// off, as it is with one node unless asked for, a server that was restarted
    /// without its data says that the slot was not done.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuorum`](crate::Error::NoQuorum) when too few nodes answered
    /// to tell; [`Error::Config`](crate::Error::Config) when no lock can have
    /// this name, or no lease be as long as [`keep`](Once::keep) says.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped, the slot may look done for a moment: for a second,
    /// or three [node timeouts](crate::Builder::node_timeout), when the process
    /// vanishes with it.
    pub async fn is_done(&self) -> Result<bool> {
        // Before the work, not only when it is to be recorded.
        self.mutex.client.settings.ttl(self.keep)?;
        // A look would not do: a node that was restarted and has forgotten the
        // record says that it has none, but won't grant it.
        match self.question().try_lock().await? {
            None => Ok(true),
            Some(guard) => {
                guard.release().await?;
                Ok(false)
            }
        }
    }

    /// A lease as short as can be: whoever vanishes while it asks must not
    /// close the slot for others for longer than it has the lock of the work.
    fn question(&self) -> Mutex {
        let settings = &self.mutex.client.settings;
        let ttl = SHORTEST.max(settings.node_timeout * 3).min(settings.ttl);
        self.mutex.clone().ttl(ttl)
    }

    /// Records that the slot was done.
    ///
    /// # Errors
    ///
    /// As [`is_done`](Once::is_done). Without a record the slot may be done again.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped, there may be a record or none.
    pub async fn record(&self) -> Result<()> {
        let record = self.mutex.clone().ttl(self.keep);
        if let Some(guard) = record.try_lock().await? {
            let _ = guard.detach();
        }
        Ok(())
    }
}
