//! What can go wrong, told apart by what the caller can do about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlatch_core::Holder;
use redlatch_core::token::TokenError;
use redlatch_core::validity::TtlError;

pub use redlatch_core::Loss;

use crate::node::NodeError;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else held the lock all the time that was allowed for waiting.
    Timeout(Box<Timeout>),
    /// Too few nodes could be reached for a quorum. Nothing is held.
    NoQuorum(Box<NoQuorum>),
    /// The lease is lost: somebody else may hold the lock.
    Lost(Box<Lost>),
    /// A setting or a name is wrong, or a node is not fit to be one. Nothing is held.
    Config(Box<ConfigError>),
    /// The client was closed.
    Closed,
}

impl Error {
    /// Whether the time allowed for waiting ran out.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout(_))
    }

    /// Whether too few nodes could be reached.
    pub fn is_no_quorum(&self) -> bool {
        matches!(self, Self::NoQuorum(_))
    }

    /// Whether too few nodes could be counted on because they are in quarantine.
    pub fn is_quarantined(&self) -> bool {
        matches!(self, Self::NoQuorum(error) if error.quarantine().is_some())
    }

    /// Whether the lease is lost.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// Whether a setting or a name is wrong.
    pub fn is_config(&self) -> bool {
        matches!(self, Self::Config(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(error) => error.fmt(f),
            Self::NoQuorum(error) => error.fmt(f),
            Self::Lost(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::Closed => f.write_str("this client was closed: build a new one"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoQuorum(error) => error.failures.first().map(|(_, error)| error as _),
            _ => None,
        }
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
}

impl From<Lost> for Error {
    fn from(error: Lost) -> Self {
        Self::Lost(Box::new(error))
    }
}

/// Somebody else held the lock all the time that was allowed for waiting.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timeout {
    /// The lock's name.
    pub name: Arc<str>,
    /// How long was waited.
    pub waited: Duration,
    /// Who holds it, as far as the nodes could say at the end.
    pub holder: Option<Holder>,
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, waited, .. } = self;
        write!(f, "lock {name:?} is still held after {waited:.1?}")?;
        let Some(holder) = &self.holder else {
            return Ok(());
        };
        let owner = holder.owner().to_string();
        match owner.as_str() {
            "" => write!(f, ", by another client")?,
            owner => write!(f, ", by {owner}")?,
        }
        match holder.remaining {
            Some(remaining) => write!(f, ", for another {remaining:.1?} unless renewed"),
            None => write!(
                f,
                ", and its key never expires: delete it if nobody holds it"
            ),
        }
    }
}

/// Too few nodes could be reached for a quorum.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NoQuorum {
    /// The lock's name; empty when it was about the nodes and no lock.
    pub name: Arc<str>,
    /// How many nodes are needed.
    pub needed: usize,
    /// How many nodes there are.
    pub nodes: usize,
    /// The nodes that failed, and why.
    pub failures: Vec<(String, NodeError)>,
}

impl NoQuorum {
    /// How long it takes until enough nodes have left quarantine for a quorum.
    /// Nothing when that alone would not be enough.
    pub fn quarantine(&self) -> Option<Duration> {
        let mut waits: Vec<Duration> = self
            .failures
            .iter()
            .filter_map(|(_, error)| error.quarantine())
            .collect();
        waits.sort();
        // As many as must come back, the soonest first.
        let failed = self.failures.len();
        let missing = failed.checked_sub(self.nodes - self.needed)?;
        waits.get(missing.checked_sub(1)?).copied()
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, nodes, .. } = self;
        if !self.name.is_empty() {
            write!(f, "lock {:?}: ", self.name)?;
        }
        match nodes {
            1 => write!(f, "the node did not answer as it should")?,
            _ => write!(
                f,
                "{needed} of {nodes} nodes are needed, and too few answered"
            )?,
        }
        for (at, (node, error)) in self.failures.iter().enumerate() {
            let gap = if at == 0 { ": " } else { "; " };
            write!(f, "{gap}{node}: {error}")?;
        }
        Ok(())
    }
}

/// The lease is lost: somebody else may hold the lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lost {
    /// The lock's name.
    pub name: Arc<str>,
    /// Why.
    pub loss: Loss,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, loss } = self;
        write!(
            f,
            "lock {name:?} is lost: {loss}. Stop the work it protected; somebody else may hold it"
        )
    }
}

impl std::error::Error for Lost {}

