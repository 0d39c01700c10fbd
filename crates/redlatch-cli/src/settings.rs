//! Resolved settings: flags first, then the environment, then files, then defaults.

mod file;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::args::GlobalArgs;
use crate::duration;
use crate::exit_code::Failure;
use crate::node_url::NodeUrl;

use self::file::File;

/// All settings that are not about one command.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) nodes: Sourced<Vec<NodeUrl>>,
    pub(crate) prefix: Sourced<String>,
    pub(crate) ttl: Sourced<Duration>,
    pub(crate) node_timeout: Sourced<Duration>,
    pub(crate) connect_timeout: Sourced<Duration>,
    pub(crate) deployment: Sourced<String>,
    pub(crate) max_ttl: Sourced<Duration>,
    /// Nothing: on with several nodes, off with one.
    pub(crate) restart_guard: Sourced<Option<bool>>,
    pub(crate) root_certificate: Sourced<Option<PathBuf>>,
    pub(crate) client_certificate: Sourced<Option<PathBuf>>,
    pub(crate) client_key: Sourced<Option<PathBuf>>,
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    Flag(&'static str),
    Environment(&'static str),
    File(PathBuf),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Flag(flag) => f.write_str(flag),
            Self::Environment(name) => write!(f, "${name}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Settings {
    pub(crate) fn resolve(args: &GlobalArgs) -> Result<Self, Failure> {
        let surroundings = Surroundings {
            variable: &|name| std::env::var_os(name),
            file: &|path| std::fs::read_to_string(path),
        };
        Self::resolve_in(&surroundings, args)
    }

    /// The same in surroundings that need not be those of this process.
    pub(crate) fn resolve_in(
        surroundings: &Surroundings<'_>,
        args: &GlobalArgs,
    ) -> Result<Self, Failure> {
        let files = surroundings.files(args)?;
        let find = Finder {
            surroundings,
            files: &files,
        };
        let length = |key: &'static str, variable, default| {
            find.value(key, variable, default, duration::parse)
        };
        let text = |key, variable, default: &str| {
            find.value(
                key,
                variable,
                default.to_owned(),
                |text| Ok(text.to_owned()),
            )
        };
        let path = |key, variable| find.value(key, variable, None, |text| Ok(Some(text.into())));
        let mut prefix = text("prefix", "REDLATCH_PREFIX", "redlatch:")?;
        if let Some(given) = &args.prefix {
            prefix = Sourced {
                value: given.clone(),
                origin: Origin::Flag("--prefix"),
            };
        }
        let nodes = surroundings.nodes(args, &files)?;
        // A disk that is busy takes its time, and there is no other node to ask meanwhile.
        let node_timeout = match are_files(&nodes.value) {
            true => Duration::from_millis(500),
            false => Duration::from_millis(50),
        };
        Ok(Self {
            nodes,
            prefix,
            ttl: length("ttl", "REDLATCH_TTL", Duration::from_secs(30))?,
            node_timeout: length("node_timeout", "REDLATCH_NODE_TIMEOUT", node_timeout)?,
            connect_timeout: length(
                "connect_timeout",
                "REDLATCH_CONNECT_TIMEOUT",
                Duration::from_secs(2),
            )?,
            deployment: text("deployment", "REDLATCH_DEPLOYMENT", "default")?,
            max_ttl: length("max_ttl", "REDLATCH_MAX_TTL", Duration::from_secs(60))?,
            restart_guard: find.value("restart_guard", "REDLATCH_RESTART_GUARD", None, |text| {
                match text {
                    "true" | "on" | "1" => Ok(Some(true)),
                    "false" | "off" | "0" => Ok(Some(false)),
                    _ => Err("it must be true or false".into()),
                }
            })?,
            root_certificate: path("root_certificate", "REDLATCH_ROOT_CERTIFICATE")?,
            client_certificate: path("client_certificate", "REDLATCH_CLIENT_CERTIFICATE")?,
            client_key: path("client_key", "REDLATCH_CLIENT_KEY")?,
        })
    }

    /// Whether nobody has named a node, so that locks hold on this machine only.
    pub(crate) fn is_local_by_default(&self) -> bool {
        self.nodes.origin == Origin::Default
    }

    /// Whether locks are kept in files, and not by servers.
    pub(crate) fn is_in_files(&self) -> bool {
        are_files(&self.nodes.value)
    }

    /// Whether nodes that forget are kept out: leases are then no longer than `max_ttl`.
    pub(crate) fn is_guarded(&self) -> bool {
        let several = self.nodes.value.len() > 1;
        self.restart_guard.value.unwrap_or(several)
    }
}

fn are_files(nodes: &[NodeUrl]) -> bool {
    nodes
        .iter()
        .all(|node| node.secret().starts_with("sqlite:"))
}

/// Where settings come from beside the command line.
pub(crate) struct Surroundings<'a> {
    /// The value of a variable of the environment.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// What a file holds.
    pub(crate) file: &'a dyn Fn(&Path) -> std::io::Result<String>,
}

