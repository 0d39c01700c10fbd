//! Contenders that want the same lock at the same moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redlatch::Redlatch;
use redlatch::core::Key;
use tokio::sync::mpsc;

use crate::network::Network;
use crate::node::{Line, Sent};
use crate::redlock::Redlock;
use redlatch_testkit::Dice;

/// How long each holds the lock.
const HOLD: Duration = Duration::from_millis(1);

/// By which rules they contend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The library as it is.
    Ours,
    /// The library on nodes that don't tell who has the lock: without that
    /// nobody can tell that it is to keep its grants when nodes are split.
    WithoutKeeping,
    /// Plain Redlock.
    Redlock,
}

/// What came of one burst of contenders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// How many rounds each needed, in the order in which they had the lock.
    pub(crate) rounds: Vec<u64>,
    /// When the first one had it.
    pub(crate) first: Duration,
    /// When the last one had it.
    pub(crate) last: Duration,
    /// All that was sent, to all nodes.
    pub(crate) requests: u64,
    /// How many had the lock at the same time, at most.
    pub(crate) holders: usize,
}

/// Lets so many contenders begin at once, until each has had the lock.
pub(crate) fn contest(kind: Kind, contenders: usize, seed: u64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    redlatch::sim::seed(seed);
    let outcome = runtime.block_on(run(kind, contenders, seed));
    redlatch::sim::unseed();
    outcome
}

async fn run(kind: Kind, contenders: usize, seed: u64) -> Outcome {
    let network = Network::new(seed, kind == Kind::WithoutKeeping);
    let holders = Arc::new(AtomicUsize::new(0));
    let (sender, mut won) = mpsc::unbounded_channel();
    let mut all_sent = Vec::new();
    let mut clients = Vec::new();
    for number in 0..contenders {
        let sent = Arc::<Sent>::default();
        let lines = Line::to_all(&network, number, &sent);
        let dice = Dice::new(seed ^ ((number as u64 + 1) << 40));
        clients.push(Client::new(kind, &network, lines, dice).await);
        all_sent.push(sent);
    }
    let begin = network.now();
    for (client, sent) in clients.into_iter().zip(all_sent.clone()) {
        let (network, sender, holders) = (network.clone(), sender.clone(), holders.clone());
        tokio::spawn(async move {
            let lock = client.lock().await;
            let together = holders.fetch_add(1, Ordering::Relaxed) + 1;
            let _ = sender.send((sent.rounds(), network.now() - begin, together));
            tokio::time::sleep(HOLD).await;
            holders.fetch_sub(1, Ordering::Relaxed);
            lock.release().await;
        });
    }
    drop(sender);
    let mut wins = Vec::new();
    while wins.len() < contenders {
        settle().await;
        network.step().await;
        while let Ok(win) = won.try_recv() {
            wins.push(win);
        }
    }
    // The last release is part of the price.
    for _ in 0..100 {
        settle().await;
        network.step().await;
    }
    Outcome {
        rounds: wins.iter().map(|(rounds, ..)| *rounds).collect(),
        first: wins[0].1,
        last: wins[contenders - 1].1,
        requests: all_sent.iter().map(|sent| sent.requests()).sum(),
        holders: wins.iter().map(|win| win.2).max().unwrap_or(0),
    }
}

/// Lets tasks do all that they can do without the time going on.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

enum Client {
    Ours(Redlatch),
    Redlock(Box<Redlock>),
}

/// A lock that is held.
enum Lock {
    Ours(redlatch::Guard),
    Redlock(Box<Redlock>, redlatch::core::Token),
}

impl Client {
    async fn new(kind: Kind, network: &Arc<Network>, lines: Vec<Line>, dice: Dice) -> Self {
        if kind == Kind::Redlock {
            let key = Key::new("redlatch:hot");
            return Self::Redlock(Box::new(Redlock { lines, key, dice }));
        }
        // The guard would keep new nodes in quarantine; it costs no round.
        let mut builder = Redlatch::builder()
            .restart_guard(false)
            .clock(network.clone());
        for line in lines {
            builder = builder.node(line);
        }
        Self::Ours(builder.build().await.expect("settings that make sense"))
    }

    async fn lock(self) -> Lock {
        match self {
            Self::Ours(latch) => {
                Lock::Ours(latch.mutex("hot").lock().await.expect("nodes that answer"))
            }
            Self::Redlock(mut redlock) => {
                let token = redlock.lock().await;
                Lock::Redlock(redlock, token)
            }
        }
    }
}

impl Lock {
    async fn release(self) {
        match self {
            Self::Ours(guard) => guard.release().await.expect("it is held"),
            Self::Redlock(redlock, token) => redlock.release(token).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Summary;

    fn summary(kind: Kind, contenders: usize) -> Summary {
        Summary::of(kind, contenders, 1, 10)
    }

    #[test]
    fn the_seed_decides_everything() {
        for kind in [Kind::Ours, Kind::WithoutKeeping, Kind::Redlock] {
            assert_eq!(contest(kind, 16, 7), contest(kind, 16, 7), "{kind:?}");
            assert_ne!(contest(kind, 16, 7), contest(kind, 16, 8), "{kind:?}");
        }
    }

    #[test]
    fn nobody_has_the_lock_beside_another() {
        for kind in [Kind::Ours, Kind::WithoutKeeping, Kind::Redlock] {
            for seed in 0..5 {
                assert_eq!(contest(kind, 32, seed).holders, 1, "{kind:?}, seed {seed}");
            }
        }
    }

    #[test]
    fn contenders_settle_in_a_few_rounds_however_many_they_are() {
        for contenders in [2, 8, 64] {
            let Summary {
                first_rounds,
                rounds,
                ..
            } = summary(Kind::Ours, contenders);
            assert!(first_rounds.mean < 3.0, "{contenders}: {first_rounds:?}");
            // One to be refused, one for a place in the queue, one to get it.
            assert!(rounds.mean < 3.5, "{contenders}: {rounds:?}");
            assert!(rounds.max <= 8, "{contenders}: {rounds:?}");
        }
    }

    #[test]
    fn it_is_settled_sooner_than_by_random_retry() {
        for contenders in [4, 16, 64] {
            let ours = summary(Kind::Ours, contenders);
            let redlock = summary(Kind::Redlock, contenders);
            assert!(5 * ours.first < redlock.first, "{ours:?} {redlock:?}");
            assert!(2 * ours.all < redlock.all, "{ours:?} {redlock:?}");
        }
    }

    #[test]
    fn keeping_grants_saves_rounds() {
        for contenders in [8, 16, 64] {
            // Few contenders say little in one burst.
            let bursts = 800 / contenders as u64;
            let summary = |kind| Summary::of(kind, contenders, 1, bursts);
            let (ours, without) = (summary(Kind::Ours), summary(Kind::WithoutKeeping));
            let (first, later) = (ours.first_rounds.mean, without.first_rounds.mean);
            assert!(first + 0.3 < later, "{contenders}: {first} {later}");
            let (rounds, more) = (ours.rounds.mean, without.rounds.mean);
            assert!(rounds + 0.3 < more, "{contenders}: {rounds} {more}");
        }
    }
}
