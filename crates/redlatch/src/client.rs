//! The client: nodes, the tasks that serve its leases, and the way to its locks.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError, Weak};
use std::time::Duration;

use redlatch_core::Token;

use crate::admin::{self, NodeStatus};
use crate::config::Builder;
use crate::driver::Driver;
use crate::error::{ConfigError, Error, Result};
use crate::force;
use crate::inspect::{self, Inspection};
use crate::keeper::Keeper;
use crate::list::{self, Listing, Progress};
use crate::mutex::Mutex;
use crate::node::memory::MemoryNode;
use crate::owner::{Owner, OwnerState};
use crate::probe::NodeView;
use crate::proposals::Proposals;
use crate::random;
use crate::reaper::Reaper;
use crate::recipes::once::Once;
use crate::settings::Settings;
use crate::waiting::Queues;

/// A client of one deployment: the way to its locks.
///
/// Cheap to clone; clones are the same client. All its leases are renewed by
/// one task, and all that is dropped is released by another, both on the
/// runtime that it was built on.
///
/// ```
/// # async fn example() -> redlatch::Result<()> {
/// use redlatch::Redlatch;
///
/// let latch = Redlatch::connect("redis://127.0.0.1").await?;
/// let guard = latch.mutex("sku:0001").lock().await?;
/// // … sell …
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Redlatch {
    client: Arc<Client>,
}

impl Redlatch {
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self { client }
    }

    /// Connects to one Redis server, with all settings at their defaults.
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
    ///
    /// # Cancel safety
    ///
    /// As [`Builder::build`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().nodes([url]).build().await
    }

    /// Starts to collect settings: several nodes, ttl, key scheme and more.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// A client on a new [`MemoryNode`]: locks within this process, without a server.
    ///
    /// # Errors
    ///
    /// None with these settings; the type is that of every other way to a client.
    ///
    /// # Cancel safety
    ///
    /// As [`Builder::build`].
    pub async fn in_memory() -> Result<Self> {
        Self::builder().node(MemoryNode::new()).build().await
    }

    /// The mutex with this name. Cheap: nothing is asked of a node before it is locked.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.client.clone(), name.as_ref(), None)
    }

    /// The owner with this name, whose locks can be locked again by the same owner.
    pub fn owner(&self, name: impl AsRef<str>) -> Owner {
        let name = name.as_ref();
        let mut owners = self
            .client
            .owners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        owners.retain(|_, owner| owner.strong_count() > 0);
        let state = owners.get(name).and_then(Weak::upgrade);
        let state = state.unwrap_or_else(|| {
            let state = Arc::new(OwnerState::new(name));
            owners.insert(name.into(), Arc::downgrade(&state));
            state
        });
        Owner::new(self.client.clone(), state)
    }

    /// Whether the work with this name has been done for a slot, such as a day.
    pub fn once(&self, name: impl AsRef<str>, slot: impl AsRef<str>) -> Once {
        Once::new(self, name.as_ref(), slot.as_ref())
    }

    /// The longest lease that the nodes allow; nothing when they don't care.
    pub(crate) fn max_ttl(&self) -> Option<Duration> {
        self.client.settings.max_ttl
    }

    /// Who holds the lock with this name, if anybody does.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuorum`] when too few nodes answered to tell.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing, dropped or not.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Option<Inspection>> {
        let name = name.as_ref();
        let key = self.client.settings.keys.key(name)?;
        inspect::inspect(&self.client.driver, &name.into(), key).await
    }

    /// Waits until nobody holds the lock with this name, without taking it; for
    /// ever when there is no `timeout`. Somebody may have it the moment after.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when somebody held it all the time;
    /// [`Error::NoQuorum`] when too few nodes answered to tell.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing, dropped or not.
    pub async fn wait_until_free(
        &self,
        name: impl AsRef<str>,
        timeout: Option<Duration>,
    ) -> Result<()> {
        let name = name.as_ref();
        let key = self.client.settings.keys.key(name)?;
        inspect::wait_until_free(&self.client.driver, &name.into(), key, timeout).await
    }

    /// All locks whose names match `glob` and that somebody holds: `*` stands
    /// for any characters, `?` for one, `[a-z]` for one of these, and a backslash
    /// takes away the meaning of what follows.
    ///
    /// Nodes are gone through page by page, all at the same time, and no server
    /// is held up however many keys of others it has. It is a look at what
    /// changes meanwhile: a lock that is held all the time is in the list, one
    /// that comes or goes may be. With an empty prefix every key of the server
    /// is one of a lock.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuorum`] when too few nodes could be asked. The user of the
    /// server needs the right `+scan`.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing, dropped or not.
    pub async fn locks(&self, glob: impl AsRef<str>) -> Result<Listing> {
        self.locks_with_progress(glob, |_| {}).await
    }

    /// As [`locks`](Redlatch::locks), and tells after every page how far it has come.
    ///
    /// # Errors
    ///
    /// As [`locks`](Redlatch::locks).
    ///
    /// # Cancel safety
    ///
    /// As [`locks`](Redlatch::locks).
    pub async fn locks_with_progress(
        &self,
        glob: impl AsRef<str>,
        mut progress: impl FnMut(Progress) + Send,
    ) -> Result<Listing> {
        let Client {
            driver, settings, ..
        } = &*self.client;
        list::list(driver, &settings.keys, glob.as_ref(), &mut progress).await
    }

    /// How each node is, and how its restart guard stands: `guard` is nothing
    /// when it is new, or when the guard is off. A node that is silent for
    /// `limit` is given up.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing, dropped or not.
    pub async fn status(&self, limit: Duration) -> Vec<NodeStatus> {
        let Client {
            driver, settings, ..
        } = &*self.client;
        admin::status(driver, settings, limit).await
    }

    /// The nodes, in the order in which they were given.
    pub fn nodes(&self) -> Vec<NodeView> {
        let nodes = self.client.driver.nodes().iter();
        nodes.cloned().map(NodeView::new).collect()
    }

    /// Takes the lock with this name away from whoever holds it. True when
    /// somebody did. The holder finds out when it renews next; until then both
    /// it and the next one may believe to hold the lock.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuorum`] when too few nodes answered: call it again.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped, the lock may be gone on some nodes: call it again.
    pub async fn force_release(&self, name: impl AsRef<str>) -> Result<bool> {
        let name = name.as_ref();
        let key = self.client.settings.keys.key(name)?;
        tracing::warn!(lock = name, "released by force");
        let Client {
            driver, proposals, ..
        } = &*self.client;
        force::force(driver, proposals, &name.into(), key).await
    }

    /// Refuses new locks from here on, and waits until all that was given back
    /// has been released on every node that answers.
    ///
    /// Call it before the runtime ends: what is still under way then is left to
    /// its ttl. Guards that are still held go on until they are dropped.
    ///
    /// # Cancel safety
    ///
    /// New locks are refused all the same; releases go on in the background.
    pub async fn close(&self) {
        self.client.closed.store(true, Ordering::Relaxed);
        self.client.reaper.drain().await;
    }
}

