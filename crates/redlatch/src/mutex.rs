//! The mutex: one holder at a time, over all processes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlatch_core::{Key, Lease, Loss, Terms, Verdict};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use crate::client::Client;
use crate::error::{ConfigError, Error, Lost, Result, Timeout};
use crate::guard::{Exported, Guard, Hold};
use crate::inspect;
use crate::lease::Cell;
use crate::owner::{self, OwnerState};

/// A lock that one holder has at a time, over all processes and machines.
///
/// A handle, cheap to make, to clone and to keep. Made by
/// [`Redlatch::mutex`](crate::Redlatch::mutex).
#[derive(Clone)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct Mutex {
    pub(crate) client: Arc<Client>,
    pub(crate) name: Arc<str>,
    /// Wrong names are reported when they are used: making a handle can't fail.
    key: Result<Key, ConfigError>,
    owner: Option<Arc<OwnerState>>,
    ttl: Duration,
    renewal: bool,
    max_hold: Option<Duration>,
    pub(crate) note: Option<Arc<str>>,
    pub(crate) fencing: bool,
}

impl Mutex {
    pub(crate) fn new(client: Arc<Client>, name: &str, owner: Option<Arc<OwnerState>>) -> Self {
        Self {
            key: client.settings.keys.key(name),
            name: name.into(),
            ttl: client.settings.ttl,
            note: owner.as_ref().map(|owner| owner.name().into()),
            client,
            owner,
            renewal: true,
            max_hold: None,
            fencing: true,
        }
    }

    /// How long a lease lasts: for how long the lock stays taken after its
    /// holder has vanished. Default: the client's, 10 s unless set.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Whether the lease is renewed while the guard lives. Default: true.
    ///
    /// Without it the lease is lost at the end of its ttl, unless
    /// [`Guard::renew`] is called.
    pub fn renewal(mut self, renewal: bool) -> Self {
        self.renewal = renewal;
        self
    }

