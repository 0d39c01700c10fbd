//! The mutex: one holder at a time, over all processes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlatch_core::{Backoff, Key, Loss, Terms, Verdict};
use tokio::time::Instant;
use tracing::Instrument;

use crate::attempt::{Attempt, attempt};
use crate::client::Client;
use crate::error::{ConfigError, Error, Lost, NoQuorum, Result, Timeout};
use crate::guard::{Exported, Guard, Hold};
use crate::inspect;
use crate::lease::Cell;
use crate::owner::{self, OwnerState};
use crate::random;

/// How long a refused `lock` waits before it tries again.
const RETRY: Backoff = Backoff {
    first: Duration::from_millis(5),
    limit: Duration::from_millis(200),
};

/// A lock that one holder has at a time, over all processes and machines.
///
/// A handle, cheap to make, to clone and to keep. Made by
/// [`Redlatch::mutex`](crate::Redlatch::mutex).
#[derive(Clone)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct Mutex {
    client: Arc<Client>,
    name: Arc<str>,
    /// Wrong names are reported when they are used: making a handle can't fail.
    key: Result<Key, ConfigError>,
    owner: Option<Arc<OwnerState>>,
    ttl: Duration,
    renewal: bool,
    max_hold: Option<Duration>,
    note: Option<Arc<str>>,
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

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
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
        let tried = self.enter(&plan, self.attempt(&plan));
        match tried.instrument(self.span("try_lock")).await? {
            Taken::Guard(guard) => Ok(Some(guard)),
            Taken::Busy => Ok(None),
            Taken::Unavailable(error) => Err(Error::NoQuorum(error)),
        }
    }

    /// Locks, runs `body`, and unlocks.
    ///
    /// The body is dropped at its next await when the lock is lost. What the
    /// body returns is never masked by what happens to the lock afterwards.
    ///
    /// # Errors
    ///
    /// [`RunError::Lock`] when the lock was not acquired and the body did not
    /// run; [`RunError::Lost`] when the lock was lost; [`RunError::Body`] with
    /// the body's own error.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped, so is the body, and the lock is released in the
    /// background.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let latch = redlatch::Redlatch::in_memory().await?;
    /// let stock = latch.mutex("sku:0001");
    /// let left = stock
    ///     .run(|lease| async move {
    ///         lease.ensure_held()?; // before a step that must not be done by two
    ///         Ok::<_, redlatch::Error>(41)
    ///     })
    ///     .await;
    /// assert_eq!(left.unwrap(), 41);
    /// # Ok::<_, redlatch::Error>(()) }).unwrap();
    /// ```
    pub async fn run<F, T, E>(&self, body: impl FnOnce(crate::Lease) -> F) -> Result<T, RunError<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let guard = self.lock().await.map_err(RunError::Lock)?;
        let lease = guard.lease();
        let lost = lease.lost();
        let result = tokio::select! {
            // What the body has finished counts, also when the loss comes at the same moment.
            biased;
            result = body(guard.lease()) => result,
            lost = lost => {
                let completed = false;
                return Err(RunError::Lost { lost, completed });
            }
        };
        let released = guard.release().await;
        match (result, released) {
            (Err(error), _) => Err(RunError::Body(error)),
            (Ok(_), Err(Error::Lost(lost))) => {
                let (lost, completed) = (*lost, true);
                Err(RunError::Lost { lost, completed })
            }
            // A release that too few nodes answered is repeated in the background.
            (Ok(value), _) => Ok(value),
        }
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
        let driver = &self.client.driver;
        let ttl = redlatch_core::Lease::first_length(terms);
        let sent = driver.now();
        let lease = redlatch_core::Lease::granted(terms, sent, ttl);
        let clock = driver.clock().clone();
        let token = exported.into_token();
        let cell = Cell::new(self.name.clone(), key, token, clock, lease);
        let mut votes = driver.ask(&cell.extend(ttl), driver.limit(ttl));
        let taken = |loss| {
            let name = self.name.clone();
            Err(Lost { name, loss }.into())
        };
        match votes.verdict().await {
            Verdict::Won => {
                self.client.reaper.finish(votes);
                match cell.loss() {
                    None => Ok(Guard::new(Hold::new(self.client.clone(), cell, None))),
                    Some(lost) => Err(lost.into()),
                }
            }
            Verdict::Refused => taken(Loss::Taken),
            Verdict::Open | Verdict::Unavailable | Verdict::Mixed => Err(Error::NoQuorum(
                driver.no_quorum(&self.name, votes.into_failures()),
            )),
        }
    }

    /// Waits for the lock, until `timeout` is over if there is one.
    async fn wait(&self, timeout: Option<Duration>) -> Result<Guard> {
        let plan = self.plan()?;
        let start = Instant::now();
        // A time beyond what the clock can say is no limit.
        let deadline = timeout.and_then(|timeout| start.checked_add(timeout));
        let acquire = async {
            let mut refusals = 0;
            let mut outage: Option<Instant> = None;
            loop {
                match self.attempt(&plan).await? {
                    Taken::Guard(guard) => return Ok(Taken::Guard(guard)),
                    Taken::Busy => outage = None,
                    Taken::Unavailable(error) => {
                        let since = *outage.get_or_insert(start);
                        let patience = self.client.settings.outage_patience;
                        if since.elapsed() >= patience || is_past(deadline) {
                            return Err(Error::NoQuorum(error));
                        }
                    }
                }
                if is_past(deadline) {
                    return Ok(Taken::Busy);
                }
                refusals += 1;
                let pause = Instant::now() + RETRY.delay(refusals, random::number());
                tokio::time::sleep_until(deadline.map_or(pause, |end| pause.min(end))).await;
            }
        };
        match self.enter(&plan, acquire).await? {
            Taken::Guard(guard) => Ok(guard),
            Taken::Unavailable(error) => Err(Error::NoQuorum(error)),
            Taken::Busy => {
                let (driver, key) = (&self.client.driver, plan.key);
                let held = inspect::inspect(driver, &self.name, key).await;
                Err(Error::Timeout(Box::new(Timeout {
                    name: self.name.clone(),
                    waited: start.elapsed(),
                    holder: held.ok().flatten().map(|held| held.holder),
                })))
            }
        }
    }

    /// Acquires, unless the owner has the lock already.
    async fn enter(
        &self,
        plan: &Plan,
        acquire: impl Future<Output = Result<Taken>>,
    ) -> Result<Taken> {
        let Some(owner) = &self.owner else {
            return acquire.await;
        };
        let place = owner.place(&plan.key);
        let mut place = place.lock().await;
        if let Some(hold) = owner::again(&place) {
            return Ok(Taken::Guard(Guard::new(hold)));
        }
        let taken = acquire.await?;
        if let Taken::Guard(guard) = &taken {
            *place = guard.downgrade();
        }
        Ok(taken)
    }

    async fn attempt(&self, plan: &Plan) -> Result<Taken> {
        self.client.ensure_open()?;
        let Client {
            driver,
            reaper,
            settings,
            ..
        } = &*self.client;
        let token = settings.token(self.note.as_deref())?;
        let tried = attempt(driver, reaper, &self.name, &plan.key, token, plan.terms).await;
        Ok(match tried {
            Attempt::Won(cell, stragglers) => {
                let hold = Hold::new(self.client.clone(), cell, stragglers);
                Taken::Guard(Guard::new(hold))
            }
            Attempt::Busy => Taken::Busy,
            Attempt::Unavailable(error) => Taken::Unavailable(error),
        })
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
struct Plan {
    key: Key,
    terms: Terms,
}

enum Taken {
    Guard(Guard),
    Busy,
    Unavailable(Box<NoQuorum>),
}

fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Why [`Mutex::run`] did not return what its body returned.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The lock was not acquired, and the body did not run.
    Lock(Error),
    /// The lock was lost. Somebody else may have worked at the same time.
    Lost {
        /// Why.
        lost: Lost,
        /// Whether the body had come to its end; otherwise it was dropped.
        completed: bool,
    },
    /// The body's own error.
    Body(E),
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Lost { lost, .. } => lost.fmt(f),
            Self::Body(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for RunError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lock(error) => error.source(),
            Self::Lost { .. } => None,
            Self::Body(error) => error.source(),
        }
    }
}
