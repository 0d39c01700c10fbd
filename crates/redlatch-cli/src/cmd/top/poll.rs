//! Looks at the nodes and at the locks, in the background.

use std::time::{Duration, Instant};

use redlatch::{Error, Progress, Redlatch};
use tokio::sync::mpsc::UnboundedSender;

use super::state::{Lock, Node, lease};
use crate::connect::builder;
use crate::exit_code::Failure;
use crate::output::held_by;
use crate::settings::Settings;

/// How long a node may be silent before it is said to be down.
const SILENCE: Duration = Duration::from_secs(1);

/// How often it is told how far a list has come.
const TOLD: Duration = Duration::from_millis(100);

/// What was found out.
pub(super) enum Update {
    Connected(Poller),
    Nodes(Vec<Node>),
    Progress(Progress),
    Locks(Vec<Lock>, Option<String>),
    /// A lock was taken away, or why not.
    Released(Result<String, String>),
}

/// What is to be looked at, and how often.
pub(super) struct Plan {
    pub(super) settings: Settings,
    pub(super) glob: String,
    pub(super) interval: Duration,
    pub(super) sender: UnboundedSender<Update>,
}

/// A client, or how the nodes are when too few can be reached, and how many are needed.
pub(super) type Connected = Result<Redlatch, (Vec<Node>, String)>;

/// Connects. What can't be mended by waiting is a failure.
pub(super) async fn connect(settings: &Settings) -> Result<Connected, Failure> {
    match builder(settings)?.build().await {
        Ok(latch) => Ok(Ok(latch)),
        Err(Error::NoQuorum(missing)) => {
            // It says who failed only: what of the others?
            let statuses = builder(settings)?.status(SILENCE).await?;
            let is_guarded = settings.is_guarded();
            let nodes = statuses.into_iter();
            let nodes = nodes.map(|status| Node::new(status, is_guarded)).collect();
            let trouble = format!("{} of {} nodes are needed", missing.needed, missing.nodes);
            Ok(Err((nodes, trouble)))
        }
        Err(error) => Err(error.into()),
    }
}

impl Plan {
    /// Connects again and again until that works, and then looks at all.
    pub(super) async fn follow(self, mut connected: Connected) {
        crate::planted("the background");
        let latch = loop {
            let (nodes, trouble) = match connected {
                Ok(latch) => break latch,
                Err(known) => known,
            };
            let _ = self.sender.send(Update::Nodes(nodes));
            let _ = self.sender.send(Update::Locks(Vec::new(), Some(trouble)));
            connected = loop {
                tokio::time::sleep(self.interval).await;
                match connect(&self.settings).await {
                    Ok(connected) => break connected,
                    Err(failure) => {
                        let trouble = Some(failure.message);
                        if self
                            .sender
                            .send(Update::Locks(Vec::new(), trouble))
                            .is_err()
                        {
                            return;
                        }
                    }
                }
            };
        };
        let poller = self.poller(latch);
        let _ = poller.sender.send(Update::Connected(poller.clone()));
        poller.run().await;
    }

    pub(super) fn poller(self, latch: Redlatch) -> Poller {
        Poller {
            latch,
            glob: self.glob,
            interval: self.interval,
            is_guarded: self.settings.is_guarded(),
            sender: self.sender,
        }
    }
}

/// Looks at all by way of one client.
#[derive(Clone)]
pub(super) struct Poller {
    latch: Redlatch,
    glob: String,
    interval: Duration,
    is_guarded: bool,
    sender: UnboundedSender<Update>,
}

impl Poller {
    /// Until nobody listens any more. Nodes and locks don't wait for each
    /// other: a list takes its time, and a silent node too.
    pub(super) async fn run(self) {
        let nodes = async {
            while self.sender.send(Update::Nodes(self.nodes().await)).is_ok() {
                tokio::time::sleep(self.interval).await;
            }
        };
        let locks = async {
            loop {
                let begin = Instant::now();
                let (locks, trouble) = self.locks().await;
                if self.sender.send(Update::Locks(locks, trouble)).is_err() {
                    return;
                }
                // Half of the time at most: a long list is work for the servers.
                tokio::time::sleep(self.interval.max(begin.elapsed())).await;
            }
        };
        tokio::join!(nodes, locks);
    }

    pub(super) async fn nodes(&self) -> Vec<Node> {
        let statuses = self.latch.status(SILENCE).await;
        let nodes = statuses.into_iter();
        nodes
            .map(|status| Node::new(status, self.is_guarded))
            .collect()
    }

    pub(super) async fn locks(&self) -> (Vec<Lock>, Option<String>) {
        let mut told = Instant::now();
        let listing = self
            .latch
            .locks_with_progress(&self.glob, |progress| {
                if told.elapsed() >= TOLD {
                    told = Instant::now();
                    let _ = self.sender.send(Update::Progress(progress));
                }
            })
            .await;
        match listing {
            Ok(listing) => {
                let now = Instant::now();
                let locks = listing.locks.iter().map(|lock| Lock::new(lock, now));
                (locks.collect(), None)
            }
            Err(error) => (Vec::new(), Some(error.to_string())),
        }
    }

    /// Takes the lock away if it is still that lease which has it: what was
    /// agreed to on the screen is not about the next holder.
    pub(super) async fn release(self, name: String, wanted: u64) {
        let result = match self.latch.inspect(&name).await {
            Err(error) => Err(error.to_string()),
            Ok(None) => Ok(format!("nobody holds {name} any more")),
            Ok(Some(held)) if lease(&held.holder) != wanted => Err(format!(
                "{name} has another holder by now, nothing was released: {}",
                held_by(&held.holder)
            )),
            Ok(Some(held)) => match self.latch.force_release(&name).await {
                Ok(_) => Ok(format!(
                    "released {name}, which was held by {}",
                    held_by(&held.holder)
                )),
                Err(error) => Err(error.to_string()),
            },
        };
        let _ = self.sender.send(Update::Released(result));
        // And see it at once.
        let (locks, trouble) = self.locks().await;
        let _ = self.sender.send(Update::Locks(locks, trouble));
    }
}
