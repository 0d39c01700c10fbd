//! Who waits for a lock, over all processes, as a node keeps it.
//!
//! The queue never grants anything: it can only make a node refuse, for a short
//! while, a request that comes out of turn. So it may be lost, wrong, or
//! different on each node, and the lock is as safe as without it.
//!
//! Who waits may leave its request with the node: it is *parked* there, and when
//! its client is the first and the lock is given back, it is judged again, as if
//! it had been on its way for so long. Its client counts the lease from when it
//! was sent, as it does with every request, so it does not matter where it spent
//! the time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::fence::Ballot;
use crate::request::Key;
use crate::token::Token;
use crate::validity::Ttl;

/// What a client that waits leaves with a node: where it stands in the queue,
/// and how it is called when its turn comes. A client has one for each lock
/// that it waits for, however many of its tasks do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Names the wait: the name by which a node calls the client, `#`, and a
    /// number. It is another one each time, so that one who leaves the queue
    /// can't be taken for one who has come back.
    pub name: Arc<str>,
    /// Since when it has waited, as a number that grows like
    /// [ballots](crate::Ballot) do: the same on all nodes, so that they agree on
    /// the order. Nothing when there is one node, whose own clock says it better.
    pub since: Option<u64>,
    /// The number by which the client is told that the request with this ticket
    /// was granted after all, when it may be parked. Nobody can guess it.
    pub parks: Option<u64>,
}

impl Ticket {
    /// A ticket for the client that is called by this name.
    pub fn new(client: &str, number: u64, since: Option<u64>) -> Self {
        let name = format!("{client}#{number}").into();
        let parks = None;
        Self { name, since, parks }
    }
}

/// The name by which the client with this ticket is called.
fn client(ticket: &str) -> &str {
    ticket.rsplit_once('#').map_or(ticket, |(client, _)| client)
}

/// What a node tells a client that waits, the weightiest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum News {
    /// The client is the first in the queue now. What it has parked will do if its
    /// ballot is above this one.
    First(Ballot),
    /// Something has happened to the lock, whoever did it: it is time to look.
    Changed,
    /// What the node said may have been missed: the connection was lost, or is new.
    Missed,
    /// The lock is free, and kept for this client for a moment.
    YourTurn,
    /// The parked request with this number was granted.
    Granted(u64),
}

/// How a node reaches those who wait.
pub trait Switchboard: fmt::Debug {
    /// Calls the client with this name. False when it can't be reached: it is gone.
    fn call(&self, client: &str, key: &Key, news: News) -> bool;
}

/// A node that can't reach anybody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unreachable;

impl Switchboard for Unreachable {
    fn call(&self, _: &str, _: &Key, _: News) -> bool {
        false
    }
}

/// The clients that wait for one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queue {
    /// By place, the lowest first.
    places: BTreeSet<(u64, Arc<str>)>,
    /// Until which millisecond the free lock is kept for the first.
    kept: Option<u64>,
    /// What they have asked for, by ticket.
    parked: BTreeMap<Arc<str>, Parked>,
    /// The last millisecond at which it is still there.
    last: u64,
}

/// A request that waits on the node for the lock to be given back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parked {
    /// The name of its ticket.
    pub ticket: Arc<str>,
    /// By which its client is told that it was granted.
    pub number: u64,
    /// Names the lease to be.
    pub token: Token,
    /// How long the lease is.
    pub ttl: Ttl,
    /// What it is to be fenced with; nothing for a plain lock.
    pub ballot: Option<Ballot>,
    /// The last millisecond at which it may be granted.
    pub last: u64,
}

/// How far before the node's clock a client may say that it has waited: a
/// client whose clock is behind must not go before everybody else for ever.
const LONGEST_AGE: u64 = 2000;

/// How long a queue is kept at most after the last ticket came, and half of it at
/// least: those who wait ask again long before.
const KEPT_FOR: u64 = 60_000;

impl Queue {
    /// Where everybody stands, the first one first.
    pub fn places(&self) -> impl Iterator<Item = (u64, &str)> {
        self.places
            .iter()
            .map(|(place, client)| (*place, &**client))
    }

    /// Until when the free lock is kept for the first.
    pub fn kept(&self) -> Option<u64> {
        self.kept
    }

    /// Ends the time for which the lock is kept, as the clock would.
    pub fn let_turn_pass(&mut self) {
        self.kept = self.kept.map(|_| 1);
    }

    /// The requests that are parked, also those whose time is over.
    pub fn parked(&self) -> impl Iterator<Item = &Parked> {
        self.parked.values()
    }

    /// Ends the time of the parked requests, as the clock would.
    pub fn let_parking_pass(&mut self) {
        for parked in self.parked.values_mut() {
            parked.last = 1;
        }
    }

