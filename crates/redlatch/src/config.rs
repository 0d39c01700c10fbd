//! What a client is told before it connects, and the defaults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redlatch_core::{Policy, Round, Ttl};

use crate::admin::{self, Admin, NodeStatus};
use crate::client::{Client, Redlatch};
use crate::clock::{Clock, SystemClock};
use crate::doctor::{self, Finding};
use crate::driver::Driver;
use crate::error::{ConfigError, Error, Result};
use crate::keys::KeyScheme;
use crate::node::redis::address::{Address, Tls};
use crate::node::redis::borrowed::Borrowed;
use crate::node::redis::link::Link;
use crate::node::{Charter, Node, NodeError, USUAL_FILE_LIMIT, USUAL_LIMIT};
use crate::random;
use crate::settings::Settings;

/// Collects the settings of a client. Made by [`Redlatch::builder`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    nodes: Vec<Source>,
    tls: Tls,
    connect_timeout: Duration,
    node_timeout: Option<Duration>,
    clock: Arc<dyn Clock>,
    deployment: String,
    restart_guard: Option<bool>,
    max_ttl: Duration,
    settings: Settings,
}

/// Where a node comes from.
enum Source {
    Url(String),
    #[cfg(feature = "simulation")]
    Dialed(String, crate::sim::Dial),
    Node(Box<dyn Node>),
}