    /// The longest time for which the lock may be held, renewals included.
    /// After it the lease is lost. Default: no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// A few words about the holder, for the people who look at the key; at
    /// most 256 bytes. Default: none, or the owner's name.
    pub fn note(mut self, note: impl Into<Arc<str>>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Whether the lock has a fence, and is protected from nodes that forget
    /// what they granted by the restart guard. Default: true.
    ///
    /// Without it the lock is a plain `SET key token NX PX ttl`, as in other
    /// clients: a little faster, and with their weaknesses.
    pub fn fencing(mut self, fencing: bool) -> Self {
        self.fencing = fencing;
        self
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key under which nodes store the lock, for people who look there.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when no lock can have this name.
    pub fn key(&self) -> Result<&str> {
        match &self.key {
            Ok(key) => Ok(key.as_str()),
            Err(error) => Err(error.clone().into()),
        }
    }

    /// Waits until the lock is free, and takes it.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuorum`] when too few nodes could be reached for longer than
    /// the client's [`outage_patience`](crate::Builder::outage_patience);
    /// [`Error::Config`] when the name or a setting is wrong.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped, the place among the waiting is given up, and
    /// whatever was already taken is released in the background.
    pub async fn lock(&self) -> Result<Guard> {
        self.wait(None).instrument(self.span("lock")).await
    }

    /// Waits for the lock, but no longer than `timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when somebody else held it all the time, and who;
    /// otherwise as [`lock`](Mutex::lock), and [`Error::NoQuorum`] also when
    /// the time ran out while too few nodes could be reached.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Mutex::lock).
    pub async fn lock_timeout(&self, timeout: Duration) -> Result<Guard> {
        self.wait(Some(timeout))
            .instrument(self.span("lock_timeout"))
            .await
    }

    /// Takes the lock if it is free: one attempt. Nothing when somebody has it.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuorum`] when too few nodes answered; [`Error::Config`] when
    /// the name or a setting is wrong.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped, whatever was already taken is released in the
    /// background.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        let plan = self.plan()?;
        let once = Some(Instant::now());
        let tried = self.acquire(&plan, once);
        tried.instrument(self.span("try_lock")).await
    }

    /// Takes charge of a lease that another process has
    /// [exported](Guard::export), once a quorum of nodes confirms that it is
    /// still held. The guard renews it, and frees it when dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when it is not held any more; [`Error::NoQuorum`] when
    /// too few nodes answered.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped, the lease may have been lengthened once.
    pub async fn adopt(&self, exported: Exported) -> Result<Guard> {
        let Plan { key, terms } = self.plan()?;
        self.client.ensure_open()?;
        let driver = &self.client.driver;
        let ttl = Lease::first_length(terms);
        let sent = driver.now();
        let lease = Lease::granted(terms, sent, ttl);
        let clock = driver.clock().clone();
        let (token, fence) = exported.into_parts();
        let cell = Cell::new(self.name.clone(), key, token, fence, clock, lease);
        let mut votes = driver.ask(cell.extend(ttl), driver.limit(ttl));
        let taken = |loss| {
            let name = self.name.clone();
            Err(Lost { name, loss }.into())
        };
        match votes.verdict().await {
            Verdict::Won => {
                self.client.reaper.finish(votes);
                match cell.loss() {
                    None => Ok(self.take_charge(cell).await),
                    Some(lost) => Err(lost.into()),
                }
            }
            Verdict::Refused => taken(Loss::Taken),
            Verdict::Open | Verdict::Again | Verdict::Unavailable | Verdict::Mixed => Err(
                Error::NoQuorum(driver.no_quorum(&self.name, votes.into_failures())),
            ),
        }
    }

    /// The guard of a lease that was adopted.
    async fn take_charge(&self, cell: Arc<Cell>) -> Guard {
        let key = cell.key.clone();
        let hold = Hold::new(self.client.clone(), cell, None, None);
        // Whoever exported it may still hold it.
        hold.share();
        let guard = Guard::new(hold);
        let Some(owner) = &self.owner else {
            return guard;
        };
        *owner.place(&key).lock().await = guard.downgrade();
        guard.owned(owner)
    }

    /// Waits for the lock, until `timeout` is over if there is one.
    async fn wait(&self, timeout: Option<Duration>) -> Result<Guard> {
        let plan = self.plan()?;
        let start = Instant::now();
        // A time beyond what the clock can say is no limit.
        let deadline = timeout.and_then(|timeout| start.checked_add(timeout));
        if let Some(guard) = self.acquire(&plan, deadline).await? {
            return Ok(guard);
        }
        let waited = start.elapsed();
        let held = inspect::inspect(&self.client.driver, &self.name, plan.key).await;
        Err(Error::Timeout(Box::new(Timeout {
            name: self.name.clone(),
            waited,
            holder: held.ok().flatten().map(|held| held.holder),
        })))
    }

    /// Acquires the lock, or finds that its owner has it already. Nothing when
    /// it is still somebody else's at the deadline.
    async fn acquire(&self, plan: &Plan, deadline: Option<Instant>) -> Result<Option<Guard>> {
        let Some(owner) = &self.owner else {
            return self.contend(plan, deadline).await;
        };
        // One task of an owner contends at a time; the others then share what it got.
        let place = owner.place(&plan.key);
        let mut place = match deadline {
            None => place.lock().await,
            Some(deadline) => match timeout_at(deadline, place.lock()).await {
                Ok(place) => place,
                Err(_) => return Ok(None),
            },
        };
        if let Some(hold) = owner::again(&place) {
            return Ok(Some(Guard::new(hold).owned(owner)));
        }
        let Some(guard) = self.contend(plan, deadline).await? else {
            return Ok(None);
        };
        *place = guard.downgrade();
        Ok(Some(guard.owned(owner)))
    }

    /// What is to be done, when all of it makes sense.
    fn plan(&self) -> Result<Plan> {
        let key = self.key.clone()?;
        let ttl = self.client.settings.ttl(self.ttl)?;
        if let Some(max_hold) = self.max_hold {
            // A lock that can't be held for even one shortest lease can't be held at all.
            self.client.settings.ttl(max_hold.min(self.ttl))?;
        }
        if let Some(note) = &self.note {
            Client::check_note(note)?;
        }
        let terms = Terms {
            ttl,
            renewal: self.renewal,
            max_hold: self.max_hold,
        };
        Ok(Plan { key, terms })
    }

    fn span(&self, operation: &'static str) -> tracing::Span {
        tracing::debug_span!("redlatch", operation, lock = %self.name)
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("name", &self.name)
            .field("ttl", &self.ttl)
            .field("renewal", &self.renewal)
            .field("max_hold", &self.max_hold)
            .finish_non_exhaustive()
    }
}

/// A checked request for the lock.
pub(crate) struct Plan {
    pub(crate) key: Key,
    pub(crate) terms: Terms,
}
