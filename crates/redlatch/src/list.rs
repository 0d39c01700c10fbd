//! All locks that somebody holds, seen over all nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redlatch_core::{Holder, Key, Reply, Request};

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::inspect::{self, Inspection};
use crate::keys::KeyScheme;
use crate::node::{NodeError, Pattern};

/// How long a node may take for one page, or for one batch of questions.
const LIMIT: Duration = Duration::from_secs(3);

/// How many locks are asked about in one go.
const BATCH: usize = 256;

/// The locks that somebody holds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listing {
    /// The locks, by name.
    pub locks: Vec<Listed>,
    /// The nodes that could not be asked, or not to the end, and why. What only
    /// they know of is not in the list.
    pub failures: Vec<(String, NodeError)>,
}

/// A lock that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// Its name: what follows the prefix in its key. With
    /// [`KeyScheme::Yii2`](crate::KeyScheme) that is the digest, because the
    /// name can't be told from it.
    pub name: String,
    /// The key under which nodes store it.
    pub key: Key,
    /// Who holds it.
    pub inspection: Inspection,
}

/// How far a list has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// How many keys were looked at on all nodes, more or less, those of others
    /// included.
    pub looked_at: u64,
    /// How many there are; nothing when a node won't say.
    pub total: Option<u64>,
    /// How many locks were found so far.
    pub found: usize,
}

pub(crate) async fn list(
    driver: &Driver,
    keys: &KeyScheme,
    glob: &str,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Listing> {
    let mut scan = Scan::new(driver, keys.pattern(glob));
    while scan.advance(keys).await {
        progress(scan.progress());
    }
    let nodes = driver.nodes().len();
    let mut failures = scan.failures;
    if !driver.is_quorum(nodes - failures.len()) {
        return Err(Error::NoQuorum(driver.no_quorum(&"".into(), failures)));
    }
    let found: Vec<Key> = scan.found.into_iter().collect();
    let mut locks = Vec::with_capacity(found.len());
    for batch in found.chunks(BATCH) {
        let holders = ask(driver, batch, &mut failures).await;
        for (key, holders) in batch.iter().zip(holders) {
            // Those that were released meanwhile are nobody's any more.
            let inspection = inspect::count(holders.into_iter(), nodes);
            let name = keys.name_in(key).map(str::to_owned);
            locks.extend(name.zip(inspection).map(|(name, inspection)| Listed {
                name,
                key: key.clone(),
                inspection,
            }));
        }
    }
    locks.sort_by(|one, other| one.name.cmp(&other.name));
    failures.sort_by_key(|(node, _)| *node);
    let failures = failures
        .into_iter()
        .map(|(node, error)| (driver.nodes()[node].name().to_owned(), error))
        .collect();
    Ok(Listing { locks, failures })
}

/// Goes through the keys of all nodes at the same time, page by page.
struct Scan<'a> {
    driver: &'a Driver,
    pattern: Pattern,
    pages: FuturesUnordered<Turn<'a>>,
    /// How many keys each node has, and how many of them were looked at.
    counts: Vec<(u64, Option<u64>)>,
    found: BTreeSet<Key>,
    failures: Vec<(usize, NodeError)>,
}

type Turn<'a> = std::pin::Pin<
    Box<dyn Future<Output = (usize, Result<crate::node::Page, NodeError>)> + Send + 'a>,
>;

impl<'a> Scan<'a> {
    fn new(driver: &'a Driver, pattern: Pattern) -> Self {
        let nodes = driver.nodes().len();
        let scan = Self {
            driver,
            pattern,
            pages: FuturesUnordered::new(),
            counts: vec![(0, None); nodes],
            found: BTreeSet::new(),
            failures: Vec::new(),
        };
        (0..nodes).for_each(|node| scan.ask(node, None));
        scan
    }

    fn ask(&self, node: usize, after: Option<String>) {
        let limit = LIMIT.max(self.driver.node_timeout());
        let page = self.driver.nodes()[node].scan(self.pattern.clone(), after, limit);
        self.pages.push(Box::pin(async move { (node, page.await) }));
    }

    /// Takes one page; false when there is none left.
    async fn advance(&mut self, keys: &KeyScheme) -> bool {
        let Some((node, page)) = self.pages.next().await else {
            return false;
        };
        match page {
            Err(error) => {
                self.counts[node].1 = Some(self.counts[node].0);
                self.failures.push((node, error));
            }
            Ok(page) => {
                let (looked_at, total) = &mut self.counts[node];
                *total = page.total.or(*total);
                *looked_at += page.looked_at;
                let locks = page
                    .keys
                    .into_iter()
                    .filter(|key| keys.name_in(key).is_some());
                self.found.extend(locks);
                match page.next {
                    Some(next) => self.ask(node, Some(next)),
                    None => *looked_at = total.unwrap_or(*looked_at),
                }
            }
        }
        true
    }

    fn progress(&self) -> Progress {
        let total = self.counts.iter().map(|(_, total)| *total);
        let total: Option<u64> = total.sum();
        let looked_at: u64 = self.counts.iter().map(|(looked_at, _)| looked_at).sum();
        Progress {
            looked_at: total.map_or(looked_at, |total| looked_at.min(total)),
            total,
            found: self.found.len(),
        }
    }
}

/// Asks all nodes who holds these locks; who does on each, by lock.
async fn ask(
    driver: &Driver,
    keys: &[Key],
    failures: &mut Vec<(usize, NodeError)>,
) -> Vec<Vec<Holder>> {
    let limit = LIMIT.max(driver.node_timeout());
    let requests = keys.iter().map(|key| Request::Inspect { key: key.clone() });
    let requests: Vec<Request> = requests.collect();
    // Not again those that were silent: it would take as long for every batch.
    let able = (0..driver.nodes().len()).filter(|node| failures.iter().all(|(bad, _)| bad != node));
    let able: Vec<usize> = able.collect();
    let nodes = able.iter().map(|node| &driver.nodes()[*node]);
    let answers = join_all(nodes.map(|node| node.call_all(requests.clone(), limit))).await;
    let mut holders = vec![Vec::new(); keys.len()];
    for (node, answers) in able.into_iter().zip(answers) {
        for (holders, answer) in holders.iter_mut().zip(answers) {
            match answer {
                Ok(Reply::Holder(holder)) => holders.push(holder),
                Ok(_) => {}
                Err(error) if failures.iter().all(|(bad, _)| *bad != node) => {
                    failures.push((node, error));
                }
                Err(_) => {}
            }
        }
    }
    holders
}
