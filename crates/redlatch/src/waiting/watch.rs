//! When it is worth another attempt.

use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redlatch_core::{Backoff, Key, Round};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::driver::Driver;
use crate::node::Watched;
use crate::random;

/// How often a lock is tried that no node says anything about.
const POLL: Backoff = Backoff {
    first: Duration::from_millis(5),
    limit: Duration::from_millis(200),
};

/// The last resort where nodes tell: should they ever forget to.
const LAST_RESORT: Backoff = Backoff {
    first: Duration::from_secs(10),
    limit: Duration::from_secs(10),
};

/// Beyond a lease's end on the node, which ends a little later than it says.
const GRACE: Duration = Duration::from_millis(3);

/// Waits until another attempt is worth it: the lock may be free on a quorum of
/// nodes, the holder's lease has run out unless renewed, or it is time to look
/// anyway. Never longer than to the deadline.
///
/// `remaining` is what the refused attempt learned of the holder's lease, and
/// `refusals` how many there have been.
pub(crate) async fn until_worth_trying(
    driver: &Driver,
    key: &Key,
    remaining: Option<Duration>,
    refusals: u32,
    deadline: Option<Instant>,
) {
    let begin = Instant::now();
    let mut watch = Watch::new(driver, key);
    let mut lease_end = remaining.map(|left| begin + left + GRACE);
    loop {
        let looked = match deadline {
            None => watch.look().await,
            Some(deadline) => timeout_at(deadline, watch.look()).await.unwrap_or(true),
        };
        if looked {
            return;
        }
        let resort = match watch.is_told_by_all() {
            true => LAST_RESORT.delay(1, random::number()),
            false => POLL.delay(refusals, random::number()),
        };
        let wake = [Some(begin + resort), lease_end, deadline];
        let wake = wake.into_iter().flatten().min().unwrap_or(begin);
        tokio::select! {
            () = watch.rung() => {
                // Freed or renewed. If renewed, the lease's end is another one.
                lease_end = None;
            }
            () = sleep_until(wake) => return,
        }
    }
}

/// What is known of a key on every node.
struct Watch<'a> {
    driver: &'a Driver,
    key: &'a Key,
    nodes: Vec<Known>,
    bells: FuturesUnordered<Bell>,
}

/// What is known of the key on one node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It has to be asked.
    Nothing,
    /// It is there, and the node will tell when something happens to it.
    Told,
    /// It is there, or the node can't say, and won't tell.
    Untold,
    Absent,
}

type Bell = Pin<Box<dyn Future<Output = usize> + Send>>;

impl<'a> Watch<'a> {
    fn new(driver: &'a Driver, key: &'a Key) -> Self {
        Self {
            driver,
            key,
            nodes: vec![Known::Nothing; driver.nodes().len()],
            bells: FuturesUnordered::new(),
        }
    }

    /// Asks the nodes of which nothing is known; true when the key is absent
    /// on so many that another attempt can win.
    async fn look(&mut self) -> bool {
        let limit = self.driver.node_timeout();
        let asked = (0..self.nodes.len()).filter(|node| self.nodes[*node] == Known::Nothing);
        let mut answers: FuturesUnordered<_> = asked
            .map(|node| {
                let answer = self.driver.nodes()[node].watch(self.key.clone(), limit);
                async move { (node, answer.await) }
            })
            .collect();
        while let Some((node, answer)) = answers.next().await {
            self.nodes[node] = match answer {
                Ok(Watched { present: false, .. }) => Known::Absent,
                Ok(Watched { bell: None, .. }) | Err(_) => Known::Untold,
                Ok(Watched {
                    bell: Some(bell), ..
                }) => {
                    self.bells.push(ring(node, bell));
                    Known::Told
                }
            };
            if self.count(Known::Absent) >= Round::quorum(self.nodes.len()) {
                return true;
            }
        }
        false
    }

    /// Waits until a node tells that something happened to the key.
    async fn rung(&mut self) {
        match self.bells.next().await {
            Some(node) => self.nodes[node] = Known::Nothing,
            None => std::future::pending().await,
        }
    }

    /// Whether so many nodes will tell that the lock can't be freed unnoticed.
    fn is_told_by_all(&self) -> bool {
        let untold = self.count(Known::Untold) + self.count(Known::Absent);
        untold < Round::quorum(self.nodes.len())
    }

    fn count(&self, known: Known) -> usize {
        self.nodes.iter().filter(|node| **node == known).count()
    }
}

fn ring(node: usize, bell: oneshot::Receiver<()>) -> Bell {
    Box::pin(async move {
        // An error is a bell that was taken down with its connection.
        let _ = bell.await;
        node
    })
}
