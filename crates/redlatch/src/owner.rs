//! Owners: who may lock again what they already hold.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex as StdMutex, PoisonError, Weak};

use redlatch_core::Key;

use crate::client::Client;
use crate::guard::Hold;
use crate::mutex::Mutex;

/// Somebody in this process who may lock the same name again while holding it.
///
/// The lock is freed with the last of the owner's guards. Every other owner,
/// and everybody without one, is kept out as any other client is. Made by
/// [`Redlatch::owner`](crate::Redlatch::owner); the same name is the same
/// owner, within one client.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let latch = redlatch::Redlatch::in_memory().await?;
/// let worker = latch.owner("worker-7");
/// let outer = worker.mutex("stock").lock().await?;
/// let inner = worker.mutex("stock").lock().await?; // at once: it is ours
/// assert!(latch.owner("worker-8").mutex("stock").try_lock().await?.is_none());
///
/// drop(outer);
/// assert!(latch.inspect("stock").await?.is_some()); // still held by `inner`
/// inner.release().await?;
/// assert!(latch.inspect("stock").await?.is_none());
/// # Ok::<_, redlatch::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Owner {
    client: Arc<Client>,
    state: Arc<OwnerState>,
}

impl Owner {
    pub(crate) fn new(client: Arc<Client>, state: Arc<OwnerState>) -> Self {
        Self { client, state }
    }

    /// The mutex with this name, for this owner.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        let owner = Some(self.state.clone());
        Mutex::new(self.client.clone(), name.as_ref(), owner)
    }

    /// The owner's name.
    pub fn name(&self) -> &str {
        &self.state.name
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.state.name).finish()
    }
}

/// What an owner holds. Each lock has a place in which one task at a time
/// acquires, so that two tasks of one owner don't keep each other out.
pub(crate) struct OwnerState {
    name: Box<str>,
    places: StdMutex<HashMap<Key, Place>>,
}

type Place = Arc<tokio::sync::Mutex<Weak<Hold>>>;

impl OwnerState {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            places: StdMutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The place of this lock.
    pub(crate) fn place(&self, key: &Key) -> Place {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // Locks that nobody holds or waits for leave nothing behind.
        if places.len() == places.capacity() {
            places.retain(|_, place| {
                let waited_for = Arc::strong_count(place) > 1;
                waited_for || place.try_lock().is_ok_and(|hold| hold.strong_count() > 0)
            });
        }
        places.entry(key.clone()).or_default().clone()
    }
}

/// The hold in this place, if it is still worth something.
pub(crate) fn again(place: &Weak<Hold>) -> Option<Arc<Hold>> {
    place.upgrade().filter(|hold| hold.loss().is_none())
}