impl Source {
    /// How long it may take to answer, unless the user says otherwise.
    fn usual_limit(&self) -> Duration {
        match self {
            Self::Url(url) if url.starts_with("sqlite:") => USUAL_FILE_LIMIT,
            Self::Url(_) => USUAL_LIMIT,
            #[cfg(feature = "simulation")]
            Self::Dialed(..) => USUAL_LIMIT,
            Self::Node(node) => node.usual_limit(),
        }
    }
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            tls: Tls::default(),
            connect_timeout: Duration::from_secs(2),
            node_timeout: None,
            clock: Arc::new(SystemClock),
            deployment: "default".into(),
            restart_guard: None,
            max_ttl: Duration::from_secs(60),
            settings: Settings::default(),
        }
    }

    /// Adds Redis or Valkey servers by URL, all independent masters. A lock
    /// needs more than half of them.
    ///
    /// `redis://[user:password@]host[:port][/database]`, `unix:///path` and,
    /// with the feature `tls`, `rediss://…`; with the feature `sqlite` also
    /// `sqlite:PATH`, a file for the locks of this machine.
    pub fn nodes(mut self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let urls = urls.into_iter().map(|url| Source::Url(url.into()));
        self.nodes.extend(urls);
        self
    }

    /// Adds a simulated Redis server, by a URL that names it and connections
    /// that `dial` makes.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn dialed(mut self, url: impl Into<String>, dial: crate::sim::Dial) -> Self {
        self.nodes.push(Source::Dialed(url.into(), dial));
        self
    }

    /// Adds a node of another kind, such as a [`MemoryNode`](crate::MemoryNode).
    pub fn node(mut self, node: impl Node) -> Self {
        self.nodes.push(Source::Node(Box::new(node)));
        self
    }

    /// Adds a server over a connection of your own, of the `redis` crate 1.x.
    ///
    /// It must keep requests in order and be safe to share, as
    /// `redis::aio::MultiplexedConnection` is. Reconnecting is its own business:
    /// a plain multiplexed connection does not, so prefer [`nodes`](Builder::nodes)
    /// unless you have a reason. `name` stands for it in errors and logs.
    pub fn connection<C>(self, name: impl Into<String>, connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        self.node(Borrowed::new(name.into(), connection))
    }

    /// Trusts only these authorities for `rediss://` nodes, in PEM. Default: the
    /// system's.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.root = Some(pem.into());
        self
    }

    /// Shows this certificate to `rediss://` nodes that ask for one; both in
    /// PEM. Default: none.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.identity = Some((certificate.into(), key.into()));
        self
    }

    /// How long [`build`](Builder::build) waits for nodes to be reached.
    /// Default: 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long one node may take to answer, reconnecting included; at most a
    /// third of the ttl. Default: 50 ms, and 500 ms for nodes in a file: a disk
    /// takes its time.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = Some(timeout);
        self
    }

    /// The length of leases, unless a handle sets its own. Default: 10 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// How long a waiting `lock` puts up with too few nodes before it fails.
    /// Default: 10 s.
    pub fn outage_patience(mut self, patience: Duration) -> Self {
        self.settings.outage_patience = patience;
        self
    }

    /// How often in a row a lease may be handed to the next waiter in the same
    /// process, without a word to the nodes, and for how long, before waiters in
    /// other processes get their turn. Default: 32 times or 50 ms, whichever
    /// comes first. Zero switches it off.
    pub fn handovers(mut self, most: u32, time: Duration) -> Self {
        self.settings.handovers = most;
        self.settings.handover_time = time;
        self
    }

    /// Whether nodes that may have forgotten what they granted, because they
    /// were restarted, emptied or promoted, are kept out until every lease that
    /// they may have forgotten has run out. Default: on with several nodes, off
    /// with one, which would be out of use for that time.
    ///
    /// New nodes wait as well: arm them with [`Admin::assume_fresh`].
    pub fn restart_guard(mut self, restart_guard: bool) -> Self {
        self.restart_guard = Some(restart_guard);
        self
    }

    /// The longest ttl that any client of this deployment asks for. A node that
    /// may have forgotten leases is kept out for a little longer than that. All
    /// clients must say the same. Default: 60 s. Without the restart guard it
    /// has no meaning.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = max_ttl;
        self
    }

    /// The name of the deployment. With the restart guard on, nodes refuse a
    /// client that says another, so that it can't lock beside the others by
    /// mistake. A server can be a node of several deployments under different
    /// prefixes. Default: `default`.
    pub fn deployment(mut self, name: impl Into<String>) -> Self {
        self.deployment = name.into();
        self
    }

    /// How keys are made from names. Default: `redlatch:` and the name.
    pub fn key_scheme(mut self, scheme: KeyScheme) -> Self {
        self.settings.keys = scheme;
        self
    }

    /// What stands before each lock's name in its key. Default: `redlatch:`.
    /// The same as [`KeyScheme::Prefix`].
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        self.key_scheme(KeyScheme::Prefix(prefix.into()))
    }

    /// Where the ids of tokens come from. Default: 20 random bytes each.
    ///
    /// The source must never return the same id twice, in any process: two
    /// leases with the same token are one lease. Ids have at most 128 bytes and
    /// no white space. Anybody who can guess an id can release the lock.
    pub fn token_source(mut self, source: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.settings.token_source = Some(Arc::new(source));
        self
    }

    /// Lets tokens say for which user and which program the locks are held, and
    /// since when, for the people who look at the key. Default: they say the
    /// host and the process id only.
    ///
    /// Give a program's name, never its arguments: anybody who may read the
    /// servers can read this.
    pub fn describe(mut self, user: Option<String>, program: Option<String>) -> Self {
        self.settings.describe(user, program);
        self
    }

    /// The clock that leases are timed by. Default: [`SystemClock`]. For tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Connects to the nodes, and starts the tasks that renew and release.
    ///
    /// A few nodes may be out of reach, as long as there is a quorum; they are
    /// connected to when they come back. Must be called in a tokio runtime,
    /// which must live as long as the client is used.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when a setting is wrong, a node refuses the password,
    /// is no Redis server, is a replica, may evict keys or belongs to another
    /// deployment, or the same server was given twice.
    /// [`Error::NoQuorum`] when too few nodes can be reached.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed on any node; when this is dropped, connections close.
    pub async fn build(self) -> Result<Redlatch> {
        let connect_timeout = self.connect_timeout;
        let (driver, settings) = self.prepare(true)?;
        check(&driver, connect_timeout).await?;
        Ok(Redlatch::new(Client::start(driver, settings)))
    }

    /// Connects as an administrator, to arm new nodes or to change what
    /// deployment they belong to. Works while nodes are in quarantine or belong
    /// to another deployment.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when a setting is wrong, or the restart guard is off.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed on any node; when this is dropped, connections close.
    pub async fn admin(self) -> Result<Admin> {
        let (name, max_ttl) = (self.deployment.clone(), self.max_ttl);
        let (driver, settings) = self.prepare(false)?;
        if settings.max_ttl.is_none() {
            return Err(ConfigError::GuardOff.into());
        }
        Ok(Admin::new(driver, name, max_ttl))
    }

    /// Looks whether the nodes are well, seen from this machine: whether they
    /// can be reached, their version, latency, clocks, eviction, persistence,
    /// replicas, rights, restart guards, and keys that never expire. Works with
    /// nodes that [`build`](Builder::build) would refuse.
    ///
    /// To see which rights its user has, it tries each, on a key of its own
    /// that is gone a second later.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when a setting is wrong.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing of locks, dropped or not.
    pub async fn examine(self) -> Result<Vec<Finding>> {
        let max_ttl = self.max_ttl.as_millis();
        let deployment = format!("{}/{}/{max_ttl}", self.deployment, self.nodes.len());
        let (driver, settings) = self.prepare(false)?;
        Ok(doctor::examine(&driver, &settings, &deployment).await)
    }

    /// How each node is, as [`Redlatch::status`] says it, without a client: also
    /// when too few of them can be reached for one.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when a setting is wrong.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing, dropped or not.
    pub async fn status(self, limit: Duration) -> Result<Vec<NodeStatus>> {
        let (driver, settings) = self.prepare(false)?;
        Ok(admin::status(&driver, &settings, limit).await)
    }

    /// Checks the settings and makes nodes; with `strict`, nodes that belong to
    /// another deployment are refused when they are connected to.
    fn prepare(self, strict: bool) -> Result<(Driver, Settings)> {
        let node_timeout = self.node_timeout.unwrap_or_else(|| {
            let usual = self.nodes.iter().map(Source::usual_limit).max();
            usual.unwrap_or(USUAL_LIMIT)
        });
        if node_timeout.is_zero() {
            return Err(ConfigError::Zero("node_timeout").into());
        }
        if self.connect_timeout.is_zero() {
            return Err(ConfigError::Zero("connect_timeout").into());
        }
        let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if !(1..=64).contains(&self.deployment.len()) || !self.deployment.chars().all(named) {
            return Err(ConfigError::Deployment(self.deployment).into());
        }
        let nodes = self.nodes.len();
        let guarded = self.restart_guard.unwrap_or(nodes > 1);
        let max_ttl = Ttl::new(self.max_ttl).map_err(ConfigError::from)?;
        let service_prefix = self.settings.keys.service_prefix();
        let settings = Settings {
            client: format!("{service_prefix}__call:{:016x}", random::number()).into(),
            node_timeout,
            max_ttl: guarded.then_some(max_ttl.duration()),
            ..self.settings
        };
        settings.ttl(settings.ttl)?;
        for text in [&settings.owner.user, &settings.owner.program] {
            Client::check_note(text.as_deref().unwrap_or_default())?;
        }
        let policy = guarded.then(|| Policy {
            deployment: format!("{}/{nodes}/{}", self.deployment, max_ttl.millis()).into(),
            max_ttl,
        });
        let charter = Charter {
            policy,
            service_prefix: settings.keys.service_prefix().into(),
            strict,
            client: settings.client.clone(),
            turn: Driver::turn_for(node_timeout),
        };
        let nodes = open(self.nodes, &self.tls, &charter)?;
        Ok((Driver::new(nodes, node_timeout, self.clock), settings))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("nodes", &self.nodes.len())
            .field("node_timeout", &self.node_timeout)
            .field("ttl", &self.settings.ttl)
            .field("keys", &self.settings.keys)
            .finish_non_exhaustive()
    }
}

