//! Releases what was dropped, cancelled or not won, from one task.
//!
//! A release is repeated on each node until the node has answered or the lease
//! would have run out there by itself. Each node has a backlog of its own, so
//! one that is frozen holds up no other, and a few batches of it under way, so
//! a hundred thousand guards dropped at once are released in good order.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redlatch_core::{Backoff, Ballots, Key, Reply, Request, Token, Ttl};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use crate::driver::{Answers, Driver, Votes};
use crate::node::NodeError;
use crate::random;
use crate::stragglers::Stragglers;

/// How many releases are sent to a node in one go, and how many such batches
/// may be under way.
const BATCH: usize = 256;
const BATCHES: usize = 4;

/// How long a node that did not answer is left alone.
const REST: Backoff = Backoff {
    first: Duration::from_millis(50),
    limit: Duration::from_secs(1),
};

/// The sending end: jobs can be handed in from any place, also from a `drop`
/// outside the runtime.
#[derive(Clone)]
pub(crate) struct Reaper {
    nodes: usize,
    jobs: mpsc::UnboundedSender<(Job, Count)>,
    open: Arc<Open>,
    /// Set when nothing is to be repeated any more.
    hurry: watch::Sender<bool>,
}

enum Job {
    /// Requests that nobody waits for.
    Finish(Stragglers),
    /// A release, the answers to it that are to come, and the numbers of the
    /// nodes that are to be asked again.
    Release(Orphan, Answers, Vec<usize>),
}

/// How many jobs are not done.
#[derive(Default)]
struct Open {
    jobs: AtomicUsize,
    /// Told when there are none.
    none: Notify,
}

/// Counts a job as not done for as long as it lives.
struct Count(Arc<Open>);