/// A setting or a name that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// No node was given.
    NoNode,
    /// More nodes than [`Round::MAX_NODES`](redlatch_core::Round::MAX_NODES).
    TooManyNodes(usize),
    /// The same server was given twice: it would count twice towards the quorum.
    SameNodeTwice(String, String),
    /// A node's address can't be used. The address itself is not repeated: it
    /// may hold a password.
    Address {
        /// Which of the nodes, counted from 1.
        node: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A node refuses this client, or is no Redis server.
    Node {
        /// The node's name.
        node: String,
        /// What it said.
        error: NodeError,
    },
    /// A lock without a name.
    EmptyName,
    /// A lock's name of more than 1,024 bytes.
    NameTooLong(usize),
    /// A name that nodes use for their own books.
    ReservedName(String),
    /// A ttl that is none.
    Ttl(TtlError),
    /// A ttl that is not longer than the node timeout: a single slow node
    /// could use it up.
    TtlWithinNodeTimeout {
        /// The ttl.
        ttl: Duration,
        /// The node timeout.
        node_timeout: Duration,
    },
    /// A ttl shorter than 20 ms.
    TtlTooShort(Duration),
    /// A ttl longer than the nodes allow.
    TtlBeyondMax {
        /// The ttl.
        ttl: Duration,
        /// The deployment's longest.
        max_ttl: Duration,
    },
    /// There is nothing to administer: the restart guard is off.
    GuardOff,
    /// A deployment's name that can't be one.
    Deployment(String),
    /// A setting that must not be zero.
    Zero(&'static str),
    /// A note or a name in a token that is too long.
    Note,
    /// What a token source returned, or what was to be adopted, is no token.
    Token,
    /// The blocking API could not start its runtime.
    Runtime(String),
    /// The blocking API was called from async code.
    BlockingInAsync,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode => write!(
                f,
                "no node is configured: give at least one, such as redis://127.0.0.1"
            ),
            Self::TooManyNodes(nodes) => {
                write!(
                    f,
                    "{nodes} nodes are too many: 3, 5 or 7 are usual, 64 the most"
                )
            }
            Self::SameNodeTwice(one, other) if one == other => {
                write!(
                    f,
                    "node {one} is given twice; a quorum needs independent servers"
                )
            }
            Self::SameNodeTwice(one, other) => write!(
                f,
                "nodes {one} and {other} are the same server; a quorum needs independent ones"
            ),
            Self::Address { node, problem } => {
                write!(f, "the address of node {node} can't be used: {problem}")
            }
            Self::Node { node, error } => write!(f, "node {node}: {error}"),
            Self::EmptyName => write!(f, "a lock needs a name"),
            Self::NameTooLong(length) => {
                write!(
                    f,
                    "a lock's name of {length} bytes is too long: 1,024 are allowed"
                )
            }
            Self::ReservedName(name) => {
                write!(
                    f,
                    "{name:?} is a name that nodes use for themselves: choose another"
                )
            }
            Self::Ttl(error) => error.fmt(f),
            Self::TtlWithinNodeTimeout { ttl, node_timeout } => write!(
                f,
                "a ttl of {ttl:?} is not longer than the node timeout of {node_timeout:?}: \
                 ask for a longer ttl or set a shorter node_timeout"
            ),
            Self::TtlTooShort(ttl) => write!(
                f,
                "a ttl of {ttl:?} leaves no time to tell the holder of a loss: 20 ms is the least"
            ),
            Self::TtlBeyondMax { ttl, max_ttl } => write!(
                f,
                "a ttl of {ttl:?} is longer than this deployment's max_ttl of {max_ttl:?}: ask for \
                 a shorter one and let it be renewed"
            ),
            Self::GuardOff => write!(
                f,
                "the restart guard is off, as it is by default with one node: nothing to arm"
            ),
            Self::Deployment(name) => write!(
                f,
                "{name:?} can't name a deployment: 1 to 64 letters, digits, dots and dashes can"
            ),
            Self::Zero(setting) => write!(f, "{setting} must be longer than nothing"),
            Self::Note => write!(
                f,
                "a note, an owner's, user's or program's name has at most 256 bytes"
            ),
            Self::Token => TokenError.fmt(f),
            Self::Runtime(error) => write!(f, "the blocking API could not start: {error}"),
            Self::BlockingInAsync => write!(
                f,
                "the blocking API was called from async code: use the async one there"
            ),
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<TtlError> for ConfigError {
    fn from(error: TtlError) -> Self {
        Self::Ttl(error)
    }
}

impl From<TokenError> for ConfigError {
    fn from(_: TokenError) -> Self {
        Self::Token
    }
}
