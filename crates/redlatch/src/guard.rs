//! The value that holds a lease.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redlatch_core::{Fence, Loss, Token, Verdict};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::{ConfigError, Error, Lost, Result};
use crate::lease::{Cell, Lease};
use crate::owner::OwnerState;
use crate::reaper::Unkept;
use crate::settings::Settings;
use crate::stragglers::Stragglers;
use crate::waiting::Wish;

/// Holds a lock; dropping it gives the lock back.
///
/// While it lives the lease is renewed in the background, unless
/// [`renewal(false)`](crate::Mutex::renewal) was set. It can be sent to other
/// tasks and threads, and dropped anywhere, also outside the runtime.
///
/// All that [`Lease`] can do, a guard can do: [`remaining`](Lease::remaining),
/// [`ensure_held`](Lease::ensure_held), [`lost`](Lease::lost), [`token`](Lease::token).
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct Guard {
    /// Shared by the guards of one owner that locked the same name again.
    hold: Arc<Hold>,
    /// An owner is the same one for as long as it holds something.
    owner: Option<Arc<OwnerState>>,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        let owner = None;
        Self { hold, owner }
    }

    pub(crate) fn owned(mut self, owner: &Arc<OwnerState>) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    pub(crate) fn downgrade(&self) -> Weak<Hold> {
        Arc::downgrade(&self.hold)
    }

    /// A view of the lease, to be passed into the work.
    pub fn lease(&self) -> Lease {
        self.hold.lease.clone()
    }

    /// Gives the lock back and waits until a quorum of nodes has confirmed it.
    ///
    /// When somebody in this process waits for the lock, the lease may pass to
    /// them instead, with no word to the nodes (see
    /// [`handovers`](crate::Builder::handovers)). This then returns at once, and
    /// does not find out whether the lock was taken away on the nodes; its next
    /// renewal will.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the lease was lost before: what it protected may
    /// have been done by two. [`Error::NoQuorum`] when too few nodes answered:
    /// the lock is then freed in the background, or at its ttl.
    ///
    /// Where an owner has locked the same name again, this gives back one of
    /// the locks only; the last one frees it.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped the lock is given back in the background.
    pub async fn release(self) -> Result<()> {
        match Arc::into_inner(self.hold) {
            Some(hold) => hold.release().await,
            None => Ok(()),
        }
    }

    /// Lets the lease run for at least `ttl` from now, and waits until a quorum
    /// of nodes has confirmed it. Later renewals keep up a longer ttl. It never
    /// shortens the lease, and never exceeds `max_hold`.
    ///
    /// Not needed while renewal is on, which is the default.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the lease is lost; it can't be brought back.
    /// [`Error::NoQuorum`] when too few nodes answered: the lease goes on as it was.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped, the lease may or may not have been lengthened.
    pub async fn renew(&self, ttl: Duration) -> Result<()> {
        self.hold.renew(ttl).await
    }

    /// What another process needs to [adopt](crate::Mutex::adopt) this lease.
    ///
    /// Both then hold the same lock: this guard goes on renewing it and frees it
    /// when it is dropped. To hand it over for good, use [`detach`](Guard::detach).
    pub fn export(&self) -> Exported {
        // From here on it is not this process's alone to hand around.
        self.hold.share();
        Exported {
            token: self.token().clone(),
            fence: self.hold.lease.cell().fence,
        }
    }

    /// Lets go of the lease without giving the lock back. It ends at its ttl,
    /// unless whoever adopts it renews it.
    ///
    /// Where an owner has locked the same name again, the lease stays with the
    /// other guards.
    pub fn detach(self) -> Exported {
        let exported = self.export();
        if let Some(hold) = Arc::into_inner(self.hold) {
            hold.detach();
        }
        exported
    }
}

impl Deref for Guard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.hold.lease
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.hold.lease).finish()
    }
}