impl fmt::Debug for Redlatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.client.driver.nodes().iter();
        let names: Vec<&str> = nodes.map(|node| node.name()).collect();
        f.debug_struct("Redlatch").field("nodes", &names).finish()
    }
}

/// What the handles, guards and tasks of one client share.
pub(crate) struct Client {
    pub(crate) driver: Arc<Driver>,
    pub(crate) keeper: Keeper,
    pub(crate) reaper: Reaper,
    pub(crate) proposals: Arc<Proposals>,
    pub(crate) queues: Queues,
    pub(crate) settings: Settings,
    owners: StdMutex<HashMap<Box<str>, Weak<OwnerState>>>,
    closed: AtomicBool,
}

/// A token that names no lease, and that nobody else has.
fn nobody() -> Token {
    let [one, other] = [random::number(), random::number()];
    Token::parse(&format!("nobody-{one:016x}{other:016x}")).expect("a token")
}

impl Client {
    pub(crate) fn start(driver: Driver, settings: Settings) -> Arc<Self> {
        let driver = Arc::new(driver);
        let proposals = Arc::new(Proposals::new());
        let reaper = Reaper::start(driver.clone());
        let leaver = reaper.clone();
        Arc::new(Self {
            keeper: Keeper::start(driver.clone(), proposals.clone()),
            reaper,
            driver,
            proposals,
            queues: Queues::new(nobody(), move |place| leaver.release(place)),
            settings,
            owners: StdMutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// Fails when no more locks are given out.
    pub(crate) fn ensure_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Relaxed) {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// A text that goes into a token must be short.
    pub(crate) fn check_note(note: &str) -> Result<(), ConfigError> {
        match note.len() <= 256 {
            true => Ok(()),
            false => Err(ConfigError::Note),
        }
    }
}
