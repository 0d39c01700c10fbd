//! Runs core's round over the nodes.

use std::iter;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt};
use redlatch_core::{Ballot, Holder, Instant, Reply, Request, Round, Ttl, Verdict, Vote};
use tokio::time::{self, timeout, timeout_at};

use crate::clock::Clock;
use crate::error::NoQuorum;
use crate::node::{Call, Node, NodeError};

/// What nodes that are about as quick as the others need to answer after them.
const GRACE: Duration = Duration::from_millis(1);

/// All nodes of a deployment, and how to ask them.
pub(crate) struct Driver {
    nodes: Box<[Arc<dyn Node>]>,
    node_timeout: Duration,
    clock: Arc<dyn Clock>,
}

/// How long a free lock is kept for the first who waits, at least and at most:
/// from the call to its request on a node takes a round trip, and it may have to
/// wake up.
const SHORTEST_TURN: Duration = Duration::from_millis(200);
const LONGEST_TURN: Duration = Duration::from_secs(2);

impl Driver {
    pub(crate) fn new(
        nodes: Vec<Arc<dyn Node>>,
        node_timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            nodes: nodes.into(),
            node_timeout,
            clock,
        }
    }

    /// How long a free lock is kept for the first who waits, with this node timeout.
    pub(crate) fn turn_for(node_timeout: Duration) -> Duration {
        node_timeout
            .saturating_mul(4)
            .clamp(SHORTEST_TURN, LONGEST_TURN)
    }

    pub(crate) fn turn(&self) -> Duration {
        Self::turn_for(self.node_timeout)
    }

    pub(crate) fn nodes(&self) -> &[Arc<dyn Node>] {
        &self.nodes
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn node_timeout(&self) -> Duration {
        self.node_timeout
    }

    /// How long a node may take when a lease of this length is at stake: one
    /// slow node must not use it up.
    pub(crate) fn limit(&self, ttl: Ttl) -> Duration {
        self.node_timeout.min(ttl.duration() / 3)
    }

    /// Asks all nodes at the same time, never one after the other.
    pub(crate) fn ask(&self, request: Request, limit: Duration) -> Votes {
        let mut votes = Votes {
            silent: 0,
            asked: time::Instant::now(),
            pending: Answers(Vec::with_capacity(self.nodes.len())),
            round: Round::new(self.nodes.len()),
            failures: Vec::new(),
            again: Vec::new(),
            refusals: Vec::new(),
        };
        // The last one is not copied: mostly there is no other.
        let requests = iter::repeat_n(request, self.nodes.len());
        for (node, (target, request)) in self.nodes.iter().zip(requests).enumerate() {
            votes.silent |= u64::from(target.is_silent()) << node;
            let call = target.call(request, limit);
            votes.pending.0.push(Answer { node, call });
        }
        votes
    }

    /// Asks all nodes and waits for every one of them: how many answered, what
    /// those said that have something to say, and who failed.
    pub(crate) async fn ask_all(
        &self,
        request: Request,
    ) -> (usize, Vec<Reply>, Vec<(usize, NodeError)>) {
        let mut votes = self.ask(request, self.node_timeout);
        let (mut answered, mut replies) = (0, Vec::new());
        while let Some((_, answer)) = votes.next().await {
            answered += usize::from(answer.is_ok());
            replies.extend(answer.ok().filter(|reply| *reply != Reply::Missing));
        }
        (answered, replies, votes.into_failures())
    }

    pub(crate) fn is_quorum(&self, nodes: usize) -> bool {
        nodes >= Round::quorum(self.nodes.len())
    }

    /// The error for a round in which too few nodes answered.
    pub(crate) fn no_quorum(
        &self,
        name: &Arc<str>,
        failures: Vec<(usize, NodeError)>,
    ) -> Box<NoQuorum> {
        let mut failures = failures;
        failures.sort_by_key(|(node, _)| *node);
        Box::new(NoQuorum {
            name: name.clone(),
            needed: Round::quorum(self.nodes.len()),
            nodes: self.nodes.len(),
            failures: failures
                .into_iter()
                .map(|(node, error)| (self.nodes[node].name().to_owned(), error))
                .collect(),
        })
    }
}

/// The answers of one round, as they come in.
pub(crate) struct Votes {
    pending: Answers,
    round: Round,
    asked: time::Instant,
    /// The nodes that had not answered what they were asked before, one bit each.
    silent: u64,
    failures: Vec<(usize, NodeError)>,
    /// What those nodes said that would grant another ballot.
    again: Vec<Reply>,
    /// What those nodes said where somebody has the lock, or will have it.
    refusals: Vec<Refusal>,
}

/// What a node said that did not grant a lock.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) node: usize,
    /// Who has it there, if the node says so.
    pub(crate) holder: Option<Holder>,
    /// Whether we stand first in the node's queue; nothing when we don't stand
    /// in it at all.
    pub(crate) first: Option<bool>,
    /// Whether it is free there, and kept for somebody else.
    pub(crate) kept: bool,
}