/// What names a lease to another process: its token and its fence.
///
/// Whoever has the token can release the lock, so treat it as a secret. Both
/// are made to be passed in environment variables or a message:
/// [`token`](Exported::token) and [`fence`](Exported::fence) there,
/// [`Exported::new`] here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Exported {
    token: Token,
    fence: Option<Fence>,
}

impl Exported {
    /// From the token and the fence that another process has exported.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when the token is none.
    pub fn new(token: &str, fence: u64) -> Result<Self> {
        let token = Token::parse(token).map_err(ConfigError::from)?;
        let fence = (fence > 0).then(|| Fence::new(fence));
        Ok(Self { token, fence })
    }

    /// The token, as text.
    pub fn token(&self) -> &str {
        self.token.as_str()
    }

    /// The fence; 0 for a plain lock.
    pub fn fence(&self) -> u64 {
        self.fence.map_or(0, Fence::number)
    }

    pub(crate) fn into_parts(self) -> (Token, Option<Fence>) {
        (self.token, self.fence)
    }
}

/// What all guards of one lease share: when it goes, so does the lock.
pub(crate) struct Hold {
    client: Arc<Client>,
    lease: Lease,
    stragglers: Option<Stragglers>,
    /// Whether the lock is still to be given back.
    armed: bool,
    /// Whether another process knows the lease.
    exported: AtomicBool,
    handovers: Handovers,
}

/// How often the lease was handed over inside the process, and since when.
#[derive(Clone, Copy)]
struct Handovers {
    count: u32,
    since: Instant,
    /// How many wanted the lock in this process when the lease was won, the one
    /// who won it too, if others had it before; nothing if it was free.
    batch: Option<NonZeroU32>,
}

/// When others want the lock too, those who came after it was won must wait for
/// the next turn, unless all of it takes no longer than this.
const QUICK: Duration = Duration::from_millis(2);

impl Handovers {
    /// Whether the lock is to be given back for others to have.
    fn are_over(&self, settings: &Settings, now: Instant) -> bool {
        let elapsed = now.duration_since(self.since);
        let served = self
            .batch
            .is_some_and(|batch| self.count >= batch.get() - 1);
        self.count >= settings.handovers
            || elapsed >= settings.handover_time
            || served && elapsed >= QUICK
    }
}

impl Hold {
    /// Takes charge of a lease that was won: from here on it is renewed. When
    /// others had the lock before, `batch` says how many wait in this process.
    pub(crate) fn new(
        client: Arc<Client>,
        cell: Arc<Cell>,
        stragglers: Option<Stragglers>,
        batch: Option<usize>,
    ) -> Arc<Self> {
        let handovers = Handovers {
            count: 0,
            since: Instant::now(),
            batch: batch.map(|waiting| {
                let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
                NonZeroU32::MIN.saturating_add(waiting)
            }),
        };
        client.keeper.watch(&cell);
        Self::of(client, cell, stragglers, handovers)
    }

    fn of(
        client: Arc<Client>,
        cell: Arc<Cell>,
        stragglers: Option<Stragglers>,
        handovers: Handovers,
    ) -> Arc<Self> {
        tracing::debug!(lock = cell.name(), token = cell.token.short(), "acquired");
        Arc::new(Self {
            client,
            lease: Lease::new(cell),
            stragglers,
            armed: true,
            exported: AtomicBool::new(false),
            handovers,
        })
    }

    /// Another process knows the lease: it is not handed around in this one.
    pub(crate) fn share(&self) {
        self.exported.store(true, Ordering::Relaxed);
        self.client.queues.poke(&self.lease.cell().key);
    }

