//! Single nodes, for those who want to know how fast each of them answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::node::{Node, NodeError, Probe};

/// One of a client's nodes. Made by [`Redlatch::nodes`](crate::Redlatch::nodes).
#[derive(Clone)]
pub struct NodeView {
    node: Arc<dyn Node>,
}

impl NodeView {
    pub(crate) fn new(node: Arc<dyn Node>) -> Self {
        Self { node }
    }

    /// What people call this node, without a password.
    pub fn name(&self) -> &str {
        self.node.name()
    }

    /// Asks the node for no more than an answer, over the connection that its
    /// locks use: how long that takes, and what time the node has.
    ///
    /// # Errors
    ///
    /// When it can't be reached, or is silent for `limit`.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing, dropped or not.
    pub async fn probe(&self, limit: Duration) -> Result<Probe, NodeError> {
        self.node.probe(limit).await
    }
}

impl fmt::Debug for NodeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeView").field(&self.name()).finish()
    }
}
