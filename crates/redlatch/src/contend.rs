//! Attempt after attempt, and what is waited for between them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use redlatch_core::{Backoff, Ballot, Lease, Ticket};
use tokio::time::{Instant, sleep_until};

use crate::attempt::{Attempt, Bid, Parked, Parking};
use crate::client::Client;
use crate::driver::Refusal;
use crate::error::{Error, NoQuorum, Result};
use crate::guard::{Guard, Hold};
use crate::lease::Cell;
use crate::mutex::{Mutex, Plan};
use crate::random;
use crate::waiting::{Event, Place, Turn, Watch, Wish};

/// How long a `lock` waits before it tries again where nodes did not answer, or
/// were split between contenders.
const RETRY: Backoff = Backoff {
    first: Duration::from_millis(5),
    limit: Duration::from_millis(200),
};

/// How often a `lock` looks whether a quarantine is over, at most: somebody may
/// end it early.
const QUARANTINE_POLL: Duration = Duration::from_secs(1);

impl Mutex {
    /// Makes attempt after attempt, one at least, until the deadline.
    pub(crate) async fn contend(
        &self,
        plan: &Plan,
        deadline: Option<Instant>,
    ) -> Result<Option<Guard>> {
        let Client {
            queues,
            driver,
            settings,
            ..
        } = &*self.client;
        let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let mut contest = Contest::default();
        let wish = Wish {
            terms: plan.terms,
            fencing: self.fencing,
        };
        // Who comes while others wait stands behind them, unless it won't wait at all.
        let mut place = match is_over() {
            true => None,
            false => queues.join_others(&plan.key, wish),
        };
        let mut busy = place.is_some() || queues.is_contended(&plan.key);
        let mut watch: Option<Watch<'_>> = None;
        let parks = self.parks(plan);
        let mut untold = false;
        let mut order = 0;
        let (cell, stragglers) = loop {
            // Looked for each time, whatever the nodes said: a lease that was
            // handed over must not lie there until it has run out.
            if let Some(guard) = place.as_ref().and_then(Place::handed) {
                if guard.ensure_held().is_ok() {
                    return Ok(Some(guard));
                }
                (place, watch, busy) = (None, None, true);
            }
            // Who has a place speaks to the nodes only when it is the head.
            if std::mem::take(&mut busy) && (place.is_some() || !is_over()) {
                let place = place.get_or_insert_with(|| queues.join(&plan.key, wish));
                match place.turn(deadline).await {
                    None => return Ok(None),
                    Some(Turn::Handed) => continue,
                    Some(Turn::Head) => {}
                }
                // Who has just become the head asks the nodes for a place first.
                if let Some(watch) = &mut watch {
                    contest.refusals += 1;
                    let standing = place.parked(|parked| parked.standing(driver.turn()));
                    let parking = match standing {
                        Some(standing) => Parking::Parked(standing),
                        None if parks => Parking::Empty,
                        None => Parking::Never,
                    };
                    tokio::select! {
                        biased;
                        () = place.hand() => continue,
                        event = watch.until_worth_trying(deadline, parking) => match event {
                            Event::Granted(number) => {
                                if let Some(parked) = place.take_parked(|parked| parked.number == number)
                                    && let Some(cell) = self.take_up(plan, parked)
                                {
                                    place.served();
                                    break (cell, None);
                                }
                            }
                            Event::First(above) => _ = place.parked(|parked| parked.outdo(above)),
                            Event::Untold => untold = true,
                            Event::WorthTrying => {}
                        }
                    }
                }
            }
            if place.is_some() && watch.is_none() {
                watch = Some(Watch::new(driver, &plan.key));
            }
            let tried = Instant::now();
            let last = std::mem::replace(&mut order, settings.number());
            let parks = parks && !std::mem::take(&mut untold);
            let mut attempt = self
                .attempt(plan, place.as_ref(), parks, last..order)
                .await?;
            if let Some(place) = &place
                && let Some(cell) = self.settle(plan, place, last..order, &mut attempt)
            {
                break (cell, None);
            }
            match attempt {
                Attempt::Won(cell, stragglers) => {
                    if let Some(place) = &place {
                        place.served();
                    }
                    break (cell, stragglers);
                }
                // Whatever it was, it may have been handed to us meanwhile.
                _ if is_over() && place.as_ref().is_some_and(Place::is_handed) => {}
                Attempt::Busy { .. } if is_over() => return Ok(None),
                Attempt::Busy {
                    refusals, split, ..
                } => {
                    contest.outage = None;
                    busy = true;
                    if let Some(watch) = &mut watch {
                        watch.refused(&refusals);
                    }
                    // Contenders that split the nodes between them must not try
                    // again in step, nor take the nodes that are given back
                    // before the one gets them that is to win; and where a node can be read but does not
                    // grant, a look can't tell that an attempt is in vain.
                    contest.splits = if split { contest.splits + 1 } else { 0 };
                    if contest.splits > 0 {
                        let pause = RETRY.delay(contest.splits, random::number());
                        self.pause(pause, deadline).await;
                    }
                }
                Attempt::Ahead if is_over() && contest.aheads >= 3 => return Ok(None),
                Attempt::Ahead => {
                    contest.aheads += 1;
                    if contest.aheads % 4 == 0 {
                        self.pause(RETRY.delay(1, random::number()), deadline).await;
                    }
                }
                Attempt::Unavailable(error) if is_over() => return Err(Error::NoQuorum(error)),
                Attempt::Unavailable(error) => {
                    let pause = contest.bear(self, tried, error)?;
                    self.pause(pause, deadline).await;
                }
            }
        };
        let batch = place.map(|place| {
            place.leave_with_lease(settings.rest(plan.terms.ttl, self.fencing));
            queues.count(&plan.key)
        });
        let hold = Hold::new(self.client.clone(), cell, stragglers, batch);
        Ok(Some(Guard::new(hold)))
    }

