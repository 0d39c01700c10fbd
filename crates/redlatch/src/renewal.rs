//! One round of renewals: a batch of leases, sent to each node at once.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redlatch_core::{Instant, Reply, Round, Ttl, Verdict, Vote};

use crate::driver::Driver;
use crate::lease::Cell;
use crate::node::NodeError;
use crate::proposals::Proposals;

/// A batch of renewals under way.
pub(crate) struct Renewal {
    batch: Vec<Entry>,
    sent: Instant,
    answers: FuturesUnordered<Answers>,
}

struct Entry {
    cell: Arc<Cell>,
    ttl: Ttl,
    round: Round,
    /// The nodes that have lost the key, one bit each.
    missing: u64,
}

type Replies = (usize, Vec<Result<Reply, NodeError>>);
type Answers = Pin<Box<dyn Future<Output = Replies> + Send>>;

impl Renewal {
    /// Sends an EXTEND for every lease of the batch to every node. Nothing when
    /// all of them are over.
    pub(crate) fn send(driver: &Driver, batch: Vec<(Arc<Cell>, Ttl)>) -> Option<Self> {
        let sent = driver.now();
        let nodes = driver.nodes();
        let mut requests = Vec::with_capacity(batch.len());
        let entry = |(cell, ttl): (Arc<Cell>, Ttl)| {
            requests.push(cell.renewal(ttl, sent)?);
            Some(Entry {
                cell,
                ttl,
                round: Round::new(nodes.len()),
                missing: 0,
            })
        };
        let batch: Vec<Entry> = batch.into_iter().filter_map(entry).collect();
        // More time than an acquire has, but less than lies between two tries: a
        // mute connection is replaced after three of them, while there is a
        // lease to renew.
        let shortest = batch.iter().map(|entry| entry.ttl).min()?;
        let limit = (shortest.duration() / 12).max(driver.node_timeout());
        let last = nodes.len() - 1;
        let ask = |node: usize| -> Answers {
            let requests = match node == last {
                true => std::mem::take(&mut requests),
                false => requests.clone(),
            };
            let answers = nodes[node].call_all(requests, limit);
            Box::pin(async move { (node, answers.await) })
        };
        let answers = (0..nodes.len()).map(ask).collect();
        Some(Self {
            batch,
            sent,
            answers,
        })
    }

    /// Waits until every lease is renewed, lost, or to be tried again. A node
    /// that does not answer is not waited for longer than that.
    pub(crate) async fn decide(mut self, driver: &Driver) -> Self {
        let open = |entry: &Entry| entry.round.verdict() == Verdict::Open;
        while self.batch.iter().any(open)
            && let Some(replies) = self.answers.next().await
        {
            self.count(replies, driver.now());
        }
        self
    }

    /// The leases that it is about.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &Arc<Cell>> {
        self.batch.iter().map(|entry| &entry.cell)
    }

    /// Waits for the nodes that are left, and lets those that have lost a lease
    /// take it up again. A quorum has just confirmed it, and a node that grants
    /// it is not counted, so nothing depends on what they say.
    pub(crate) async fn heal(mut self, driver: &Driver, proposals: &Proposals) {
        while let Some(replies) = self.answers.next().await {
            self.count(replies, driver.now());
        }
        let mut rejoins = FuturesUnordered::new();
        for entry in self.batch {
            if entry.round.verdict() != Verdict::Won || entry.missing == 0 {
                continue;
            }
            let Some(request) = entry.cell.rejoin(entry.ttl, proposals) else {
                continue;
            };
            let nodes = driver.nodes().iter().enumerate();
            for (_, node) in nodes.filter(|(node, _)| entry.missing & 1 << node != 0) {
                let answer = node.call(request.clone(), driver.limit(entry.ttl));
                let cell = entry.cell.clone();
                rejoins.push(async move {
                    let answer = answer.await;
                    let (lock, token) = (cell.name(), cell.token.short());
                    tracing::debug!(%lock, token, node = node.name(), ?answer, "rejoin");
                });
            }
        }
        while rejoins.next().await.is_some() {}
    }

    fn count(&mut self, (node, replies): Replies, now: Instant) {
        for (entry, reply) in self.batch.iter_mut().zip(replies) {
            let vote = reply.as_ref().map_or(Vote::Failed, Vote::from);
            if matches!(reply, Ok(Reply::Missing)) {
                entry.missing |= 1 << node;
            }
            let before = entry.round.verdict();
            let verdict = entry.round.vote(node, vote);
            match verdict {
                _ if verdict == before => {}
                Verdict::Won => {
                    entry.cell.extended(self.sent, entry.ttl, now);
                }
                Verdict::Refused => entry.cell.refused(),
                Verdict::Open | Verdict::Again | Verdict::Unavailable | Verdict::Mixed => {}
            }
        }
    }
}
