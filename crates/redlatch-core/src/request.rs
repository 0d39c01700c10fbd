//! All that is ever said to a node, and all that it answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
    },
    /// Let the lease run for at least `ttl` from now.
    Extend {
        /// The lock.
        key: Key,
        /// Names the lease.
        token: Token,
        /// How long it shall go on at least.
        ttl: Ttl,
    },
    /// Give the lock back.
    Release {
        /// The lock.
        key: Key,
        /// Names the lease.
        token: Token,
    },
    /// Take the lock away from whoever holds it.
    Force {
        /// The lock.
        key: Key,
    },
    /// Say who holds the lock.
    Inspect {
        /// The lock.
        key: Key,
    },
}

impl Request {
    /// The lock that this is about.
    pub fn key(&self) -> &Key {
        match self {
            Self::Acquire { key, .. }
            | Self::Extend { key, .. }
            | Self::Release { key, .. }
            | Self::Force { key }
            | Self::Inspect { key } => key,
        }
    }
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// To [`Acquire`](Request::Acquire): the key is yours.
    Granted,
    /// To [`Acquire`](Request::Acquire): somebody has it.
    Held,
    /// To [`Extend`](Request::Extend): done.
    Extended,
    /// To [`Release`](Request::Release) and [`Force`](Request::Force): the key was there and is gone.
    Released,
    /// There is no such key.
    Missing,
    /// The key is there, but names another lease or none at all.
    Foreign,
    /// To [`Inspect`](Request::Inspect): this is who holds it.
    Holder(Holder),
}

/// Who holds a lock, as a node stores it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The value of the key: a token of ours, or whatever a stranger put there.
    /// Nothing when the key holds no string at all.
    pub value: Option<Vec<u8>>,
    /// How long the key still lives; nothing when it never expires.
    pub remaining: Option<Duration>,
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
            .finish()
    }
}
