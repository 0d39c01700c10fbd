//! One attempt: ask all nodes, keep the lease when it is won, and give
//! everything back when it is not.

use std::sync::Arc;
use std::time::Duration;

use redlatch_core::{
    Ballot, Ballots, Fence, Key, Lease, Reply, Request, Terms, Ticket, Token, Ttl, Verdict, keeps,
};
use tokio::time::{Instant, sleep_until};

use crate::driver::{Driver, Refusal, Votes};
use crate::error::NoQuorum;
use crate::lease::Cell;
use crate::node::{NodeError, NodeErrorKind};
use crate::proposals::Proposals;
use crate::reaper::{Orphan, Reaper, Unkept};
use crate::stragglers::Stragglers;

/// What came of an attempt.
pub(crate) enum Attempt {
    /// The lease is ours. Requests to slow nodes may still be under way.
    Won(Arc<Cell>, Option<Stragglers>),
    /// Somebody else has the lock.
    Busy {
        /// What the nodes said, those that did.
        refusals: Vec<Refusal>,
        /// Whether some nodes granted it, or failed: several contend and none
        /// may have it, or nobody can have it for now.
        split: bool,
        /// The request, when it is parked: it may be granted later.
        parked: Option<Parked>,
    },
    /// Too few nodes answered in time.
    Unavailable(Box<NoQuorum>),
    /// The proposed ballot was too far ahead of the nodes' clocks: worth
    /// another attempt at once, by what they said their clocks show.
    Ahead,
}

/// How often, in one attempt, the one who keeps its grants when nodes are split
/// waits for the others to give theirs back, and for how long at least at first.
/// Each time it waits twice as long.
const YIELDS: u32 = 3;
const SHORTEST_YIELD: Duration = Duration::from_millis(1);

/// What an attempt is made with.
pub(crate) struct Bid<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) reaper: &'a Reaper,
    /// Nothing for a plain lock.
    pub(crate) proposals: Option<&'a Proposals>,
    pub(crate) name: &'a Arc<str>,
    pub(crate) key: &'a Key,
    pub(crate) terms: Terms,
    /// A place in the queues of the nodes, for one who waits.
    pub(crate) ticket: Option<Ticket>,
    /// The ballot that was proposed for that place a moment ago, and when, if
    /// one was.
    pub(crate) proposed: Option<(Ballot, Instant)>,
    /// Later attempts of a client have a higher one.
    pub(crate) order: u64,
}

