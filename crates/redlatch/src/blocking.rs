//! The same API for code without async.
//!
//! A blocking client brings a small runtime of its own, on a thread of its own,
//! so leases are renewed while the caller works. Use it from threads; from
//! async code use the async API.
//!
//! Each call fails as its namesake in the async API does, and in async code
//! with [`ConfigError::BlockingInAsync`].
//!
//! ```no_run
//! # fn main() -> redlatch::Result<()> {
//! use redlatch::blocking::Redlatch;
//!
//! let latch = Redlatch::connect("redis://127.0.0.1")?;
//! let guard = latch.mutex("sku:0001").lock()?;
//! // … sell …
//! guard.release()?;
//! # Ok(()) }
//! ```

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};

use crate::error::{ConfigError, Error, Result};
use crate::{Builder, Exported, Inspection, Lease, Listing, RunError};

/// A client of one deployment. See [`crate::Redlatch`].
#[derive(Clone, Debug)]
pub struct Redlatch {
    engine: Arc<Engine>,
}

impl Redlatch {
    /// Connects to one Redis server, with all settings at their defaults.
    pub fn connect(url: &str) -> Result<Self> {
        Self::build(crate::Redlatch::builder().nodes([url]))
    }

    /// A client on a new memory node. See [`crate::Redlatch::in_memory`].
    pub fn in_memory() -> Result<Self> {
        Self::build(crate::Redlatch::builder().node(crate::MemoryNode::new()))
    }

    /// Starts to collect settings, for [`build`](Redlatch::build).
    pub fn builder() -> Builder {
        crate::Redlatch::builder()
    }

    /// Connects with the settings of a [`Builder`].
    pub fn build(builder: Builder) -> Result<Self> {
        let engine = Arc::new(Engine::start(builder)?);
        Ok(Self { engine })
    }

    /// The mutex with this name.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex {
            inner: self.engine.latch().mutex(name),
            engine: self.engine.clone(),
        }
    }

    /// The owner with this name, whose locks can be locked again by the same owner.
    pub fn owner(&self, name: impl AsRef<str>) -> Owner {
        Owner {
            inner: self.engine.latch().owner(name),
            engine: self.engine.clone(),
        }
    }

    /// Who holds the lock with this name. See [`crate::Redlatch::inspect`].
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Option<Inspection>> {
        self.engine.run(self.engine.latch().inspect(name))?
    }

    /// All locks that somebody holds. See [`crate::Redlatch::locks`].
    pub fn locks(&self, glob: impl AsRef<str>) -> Result<Listing> {
        self.engine.run(self.engine.latch().locks(glob))?
    }

    /// Takes the lock with this name away. See [`crate::Redlatch::force_release`].
    pub fn force_release(&self, name: impl AsRef<str>) -> Result<bool> {
        self.engine.run(self.engine.latch().force_release(name))?
    }

    /// Refuses new locks and waits for outstanding releases. See [`crate::Redlatch::close`].
    pub fn close(&self) -> Result<()> {
        self.engine.run(self.engine.latch().close())
    }
}

/// Somebody who may lock the same name again. See [`crate::Owner`].
#[derive(Clone, Debug)]
pub struct Owner {
    inner: crate::Owner,
    engine: Arc<Engine>,
}

impl Owner {
    /// The mutex with this name, for this owner.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex {
            inner: self.inner.mutex(name),
            engine: self.engine.clone(),
        }
    }

    /// The owner's name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }
}

/// A lock that one holder has at a time. See [`crate::Mutex`].
#[derive(Clone, Debug)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct Mutex {
    inner: crate::Mutex,
    engine: Arc<Engine>,
}