    /// Whether its time is not over.
    pub(crate) fn is_there(&self, now: u64) -> bool {
        now <= self.last
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether the lock, which is free, is somebody else's to take. Whoever
    /// has let its turn pass, or is gone, loses its place.
    pub(crate) fn is_turn_of_another(&mut self, ticket: Option<&Ticket>, line: &Line<'_>) -> bool {
        let in_turn = self.kept.is_some_and(|kept| line.is_in_turn(kept));
        let mut passed = self.kept.is_some() && !in_turn;
        while let Some((place, first)) = self.places.first() {
            let mine = ticket.is_some_and(|ticket| {
                // Its place may never have been noted here, or have been lost.
                ticket.name == *first || ticket.since.is_some() && line.place(ticket) < *place
            });
            if mine {
                return false;
            }
            if in_turn {
                return true;
            }
            if !passed && line.call(first, News::YourTurn) {
                self.kept = Some(line.now + line.turn);
                return true;
            }
            passed = false;
            self.strike_first();
        }
        false
    }

    /// The lock was granted by this ballot, to the owner of this ticket if there
    /// is one: the next one is the first now. One whose parked request will do, and
    /// for a while yet, is left in peace: most often it has the lock before it had
    /// to know.
    pub(crate) fn granted(&mut self, ticket: Option<&str>, ballot: Ballot, line: &Line<'_>) {
        self.kept = None;
        if let Some(ticket) = ticket {
            self.strike(ticket);
        }
        let will_do = |parked: &Parked| {
            parked.ballot.is_none_or(|its| its > ballot) && parked.last >= line.now + line.turn / 8
        };
        if !self.at_hand(line).is_some_and(will_do) {
            self.call_first(News::First(ballot), line);
        }
    }

    /// The lock was taken by somebody who knows nothing of the queue: the first
    /// has not let its turn pass.
    pub(crate) fn taken(&mut self) {
        self.kept = None;
    }

    /// The lock is free again: it is kept for the first.
    pub(crate) fn freed(&mut self, line: &Line<'_>) {
        self.call_first(News::YourTurn, line);
        self.kept = (!self.is_empty()).then_some(line.now + line.turn);
    }

    /// Notes that this client waits, unless it is noted. True when it is the first.
    /// A place in the future was given before the clock was stepped back: all
    /// who come would go before it.
    pub(crate) fn join(&mut self, ticket: &Ticket, line: &Line<'_>) -> bool {
        if !self.is_there(line.now + KEPT_FOR / 2) {
            self.last = line.now + KEPT_FOR;
        }
        let name = &ticket.name;
        let place = line.place(ticket);
        let mut noted = self.places.iter().filter(|(_, noted)| noted == name);
        if noted.next().is_none_or(|(noted, _)| place < *noted) {
            self.places.retain(|(_, noted)| noted != name);
            self.places.insert((place, name.clone()));
        }
        self.places.first().is_some_and(|(_, first)| first == name)
    }

    /// Parks a request of one who waits.
    pub(crate) fn park(&mut self, parked: Parked) {
        self.parked.insert(parked.ticket.clone(), parked);
    }

    /// What is parked with this ticket is not to be granted any more.
    pub(crate) fn withdraw(&mut self, ticket: &str) {
        self.parked.remove(ticket);
    }

    /// The same, if it is parked under this token.
    pub(crate) fn withdraw_if(&mut self, ticket: &str, token: &Token) {
        if self
            .parked
            .get(ticket)
            .is_some_and(|parked| parked.token == *token)
        {
            self.parked.remove(ticket);
        }
    }

    /// The request that the first has parked, while its time is not over.
    pub(crate) fn at_hand(&self, line: &Line<'_>) -> Option<&Parked> {
        let (_, first) = self.places.first()?;
        let parked = self.parked.get(first)?;
        // One too far away was parked before the clock was stepped back.
        let in_time = line.now <= parked.last && parked.last <= line.parking_ends();
        in_time.then_some(parked)
    }

    /// Who has this ticket waits no longer: what it was called for goes to the next.
    pub(crate) fn leave(&mut self, name: &str, is_free: bool, line: &Line<'_>) {
        let was_first = self
            .places
            .first()
            .is_some_and(|(_, first)| **first == *name);
        self.strike(name);
        match (was_first, is_free) {
            (false, _) => {}
            (true, true) => self.freed(line),
            (true, false) => self.call_first(News::First(Ballot::MAX), line),
        }
    }

    /// Calls the first one that can be reached; those before it are gone.
    fn call_first(&mut self, news: News, line: &Line<'_>) {
        while let Some((_, first)) = self.places.first()
            && !line.call(first, news)
        {
            self.strike_first();
        }
    }

    fn strike_first(&mut self) {
        if let Some((_, first)) = self.places.pop_first() {
            self.parked.remove(&first);
        }
    }

    fn strike(&mut self, name: &str) {
        self.places.retain(|(_, noted)| **noted != *name);
        self.parked.remove(name);
    }
}

/// What a queue needs to know of the moment.
pub(crate) struct Line<'a> {
    pub(crate) key: &'a Key,
    pub(crate) now: u64,
    /// For how many milliseconds a free lock is kept for the first.
    pub(crate) turn: u64,
    pub(crate) board: &'a dyn Switchboard,
}

impl Line<'_> {
    /// Calls the client with this ticket.
    pub(crate) fn call(&self, ticket: &str, news: News) -> bool {
        self.board.call(client(ticket), self.key, news)
    }

    /// Where the client with this ticket stands when it comes now.
    fn place(&self, ticket: &Ticket) -> u64 {
        let newest = self.now * 1024;
        let oldest = self.now.saturating_sub(LONGEST_AGE) * 1024;
        ticket.since.unwrap_or(newest).max(oldest).min(newest)
    }

    /// The last millisecond at which a request that is parked now may be granted.
    pub(crate) fn parking_ends(&self) -> u64 {
        self.now + self.turn / 4
    }

    /// Whether the time up to which the lock is kept is still to come. One
    /// that is too far away was set before the clock was stepped back.
    fn is_in_turn(&self, kept: u64) -> bool {
        self.now < kept && kept <= self.now + self.turn
    }
}