impl Refusal {
    /// Whether we stand in the node's queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.first.is_some()
    }

    /// Whether a request with this ballot is parked there, if it may be.
    pub(crate) fn is_parked(&self, ballot: Option<Ballot>) -> bool {
        let seen = self.holder.as_ref().map(|holder| holder.ballot);
        self.is_queued() && ballot.is_none_or(|ballot| seen.is_none_or(|seen| ballot > seen))
    }
}

impl Votes {
    /// Waits until the round is decided, and not a moment longer.
    pub(crate) async fn verdict(&mut self) -> Verdict {
        while self.round.verdict() == Verdict::Open {
            if self.next().await.is_none() {
                break;
            }
        }
        if planted!(QuorumOfAnswers) {
            while self.next().await.is_some() {}
            if self.round.granted() > self.refusals.len() && self.again.is_empty() {
                return Verdict::Won;
            }
        }
        self.round.verdict()
    }

    /// The same for one who holds up others: when the nodes are split between
    /// contenders, or another ballot is to be proposed, nodes that were silent
    /// before are given as long again as the others took. Then they count as
    /// failed, so that nobody sits on a part of the nodes for as long as a node
    /// may take.
    pub(crate) async fn verdict_in_contention(&mut self) -> Verdict {
        let mut patience = None;
        while self.round.verdict() == Verdict::Open {
            let decided = self.round.verdict_without(self.silent);
            if self.silent == 0 || !matches!(decided, Verdict::Again | Verdict::Mixed) {
                match self.next().await {
                    Some(_) => continue,
                    None => break,
                }
            }
            let grace = || time::Instant::now() + self.asked.elapsed() + GRACE;
            let end = *patience.get_or_insert_with(grace);
            if timeout_at(end, self.next()).await.is_err() {
                self.round.fail(self.silent);
            }
        }
        self.verdict().await
    }

    /// The next node's reply, counted. Nothing when all have answered.
    pub(crate) async fn next(&mut self) -> Option<(usize, Result<Reply, NodeError>)> {
        let (node, answer) = self.pending.next().await?;
        match &answer {
            Ok(reply) => {
                let vote = Vote::from(reply);
                self.round.vote(node, vote);
                if vote == Vote::Granted {
                    return Some((node, answer));
                }
                if vote == Vote::Again {
                    self.again.push(reply.clone());
                }
                let refusal = match reply {
                    Reply::Held(holder) => Some((holder, None, false)),
                    Reply::Kept => Some((&None, None, true)),
                    Reply::Queued { holder, first } => {
                        Some((holder, Some(*first), holder.is_none()))
                    }
                    _ => None,
                };
                self.refusals
                    .extend(refusal.map(|(holder, first, kept)| Refusal {
                        node,
                        holder: holder.clone(),
                        first,
                        kept,
                    }));
                let failure = NodeError::in_reply(reply).map(|error| (node, error));
                self.failures.extend(failure);
            }
            Err(error) => {
                self.round.vote(node, Vote::Failed);
                self.failures.push((node, error.clone()));
            }
        }
        Some((node, answer))
    }

    /// What those nodes said that would grant another ballot.
    pub(crate) fn again(&self) -> &[Reply] {
        &self.again
    }

    /// What those nodes said where somebody has the lock, or will have it.
    pub(crate) fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// Gives those that have not answered a little more time, although the
    /// round is decided: as long again as it took.
    pub(crate) async fn hear_out(&mut self, took: Duration) {
        if self.round.is_complete() {
            return;
        }
        let all = async { while self.next().await.is_some() {} };
        let _ = timeout(took + GRACE, all).await;
    }

    /// When the nodes were asked.
    pub(crate) fn asked(&self) -> time::Instant {
        self.asked
    }

    pub(crate) fn round(&self) -> &Round {
        &self.round
    }

    pub(crate) fn into_refusals(self) -> Vec<Refusal> {
        self.refusals
    }

    pub(crate) fn into_failures(self) -> Vec<(usize, NodeError)> {
        self.failures
    }

    /// The answers that are still to come, and the failures so far.
    pub(crate) fn into_rest(self) -> (Answers, Vec<(usize, NodeError)>) {
        (self.pending, self.failures)
    }
}

/// The answers that are still to come. There are so few that all are polled when
/// there is news of one; that costs less than to find out of which.
#[derive(Default)]
pub(crate) struct Answers(Vec<Answer>);

impl Answers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Stream for Answers {
    type Item = (usize, Result<Reply, NodeError>);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        for at in 0..self.0.len() {
            if let Poll::Ready(answer) = Pin::new(&mut self.0[at]).poll(cx) {
                self.0.remove(at);
                return Poll::Ready(Some(answer));
            }
        }
        match self.0.is_empty() {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }
}

/// The answer of one node, to come.
pub(crate) struct Answer {
    node: usize,
    call: Call,
}

impl Future for Answer {
    type Output = (usize, Result<Reply, NodeError>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let node = self.node;
        self.call.as_mut().poll(cx).map(|answer| (node, answer))
    }
}