    /// What becomes of a parked request once a later one was answered: it may
    /// have been granted before the node saw that. `orders` are those of the
    /// attempt before, by the same task, and of this one.
    fn settle(
        &self,
        plan: &Plan,
        place: &Place<'_>,
        orders: Range<u64>,
        attempt: &mut Attempt,
    ) -> Option<Arc<Cell>> {
        let release = |parked: Parked| self.client.reaper.release(parked.orphan(&plan.key));
        let mut cell = None;
        if let Some(before) = place.take_parked(|parked| parked.order < orders.end) {
            match attempt {
                Attempt::Busy { refusals, .. } if before.has_it(refusals) => {
                    cell = self.take_up(plan, before);
                }
                // A node that has judged a later request with the same ticket has
                // dropped the one before. With one of another task it may be the
                // other way round.
                Attempt::Busy { refusals, .. }
                    if place.was_last(&before, orders.start)
                        && refusals.iter().all(Refusal::is_queued) => {}
                Attempt::Won(..) if before.order == orders.start && self.fencing => {}
                _ => release(before),
            }
        }
        if let Attempt::Busy { parked, .. } = attempt
            && let Some(unwanted) = parked.take().and_then(|parked| place.park(parked))
        {
            release(unwanted);
        }
        cell
    }

    /// Takes up what was parked, and has been granted.
    fn take_up(&self, plan: &Plan, parked: Parked) -> Option<Arc<Cell>> {
        let wanted = self.client.ensure_open().is_ok();
        let bid = self.bid(plan, None, None, 0);
        let cell = wanted.then(|| bid.take_up(&parked)).flatten();
        if cell.is_none() {
            self.client.reaper.release(parked.orphan(&plan.key));
        }
        cell
    }

    /// Whether requests of one who waits are parked. Several nodes would have to
    /// grant it at the same time, and what a request waits is lost for its lease.
    fn parks(&self, plan: &Plan) -> bool {
        let driver = &self.client.driver;
        let length = Lease::first_length(plan.terms);
        driver.nodes().len() == 1 && length.duration() >= driver.turn() * 2
    }

    async fn pause(&self, pause: Duration, deadline: Option<Instant>) {
        let wake = Instant::now() + pause;
        sleep_until(deadline.map_or(wake, |end| wake.min(end))).await;
    }

    fn bid<'a>(
        &'a self,
        plan: &'a Plan,
        ticket: Option<Ticket>,
        proposed: Option<(Ballot, Instant)>,
        order: u64,
    ) -> Bid<'a> {
        Bid {
            driver: &self.client.driver,
            reaper: &self.client.reaper,
            proposals: self.fencing.then_some(&*self.client.proposals),
            name: &self.name,
            key: &plan.key,
            terms: plan.terms,
            ticket,
            proposed,
            order,
        }
    }

    /// Tries once; who has a place among the waiting takes one with the nodes
    /// too, when it is refused, and may leave its request there.
    async fn attempt(
        &self,
        plan: &Plan,
        place: Option<&Place<'_>>,
        parks: bool,
        orders: Range<u64>,
    ) -> Result<Attempt> {
        self.client.ensure_open()?;
        let Client {
            driver,
            proposals,
            settings,
            ..
        } = &*self.client;
        let token = settings.token(self.note.as_deref())?;
        let mut ticket = place.and_then(|place| {
            place.enrol(plan.terms.ttl, || {
                // The clock of one node says it better than that of each client.
                let now = (driver.nodes().len() > 1).then(|| proposals.next(driver.now()).number());
                settings.ticket(now)
            })
        });
        if let Some(ticket) = &mut ticket {
            // Who could guess it could say that the lock was granted.
            ticket.parks = parks.then(random::number);
        }
        // Only what this request replaces: what has to be given back raises the slot.
        let proposed = place.and_then(|place| place.proposed(orders.start, driver.turn()));
        let bid = self.bid(plan, ticket, proposed, orders.end);
        Ok(bid.attempt(token).await)
    }
}

/// What has happened to one who contends for the lock.
#[derive(Default)]
struct Contest {
    /// How often somebody else had the lock, or too few nodes answered.
    refusals: u32,
    /// How often in a row the nodes were split between contenders.
    splits: u32,
    /// How often a ballot was too far ahead.
    aheads: u32,
    /// Since when too few nodes have answered.
    outage: Option<Instant>,
    /// Whether it was said that a quarantine is waited for.
    said: bool,
}

impl Contest {
    /// Puts up with too few nodes, for a while: says how long to wait.
    fn bear(&mut self, mutex: &Mutex, tried: Instant, error: Box<NoQuorum>) -> Result<Duration> {
        if let Some(left) = error.quarantine() {
            // A new deployment, or one that was restarted as a whole: it says
            // how long it takes, so it is waited for.
            if !std::mem::replace(&mut self.said, true) {
                tracing::warn!(lock = %mutex.name, %error, "waiting for the quarantine");
            }
            self.outage = None;
            return Ok(left.min(QUARANTINE_POLL));
        }
        let since = *self.outage.get_or_insert(tried);
        if since.elapsed() >= mutex.client.settings.outage_patience {
            return Err(Error::NoQuorum(error));
        }
        self.refusals += 1;
        Ok(RETRY.delay(self.refusals, random::number()))
    }
}
