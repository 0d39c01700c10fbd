//! What a node can say about itself when somebody wants to know whether it is well.

use std::pin::Pin;
use std::time::Duration;

use super::NodeError;

/// What a node says about itself, to come.
pub type Examining = Pin<Box<dyn Future<Output = Result<Facts, NodeError>> + Send>>;

/// What a node says about itself. What it can't or won't say is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// What serves there, and in which version: `Redis 7.0.15`.
    pub version: Option<String>,
    /// Whether what is sent there is encrypted; nothing when it does not leave
    /// this machine.
    pub encrypted: Option<bool>,
    /// How long it took to answer, several times.
    pub round_trips: Vec<Duration>,
    /// How many milliseconds its clock is ahead of that of this machine.
    pub clock_ahead: Option<i64>,
    /// Tells this server from every other one.
    pub identity: Option<String>,
    /// Whether it is a replica of another server.
    pub is_replica: Option<bool>,
    /// How many replicas it has.
    pub replicas: Option<u32>,
    /// What it evicts when its memory is full, where that can happen.
    pub evicts: Option<String>,
    /// Whether what it has granted survives a restart to the last lock.
    pub is_durable: Option<bool>,
    /// Whether it tells those who wait when a lock is freed.
    pub tells: Option<bool>,
    /// The rights that its user lacks, as one would grant them: `+hset`.
    pub lacks: Option<Vec<String>>,
}
