//! The locks, behind one face.

use std::sync::Arc;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo};
use redlatch::Redlatch;
use rslock::LockManager;

use crate::Error;
use crate::job::Job;
use crate::raw::{self, Raw};
use crate::turns::Turns;

/// rslock's longest wait between two tries. Its default of 200 ms would leave a
/// contended lock unused for most of the time.
const RSLOCK_RETRY: Duration = Duration::from_millis(10);

/// A way to lock names. A clone is another handle of the same client.
#[derive(Clone)]
pub(crate) enum Locks {
    Redlatch { latch: Redlatch, fencing: bool },
    Raw(Arc<Raw>),
    Turns(Arc<Turns>),
    Rslock { manager: LockManager, ttl: Duration },
}

/// A lock that is held.
pub(crate) enum Held {
    Redlatch(redlatch::Guard),
    Raw(raw::Lease),
    Turns(String),
    /// In a box: it is large, and the memory that a lease takes is measured.
    Rslock(Box<rslock::LockGuard>),
}

impl Locks {
    pub(crate) async fn connect(job: &Job) -> Result<Self, Error> {
        Ok(match &*job.lock {
            name @ ("redlatch-fenced" | "redlatch-plain") => Self::Redlatch {
                latch: latch(job).build().await?,
                fencing: name == "redlatch-fenced",
            },
            "raw" => Self::Raw(Arc::new(Raw::connect(job).await?)),
            "raw-turns" => Self::Turns(Arc::new(Turns::connect(job).await?)),
            "rslock" => {
                let clients: Result<_, Error> = job.nodes.iter().map(|url| client(url)).collect();
                let mut manager = LockManager::from_clients(clients?);
                // After the last of its tries it would not wait before the next.
                manager.set_retry(u32::MAX, RSLOCK_RETRY);
                let ttl = job.ttl;
                Self::Rslock { manager, ttl }
            }
            other => return Err(format!("no lock is named {other:?} here").into()),
        })
    }

    /// Waits for a lock as the library does it best. A failed attempt is an error.
    pub(crate) async fn acquire(&self, name: &str) -> Result<Held, Error> {
        Ok(match self {
            Self::Redlatch { latch, fencing } => {
                let lock = latch.mutex(name).fencing(*fencing);
                Held::Redlatch(lock.lock().await?)
            }
            Self::Raw(raw) => Held::Raw(raw.acquire(name).await),
            Self::Turns(turns) => Held::Turns(turns.acquire(name).await?),
            Self::Rslock { manager, ttl } => {
                Held::Rslock(Box::new(manager.acquire(name, *ttl).await?))
            }
        })
    }

    /// Gives a lock back, and waits until that is confirmed.
    pub(crate) async fn release(&self, held: Held) -> Result<(), Error> {
        match (self, held) {
            (_, Held::Redlatch(guard)) => guard.release().await?,
            (Self::Raw(raw), Held::Raw(lease)) => raw.release(&lease).await?,
            (Self::Turns(turns), Held::Turns(key)) => turns.release(&key).await?,
            (_, Held::Rslock(guard)) => guard.release().await,
            (_, Held::Raw(_) | Held::Turns(_)) => unreachable!("each comes from its own locks"),
        }
        Ok(())
    }

    /// Whether leases are renewed without more ado; for the raw commands,
    /// `modes.rs` does it.
    pub(crate) fn renews(&self) -> bool {
        !matches!(self, Self::Rslock { .. } | Self::Turns(_))
    }
}

/// All is as it comes, but for one thing: when many tasks keep few cores busy, an
/// answer is read later than the 50 ms that a node usually has.
fn latch(job: &Job) -> redlatch::Builder {
    let builder = Redlatch::builder().nodes(&job.nodes).ttl(job.ttl);
    match job.tasks {
        1 => builder,
        _ => builder.node_timeout(Duration::from_secs(1)),
    }
}

/// A client whose small requests are sent at once, as redlatch's are.
pub(crate) fn client(url: &str) -> Result<Client, Error> {
    let info = url.into_connection_info()?;
    let tcp = TcpSettings::default().set_nodelay(true);
    Ok(Client::open(info.set_tcp_settings(tcp))?)
}