    /// Hands the lease to the first who waits for it in this process, with no
    /// word to any node: so often and for so long in a row that others get
    /// their turn too. False when it is to be given back instead, as one that is
    /// lost always is.
    fn hand_over(&mut self) -> bool {
        let Client {
            queues, settings, ..
        } = &*self.client;
        let now = Instant::now();
        if self.handovers.are_over(settings, now)
            || self.exported.load(Ordering::Relaxed)
            || self.client.ensure_open().is_err()
        {
            return false;
        }
        let cell = self.lease.cell().clone();
        let terms = cell.lock().lease.terms();
        let rest = settings.rest(terms.ttl, cell.fence.is_some());
        let mut next = None;
        let mut fits = |wish: &Wish| {
            if wish.is_met_by(rest.ttl, rest.fencing) {
                next = cell.handed_on(wish.terms);
            }
            next.is_some()
        };
        let Some(seat) = queues.take_head(&cell.key, rest, &mut fits) else {
            return false;
        };
        let Some(next) = next else { return false };
        self.armed = false;
        self.client.keeper.replace(&cell, &next);
        let mut handovers = self.handovers;
        handovers.count += 1;
        let stragglers = self.stragglers.take();
        let hold = Self::of(self.client.clone(), next, stragglers, handovers);
        seat.hand(Guard::new(hold));
        true
    }

    /// Why the lease is lost, if it is.
    pub(crate) fn loss(&self) -> Option<Lost> {
        self.lease.cell().loss()
    }

    /// Ends renewal and takes back what was not yet sent, so that a release can follow.
    fn let_go(&mut self) {
        self.armed = false;
        let cell = self.lease.cell();
        self.client.keeper.forget(cell);
        self.client.queues.poke(&cell.key);
        if self.handovers.batch.is_some() {
            self.client.queues.note_contended(&cell.key);
        }
        if let Some(stragglers) = self.stragglers.take() {
            stragglers.stop();
        }
    }

    async fn release(mut self) -> Result<()> {
        if self.hand_over() {
            return Ok(());
        }
        let lost = self.loss();
        self.let_go();
        let cell = self.lease.cell();
        // Whatever happens below, nodes that did not answer are asked again.
        let orphan = cell.orphan();
        let request = orphan.request();
        let unkept = Unkept::new(&self.client.reaper, orphan);
        if let Some(lost) = lost {
            return Err(lost.into());
        }
        let driver = &self.client.driver;
        let mut votes = driver.ask(request, driver.node_timeout());
        let verdict = votes.verdict().await;
        tracing::debug!(
            lock = cell.name(),
            token = cell.token.short(),
            ?verdict,
            "released"
        );
        match verdict {
            Verdict::Won => {
                if let Some(orphan) = unkept.forget() {
                    self.client.reaper.release_rest(orphan, votes);
                }
                Ok(())
            }
            Verdict::Refused => {
                let name = cell.name().into();
                let loss = Loss::Taken;
                Err(Lost { name, loss }.into())
            }
            Verdict::Open | Verdict::Again | Verdict::Unavailable | Verdict::Mixed => Err(
                Error::NoQuorum(driver.no_quorum(&cell.name().into(), votes.into_failures())),
            ),
        }
    }

    async fn renew(&self, ttl: Duration) -> Result<()> {
        let ttl = self.client.settings.ttl(ttl)?;
        let cell = self.lease.cell();
        if let Some(lost) = cell.loss() {
            return Err(lost.into());
        }
        let driver = &self.client.driver;
        let ttl = cell.lock().lease.allowed(ttl);
        let sent = driver.now();
        let mut votes = driver.ask(cell.extend(ttl), driver.limit(ttl));
        match votes.verdict().await {
            Verdict::Won => {
                self.client.reaper.finish(votes);
                cell.extended(sent, ttl, driver.now());
            }
            Verdict::Refused => cell.refused(),
            Verdict::Open | Verdict::Again | Verdict::Unavailable | Verdict::Mixed => {
                let failures = votes.into_failures();
                return Err(Error::NoQuorum(
                    driver.no_quorum(&cell.name().into(), failures),
                ));
            }
        }
        cell.loss().map_or(Ok(()), |lost| Err(lost.into()))
    }

    fn detach(mut self) {
        self.armed = false;
        self.client.keeper.forget(self.lease.cell());
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        if !self.hand_over() {
            self.let_go();
            self.client.reaper.release(self.lease.cell().orphan());
        }
    }
}
