//! When it is worth another attempt.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redlatch_core::{Backoff, Ballot, Key, News, Round};
use tokio::time::{Instant, sleep_until};

use crate::attempt::Parking;
use crate::driver::{Driver, Refusal};
use crate::node::{Bell, NodeError, Watched, Watching};
use crate::random;

/// How often a lock is tried that no node says anything about.
const POLL: Backoff = Backoff {
    first: Duration::from_millis(5),
    limit: Duration::from_millis(200),
};

/// How often it is tried where nodes tell: should they ever forget to, and to
/// keep our place in their queues.
const REMINDER: Backoff = Backoff {
    first: Duration::from_secs(6),
    limit: Duration::from_secs(6),
};

/// The same for one who is behind others. It is told nothing when the lock is
/// given back: should the first let its turn pass, because its process is stopped
/// or its place was left behind, those behind it must find out; or should it be gone,
/// and nobody have noticed, because it had parked a request and was not called.
const BEHIND: Backoff = Backoff {
    first: Duration::from_secs(2),
    limit: Duration::from_secs(2),
};

/// Beyond a lease's end on the node: a key is there for the whole of its last
/// millisecond.
const GRACE: Duration = Duration::from_millis(1);

/// When a lease of which so much is left has run out on the node; nothing when it
/// never does.
fn end_of(remaining: Duration) -> Option<Instant> {
    Instant::now().checked_add(remaining.saturating_add(GRACE))
}

/// How many looks in a row are done at once, and how often one is done after
/// them: a server whose tracking table is full tells of changes that were none.
const LOOKS: u32 = 8;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long the first in a queue trusts that the holder will give the lock back
/// by our rules, so that it is called, before it looks at the lock itself.
const TRUST: Duration = Duration::from_millis(5);

/// How long nodes are given to say the same, when one has said that it is our
/// turn.
const TOGETHER: Duration = Duration::from_millis(5);

/// What one who waits knows of a lock on every node.
pub(crate) struct Watch<'a> {
    driver: &'a Driver,
    key: &'a Key,
    nodes: Vec<Known>,
    /// One for each node that can tell us something.
    bells: Vec<Option<Bell>>,
    /// Until when the first in a queue need not look.
    trust: Instant,
    /// When the holder's lease runs out unless it is renewed.
    lease_end: Option<Instant>,
    /// When the one for whom the free lock is kept has let its turn pass.
    turn_end: Option<Instant>,
    /// How often we were refused.
    refusals: u32,
    /// How often we have looked since then, or since that was quiet.
    looks: u32,
    looked: Instant,
    /// The number of the last look.
    number: u32,
}

/// What one who waits has waited for.
pub(crate) enum Event {
    /// An attempt may win, or is due.
    WorthTrying,
    /// The parked request with this number was granted.
    Granted(u64),
    /// We are the first now, and what we have parked won't do: a lease with this
    /// ballot was granted.
    First(Ballot),
    /// It is time to ask, behind others as we are, as far as we know. We may have
    /// become the first: one whose parked request will do is not told. So park
    /// nothing, and we are told from now on.
    Untold,
}

/// What is known of the key on one node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It has to be asked.
    Nothing,
    /// It is being asked, in the look with this number.
    Asked(u32),
    /// It is there, and the node will tell when something happens to it.
    Told,
    /// It is there, or the node can't say, and won't tell.
    Untold,
    /// Others are before us in the node's queue; it will call when that changes.
    Behind,
    /// We are the first in the node's queue; it will call when the lock is given
    /// back. Whatever else may happen to it, we have to ask.
    First,
    Absent,
}

impl Known {
    /// What is known by the answer to a look.
    fn by(answer: &Result<Watched, NodeError>) -> Self {
        match answer {
            Ok(Watched {
                remaining: None, ..
            }) => Self::Absent,
            Ok(Watched { told: true, .. }) => Self::Told,
            Ok(Watched { told: false, .. }) | Err(_) => Self::Untold,
        }
    }
}

