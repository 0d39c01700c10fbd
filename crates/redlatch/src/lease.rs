//! A lease as its holder sees it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlatch_core::{Ballots, Fence, Instant, Key, Loss, Request, Step, Terms, Token, Ttl};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::error::{Lost, Result};
use crate::keeper::Slot;
use crate::proposals::Proposals;
use crate::reaper::Orphan;

/// A view of a lease: how much of it is left, and whether it is lost.
///
/// Cheap to clone and to pass into the work that the lock protects. It does
/// not keep the lock: that is what the [`Guard`](crate::Guard) is for, which
/// can do all of this too.
#[derive(Clone)]
pub struct Lease {
    cell: Arc<Cell>,
}

impl Lease {
    pub(crate) fn new(cell: Arc<Cell>) -> Self {
        Self { cell }
    }

    pub(crate) fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.cell.name()
    }

    /// The token that names this lease on every node. Whoever knows it can
    /// release the lock.
    pub fn token(&self) -> &Token {
        &self.cell.token
    }

    /// The fence: a number that is higher than that of every holder before you,
    /// and stays the same through renewals. Give it to the resource that the
    /// lock protects, and let that refuse anything lower than it has seen: it
    /// covers what no lease can, a holder that was paused and does not know it.
    ///
    /// It fits an `i64`. A [plain](crate::Mutex::fencing) lock has none and says 0.
    pub fn fence(&self) -> u64 {
        self.cell.fence.map_or(0, Fence::number)
    }

    /// How long the lock is certainly still yours: ttl − elapsed − drift, and
    /// nothing once it is lost. Each renewal starts it anew.
    pub fn remaining(&self) -> Duration {
        self.cell.lock().lease.remaining(self.cell.clock.now())
    }

    /// Fails when the lease is lost. Call it before a step that must not be
    /// done by two; it costs no round trip.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost), with the reason.
    pub fn ensure_held(&self) -> Result<()> {
        match self.cell.loss() {
            None => Ok(()),
            Some(lost) => Err(lost.into()),
        }
    }

    /// Waits until the lease is lost, and says why. The word comes a little
    /// before the lock may be somebody else's, so there is time to stop.
    ///
    /// Once lost, it stays lost. This also returns when the guard is gone, with
    /// [`Loss::Released`], so that a task that watches the lease comes to an end.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when this is dropped; call it again at any time.
    pub async fn lost(&self) -> Lost {
        let bell = self.cell.bell();
        loop {
            let told = bell.notified();
            tokio::pin!(told);
            // Listen first, then look: a loss between the two would be missed.
            told.as_mut().enable();
            if let Some(lost) = self.cell.loss() {
                return lost;
            }
            told.await;
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.name())
            .field("token", &self.cell.token)
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// What the holder, the keeper and every view share of one lease.
///
/// A process may hold very many: what few of them need is made when it is needed.
pub(crate) struct Cell {
    name: Name,
    pub(crate) key: Key,
    pub(crate) token: Token,
    /// Nothing for a plain lock.
    pub(crate) fence: Option<Fence>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl State {
    /// Whether its guard is gone.
    pub(crate) fn is_released(&self) -> bool {
        self.released
    }

    /// Its guard is gone.
    pub(crate) fn release(&mut self) {
        self.released = true;
        self.lease.release();
    }

    /// When the keeper is to look at the lease again, and what it is to renew it
    /// for until then. It plans anew when that is decided; until then only the
    /// end of the lease counts.
    pub(crate) fn attend(&mut self, now: Instant) -> Result<(Duration, Option<Ttl>), Loss> {
        let renewal = match self.lease.next(now) {
            Step::Lost(loss) => return Err(loss),
            _ if self.renewing => None,
            Step::Wait(wait) => return Ok((wait, None)),
            Step::Renew(ttl) => {
                self.lease.extending(now);
                self.renewing = true;
                Some(ttl)
            }
        };
        Ok((self.lease.until_notice(now), renewal))
    }
}

/// A lock's name: mostly the end of its key, and then not stored twice.
#[derive(Clone)]
enum Name {
    InKey { begin: usize },
    Apart(Arc<str>),
}

impl Name {
    fn new(name: Arc<str>, key: &Key) -> Self {
        match key.as_str().strip_suffix(&*name) {
            Some(prefix) => Self::InKey {
                begin: prefix.len(),
            },
            None => Self::Apart(name),
        }
    }
}

pub(crate) struct State {
    pub(crate) lease: redlatch_core::Lease,
    /// The ballots that were ever sent for it, if it has a fence.
    pub(crate) ballots: Option<Ballots>,
    /// The longest that was ever asked for: a node may have it for that long,
    /// also when its answer was never heard.
    longest: Ttl,
    /// The ticket that it was waited for with: a node that was slow may have
    /// taken it after all.
    pub(crate) ticket: Option<Arc<str>>,
    /// Where the keeper has put it last.
    pub(crate) slot: Slot,
    /// Whether a renewal is under way, or waits to be sent.
    pub(crate) renewing: bool,
    /// Whether its guard is gone: then the keeper must not take it up again.
    released: bool,
    /// Whether everybody who waits for it has been told that it is over.
    told: bool,
    /// Tells them; there once somebody waits.
    bell: Option<Arc<Notify>>,
}

impl Cell {
    pub(crate) fn new(
        name: Arc<str>,
        key: Key,
        token: Token,
        fence: Option<Fence>,
        clock: Arc<dyn Clock>,
        lease: redlatch_core::Lease,
    ) -> Arc<Self> {
        Self::named(Name::new(name, &key), key, token, fence, clock, lease)
    }

    fn named(
        name: Name,
        key: Key,
        token: Token,
        fence: Option<Fence>,
        clock: Arc<dyn Clock>,
        lease: redlatch_core::Lease,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            key,
            token,
            fence,
            clock,
            state: Mutex::new(State {
                longest: lease.length(),
                lease,
                // Unless it is told, it does not know of others before that one.
                ballots: fence.map(|fence| Ballots::up_to(fence.ballot())),
                ticket: None,
                slot: Slot::default(),
                renewing: false,
                released: false,
                told: false,
                bell: None,
            }),
        })
    }

    /// The lock's name.
    pub(crate) fn name(&self) -> &str {
        match &self.name {
            Name::InKey { begin } => &self.key.as_str()[*begin..],
            Name::Apart(name) => name,
        }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the lease is lost, if it is.
    pub(crate) fn loss(&self) -> Option<Lost> {
        let loss = self.lock().lease.loss(self.clock.now())?;
        let name = self.name().into();
        Some(Lost { name, loss })
    }

    /// A quorum has confirmed the EXTEND that was sent at `sent`. False when
    /// that comes too late.
    pub(crate) fn extended(&self, sent: Instant, ttl: Ttl, now: Instant) -> bool {
        self.lock().lease.extended(sent, ttl, now)
    }

    /// So many nodes refused that the lease is lost.
    pub(crate) fn refused(&self) {
        self.lock().lease.refused();
        if let Some(lost) = self.loss() {
            self.tell(lost.loss);
        }
    }

    /// What rings when the lease is over.
    fn bell(&self) -> Arc<Notify> {
        self.lock().bell.get_or_insert_default().clone()
    }

    /// Tells everybody who waits for it that the lease is over.
    pub(crate) fn tell(&self, loss: Loss) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.told, true) {
            return;
        }
        let bell = state.bell.take();
        drop(state);
        if loss != Loss::Released {
            let (lock, token) = (self.name(), self.token.short());
            tracing::warn!(%lock, token, %loss, "lease lost");
        }
        // Who comes to listen only now finds that it is lost.
        if let Some(bell) = bell {
            bell.notify_waiters();
        }
    }

    /// The request that makes the lease run for another `ttl`.
    pub(crate) fn extend(&self, ttl: Ttl) -> Request {
        self.extension(&mut self.lock(), ttl)
    }

    /// The same for one who has waited to send it; nothing when the lease is over.
    pub(crate) fn renewal(&self, ttl: Ttl, now: Instant) -> Option<Request> {
        let mut state = self.lock();
        let is_held = state.lease.loss(now).is_none();
        is_held.then(|| self.extension(&mut state, ttl))
    }

    fn extension(&self, state: &mut State, ttl: Ttl) -> Request {
        state.longest = state.longest.max(ttl);
        Request::Extend {
            key: self.key.clone(),
            token: self.token.clone(),
            ttl,
            plain: self.fence.is_none(),
        }
    }

    /// The request that takes the lease up again on a node that has lost it.
    /// Nothing when it is over, or has no ballot that could say what came before.
    pub(crate) fn rejoin(&self, ttl: Ttl, proposals: &Proposals) -> Option<Request> {
        let born = self.fence?.ballot();
        let now = self.clock.now();
        let mut state = self.lock();
        if state.lease.loss(now).is_some() {
            return None;
        }
        // Noted before it is sent: a release carries the highest one.
        let ballots = state.ballots.as_mut()?;
        ballots.raise(proposals.next(now).max(ballots.highest().next()));
        let ballot = ballots.highest();
        Some(Request::Rejoin {
            key: self.key.clone(),
            token: self.token.clone(),
            ttl,
            born,
            ballot,
        })
    }

    /// The same lease for another holder in this process. Nothing when there is
    /// too little left of it, or of its fences.
    pub(crate) fn handed_on(&self, terms: Terms) -> Option<Arc<Self>> {
        let fence = match self.fence {
            Some(fence) => Some(fence.handed_on()?),
            None => None,
        };
        let mut state = self.lock();
        let lease = match planted!(HandOverLost) {
            true => redlatch_core::Lease::granted(terms, self.clock.now(), state.lease.length()),
            false => state.lease.handed_on(terms, self.clock.now())?,
        };
        let (name, key, token) = (self.name.clone(), self.key.clone(), self.token.clone());
        let cell = Self::named(name, key, token, fence, self.clock.clone(), lease);
        let mut handed = cell.lock();
        (handed.ballots, handed.longest) = (state.ballots, state.longest);
        handed.ticket = state.ticket.take();
        drop(handed);
        // From here on the old holder neither renews nor rejoins.
        state.lease.release();
        Some(cell)
    }

    /// What is to be given back when its holder is done.
    pub(crate) fn orphan(&self) -> Orphan {
        let state = self.lock();
        let ticket = state.ticket.clone();
        Orphan::new(&self.key, &self.token, state.longest, state.ballots).with(ticket)
    }
}