impl Bid<'_> {
    /// Tries once to acquire the lock under a token that was never used before.
    ///
    /// Dropped at any point, it releases on every node.
    pub(crate) async fn attempt(&self, token: Token) -> Attempt {
        let driver = self.driver;
        let ttl = Lease::first_length(self.terms);
        let mut limit = driver.limit(ttl);
        let asked = Instant::now();
        let end = asked + limit;
        // All that follows counts from here: a node that granted the first
        // proposal does not lengthen the lease when it grants the next.
        let sent = driver.now();
        let proposed = self.proposed.filter(|_| self.proposals.is_some());
        let (ballot, proposed) = match proposed {
            Some((ballot, proposed)) => (Some(ballot), proposed),
            None => (self.propose(sent), asked),
        };
        let mut ballots = ballot.map(Ballots::one);
        let ticket = self.ticket.as_ref().filter(|ticket| ticket.parks.is_some());
        let ticket = ticket.map(|ticket| ticket.name.clone());
        // Declared before the votes, so dropped after them: first what was not
        // yet sent is withdrawn, then the release goes out behind what was.
        let orphan = Orphan::new(self.key, &token, ttl, ballots).parked_with(ticket);
        let mut unkept = Unkept::new(self.reaper, orphan);
        let mut yields = 0;
        loop {
            unkept.note(ballots);
            let request = Request::Acquire {
                key: self.key.clone(),
                token: token.clone(),
                ttl,
                ballot: ballots.map(Ballots::highest),
                ticket: self.ticket.clone(),
            };
            let mut votes = driver.ask(request, limit);
            match votes.verdict_in_contention().await {
                Verdict::Won => {
                    let sent = if planted!(SkipValidity) {
                        driver.now()
                    } else {
                        sent
                    };
                    let Some(cell) = self.lease(&token, ttl, ballots, sent) else {
                        return self.too_slow();
                    };
                    unkept.forget();
                    let stragglers = self.reaper.finish(votes);
                    // With one node it was taken up by the grant.
                    if driver.nodes().len() > 1 {
                        cell.lock().ticket = self.ticket.as_ref().map(|ticket| ticket.name.clone());
                    }
                    return Attempt::Won(cell, stragglers);
                }
                Verdict::Again => match self.counter(votes.again()) {
                    // Only a quorum that granted the same ballot wins, so the
                    // new one goes to all nodes.
                    Some(higher) if Instant::now() < end => {
                        raise(&mut ballots, Some(higher));
                        limit = end.saturating_duration_since(Instant::now());
                    }
                    Some(_) => return self.too_slow(),
                    None => return Attempt::Ahead,
                },
                Verdict::Unavailable | Verdict::Open => {
                    let failures = votes.into_failures();
                    return Attempt::Unavailable(driver.no_quorum(self.name, failures));
                }
                verdict @ (Verdict::Refused | Verdict::Mixed) => {
                    let took = votes.asked().elapsed();
                    if self.ticket.is_some() || votes.round().granted() > 0 {
                        votes.hear_out(took).await;
                    }
                    // The others give back what they have, which takes about as
                    // long as it took to be refused.
                    let again = Instant::now() + took.max(SHORTEST_YIELD) * (1 << yields);
                    if keeps_what_it_has(&token, &votes) && yields < YIELDS && again < end {
                        yields += 1;
                        sleep_until(again).await;
                        // What the others proposed is in the nodes' slots now: a
                        // ballot from before them would only be too low.
                        raise(&mut ballots, self.propose(driver.now()));
                        limit = end.saturating_duration_since(Instant::now());
                        continue;
                    }
                    let split = verdict == Verdict::Mixed
                        || votes.round().granted() > 0
                        || are_several(votes.refusals());
                    let all = votes.round().is_refused_by_all();
                    let refusals = votes.into_refusals();
                    let highest = ballots.map(Ballots::highest);
                    let is_parked = |refusal: &Refusal| refusal.is_parked(highest);
                    let is_parked = all && refusals.iter().all(is_parked);
                    let ticket = self.ticket.as_ref().filter(|_| is_parked);
                    let number = |ticket: &Ticket| Some((ticket.name.clone(), ticket.parks?));
                    let parked = ticket.and_then(number).map(|(ticket, number)| Parked {
                        ticket,
                        number,
                        order: self.order,
                        asked,
                        proposed,
                        above: Ballot::default(),
                        terms: self.terms,
                        token,
                        ttl,
                        ballots,
                        sent,
                    });
                    if all {
                        // No node has anything of this token, and none ever will,
                        // unless it is parked; that is up to who waits.
                        unkept.forget();
                    }
                    return Attempt::Busy {
                        refusals,
                        split,
                        parked,
                    };
                }
            }
        }
    }

    /// The lease that was won by what was sent then; nothing when it is over.
    fn lease(
        &self,
        token: &Token,
        ttl: Ttl,
        ballots: Option<Ballots>,
        sent: redlatch_core::Instant,
    ) -> Option<Arc<Cell>> {
        let mut lease = Lease::granted(self.terms, sent, ttl);
        if lease.remaining(self.driver.now()).is_zero() {
            return None;
        }
        let (name, key, token) = (self.name.clone(), self.key.clone(), token.clone());
        let clock = self.driver.clock().clone();
        let fence = ballots.map(|ballots| Fence::of(ballots.highest()));
        let cell = Cell::new(name, key, token, fence, clock, lease);
        cell.lock().ballots = ballots;
        Some(cell)
    }

    fn propose(&self, now: redlatch_core::Instant) -> Option<Ballot> {
        self.proposals.map(|proposals| proposals.next(now))
    }

    /// A parked request was granted. Nothing when that was too long ago, so that
    /// little of the lease is left, or when it was not for what is wanted here.
    pub(crate) fn take_up(&self, parked: &Parked) -> Option<Arc<Cell>> {
        let Parked { ttl, ballots, .. } = *parked;
        if parked.terms != self.terms || ballots.is_some() != self.proposals.is_some() {
            return None;
        }
        let cell = self.lease(&parked.token, ttl, ballots, parked.sent)?;
        let left = cell.lock().lease.remaining(self.driver.now());
        (left >= ttl.duration() / 3).then_some(cell)
    }

    /// The ballot to propose next, by what the nodes said; nothing when the
    /// last one was too far ahead. A lower one must not follow under the same
    /// token: nodes that granted the higher one would pass it.
    fn counter(&self, replies: &[Reply]) -> Option<Ballot> {
        let mut highest = Some(Ballot::default());
        for reply in replies {
            let (clock, seen) = match reply {
                Reply::Low { seen, now } => (*now, Some(*seen)),
                Reply::Future(now) => (*now, None),
                _ => continue,
            };
            if let Some(proposals) = self.proposals {
                proposals.learn(self.driver.now().unix_millis(), clock);
            }
            highest = highest.zip(seen).map(|(one, other)| one.max(other));
        }
        highest.map(Ballot::next)
    }

    fn too_slow(&self) -> Attempt {
        let slow = NodeError::new(
            NodeErrorKind::TimedOut,
            "a quorum would have granted the lock, but too late",
        );
        let all = 0..self.driver.nodes().len();
        let slow = all.map(|node| (node, slow.clone())).collect();
        Attempt::Unavailable(self.driver.no_quorum(self.name, slow))
    }
}