impl<'a> Watch<'a> {
    pub(crate) fn new(driver: &'a Driver, key: &'a Key) -> Self {
        let nodes = driver.nodes();
        Self {
            driver,
            key,
            nodes: vec![Known::Nothing; nodes.len()],
            // Before any attempt is made: what a node says while the attempt is
            // on its way must not be missed.
            bells: nodes.iter().map(|node| node.listen(key)).collect(),
            trust: Instant::now(),
            lease_end: None,
            turn_end: None,
            refusals: 0,
            looks: 0,
            looked: Instant::now(),
            number: 0,
        }
    }

    /// The attempt was refused.
    pub(crate) fn refused(&mut self, refusals: &[Refusal]) {
        self.refusals += 1;
        self.looks = 0;
        self.trust = Instant::now() + TRUST;
        let before = self.nodes.clone();
        self.nodes.fill(Known::Nothing);
        let mut remaining = None;
        for Refusal {
            node,
            holder,
            first,
            kept,
        } in refusals
        {
            // Only the first in a queue looks at the lock itself.
            self.nodes[*node] = match first {
                // It has not told of anything since, and still will.
                Some(true) if before[*node] == Known::Told => Known::Told,
                Some(true) => Known::First,
                Some(false) => Known::Behind,
                // A look would only say that it is free.
                None if *kept => Known::Untold,
                None => Known::Nothing,
            };
            remaining = remaining.max(holder.as_ref().and_then(|holder| holder.remaining));
        }
        self.lease_end = remaining.and_then(end_of);
        let turn = self.driver.turn();
        let turn_end = || Instant::now() + turn + turn.mul_f64(random::fraction() / 2.0);
        self.turn_end = refusals.iter().any(|refusal| refusal.kept).then(turn_end);
    }

    /// Waits until another attempt is worth it: the lock may be free on a quorum
    /// of nodes, it is our turn, the holder's lease has run out unless renewed,
    /// or it is time to ask anyway. Never longer than to the deadline. Who parks
    /// its requests asks again when it has become the first, unless what it has
    /// parked will do.
    pub(crate) async fn until_worth_trying(
        &mut self,
        deadline: Option<Instant>,
        parking: Parking,
    ) -> Event {
        let begin = Instant::now();
        let mut turn = None;
        // Beside the bells: one who waits for a slow node must hear the others.
        let mut answers = FuturesUnordered::new();
        loop {
            let look = self.next_look();
            let resort = match self.is_told_by_all() {
                true if self.is_behind() => BEHIND.delay(1, random::number()),
                true => REMINDER.delay(1, random::number()),
                false => POLL.delay(self.refusals, random::number()),
            };
            // Who is not the first leaves it to the first to follow the holder.
            let lease_end = self.lease_end.filter(|_| !self.is_behind());
            let trust = (self.count(Known::First) > 0).then_some(self.trust);
            let untold = match parking {
                Parking::Parked(standing) if self.is_behind() => Some(standing.end),
                _ => None,
            };
            let wake = [
                Some(begin + resort),
                untold,
                lease_end,
                turn,
                self.turn_end,
                deadline,
            ];
            let wake = wake.into_iter().flatten().min().unwrap_or(begin);
            tokio::select! {
                // In order, so that a flood of news holds up no time that was set.
                biased;
                () = sleep_until(wake) => {
                    return match self.is_behind() {
                        true => Event::Untold,
                        false => Event::WorthTrying,
                    };
                }
                () = sleep_until(look.unwrap_or(begin)), if look.is_some() => {
                    let asked = self.look().into_iter();
                    answers.extend(asked.map(|(node, number, answer)| async move {
                        (node, number, answer.await)
                    }));
                }
                Some((node, number, answer)) = answers.next() => {
                    // Something may have happened since: then it is asked again.
                    if self.nodes[node] == Known::Asked(number) {
                        self.nodes[node] = Known::by(&answer);
                        if self.is_absent() {
                            return Event::WorthTrying;
                        }
                        let remaining = answer.ok().and_then(|watched| watched.remaining);
                        self.lease_end = self.lease_end.max(remaining.and_then(end_of));
                    }
                }
                () = sleep_until(trust.unwrap_or(begin)), if trust.is_some() => {
                    for node in self.nodes.iter_mut().filter(|node| **node == Known::First) {
                        *node = Known::Nothing;
                    }
                }
                (node, news) = self.rung() => match news {
                    News::Granted(number) => return Event::Granted(number),
                    News::First(above) if self.nodes[node] == Known::Behind => {
                        match parking {
                            Parking::Never => {}
                            Parking::Parked(standing) if standing.will_do_after(above) => {}
                            _ => return Event::First(above),
                        }
                        self.nodes[node] = Known::First;
                        self.trust = Instant::now() + TRUST;
                    }
                    News::First(_) => {}
                    News::YourTurn => {
                        self.nodes[node] = Known::Absent;
                        if self.is_absent() {
                            return Event::WorthTrying;
                        }
                        turn = turn.or(Some(Instant::now() + TOGETHER));
                    }
                    // Also that what we have parked was granted.
                    News::Missed if !matches!(parking, Parking::Never) => {
                        self.nodes[node] = Known::Nothing;
                        return Event::WorthTrying;
                    }
                    News::Changed | News::Missed => {
                        self.nodes[node] = Known::Nothing;
                        // Freed or renewed. If renewed, the lease's end is another one.
                        self.lease_end = None;
                    }
                },
            }
        }
    }

