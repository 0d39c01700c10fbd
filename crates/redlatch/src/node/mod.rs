//! Lock servers: what the engine needs of them, and the kinds there are.

mod bells;
mod checkup;
pub(crate) mod memory;
mod probe;
pub(crate) mod redis;
mod scan;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub(crate) mod sqlite;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redlatch_core::{Key, Policy, Reply, Request};

pub use bells::{Bell, Bells};

pub use self::checkup::{Examining, Facts};
pub use self::probe::{Probe, Probing};
pub use self::scan::{Page, Pattern, Scanning};

/// How long a node may take to answer, unless somebody says otherwise: a
/// server, and one in a file.
pub(crate) const USUAL_LIMIT: Duration = Duration::from_millis(50);
pub(crate) const USUAL_FILE_LIMIT: Duration = Duration::from_millis(500);

/// One independent lock server.
///
/// The library brings nodes on Redis, in memory and in a file; implement this to bring
/// another. A node must do each request in one atomic step, by the rules of
/// [`NodeState`](redlatch_core::NodeState).
pub trait Node: Send + Sync + 'static {
    /// Takes the rules of the deployment. Called once, before anything else.
    fn enlist(&mut self, charter: Charter);

    /// What people call this node: in errors, logs and spans. Without a password.
    fn name(&self) -> &str;

    /// How long this node may take to answer, unless the user says otherwise.
    fn usual_limit(&self) -> Duration {
        USUAL_LIMIT
    }

    /// Whether it has not answered what it was asked last: it may still do, but
    /// nobody should hold up others for it.
    ///
    /// The default does not know.
    fn is_silent(&self) -> bool {
        false
    }

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

    /// Hangs up a bell that rings when our turn for the lock with this `key`
    /// comes, and when something happens to a key that was [watched](Node::watch).
    /// Nothing when the node can't tell anything.
    ///
    /// Done before a request is sent that asks for a place in the queue, so it
    /// must not take time.
    fn listen(&self, _key: &Key) -> Option<Bell> {
        None
    }

    /// Looks how much longer `key` is there, and arranges that those who
    /// [listen](Node::listen) are told, once, when something happens to it.
    /// Gives up after `limit`.
    ///
    /// The default tells nothing: those who wait then try from time to time.
    fn watch(&self, key: Key, limit: Duration) -> Watching {
        let inspected = self.call(Request::Inspect { key }, limit);
        Box::pin(async move {
            let remaining = match inspected.await? {
                Reply::Missing => None,
                Reply::Holder(holder) => Some(holder.remaining.unwrap_or(Duration::MAX)),
                _ => Some(Duration::MAX),
            };
            let told = false;
            Ok(Watched { remaining, told })
        })
    }

    /// Some of the keys that match `pattern`, and where to go on. Gives up
    /// after `limit`. Every key that is there all the time is seen in the end,
    /// some more than once.
    ///
    /// The default can't say.
    fn scan(&self, pattern: Pattern, after: Option<String>, limit: Duration) -> Scanning {
        let _ = (pattern, after, limit);
        let problem = "this kind of node can't list its locks";
        Box::pin(async move { Err(NodeError::new(NodeErrorKind::Confused, problem)) })
    }

    /// Says all about itself that may be worth to know when something is wrong,
    /// also when it is not fit to be a node. Gives up after `limit`.
    ///
    /// The default says how long it takes until it is ready.
    fn examine(&self, limit: Duration) -> Examining {
        let begin = std::time::Instant::now();
        let ready = self.ready(limit);
        Box::pin(async move {
            let Ready { identity, .. } = ready.await?;
            Ok(Facts {
                identity,
                round_trips: vec![begin.elapsed()],
                // It has no memory that could be full.
                is_replica: Some(false),
                ..Facts::default()
            })
        })
    }

    /// Answers, and changes nothing: to see how long that takes. Gives up after
    /// `limit`.
    ///
    /// The default asks for a lock that nobody has, and can't say what time the
    /// node has.
    fn probe(&self, limit: Duration) -> Probing {
        let begin = std::time::Instant::now();
        let key = Key::new("__probe");
        let answer = self.call(Request::Inspect { key }, limit);
        Box::pin(async move {
            answer.await?;
            Ok(Probe::new(begin.elapsed()))
        })
    }

    /// Connects, if that is needed, and says why it can't be done. Asked once,
    /// when a client is built.
    fn ready(
        &self,
        limit: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Ready, NodeError>> + Send>>;
}

