//! Releases what was dropped, cancelled or not won, from one task.
//!
//! A release is repeated on each node until the node has answered or the lease
//! would have run out there by itself.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redlatch_core::{Backoff, Key, Request, Token, Ttl};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::driver::{Answer, Driver, Votes, poll_out};
use crate::random;

/// How long to wait before a release is repeated.
const REPEAT: Backoff = Backoff {
    first: Duration::from_millis(50),
    limit: Duration::from_secs(1),
};

/// The sending end: jobs can be handed in from any place, also from a `drop`
/// outside the runtime.
#[derive(Clone)]
pub(crate) struct Reaper {
    nodes: usize,
    jobs: mpsc::UnboundedSender<Job>,
    /// How many jobs are not done.
    open: watch::Sender<usize>,
    /// Set when nothing is to be repeated any more.
    hurry: watch::Sender<bool>,
}

enum Job {
    Finish(Stragglers),
    /// A release, and the answers to it that are to come; the numbers are
    /// those of the nodes that are to be asked again.
    Release(Orphan, FuturesUnordered<Answer>, Vec<usize>),
}

/// A lease, or what may have become one, that is to be given back.
#[derive(Clone, Debug)]
pub(crate) struct Orphan {
    key: Key,
    token: Token,
    /// After this time no node can have it any more.
    ttl: Ttl,
}

impl Orphan {
    pub(crate) fn new(key: &Key, token: &Token, ttl: Ttl) -> Self {
        Self {
            key: key.clone(),
            token: token.clone(),
            ttl,
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
            open: watch::Sender::new(0),
            hurry: watch::Sender::new(false),
        };
        tokio::spawn(reap(
            driver,
            receiver,
            reaper.open.clone(),
            reaper.hurry.subscribe(),
        ));
        reaper
    }

    /// Releases on every node, in the background.
    pub(crate) fn release(&self, orphan: Orphan) {
        let all = (0..self.nodes).collect();
        self.hand_in(Job::Release(orphan, FuturesUnordered::new(), all));
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
        self.open.send_modify(|open| *open += 1);
        if self.jobs.send(job).is_err() {
            // The runtime has ended. The ttl is the backstop.
            self.open.send_modify(|open| *open -= 1);
        }
    }

    /// Waits until every job has been tried on every node.
    pub(crate) async fn drain(&self) {
        self.hurry.send_replace(true);
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }
}

async fn reap(
    driver: Arc<Driver>,
    mut receiver: mpsc::UnboundedReceiver<Job>,
    open: watch::Sender<usize>,
    hurry: watch::Receiver<bool>,
) {
    let mut working = FuturesUnordered::new();
    let mut done = false;
    while !done || !working.is_empty() {
        tokio::select! {
            job = receiver.recv(), if !done => match job {
                Some(job) => working.push(work(&driver, job, hurry.clone())),
                None => done = true,
            },
            Some(()) = working.next() => open.send_modify(|open| *open -= 1),
        }
    }
}

async fn work(driver: &Driver, job: Job, hurry: watch::Receiver<bool>) {
    match job {
        Job::Finish(stragglers) => stragglers.await,
        Job::Release(orphan, mut answers, failed) => {
            let again = |node| release(driver, node, &orphan, hurry.clone());
            let mut releases: FuturesUnordered<_> = failed.into_iter().map(again).collect();
            while !answers.is_empty() || !releases.is_empty() {
                tokio::select! {
                    Some((node, Err(_))) = answers.next() => releases.push(again(node)),
                    Some(()) = releases.next() => {}
                    else => {}
                }
            }
        }
    }
}

/// Releases on one node, again and again until it answers.
async fn release(driver: &Driver, node: usize, orphan: &Orphan, mut hurry: watch::Receiver<bool>) {
    let Orphan { key, token, ttl } = orphan;
    let node = &driver.nodes()[node];
    let end = Instant::now() + ttl.duration();
    for tries in 1.. {
        let (key, token) = (key.clone(), token.clone());
        let request = Request::Release { key, token };
        let Err(error) = node.call(request, driver.node_timeout()).await else {
            return;
        };
        let pause = REPEAT.delay(tries, random::number());
        if *hurry.borrow() || Instant::now() + pause > end {
            let (lock, token) = (orphan.key.as_str(), orphan.token.short());
            tracing::debug!(lock, token, node = node.name(), %error, "left to its ttl");
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = hurry.wait_for(|hurry| *hurry) => {}
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

    /// It is kept, or nothing of it can have reached a node.
    pub(crate) fn forget(mut self) {
        self.orphan = None;
    }
}

impl Drop for Unkept<'_> {
    fn drop(&mut self) {
        if let Some(orphan) = self.orphan.take() {
            self.reaper.release(orphan);
        }
    }
}

/// Requests of a decided round that are still under way: they go on so that
/// the lease ends up on all nodes, until somebody [stops](Stragglers::stop) them.
#[derive(Clone)]
pub(crate) struct Stragglers {
    slot: Arc<Mutex<Slot>>,
}

#[derive(Default)]
struct Slot {
    answers: Option<FuturesUnordered<Answer>>,
    waker: Option<Waker>,
}

impl Stragglers {
    fn new(answers: FuturesUnordered<Answer>) -> Self {
        let answers = Some(answers);
        let waker = None;
        let slot = Arc::new(Mutex::new(Slot { answers, waker }));
        Self { slot }
    }

    /// What has not been sent is not sent any more: a release may follow.
    pub(crate) fn stop(&self) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.answers = None;
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }
}

impl Future for Stragglers {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(answers) = &mut slot.answers else {
            return Poll::Ready(());
        };
        if poll_out(answers, cx).is_ready() {
            slot.answers = None;
            return Poll::Ready(());
        }
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
