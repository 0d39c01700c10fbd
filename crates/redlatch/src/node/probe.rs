//! How long a node takes for an answer, and what time it has.

use std::pin::Pin;
use std::time::Duration;

use super::NodeError;

/// An answer that is nothing but that, to come.
pub type Probing = Pin<Box<dyn Future<Output = Result<Probe, NodeError>> + Send>>;

/// What an answer shows that is nothing but that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// How long it took.
    pub took: Duration,
    /// How many milliseconds the node's clock is ahead of that of this machine;
    /// nothing when it did not say.
    pub clock_ahead: Option<i64>,
}

impl Probe {
    /// An answer that took so long and said nothing of the time.
    pub fn new(took: Duration) -> Self {
        Self {
            took,
            clock_ahead: None,
        }
    }
}