/// Makes nodes of what was given, when all of it makes sense.
fn open(
    sources: Vec<Source>,
    tls: &Tls,
    charter: &Charter,
) -> Result<Vec<Arc<dyn Node>>, ConfigError> {
    match sources.len() {
        0 => return Err(ConfigError::NoNode),
        nodes if nodes > Round::MAX_NODES => return Err(ConfigError::TooManyNodes(nodes)),
        _ => {}
    }
    let mut addresses: Vec<Address> = Vec::new();
    let mut sources = sources;
    for (at, source) in sources.iter_mut().enumerate() {
        let url = match source {
            Source::Url(url) => url,
            #[cfg(feature = "simulation")]
            Source::Dialed(url, _) => url,
            Source::Node(_) => continue,
        };
        if let Some(node) = embedded(url) {
            let node = node.map_err(|problem| ConfigError::Address {
                node: at + 1,
                problem,
            })?;
            *source = Source::Node(node);
            continue;
        }
        let address = Address::parse(url, tls).map_err(|problem| ConfigError::Address {
            node: at + 1,
            problem,
        })?;
        if let Some(same) = addresses
            .iter()
            .find(|other| other.is_same_server(&address))
        {
            let names = [same, &address].map(|address| address.name().to_owned());
            let [one, other] = names;
            return Err(ConfigError::SameNodeTwice(one, other));
        }
        addresses.push(address);
    }
    // All addresses make sense: only now is a connection opened.
    let mut addresses = addresses.into_iter();
    let nodes = sources.into_iter().filter_map(|source| match source {
        Source::Url(_) => {
            let link = Link::new(addresses.next()?, charter.clone());
            Some(Arc::new(link) as Arc<dyn Node>)
        }
        #[cfg(feature = "simulation")]
        Source::Dialed(_, dial) => {
            let link = Link::dialed(addresses.next()?, charter.clone(), dial);
            Some(Arc::new(link) as Arc<dyn Node>)
        }
        Source::Node(mut node) => {
            node.enlist(charter.clone());
            Some(node.into())
        }
    });
    Ok(nodes.collect())
}