/// What a client expects of all its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charter {
    /// What the restart guard is to hold; nothing when it is off.
    pub policy: Option<Policy>,
    /// What stands before the names of the keys in which a node keeps its own books.
    pub service_prefix: Arc<str>,
    /// Whether a node that belongs to another deployment is refused at once.
    pub strict: bool,
    /// Names the client in the queues of those who wait.
    pub client: Arc<str>,
    /// For how long a free lock is kept for the first of them.
    pub turn: Duration,
}

/// A node's answer to come.
pub type Call = Pin<Box<dyn Future<Output = Result<Reply, NodeError>> + Send>>;

/// A node's answers to come.
pub type CallAll = Pin<Box<dyn Future<Output = Vec<Result<Reply, NodeError>>> + Send>>;

/// How much longer a key is there, to come.
pub type Watching = Pin<Box<dyn Future<Output = Result<Watched, NodeError>> + Send>>;

/// How much longer a key is there, and whether we are told when that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// How much longer it is there unless something happens to it:
    /// [`Duration::MAX`] when it never expires, and nothing when it is not there.
    pub remaining: Option<Duration>,
    /// Whether those who listen are told when something happens to it.
    pub told: bool,
}

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
    quarantine: Option<Duration>,
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
    /// It was set up in a way that makes locks unsafe, or for another deployment.
    Misconfigured,
    /// Its file, or the disk that this is on, can't be used.
    Storage,
    /// It may have forgotten leases that are still valid.
    Quarantined,
    /// Its clock is behind what it has seen.
    ClockBehind,
    /// It answered something that makes no sense here.
    Confused,
}

impl NodeError {
    /// An error of this kind; `detail` is for people, and must not hold a password.
    ///
    /// A server's own words may be in it: they are cut to one line of readable length.
    pub fn new(kind: NodeErrorKind, detail: impl Into<Box<str>>) -> Self {
        Self {
            kind,
            detail: in_one_line(detail.into()),
            quarantine: None,
        }
    }

    /// The error in a reply by which a node says that it can't be counted on.
    pub(crate) fn in_reply(reply: &Reply) -> Option<Self> {
        let mut error = match reply {
            Reply::Quarantined(left) => Self::new(
                NodeErrorKind::Quarantined,
                format!(
                    "in quarantine for another {left:.1?}, because it is new or was restarted and \
                     may have forgotten leases; wait, or arm it if it is known to be fresh"
                ),
            ),
            Reply::ClockBehind(by) => Self::new(
                NodeErrorKind::ClockBehind,
                format!("its clock is {by:.1?} behind what it has seen: set it right"),
            ),
            Reply::Mismatch(deployment) => {
                Self::new(NodeErrorKind::Misconfigured, mismatch(deployment))
            }
            Reply::TtlTooLong(most) => Self::new(
                NodeErrorKind::Misconfigured,
                format!("it allows no ttl longer than {most:?} (max_ttl)"),
            ),
            _ => return None,
        };
        if let Reply::Quarantined(left) = reply {
            error.quarantine = Some(*left);
        }
        Some(error)
    }

    /// How long the node will still be in quarantine, if it is.
    pub fn quarantine(&self) -> Option<Duration> {
        self.quarantine
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
        matches!(
            self.kind,
            NodeErrorKind::Denied | NodeErrorKind::NotRedis | NodeErrorKind::Misconfigured
        )
    }
}

/// The same without what could move a terminal's cursor, and not too much of it.
fn in_one_line(detail: Box<str>) -> Box<str> {
    const LONGEST: usize = 400;
    if detail.len() <= LONGEST && !detail.contains(char::is_control) {
        return detail;
    }
    let mut line = String::new();
    for word in detail.split(|c: char| c.is_control() || c == ' ') {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if line.len() > LONGEST {
        // The end is ours, and says what to do; the beginning says what it is.
        let boundary = |at: &usize| line.is_char_boundary(*at);
        let begin = (0..=LONGEST / 2).rev().find(boundary).unwrap_or(0);
        let end = (line.len() - LONGEST / 2..).find(boundary);
        let end = end.unwrap_or(line.len());
        line = format!("{} … {}", &line[..begin], &line[end..]);
    }
    line.into()
}

/// A deployment is named by its name, number of nodes and longest ttl.
pub(crate) fn mismatch(deployment: &str) -> String {
    format!(
        "it belongs to the deployment {deployment} (name/nodes/max_ttl in ms): give all its nodes \
         and its settings, or reconfigure it"
    )
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for NodeError {}