impl Count {
    fn new(open: &Arc<Open>) -> Self {
        open.jobs.fetch_add(1, Ordering::Relaxed);
        Self(open.clone())
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        if self.0.jobs.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

/// A lease, or what may have become one, that is to be given back.
#[derive(Clone, Debug)]
pub(crate) struct Orphan {
    key: Key,
    token: Token,
    /// After this time no node can have it any more.
    ttl: Ttl,
    /// Those that were sent for it; nothing for a plain lock.
    ballots: Option<Ballots>,
    /// The name of a place in the queues of the nodes that is given up.
    leaves: Option<Arc<str>>,
    /// The name of a ticket with which the request for it may be parked.
    unparks: Option<Arc<str>>,
}

impl Orphan {
    pub(crate) fn new(key: &Key, token: &Token, ttl: Ttl, ballots: Option<Ballots>) -> Self {
        Self {
            key: key.clone(),
            token: token.clone(),
            ttl,
            ballots,
            leaves: None,
            unparks: None,
        }
    }

    /// It was asked for with this ticket, and may be parked.
    pub(crate) fn parked_with(mut self, ticket: Option<Arc<str>>) -> Self {
        self.unparks = ticket;
        self
    }

    /// And with it a place in the queues of the nodes.
    pub(crate) fn with(mut self, ticket: Option<Arc<str>>) -> Self {
        self.leaves = ticket;
        self
    }

    /// The request that gives it back.
    pub(crate) fn request(&self) -> Request {
        Request::Release {
            key: self.key.clone(),
            token: self.token.clone(),
            ballots: match self.ballots {
                Some(_) if planted!(ReleaseOvertakes) => Some(Ballots::up_to(Default::default())),
                ballots => ballots,
            },
            leaves: self.leaves.clone(),
            unparks: self.unparks.clone(),
        }
    }
}

impl Reaper {
    /// Starts the task; it ends when the last sender is gone and all is done.
    pub(crate) fn start(driver: Arc<Driver>) -> Self {
        let (jobs, receiver) = mpsc::unbounded_channel();
        let reaper = Self {
            nodes: driver.nodes().len(),
            jobs,
            open: Arc::default(),
            hurry: watch::Sender::new(false),
        };
        tokio::spawn(reap(driver, receiver, reaper.hurry.subscribe()));
        reaper
    }

    /// Releases on every node, in the background.
    pub(crate) fn release(&self, orphan: Orphan) {
        let all = (0..self.nodes).collect();
        self.hand_in(Job::Release(orphan, Answers::default(), all));
    }

    /// Goes on with a release that a quorum has already confirmed.
    pub(crate) fn release_rest(&self, orphan: Orphan, votes: Votes) {
        let (answers, failures) = votes.into_rest();
        if !answers.is_empty() || !failures.is_empty() {
            let failed = failures.into_iter().map(|(node, _)| node).collect();
            self.hand_in(Job::Release(orphan, answers, failed));
        }
    }

    /// Lets the requests of a decided round go on that nobody waits for.
    /// Nothing when there are none.
    pub(crate) fn finish(&self, votes: Votes) -> Option<Stragglers> {
        let (answers, _) = votes.into_rest();
        if answers.is_empty() {
            return None;
        }
        let stragglers = Stragglers::new(answers);
        self.hand_in(Job::Finish(stragglers.clone()));
        Some(stragglers)
    }

    fn hand_in(&self, job: Job) {
        // When the runtime has ended nobody receives it, and the ttl is the backstop.
        let _ = self.jobs.send((job, Count::new(&self.open)));
    }

    /// Waits until every job has been tried on every node.
    pub(crate) async fn drain(&self) {
        self.hurry.send_replace(true);
        loop {
            let mut none = pin!(self.open.none.notified());
            // Listen first, then look: the end of the last between the two would be missed.
            none.as_mut().enable();
            if self.open.jobs.load(Ordering::Acquire) == 0 {
                return;
            }
            none.await;
        }
    }
}

/// An orphan on its way to being released; done when the last node lets go of it.
struct Case {
    orphan: Orphan,
    end: Instant,
    _count: Count,
}

async fn reap(
    driver: Arc<Driver>,
    mut receiver: mpsc::UnboundedReceiver<(Job, Count)>,
    mut hurry: watch::Receiver<bool>,
) {
    let mut backlogs: Vec<Backlog> = driver.nodes().iter().map(|_| Backlog::default()).collect();
    let mut batches = FuturesUnordered::new();
    let mut rests = FuturesUnordered::new();
    let mut finishing = FuturesUnordered::new();
    let mut jobs = Vec::new();
    let mut closed = false;
    loop {
        let now = Instant::now();
        for (node, backlog) in backlogs.iter_mut().enumerate() {
            while let Some(batch) = backlog.next(now, *hurry.borrow()) {
                batches.push(send(&driver, node, batch));
            }
        }
        let idle = batches.is_empty() && rests.is_empty() && finishing.is_empty();
        if closed && idle && backlogs.iter().all(|backlog| backlog.waiting.is_empty()) {
            return;
        }
        let rested = backlogs.iter().filter_map(Backlog::rested).min();
        // What is under way comes first, and is bounded by what is handed in.
        tokio::select! {
            biased;
            Some((node, batch, answers)) = batches.next() => {
                let name = driver.nodes()[node].name();
                backlogs[node].settle(name, batch, answers, *hurry.borrow());
            }
            Some((case, failed)) = rests.next() => queue(&mut backlogs, case, failed),
            Some(()) = finishing.next() => {}
            () = tokio::time::sleep_until(rested.unwrap_or(now)), if rested.is_some() => {}
            Ok(()) = hurry.changed() => {}
            received = receiver.recv_many(&mut jobs, BATCH), if !closed => closed = received == 0,
        }
        for (job, count) in jobs.drain(..) {
            match job {
                Job::Finish(stragglers) => finishing.push(async move {
                    let _count = count;
                    stragglers.await;
                }),
                Job::Release(orphan, answers, failed) => {
                    let end = Instant::now() + orphan.ttl.duration();
                    let case = Arc::new(Case {
                        orphan,
                        end,
                        _count: count,
                    });
                    match answers.is_empty() {
                        true => queue(&mut backlogs, case, failed),
                        false => rests.push(hear_out(case, answers, failed)),
                    }
                }
            }
        }
    }
}

fn queue(backlogs: &mut [Backlog], case: Arc<Case>, nodes: Vec<usize>) {
    for node in nodes {
        backlogs[node].waiting.push_back(case.clone());
    }
}

/// Waits for the answers to a release, and says which nodes are to be asked again.
async fn hear_out(
    case: Arc<Case>,
    mut answers: Answers,
    mut failed: Vec<usize>,
) -> (Arc<Case>, Vec<usize>) {
    while let Some((node, answer)) = answers.next().await {
        if answer.is_err() {
            failed.push(node);
        }
    }
    (case, failed)
}

type Batch = Vec<Arc<Case>>;
type Replies = Vec<Result<Reply, NodeError>>;

async fn send(driver: &Driver, node: usize, batch: Batch) -> (usize, Batch, Replies) {
    let requests = batch.iter().map(|case| case.orphan.request()).collect();
    let call = driver.nodes()[node].call_all(requests, driver.node_timeout());
    let answers = call.await;
    (node, batch, answers)
}

/// What is still to be released on one node.
#[derive(Default)]
struct Backlog {
    waiting: VecDeque<Arc<Case>>,
    under_way: usize,
    /// Failures in a row, and until when the node is left alone for them.
    failures: u32,
    rest: Option<Instant>,
}

impl Backlog {
    /// What is to be sent now.
    fn next(&mut self, now: Instant, hurry: bool) -> Option<Batch> {
        let resting = self.rest.is_some_and(|rest| now < rest) && !hurry;
        if resting || self.waiting.is_empty() || self.under_way == BATCHES {
            return None;
        }
        self.under_way += 1;
        let size = self.waiting.len().min(BATCH);
        Some(self.waiting.drain(..size).collect())
    }

    /// When there will be something to send.
    fn rested(&self) -> Option<Instant> {
        self.rest
            .filter(|_| !self.waiting.is_empty() && self.under_way < BATCHES)
    }

    /// Takes back what has to be repeated.
    fn settle(&mut self, node: &str, batch: Batch, answers: Replies, hurry: bool) {
        self.under_way -= 1;
        let mut failed = false;
        for (case, answer) in batch.into_iter().zip(answers) {
            let Err(error) = answer else { continue };
            if hurry || Instant::now() >= case.end {
                let (lock, token) = (case.orphan.key.as_str(), case.orphan.token.short());
                tracing::debug!(lock, token, node, %error, "left to its ttl");
            } else {
                self.waiting.push_back(case);
            }
            failed = true;
        }
        if failed {
            self.failures += 1;
            let rest = REST.delay(self.failures, random::number());
            let now = Instant::now();
            self.rest = Some(now + rest);
            // What has run out there by itself is not kept for a node that is away.
            self.waiting.retain(|case| now < case.end);
        } else {
            (self.failures, self.rest) = (0, None);
        }
    }
}

/// Gives a lease back unless it is kept: covers every way out of an attempt,
/// also that its future is dropped at any await.
pub(crate) struct Unkept<'a> {
    reaper: &'a Reaper,
    orphan: Option<Orphan>,
}

impl<'a> Unkept<'a> {
    pub(crate) fn new(reaper: &'a Reaper, orphan: Orphan) -> Self {
        let orphan = Some(orphan);
        Self { reaper, orphan }
    }

    /// These are sent for it, or about to be.
    pub(crate) fn note(&mut self, ballots: Option<Ballots>) {
        if let Some(orphan) = &mut self.orphan {
            orphan.ballots = ballots;
        }
    }

    /// It is kept, or nothing of it can have reached a node.
    pub(crate) fn forget(mut self) -> Option<Orphan> {
        self.orphan.take()
    }
}

impl Drop for Unkept<'_> {
    fn drop(&mut self) {
        if let Some(orphan) = self.orphan.take()
            && !planted!(NoCancelRelease)
        {
            self.reaper.release(orphan);
        }
    }
}
