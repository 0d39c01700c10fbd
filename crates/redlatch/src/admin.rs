//! Looking after the restart guards of a deployment's nodes.

use std::fmt;
use std::time::Duration;

use redlatch_core::{GuardOrder, GuardView, Key, Reply, Request};
use tokio::time::Instant;

use crate::driver::Driver;
use crate::node::{NodeError, NodeErrorKind};
use crate::settings::Settings;

/// How long a node may take to answer an administrator, connecting included.
const LIMIT: Duration = Duration::from_secs(3);

/// Looks after the restart guards of a deployment's nodes. Made by
/// [`Builder::admin`](crate::Builder::admin).
///
/// ```no_run
/// # async fn example() -> redlatch::Result<()> {
/// let nodes = ["redis://a", "redis://b", "redis://c"];
/// // Once, when the servers are new: else the first lock waits out a quarantine.
/// let admin = redlatch::Redlatch::builder().nodes(nodes).admin().await?;
/// for status in admin.assume_fresh().await {
///     println!("{status}");
/// }
/// # Ok(()) }
/// ```
pub struct Admin {
    driver: Driver,
    deployment: String,
    max_ttl: Duration,
}

impl Admin {
    pub(crate) fn new(driver: Driver, deployment: String, max_ttl: Duration) -> Self {
        Self {
            driver,
            deployment,
            max_ttl,
        }
    }

    /// How the guard of each node stands.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing, dropped or not.
    pub async fn status(&self) -> Vec<NodeStatus> {
        self.order(GuardOrder::Read).await
    }

    /// Lets nodes grant at once that never held anything for this deployment,
    /// or of whose leases all have ended. Nodes that are armed stay as they are;
    /// nodes of another deployment are left alone.
    ///
    /// Of a node that has forgotten leases which are still valid this breaks
    /// the promise of mutual exclusion. If in doubt, wait the quarantine out.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped some nodes may be armed: call it again.
    pub async fn assume_fresh(&self) -> Vec<NodeStatus> {
        self.order(GuardOrder::AssumeFresh).await
    }

    /// Makes the nodes belong to the deployment with this builder's name,
    /// number of nodes and max_ttl, by way of a quarantine. Clients with the old
    /// settings are refused from then on.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped some nodes may be changed: call it again.
    pub async fn reconfigure(&self) -> Vec<NodeStatus> {
        self.order(GuardOrder::Reconfigure).await
    }

    async fn order(&self, order: GuardOrder) -> Vec<NodeStatus> {
        let limit = LIMIT.max(self.driver.node_timeout());
        ask_all(&self.driver, &Request::Guard(order), limit).await
    }
}

/// How each node is, and how its guard stands where there is one.
pub(crate) async fn status(
    driver: &Driver,
    settings: &Settings,
    limit: Duration,
) -> Vec<NodeStatus> {
    let request = match settings.max_ttl {
        Some(_) => Request::Guard(GuardOrder::Read),
        // Nobody holds a lock of this name: it is that of the client's channel.
        None => Request::Inspect {
            key: Key::new(settings.client.clone()),
        },
    };
    ask_all(driver, &request, limit).await
}

/// Asks all nodes at the same time. An answer about a lock is one of a node
/// that has no guard.
async fn ask_all(driver: &Driver, request: &Request, limit: Duration) -> Vec<NodeStatus> {
    let asked = driver.nodes().iter().map(|node| async move {
        let begin = Instant::now();
        let guard = match node.call(request.clone(), limit).await {
            Ok(Reply::Guard(guard)) => Ok(guard),
            Ok(Reply::Holder(_) | Reply::Missing) => Ok(None),
            Ok(reply) => Err(NodeError::in_reply(&reply).unwrap_or_else(|| {
                NodeError::new(
                    NodeErrorKind::Confused,
                    "it gave an answer to another question",
                )
            })),
            Err(error) => Err(error),
        };
        NodeStatus {
            node: node.name().to_owned(),
            guard,
            took: begin.elapsed(),
        }
    });
    futures_util::future::join_all(asked).await
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("deployment", &self.deployment)
            .field("nodes", &self.driver.nodes().len())
            .field("max_ttl", &self.max_ttl)
            .finish()
    }
}

/// How the restart guard of one node stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's name.
    pub node: String,
    /// Its guard, nothing when it has none yet, or why it could not be asked.
    pub guard: Result<Option<GuardView>, NodeError>,
    /// How long it took to answer, or until no answer was expected any more.
    pub took: Duration,
}

impl NodeStatus {
    /// Whether the node may grant locks.
    pub fn is_armed(&self) -> bool {
        matches!(&self.guard, Ok(Some(guard)) if guard.quarantine.is_zero())
    }
}

impl fmt::Display for NodeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.node)?;
        match &self.guard {
            Err(error) => error.fmt(f),
            Ok(None) => f.write_str("new, a quarantine begins with the first lock"),
            Ok(Some(GuardView {
                deployment,
                quarantine,
            })) if quarantine.is_zero() => write!(f, "armed, deployment {deployment}"),
            Ok(Some(GuardView {
                deployment,
                quarantine,
            })) => write!(
                f,
                "in quarantine for another {quarantine:.1?}, deployment {deployment}"
            ),
        }
    }
}