    /// When to ask the nodes of which nothing is known, if there are any: not
    /// too soon after many other looks.
    fn next_look(&mut self) -> Option<Instant> {
        if self.count(Known::Nothing) == 0 {
            return None;
        }
        let now = Instant::now();
        if now >= self.looked + 10 * LOOK_AGAIN {
            self.looks = 0;
        }
        Some(match self.looks >= LOOKS {
            true => self.looked + LOOK_AGAIN,
            false => now,
        })
    }

    /// Asks the nodes of which nothing is known, each by the number of this look.
    fn look(&mut self) -> Vec<(usize, u32, Watching)> {
        self.looks += 1;
        self.looked = Instant::now();
        self.number += 1;
        let limit = self.driver.node_timeout();
        let nodes = self.nodes.iter_mut().zip(self.driver.nodes()).enumerate();
        nodes
            .filter(|(_, (known, _))| **known == Known::Nothing)
            .map(|(node, (known, target))| {
                *known = Known::Asked(self.number);
                (node, self.number, target.watch(self.key.clone(), limit))
            })
            .collect()
    }

    /// Waits until a node tells us something.
    async fn rung(&self) -> (usize, News) {
        poll_fn(|context| {
            for (node, bell) in self.bells.iter().enumerate() {
                if let Some(Poll::Ready(news)) = bell.as_ref().map(|bell| bell.poll(context)) {
                    return Poll::Ready((node, news));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Whether the key is absent on so many nodes that an attempt can win.
    fn is_absent(&self) -> bool {
        self.count(Known::Absent) >= Round::quorum(self.nodes.len())
    }

    /// Whether so many nodes will tell that the lock can't be freed unnoticed.
    fn is_told_by_all(&self) -> bool {
        let untold = self.count(Known::Untold) + self.count(Known::Absent);
        untold < Round::quorum(self.nodes.len())
    }

    /// Whether others are before us on so many nodes that we can't win.
    fn is_behind(&self) -> bool {
        let nodes = self.nodes.len();
        self.count(Known::Behind) > nodes - Round::quorum(nodes)
    }

    fn count(&self, known: Known) -> usize {
        self.nodes.iter().filter(|node| **node == known).count()
    }
}