/// A request that was refused and waits on the node, to be granted when the
/// lock is given back.
#[derive(Debug)]
pub(crate) struct Parked {
    /// By which the node says that it was granted.
    pub(crate) number: u64,
    /// Those that were asked for later have a higher one.
    pub(crate) order: u64,
    /// The name of the ticket that it was sent with.
    pub(crate) ticket: Arc<str>,
    asked: Instant,
    /// When its ballot was proposed for the first time.
    proposed: Instant,
    /// What has been granted since, as far as the node has said so.
    above: Ballot,
    terms: Terms,
    token: Token,
    ttl: Ttl,
    ballots: Option<Ballots>,
    /// The lease counts from here, however long the request waited on the node.
    sent: redlatch_core::Instant,
}

impl Parked {
    /// Whether a node says that this request has the lock.
    pub(crate) fn has_it(&self, refusals: &[Refusal]) -> bool {
        refusals.iter().any(|refusal| {
            let holder = refusal.holder.as_ref();
            let value = holder.and_then(|holder| holder.value.as_deref());
            value == Some(self.token.as_str().as_bytes())
        })
    }

    /// How far it will do, for one who becomes the first.
    pub(crate) fn standing(&self, turn: Duration) -> Standing {
        Standing {
            until: self.asked + turn / 8,
            end: self.asked + turn / 4,
            ballot: self.ballots.map(Ballots::highest),
        }
    }

    /// What to propose for the same place again, and since when it is proposed:
    /// the same, or just what it takes. A new ballot would be above those that
    /// others behind us have parked since, and they would be too low. An old one
    /// would be far behind the clock, on which fences rest where a node has
    /// forgotten its ballots.
    pub(crate) fn proposed(&self, turn: Duration) -> Option<(Ballot, Instant)> {
        let is_recent = self.proposed.elapsed() < turn / 4;
        let ballots = self.ballots.filter(|_| is_recent)?;
        let ballot = ballots.highest().max(self.above.next());
        Some((ballot, self.proposed))
    }

    /// A lease with this ballot was granted meanwhile, or one that nobody knows.
    pub(crate) fn outdo(&mut self, above: Ballot) {
        if above < Ballot::MAX {
            self.above = self.above.max(above);
        }
    }

    /// What is to be given back when nobody wants it any more.
    pub(crate) fn orphan(&self, key: &Key) -> Orphan {
        let ticket = Some(self.ticket.clone());
        Orphan::new(key, &self.token, self.ttl, self.ballots).parked_with(ticket)
    }
}

/// How far a parked request will do, when its client becomes the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Up to here its client need not park another.
    until: Instant,
    /// From about here on the node does not grant it any more.
    pub(crate) end: Instant,
    ballot: Option<Ballot>,
}

impl Standing {
    /// Whether it will do after a lease with this ballot.
    pub(crate) fn will_do_after(&self, above: Ballot) -> bool {
        let is_above = self.ballot.is_none_or(|ballot| ballot > above);
        is_above && Instant::now() < self.until
    }
}

/// What one who waits has left with the node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parking {
    /// Nothing: its requests are not parked.
    Never,
    /// Nothing now.
    Empty,
    Parked(Standing),
}

fn raise(ballots: &mut Option<Ballots>, ballot: Option<Ballot>) {
    if let (Some(ballots), Some(ballot)) = (ballots, ballot) {
        ballots.raise(ballot);
    }
}

/// Whether different ones have the lock on different nodes.
fn are_several(refusals: &[Refusal]) -> bool {
    let mut holders = refusals
        .iter()
        .filter_map(|refusal| refusal.holder.as_ref()?.value.as_ref());
    let first = holders.next();
    holders.any(|holder| Some(holder) != first)
}

/// Whether the nodes are split between contenders, and this one is to win.
fn keeps_what_it_has(token: &Token, votes: &Votes) -> bool {
    let holders = votes.refusals().iter().map(|refusal| {
        let holder = refusal.holder.as_ref();
        holder.and_then(|holder| holder.value.as_deref())
    });
    keeps(token.as_str().as_bytes(), votes.round().granted(), holders)
}
