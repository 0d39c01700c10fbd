//! Lock servers: what the engine needs of them, and the kinds there are.

pub(crate) mod memory;
pub(crate) mod redis;

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use redlatch_core::{Reply, Request};

/// One independent lock server.
///
/// The library brings nodes on Redis and in memory; implement this to bring
/// another. A node must do each request in one atomic step, by the rules of
/// [`NodeState`](redlatch_core::NodeState).
pub trait Node: Send + Sync + 'static {
    /// What people call this node: in errors, logs and spans. Without a password.
    fn name(&self) -> &str;

    /// Asks the node, and gives up after `limit`.
    ///
    /// Requests must reach the node in the order in which their futures are
    /// first polled, and a request whose future was dropped before it was sent
    /// must never be sent: the engine relies on both to let a release follow
    /// its acquire.
    fn call(&self, request: Request, limit: Duration) -> Call;

    /// Asks the node several things at once, each as [`call`](Node::call) would.
    ///
    /// The answers come in the order of the requests. The default asks one
    /// after the other.
    fn call_all(&self, requests: Vec<Request>, limit: Duration) -> CallAll {
        let calls: Vec<Call> = requests
            .into_iter()
            .map(|request| self.call(request, limit))
            .collect();
        Box::pin(futures_util::future::join_all(calls))
    }

    /// Connects, if that is needed, and says why it can't be done. Asked once,
    /// when a client is built.
    fn ready(
        &self,
        limit: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Ready, NodeError>> + Send>>;
}

/// A node's answer to come.
pub type Call = Pin<Box<dyn Future<Output = Result<Reply, NodeError>> + Send>>;

/// A node's answers to come.
pub type CallAll = Pin<Box<dyn Future<Output = Vec<Result<Reply, NodeError>>> + Send>>;

/// What a node says of itself when it is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ready {
    /// Tells this server from every other one, so that the same server is not
    /// counted twice. Nothing when the server won't say.
    pub identity: Option<String>,
}

/// Why a node gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeError {
    kind: NodeErrorKind,
    detail: Box<str>,
}

/// The kinds of [`NodeError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeErrorKind {
    /// It did not answer in time.
    TimedOut,
    /// It can't be reached, or the connection broke.
    Unreachable,
    /// It wants another user name or password, or the user lacks a right.
    Denied,
    /// What answers there is not a Redis server.
    NotRedis,
    /// It answered with an error of its own.
    Server,
    /// It answered something that makes no sense here.
    Confused,
}

impl NodeError {
    /// An error of this kind; `detail` is for people, and must not hold a password.
    pub fn new(kind: NodeErrorKind, detail: impl Into<Box<str>>) -> Self {
        let detail = detail.into();
        Self { kind, detail }
    }

    /// The error of a node that did not answer within `limit`.
    pub fn timed_out(limit: Duration) -> Self {
        Self::new(
            NodeErrorKind::TimedOut,
            format!("no answer within {limit:?}"),
        )
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> NodeErrorKind {
        self.kind
    }

    /// Whether trying again can't help before somebody changes a setting.
    pub(crate) fn is_permanent(&self) -> bool {
        matches!(self.kind, NodeErrorKind::Denied | NodeErrorKind::NotRedis)
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for NodeError {}