/// Looks for a value in the environment, then in the files.
struct Finder<'a> {
    surroundings: &'a Surroundings<'a>,
    files: &'a [File],
}

impl Finder<'_> {
    fn value<T>(
        &self,
        key: &str,
        variable: &'static str,
        default: T,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Sourced<T>, Failure> {
        let (text, origin) = match self.surroundings.environment(variable)? {
            Some(text) => (text, Origin::Environment(variable)),
            None => match self.files.iter().find_map(|file| file.text(key)) {
                Some((text, path)) => (text.to_owned(), Origin::File(path.to_owned())),
                None => {
                    let origin = Origin::Default;
                    let value = default;
                    return Ok(Sourced { value, origin });
                }
            },
        };
        match read(&text) {
            Ok(value) => Ok(Sourced { value, origin }),
            Err(problem) => Err(Failure::usage(format!("{key} in {origin}: {problem}"))),
        }
    }
}

impl Surroundings<'_> {
    /// A variable that is empty counts as not set.
    fn environment(&self, variable: &str) -> Result<Option<String>, Failure> {
        match (self.variable)(variable) {
            Some(value) if !value.is_empty() => match value.into_string() {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(Failure::usage(format!("${variable} is not UTF-8"))),
            },
            _ => Ok(None),
        }
    }

    /// The files that are there, the most important first.
    fn files(&self, args: &GlobalArgs) -> Result<Vec<File>, Failure> {
        if let Some(path) = &args.config {
            return match File::read(path, self.file)? {
            Some(file) => Ok(vec![file]),
            None => Err(
                Failure::usage(format!("there is no file {}", path.display())).hint(
                    "--config names a TOML file; `redlatch config` shows the settings without it",
                ),
            ),
        };
        }
        let home = self
            .directory("XDG_CONFIG_HOME", ".config")
            .map(|home| home.join("redlatch/config.toml"));
        let system = PathBuf::from("/etc/redlatch/config.toml");
        let mut files = Vec::new();
        for path in home.into_iter().chain([system]) {
            files.extend(File::read(&path, self.file)?);
        }
        Ok(files)
    }

    fn nodes(&self, args: &GlobalArgs, files: &[File]) -> Result<Sourced<Vec<NodeUrl>>, Failure> {
        let sourced = |value: Vec<NodeUrl>, origin| Sourced { value, origin };
        if !args.nodes.is_empty() {
            let nodes: Vec<NodeUrl> = args.nodes.iter().map(NodeUrl::new).collect();
            if let Some(node) = nodes.iter().find(|node| node.has_password()) {
                return Err(Failure::usage(format!(
                    "--node {node} holds a password, which everybody on this machine could read"
                ))
                .hint("put the address into $REDLATCH_NODES or into the configuration file"));
            }
            return Ok(sourced(nodes, Origin::Flag("--node")));
        }
        for variable in ["REDLATCH_NODES", "REDIS_URL"] {
            if let Some(text) = self.environment(variable)? {
                let urls = text.split(',').map(str::trim).filter(|url| !url.is_empty());
                let nodes = urls.map(NodeUrl::new).collect();
                return Ok(sourced(nodes, Origin::Environment(variable)));
            }
        }
        for file in files {
            if !file.nodes.is_empty() {
                let nodes = file.nodes.clone();
                return Ok(sourced(nodes, Origin::File(file.path.clone())));
            }
        }
        let Some(state) = self.directory("XDG_STATE_HOME", ".local/state") else {
            return Err(Failure::usage(
                "no node is given, and without $HOME there is no place for local locks",
            )
            .hint("give --node URL, or set REDLATCH_NODES"));
        };
        let path = state.join("redlatch/locks.db");
        let node = NodeUrl::new(format!("sqlite:{}", path.display()));
        Ok(sourced(vec![node], Origin::Default))
    }

    /// A directory of the XDG base directory specification, which wants absolute paths.
    fn directory(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let absolute = |value: &OsStr| Path::new(value).is_absolute().then(|| value.into());
        let given = (self.variable)(variable).and_then(|value| absolute(&value));
        given.or_else(|| {
            let home: PathBuf = (self.variable)("HOME").and_then(|home| absolute(&home))?;
            Some(home.join(below_home))
        })
    }
}