impl Mutex {
    /// How long a lease lasts. Default: the client's, 10 s unless set.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.inner = self.inner.ttl(ttl);
        self
    }

    /// Whether the lease is renewed while the guard lives. Default: true.
    pub fn renewal(mut self, renewal: bool) -> Self {
        self.inner = self.inner.renewal(renewal);
        self
    }

    /// The longest time for which the lock may be held. Default: no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.inner = self.inner.max_hold(max_hold);
        self
    }

    /// A few words about the holder. Default: none, or the owner's name.
    pub fn note(mut self, note: impl Into<Arc<str>>) -> Self {
        self.inner = self.inner.note(note);
        self
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Waits until the lock is free, and takes it. See [`crate::Mutex::lock`].
    pub fn lock(&self) -> Result<Guard> {
        self.guard(self.inner.lock())
    }

    /// Waits for the lock, but no longer than `timeout`. See [`crate::Mutex::lock_timeout`].
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Guard> {
        self.guard(self.inner.lock_timeout(timeout))
    }

    /// Takes the lock if it is free. See [`crate::Mutex::try_lock`].
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        let guard = self.engine.run(self.inner.try_lock())??;
        Ok(guard.map(|inner| Guard {
            inner,
            engine: self.engine.clone(),
        }))
    }

    /// Locks, runs `body`, and unlocks. A loss can't stop the body: it must call
    /// [`ensure_held`](Lease::ensure_held) before each step that must not be
    /// done by two. See [`crate::Mutex::run`].
    pub fn run<T, E>(&self, body: impl FnOnce(&Lease) -> Result<T, E>) -> Result<T, RunError<E>> {
        let guard = self.lock().map_err(RunError::Lock)?;
        match (body(&guard), guard.release()) {
            (Err(error), _) => Err(RunError::Body(error)),
            (Ok(_), Err(Error::Lost(lost))) => Err(RunError::Lost {
                lost: *lost,
                completed: true,
            }),
            (Ok(value), _) => Ok(value),
        }
    }

    /// Takes charge of a lease of another process. See [`crate::Mutex::adopt`].
    pub fn adopt(&self, exported: Exported) -> Result<Guard> {
        self.guard(self.inner.adopt(exported))
    }

    fn guard(&self, locked: impl Future<Output = Result<crate::Guard>>) -> Result<Guard> {
        let inner = self.engine.run(locked)??;
        let engine = self.engine.clone();
        Ok(Guard { inner, engine })
    }
}

/// Holds a lock; dropping it gives the lock back. See [`crate::Guard`].
#[derive(Debug)]
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct Guard {
    inner: crate::Guard,
    engine: Arc<Engine>,
}

impl Guard {
    /// Gives the lock back and waits for a quorum. See [`crate::Guard::release`].
    pub fn release(self) -> Result<()> {
        let Self { inner, engine } = self;
        engine.run(inner.release())?
    }

    /// Lets the lease run for at least `ttl` from now. See [`crate::Guard::renew`].
    pub fn renew(&self, ttl: Duration) -> Result<()> {
        self.engine.run(self.inner.renew(ttl))?
    }

    /// What another process needs to adopt this lease. See [`crate::Guard::export`].
    pub fn export(&self) -> Exported {
        self.inner.export()
    }

    /// Lets go without giving the lock back. See [`crate::Guard::detach`].
    pub fn detach(self) -> Exported {
        self.inner.detach()
    }

    /// Waits until the lease is lost, but no longer than `timeout`; true when it is.
    pub fn wait_lost(&self, timeout: Duration) -> Result<bool> {
        let lost = async { tokio::time::timeout(timeout, self.inner.lost()).await };
        Ok(self.engine.run(lost)?.is_ok())
    }
}

impl Deref for Guard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.inner
    }
}

/// The runtime that a blocking client and all its guards share, and the client
/// itself, so that it can be closed with the last of them.
#[derive(Debug)]
struct Engine {
    parts: Option<(Runtime, crate::Redlatch)>,
}

impl Engine {
    fn start(builder: Builder) -> Result<Self> {
        refuse_async()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("redlatch")
            .enable_all()
            .build()
            .map_err(|error| ConfigError::Runtime(error.to_string()))?;
        let latch = runtime.block_on(builder.build())?;
        let parts = Some((runtime, latch));
        Ok(Self { parts })
    }

    fn parts(&self) -> &(Runtime, crate::Redlatch) {
        self.parts.as_ref().expect("they go only when dropped")
    }

    fn latch(&self) -> &crate::Redlatch {
        &self.parts().1
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        refuse_async()?;
        Ok(self.parts().0.block_on(future))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some((runtime, latch)) = self.parts.take() else {
            return;
        };
        // Releases of dropped guards may still be on their way.
        let end = move || {
            let close = async { tokio::time::timeout(LAST_MOMENT, latch.close()).await };
            let _ = runtime.block_on(close);
            runtime.shutdown_background();
        };
        match Handle::try_current() {
            // In async code nothing may block, so another thread does.
            Ok(_) => drop(std::thread::spawn(end)),
            Err(_) => end(),
        }
    }
}

/// How long the last handle waits for outstanding releases when it is dropped.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// Blocking inside a runtime would stop it, or panic.
fn refuse_async() -> Result<()> {
    match Handle::try_current() {
        Ok(_) => Err(ConfigError::BlockingInAsync.into()),
        Err(_) => Ok(()),
    }
}