/// The node of a URL that names a file; nothing when it names a server.
fn embedded(url: &str) -> Option<Result<Box<dyn Node>, String>> {
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    return crate::node::sqlite::SqliteNode::path_in(url).map(|path| {
        let node = crate::node::sqlite::SqliteNode::new(path?);
        Ok(Box::new(node) as Box<dyn Node>)
    });
    #[cfg(not(all(feature = "sqlite", target_os = "linux")))]
    return url.starts_with("sqlite:").then(|| {
        Err(match cfg!(feature = "sqlite") {
            true => "nodes in a file work on Linux only: give a Redis server".into(),
            false => "sqlite: needs redlatch's feature \"sqlite\", which is off".into(),
        })
    });
}

/// Waits until the nodes are connected, and sees that they are what they should be.
async fn check(driver: &Driver, limit: Duration) -> Result<()> {
    let nodes = driver.nodes();
    let answers = nodes.iter().map(|node| node.ready(limit));
    let answers = futures_util::future::join_all(answers).await;
    let mut failures: Vec<(usize, NodeError)> = Vec::new();
    let mut known: Vec<(String, &str)> = Vec::new();
    for (at, answer) in answers.into_iter().enumerate() {
        let name = nodes[at].name();
        match answer {
            Ok(ready) => {
                let Some(identity) = ready.identity else {
                    continue;
                };
                if let Some((_, same)) = known.iter().find(|(known, _)| *known == identity) {
                    let (one, other) = ((*same).to_owned(), name.to_owned());
                    return Err(ConfigError::SameNodeTwice(one, other).into());
                }
                known.push((identity, name));
            }
            Err(error) if error.is_permanent() => {
                let node = name.to_owned();
                return Err(ConfigError::Node { node, error }.into());
            }
            Err(error) => failures.push((at, error)),
        }
    }
    if nodes.len() - failures.len() < Round::quorum(nodes.len()) {
        return Err(Error::NoQuorum(driver.no_quorum(&"".into(), failures)));
    }
    // Only here: the error above names them too.
    for (at, error) in failures {
        tracing::warn!(node = nodes[at].name(), %error, "out of reach, will go on trying");
    }
    Ok(())
}
