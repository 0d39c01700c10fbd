//! A node as one client sees it, over the simulated network.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redlatch::core::{Key, Reply, Request};
use redlatch::node::{Bell, Bells, Call, Charter, Node, NodeError, Ready, Watched, Watching};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::network::{NODES, Network, Question};

/// What one client has sent to all nodes.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    acquires: AtomicU64,
    requests: AtomicU64,
}

impl Sent {
    /// How often all nodes were asked for the lock.
    pub(crate) fn rounds(&self) -> u64 {
        self.acquires.load(Ordering::Relaxed).div_ceil(NODES as u64)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// One client's line to one node.
#[derive(Clone)]
pub(crate) struct Line {
    network: Arc<Network>,
    node: usize,
    client: Arc<str>,
    bells: Bells,
    sent: Arc<Sent>,
}

impl Line {
    /// The lines of one client to all nodes.
    pub(crate) fn to_all(network: &Arc<Network>, client: usize, sent: &Arc<Sent>) -> Vec<Self> {
        let line = |node| Self {
            network: network.clone(),
            node,
            client: client.to_string().into(),
            bells: Bells::default(),
            sent: sent.clone(),
        };
        (0..NODES).map(line).collect()
    }

    async fn ask<T>(
        self,
        limit: Duration,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, NodeError> {
        let (asker, answer) = oneshot::channel();
        self.sent.requests.fetch_add(1, Ordering::Relaxed);
        self.network.send(self.node, &self.client, question(asker));
        let late = || NodeError::timed_out(limit);
        timeout(limit, answer)
            .await
            .map_err(|_| late())?
            .map_err(|_| late())
    }
}

impl Node for Line {
    fn enlist(&mut self, charter: Charter) {
        self.client = charter.client;
        let bells = self.bells.clone();
        self.network
            .join(self.node, &self.client, charter.turn, bells);
    }

    fn name(&self) -> &str {
        "simulated"
    }

    fn call(&self, request: Request, limit: Duration) -> Call {
        let line = self.clone();
        Box::pin(async move {
            if let Request::Acquire { .. } = request {
                line.sent.acquires.fetch_add(1, Ordering::Relaxed);
            }
            let reply: Reply = line
                .ask(limit, |asker| Question::Do(request, asker))
                .await?;
            Ok(reply)
        })
    }

    fn listen(&self, key: &Key) -> Option<Bell> {
        Some(self.bells.hang(key))
    }

    fn watch(&self, key: Key, limit: Duration) -> Watching {
        let line = self.clone();
        Box::pin(async move {
            let watched: Watched = line.ask(limit, |asker| Question::Watch(key, asker)).await?;
            Ok(watched)
        })
    }

    fn ready(
        &self,
        _limit: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Ready, NodeError>> + Send>> {
        Box::pin(async { Ok(Ready::default()) })
    }
}
