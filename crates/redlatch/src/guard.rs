//! The value that holds a lease.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redlatch_core::{Ballot, Fence, Loss, Token, Verdict};

use crate::client::Client;
use crate::error::{ConfigError, Error, Lost, Result};
use crate::lease::{Cell, Lease};
use crate::reaper::Unkept;
use crate::stragglers::Stragglers;

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
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self { hold }
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
        Exported {
            token: self.token().clone(),
            born: self.hold.lease.cell().born,
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
    born: Option<Ballot>,
}

impl Exported {
    /// From the token and the fence that another process has exported.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when the token is none.
    pub fn new(token: &str, fence: u64) -> Result<Self> {
        let token = Token::parse(token).map_err(ConfigError::from)?;
        let born = (fence > 0).then(|| Fence::new(fence).ballot());
        Ok(Self { token, born })
    }

    /// The token, as text.
    pub fn token(&self) -> &str {
        self.token.as_str()
    }

    /// The fence; 0 for a plain lock.
    pub fn fence(&self) -> u64 {
        self.born.map_or(0, |born| Fence::of(born).number())
    }

    pub(crate) fn into_parts(self) -> (Token, Option<Ballot>) {
        (self.token, self.born)
    }
}

/// What all guards of one lease share: when it goes, so does the lock.
pub(crate) struct Hold {
    client: Arc<Client>,
    lease: Lease,
    stragglers: Option<Stragglers>,
    /// Whether the lock is still to be given back.
    armed: bool,
}

impl Hold {
    /// Takes charge of a lease that was won: from here on it is renewed.
    pub(crate) fn new(
        client: Arc<Client>,
        cell: Arc<Cell>,
        stragglers: Option<Stragglers>,
    ) -> Arc<Self> {
        client.keeper.watch(&cell);
        tracing::debug!(lock = %cell.name, token = cell.token.short(), "acquired");
        Arc::new(Self {
            client,
            lease: Lease::new(cell),
            stragglers,
            armed: true,
        })
    }

    /// Why the lease is lost, if it is.
    pub(crate) fn loss(&self) -> Option<Lost> {
        self.lease.cell().loss()
    }

    /// Ends renewal and takes back what was not yet sent, so that a release can follow.
    fn let_go(&mut self) {
        self.armed = false;
        self.client.keeper.forget(self.lease.cell());
        if let Some(stragglers) = self.stragglers.take() {
            stragglers.stop();
        }
    }

    async fn release(mut self) -> Result<()> {
        let lost = self.loss();
        self.let_go();
        let cell = self.lease.cell();
        // Whatever happens below, nodes that did not answer are asked again.
        let orphan = cell.orphan();
        let request = orphan.request();
        let unkept = Unkept::new(&self.client.reaper, orphan.clone());
        if let Some(lost) = lost {
            return Err(lost.into());
        }
        let driver = &self.client.driver;
        let mut votes = driver.ask(&request, driver.node_timeout());
        let verdict = votes.verdict().await;
        tracing::debug!(lock = %cell.name, token = cell.token.short(), ?verdict, "released");
        match verdict {
            Verdict::Won => {
                unkept.forget();
                self.client.reaper.release_rest(orphan, votes);
                Ok(())
            }
            Verdict::Refused => {
                let name = cell.name.clone();
                let loss = Loss::Taken;
                Err(Lost { name, loss }.into())
            }
            Verdict::Open | Verdict::Again | Verdict::Unavailable | Verdict::Mixed => Err(
                Error::NoQuorum(driver.no_quorum(&cell.name, votes.into_failures())),
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
        let mut votes = driver.ask(&cell.extend(ttl), driver.limit(ttl));
        match votes.verdict().await {
            Verdict::Won => {
                self.client.reaper.finish(votes);
                cell.extended(sent, ttl);
            }
            Verdict::Refused => cell.refused(),
            Verdict::Open | Verdict::Again | Verdict::Unavailable | Verdict::Mixed => {
                let failures = votes.into_failures();
                return Err(Error::NoQuorum(driver.no_quorum(&cell.name, failures)));
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
        if self.armed {
            self.let_go();
            self.client.reaper.release(self.lease.cell().orphan());
        }
    }
}
