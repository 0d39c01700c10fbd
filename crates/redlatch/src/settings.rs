//! What every lock of a client starts from.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use redlatch_core::{Owner, Ticket, Token, Ttl};
use tokio::time::Instant;

use crate::error::{ConfigError, Result};
use crate::keys::KeyScheme;
use crate::random;
use crate::waiting::{LONGEST_REST, Rest};

/// What every lock of a client starts from.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) ttl: Duration,
    pub(crate) node_timeout: Duration,
    /// The longest ttl that the nodes allow; nothing when they don't care.
    pub(crate) max_ttl: Option<Duration>,
    pub(crate) outage_patience: Duration,
    /// How often in a row, and for how long, a lease stays in this process.
    pub(crate) handovers: u32,
    pub(crate) handover_time: Duration,
    pub(crate) keys: KeyScheme,
    pub(crate) token_source: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    /// What tokens say about this process.
    pub(crate) owner: Owner,
    pub(crate) suffix: String,
    /// The name by which nodes call this client when its turn comes.
    pub(crate) client: Arc<str>,
    /// How many numbers it has given, to tickets and to requests that may be parked.
    pub(crate) numbers: Arc<AtomicU64>,
    /// Whether they also say since when.
    pub(crate) dated: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let mut owner = Owner::default();
        owner.host = host();
        owner.pid = Some(std::process::id());
        Self {
            ttl: Duration::from_secs(10),
            node_timeout: Duration::from_millis(50),
            max_ttl: None,
            outage_patience: Duration::from_secs(10),
            handovers: 32,
            handover_time: Duration::from_millis(50),
            keys: KeyScheme::default(),
            token_source: None,
            suffix: owner.suffix(),
            owner,
            client: "".into(),
            numbers: Arc::default(),
            dated: false,
        }
    }
}

impl Settings {
    /// The shortest ttl that leaves time to tell the holder of a loss.
    const SHORTEST: Duration = Duration::from_millis(20);

    /// A ttl that makes sense with this client's node timeout.
    pub(crate) fn ttl(&self, ttl: Duration) -> Result<Ttl, ConfigError> {
        let checked = Ttl::new(ttl)?;
        let node_timeout = self.node_timeout;
        if ttl <= node_timeout {
            return Err(ConfigError::TtlWithinNodeTimeout { ttl, node_timeout });
        }
        if let Some(max_ttl) = self.max_ttl.filter(|max_ttl| ttl > *max_ttl) {
            return Err(ConfigError::TtlBeyondMax { ttl, max_ttl });
        }
        if ttl < Self::SHORTEST {
            return Err(ConfigError::TtlTooShort(ttl));
        }
        Ok(checked)
    }

    /// For how long the next who waits in this process leaves the nodes alone, now
    /// that somebody has got a lease like this.
    pub(crate) fn rest(&self, ttl: Ttl, fencing: bool) -> Rest {
        let rest = match self.handovers {
            0 => Duration::ZERO,
            _ => self.handover_time.min(LONGEST_REST),
        };
        let until = Instant::now() + rest;
        Rest {
            until,
            ttl,
            fencing,
        }
    }

    /// A ticket that was never used before, for one who has waited `since`.
    pub(crate) fn ticket(&self, since: Option<u64>) -> Ticket {
        Ticket::new(&self.client, self.number(), since)
    }

    /// A number that was never used before by this client.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets tokens also say for whom and for what program, and since when.
    pub(crate) fn describe(&mut self, user: Option<String>, program: Option<String>) {
        self.owner.user = user;
        self.owner.program = program;
        self.suffix = self.owner.suffix();
        self.dated = true;
    }

    /// A new token; `note` is for the people who look at the key.
    pub(crate) fn token(&self, note: Option<&str>) -> Result<Token, ConfigError> {
        let suffix: Cow<'_, str> = match note {
            None if !self.dated => self.suffix.as_str().into(),
            note => {
                let mut owner = self.owner.clone();
                owner.note = note.map(str::to_owned);
                owner.since = self.dated.then(unix_seconds);
                owner.suffix().into()
            }
        };
        match &self.token_source {
            Some(source) => Ok(Token::with_id(&source(), &suffix)?),
            None => {
                let mut bytes = [0; 20];
                random::fill(&mut bytes);
                Ok(Token::random(bytes, &suffix))
            }
        }
    }
}

/// The time of day, for people to read: no lease is timed by it.
fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

/// This machine's name, for the people who look at a key.
fn host() -> Option<String> {
    #[cfg(target_os = "linux")]
    let name = rustix::system::uname()
        .nodename()
        .to_str()
        .ok()
        .map(str::to_owned);
    #[cfg(not(target_os = "linux"))]
    let name = std::env::var("HOSTNAME").ok();
    name.filter(|name| !name.is_empty())
}
