//! All that is ever said to a node, and all that it answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::fence::{Ballot, Ballots};
use crate::queue::Ticket;
use crate::token::{Owner, Token};
use crate::validity::Ttl;

/// The name under which a lock is stored on a node: prefix and lock name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// A key from the text that a node will store.
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(key.into())
    }

    /// The key as a node stores it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// One thing that a node is asked to do, in one atomic step.
///
/// Each is idempotent for the same token, so it may be sent again when its
/// reply was lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Take the lock if it is free.
    Acquire {
        /// The lock.
        key: Key,
        /// Names the lease to be.
        token: Token,
        /// How long the lease is.
        ttl: Ttl,
        /// What the lease is to be fenced with; nothing for a plain lock, which
        /// has no fence and is not protected from nodes that forget.
        ballot: Option<Ballot>,
        /// A place in the queue, to be taken when the lock can't be; nothing
        /// for one who won't wait.
        ticket: Option<Ticket>,
    },
    /// Let the lease run for at least `ttl` from now.
    Extend {
        /// The lock.
        key: Key,
        /// Names the lease.
        token: Token,
        /// How long it shall go on at least.
        ttl: Ttl,
        /// Whether the lock is a plain one.
        plain: bool,
    },
    /// Take the lock up again on a node that has lost it, while a quorum of
    /// the others has just confirmed that it is held. Never counts towards a quorum.
    Rejoin {
        /// The lock.
        key: Key,
        /// Names the lease.
        token: Token,
        /// How long it shall go on.
        ttl: Ttl,
        /// The ballot that the lease was won with.
        born: Ballot,
        /// A new one, higher than what the node may have granted since.
        ballot: Ballot,
    },
    /// Give the lock back.
    Release {
        /// The lock.
        key: Key,
        /// Names the lease.
        token: Token,
        /// The ballots that were ever sent for this token; nothing for a plain
        /// lock. Whatever of it is still on its way comes too late then.
        ballots: Option<Ballots>,
        /// The name of a ticket for this lock that is given up.
        leaves: Option<Arc<str>>,
        /// The name of one with which this very request may be parked.
        unparks: Option<Arc<str>>,
    },
    /// Take the lock away from whoever holds it, when the ballot is one that
    /// could acquire it.
    Force {
        /// The lock.
        key: Key,
        /// Above that of the lease, on one node of every quorum at least: when
        /// a quorum accepts the same ballot, nothing of the lease is let in again.
        ballot: Ballot,
    },
    /// Say who holds the lock.
    Inspect {
        /// The lock.
        key: Key,
    },
    /// Look after the restart guard.
    Guard(GuardOrder),
}

impl Request {
    /// The lock that this is about, if it is about one.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Acquire { key, .. }
            | Self::Extend { key, .. }
            | Self::Rejoin { key, .. }
            | Self::Release { key, .. }
            | Self::Force { key, .. }
            | Self::Inspect { key } => Some(key),
            Self::Guard(_) => None,
        }
    }
}

/// What an administrator wants of a node's restart guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GuardOrder {
    /// Say how it stands.
    Read,
    /// Grant at once: this node is known to have forgotten nothing, because
    /// it never held anything, or every lease has ended.
    AssumeFresh,
    /// Belong to the deployment that the client names from now on, after a quarantine.
    Reconfigure,
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// To [`Acquire`](Request::Acquire) and [`Rejoin`](Request::Rejoin): the key is yours.
    Granted,
    /// To the same: somebody has it. A plain lock is not told who.
    Held(Option<Holder>),
    /// To [`Acquire`](Request::Acquire): nobody has it, but it is somebody else's turn.
    Kept,
    /// To [`Acquire`](Request::Acquire) with a ticket: the client waits in the queue now.
    Queued {
        /// Who has the lock; nothing when it is kept for one who waits.
        holder: Option<Holder>,
        /// Whether the client is the first in the queue.
        first: bool,
    },
    /// To the same: the ballot is not high enough.
    Low {
        /// It must be higher than this.
        seen: Ballot,
        /// The node's clock, in milliseconds.
        now: u64,
    },
    /// To the same: the ballot is too far ahead of the node's clock, which
    /// shows this many milliseconds.
    Future(u64),
    /// To [`Extend`](Request::Extend): done.
    Extended,
    /// To [`Release`](Request::Release) and [`Force`](Request::Force): the key was there and is gone.
    Released,
    /// There is no such key.
    Missing,
    /// The key is there, but names another lease or none at all.
    Foreign,
    /// To [`Rejoin`](Request::Rejoin): the lock was taken away by force since the lease was won.
    Forced,
    /// To [`Inspect`](Request::Inspect): this is who holds it.
    Holder(Holder),
    /// To [`Guard`](Request::Guard): how it stands. Nothing when there is none.
    Guard(Option<GuardView>),
    /// The node may have forgotten leases that are still valid, and grants
    /// nothing until they have all run out.
    Quarantined(Duration),
    /// The node's clock is behind what the node has seen, by this much.
    ClockBehind(Duration),
    /// The node belongs to another deployment, which is named here.
    Mismatch(String),
    /// The node allows no ttl longer than this.
    TtlTooLong(Duration),
}

/// How a node's restart guard stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GuardView {
    /// The deployment that the node belongs to.
    pub deployment: String,
    /// How long the node will still grant nothing.
    pub quarantine: Duration,
}

/// Who holds a lock, as a node stores it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The value of the key: a token of ours, or whatever a stranger put there.
    /// Nothing when the key holds no string at all.
    pub value: Option<Vec<u8>>,
    /// How long the key still lives; nothing when it never expires.
    pub remaining: Option<Duration>,
    /// The highest ballot that the node has granted in the lock's slot. The
    /// holder's own, or that of a lock that shares the slot; zero when unknown.
    pub ballot: Ballot,
}

impl Holder {
    /// What the holder says about itself.
    pub fn owner(&self) -> Owner {
        self.value.as_deref().map(Owner::read).unwrap_or_default()
    }

    /// The holder's token, when it is one.
    pub fn token(&self) -> Option<Token> {
        Token::parse(std::str::from_utf8(self.value.as_deref()?).ok()?).ok()
    }
}

/// The value may be a token, and a token opens the lock: only its beginning is shown.
impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder")
            .field("token", &self.token())
            .field("owner", &self.owner())
            .field("remaining", &self.remaining)
            .field("ballot", &self.ballot)
            .finish()
    }
}
