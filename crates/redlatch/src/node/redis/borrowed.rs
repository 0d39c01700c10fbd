//! A Redis connection that the user brought.

use std::pin::Pin;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redlatch_core::Request;
use tokio::time::timeout;

use super::wire::{self, Before, Trouble};
use crate::node::{Call, CallAll, Node, NodeError, Ready};

/// A node behind a connection that is not ours: it may reconnect behind our
/// back, or not at all, and what it does about that is its owner's business.
pub(crate) struct Borrowed<C> {
    name: String,
    connection: C,
}

impl<C> Borrowed<C> {
    pub(crate) fn new(name: String, connection: C) -> Self {
        Self { name, connection }
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Node for Borrowed<C> {
    fn name(&self) -> &str {
        &self.name
    }

    fn call(&self, request: Request, limit: Duration) -> Call {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            // The connection may send a request again on its own.
            let sent = wire::send(&mut connection, &request, Before::Unknown);
            flatten(limit, timeout(limit, sent).await)
        })
    }

    fn call_all(&self, requests: Vec<Request>, limit: Duration) -> CallAll {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let sent = wire::send_all(&mut connection, &requests);
            let answers = flatten(limit, timeout(limit, sent).await);
            answers.unwrap_or_else(|error| vec![Err(error); requests.len()])
        })
    }

    fn ready(
        &self,
        limit: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Ready, NodeError>> + Send>> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let identity = match timeout(limit, wire::prepare(&mut connection)).await {
                Ok(identity) => identity?,
                Err(_) => return Err(NodeError::timed_out(limit)),
            };
            Ok(Ready { identity })
        })
    }
}

fn flatten<T>(
    limit: Duration,
    answer: Result<Result<T, Trouble>, tokio::time::error::Elapsed>,
) -> Result<T, NodeError> {
    match answer {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Trouble::Gone(error) | Trouble::Error(error))) => Err(error),
        Err(_) => Err(NodeError::timed_out(limit)),
    }
}
