//! A Redis connection that the user brought.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redlatch_core::Request;
use tokio::time::timeout;

use super::checkup;
use super::dialect::Dialect;
use super::patience;
use super::server;
use super::wire::{self, Before, Trouble};
use crate::node::{
    Call, CallAll, Charter, Examining, Node, NodeError, Pattern, Probing, Ready, Scanning,
};

/// A node behind a connection that is not ours: it may reconnect behind our
/// back, or not at all, and what it does about that is its owner's business.
pub(crate) struct Borrowed<C> {
    name: String,
    connection: C,
    enlisted: Option<(Charter, Arc<Dialect>)>,
}

impl<C> Borrowed<C> {
    pub(crate) fn new(name: String, connection: C) -> Self {
        Self {
            name,
            connection,
            enlisted: None,
        }
    }

    fn enlisted(&self) -> (Charter, Arc<Dialect>) {
        self.enlisted
            .clone()
            .expect("enlisted before anything else")
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Node for Borrowed<C> {
    fn enlist(&mut self, charter: Charter) {
        // No hint: the connection may lead to another run of the server by now.
        // Nor can it be called.
        let dialect = Arc::new(Dialect::new(&charter, "", false));
        self.enlisted = Some((charter, dialect));
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn call(&self, request: Request, limit: Duration) -> Call {
        let mut connection = self.connection.clone();
        let (_, dialect) = self.enlisted();
        Box::pin(async move {
            // The connection may send a request again on its own.
            let sent = wire::send(&mut connection, &dialect, &request, Before::Unknown);
            within(limit, sent).await
        })
    }

    fn call_all(&self, requests: Vec<Request>, limit: Duration) -> CallAll {
        let mut connection = self.connection.clone();
        let (_, dialect) = self.enlisted();
        Box::pin(async move {
            let sent = wire::send_all(&mut connection, &dialect, &requests);
            let answers = within(limit, sent).await;
            answers.unwrap_or_else(|error| vec![Err(error); requests.len()])
        })
    }

    fn scan(&self, pattern: Pattern, after: Option<String>, limit: Duration) -> Scanning {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let sent = wire::scan(&mut connection, &pattern, after.as_deref());
            within(limit, sent).await
        })
    }

    fn probe(&self, limit: Duration) -> Probing {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let sent = wire::probe(&mut connection);
            within(limit, sent).await
        })
    }

    fn examine(&self, limit: Duration) -> Examining {
        let mut connection = self.connection.clone();
        let (charter, _) = self.enlisted();
        Box::pin(async move {
            let facts = checkup::examine(&mut connection, &charter, false);
            let timed_out = || Err(NodeError::timed_out(limit));
            let mut facts = timeout(limit, facts)
                .await
                .unwrap_or_else(|_| timed_out())?;
            // What it is told goes to its owner.
            facts.tells = Some(false);
            Ok(facts)
        })
    }

    fn ready(
        &self,
        limit: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Ready, NodeError>> + Send>> {
        let mut connection = self.connection.clone();
        let (charter, _) = self.enlisted();
        Box::pin(async move {
            let run = match timeout(limit, server::greet(&mut connection, &charter)).await {
                Ok(server) => server?.run,
                Err(_) => return Err(NodeError::timed_out(limit)),
            };
            let identity = (!run.is_empty()).then(|| run.to_string());
            Ok(Ready { identity })
        })
    }
}

async fn within<T>(
    limit: Duration,
    sent: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, NodeError> {
    match patience::until(patience::deadline(limit), pin!(sent)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Trouble::Gone(error) | Trouble::Error(error))) => Err(error),
        Err(_) => Err(NodeError::timed_out(limit)),
    }
}
