//! What clients saw, in the order in which it happened.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Something that a client did or saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Asks for a lock.
    Begin {
        /// Which lock.
        lock: usize,
        /// Whether it waits until it has the lock.
        waits: bool,
        /// The call whose lease it takes over, if it does.
        adopts: Option<usize>,
        /// Who may lock it again, if it is for such an owner.
        owner: Option<usize>,
        /// Whether its lease is renewed for as long as it is held.
        renewed: bool,
    },
    /// Has got it.
    Acquired {
        /// Names the lease.
        token: String,
        /// The fence; 0 for a plain lock.
        fence: u64,
    },
    /// Has not got it: busy, timed out, cancelled, or too few nodes.
    GaveUp,
    /// Had it, and no longer claims to.
    Ended(End),
    /// Takes a lock away from whoever has it.
    Forces {
        /// Which lock.
        lock: usize,
    },
    /// Has taken it away, or has given up: then it may still happen.
    Forced {
        /// Whether it is done.
        done: bool,
    },
}

/// Why a holder no longer claims to hold the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is about to give the lock back.
    Released,
    /// It heard that the lease is lost.
    Lost,
    /// It lets go of the lease, for another to adopt or for it to expire.
    Detached,
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The true time, in microseconds.
    pub at: u64,
    /// Numbers the calls: all entries about one have the same.
    pub call: usize,
    /// What happened.
    pub event: Event,
}

/// A history that is being written.
#[derive(Debug, Default)]
pub(crate) struct History {
    inner: Mutex<(Vec<Entry>, usize)>,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, (Vec<Entry>, usize)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn next_call(&self) -> usize {
        let mut inner = self.lock();
        inner.1 += 1;
        inner.1
    }

    pub(crate) fn push(&self, entry: Entry) {
        self.lock().0.push(entry);
    }

    pub(crate) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut self.lock().0)
    }
}
