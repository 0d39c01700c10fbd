//! What a node does with a request.
//!
//! This is the reference. The memory node runs it as it stands, the model
//! checker explores it, and the Lua scripts in `redlatch` are its translation:
//! a property test there holds a real Redis against it, reply by reply.

mod guard;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::fence::{Ballot, Ballots, slot};
use crate::queue::{Line, Queue, Switchboard, Ticket, Unreachable};
use crate::request::{Holder, Key, Reply, Request};
use crate::token::Token;
use crate::validity::Ttl;

pub use guard::{Guard, Policy, quarantine, tolerance};

/// All that a node remembers. What a restart may take away is all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeState {
    keys: BTreeMap<Key, Stored>,
    /// The highest ballot granted in each slot.
    ballots: BTreeMap<u16, Ballot>,
    /// For slots in which a lock was taken away by force: by which ballot.
    forced: BTreeMap<u16, Ballot>,
    /// Who waits, for locks that somebody waits for.
    queues: BTreeMap<Key, Queue>,
    guard: Option<Guard>,
}

/// What is stored under one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    /// A string, or nothing when the key holds a value of another type.
    pub value: Option<Vec<u8>>,
    /// The last millisecond at which the key is still there; nothing when it
    /// never expires.
    pub last_millisecond: Option<u64>,
}

/// The server at the time of a request: its clock, which run it is, and what
/// the client wants guarded, if anything.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// The node's own clock, in milliseconds since 1970.
    pub now: u64,
    /// Names this run of the server: new after every restart and promotion.
    pub run: &'a Arc<str>,
    /// What the restart guard is to hold; nothing when it is off.
    pub policy: Option<&'a Policy>,
    /// For how many milliseconds a free lock is kept for the first who waits.
    pub turn: u64,
    /// How those who wait are reached.
    pub board: &'a dyn Switchboard,
}

impl<'a> Scene<'a> {
    /// A scene in which nobody waits.
    pub fn new(now: u64, run: &'a Arc<str>, policy: Option<&'a Policy>) -> Self {
        Self {
            now,
            run,
            policy,
            turn: 0,
            board: &Unreachable,
        }
    }

    fn line(&self, key: &'a Key) -> Line<'a> {
        Line {
            key,
            now: self.now,
            turn: self.turn,
            board: self.board,
        }
    }
}

impl NodeState {
    /// Does what `request` asks for.
    pub fn apply(&mut self, request: &Request, scene: &Scene<'_>) -> Reply {
        let now = scene.now;
        if let Some(key) = request.key() {
            self.sweep_key(key, now);
        }
        match request {
            Request::Acquire {
                key,
                token,
                ttl,
                ballot,
                ticket,
            } => {
                let ticket = ticket.as_ref();
                match ballot {
                    None => self.acquire_plain(key, token, *ttl, ticket, scene),
                    Some(ballot) => self.acquire(key, token, *ttl, *ballot, ticket, scene),
                }
            }
            Request::Rejoin {
                key,
                token,
                ttl,
                born,
                ballot,
            } => self.rejoin(key, token, *ttl, *born, *ballot, scene),
            Request::Extend {
                key,
                token,
                ttl,
                plain,
            } => {
                let checked = if *plain { None } else { self.check(scene) };
                checked.unwrap_or_else(|| self.extend(key, token, *ttl, now))
            }
            Request::Release {
                key,
                token,
                ballots,
                leaves,
                unparks,
            } => {
                if let Some(ticket) = unparks {
                    self.with_queue(key, |queue| queue.withdraw_if(ticket, token));
                }
                if let Some(ticket) = leaves {
                    self.leave(key, ticket, scene);
                }
                self.release(key, token, *ballots, scene)
            }
            Request::Force { key, ballot } => self.force(key, *ballot, scene),
            Request::Inspect { key } => self.inspect(key, now),
            Request::Guard(order) => self.look_after_guard(*order, scene),
        }
    }

    /// Grants the lock, when it is free, to a ballot that is higher than any
    /// before it and whose turn it is.
    fn acquire(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Ttl,
        ballot: Ballot,
        ticket: Option<&Ticket>,
        scene: &Scene<'_>,
    ) -> Reply {
        let seen = match self.admit(key, ttl, ballot, scene) {
            Ok(seen) => seen,
            Err(refusal) => return refusal,
        };
        self.withdraw(key, ticket);
        match self.keys.get(key).map(|stored| stored.is(token)) {
            // A resend, or the same lease proposed again with a higher ballot.
            // The lease is not lengthened: its holder counts from the first request.
            Some(true) => {
                self.raise(key, ballot);
                Reply::Granted
            }
            // Any type, any format: a stranger holds it too.
            Some(false) => {
                let reply = self.refuse(key, ticket, scene);
                if ballot > seen {
                    self.park(key, token, ttl, Some(ballot), ticket, scene);
                }
                reply
            }
            None if ballot <= seen => {
                let now = scene.now;
                Reply::Low { seen, now }
            }
            None if !self.yields(key, ticket, scene) => {
                self.raise(key, ballot);
                self.grant(key, token, ttl, ballot, ticket, scene)
            }
            None => {
                let reply = self.refuse(key, ticket, scene);
                self.park(key, token, ttl, Some(ballot), ticket, scene);
                reply
            }
        }
    }

    /// Grants the lock again to a lease that this node has lost. Whoever waits
    /// has no say in it: it was that lease's turn all the time.
    fn rejoin(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Ttl,
        born: Ballot,
        ballot: Ballot,
        scene: &Scene<'_>,
    ) -> Reply {
        let seen = match self.admit(key, ttl, ballot, scene) {
            Ok(seen) => seen,
            Err(refusal) => return refusal,
        };
        match self.keys.get(key) {
            Some(stored) if stored.is(token) => {
                self.raise(key, ballot);
                Reply::Granted
            }
            Some(_) => self.refuse(key, None, scene),
            None if self.is_forced_since(key, born) => Reply::Forced,
            None if ballot <= seen => {
                let now = scene.now;
                Reply::Low { seen, now }
            }
            None => {
                self.raise(key, ballot);
                self.grant(key, token, ttl, ballot, None, scene)
            }
        }
    }

    /// Without a ticket this is what strangers do: they know nothing of a queue.
    fn acquire_plain(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Ttl,
        ticket: Option<&Ticket>,
        scene: &Scene<'_>,
    ) -> Reply {
        self.withdraw(key, ticket);
        match self.keys.get(key).map(|stored| stored.is(token)) {
            Some(true) => Reply::Granted,
            Some(false) if ticket.is_none() => Reply::Held(None),
            Some(false) => {
                let reply = self.refuse_plain(key, ticket, scene);
                self.park(key, token, ttl, None, ticket, scene);
                reply
            }
            None if ticket.is_none() => {
                self.store(key, token, ttl, scene.now);
                Reply::Granted
            }
            None if !self.yields(key, ticket, scene) => {
                self.grant(key, token, ttl, Ballot::default(), ticket, scene)
            }
            None => {
                let reply = self.refuse_plain(key, ticket, scene);
                self.park(key, token, ttl, None, ticket, scene);
                reply
            }
        }
    }

    /// Who has no ballot is not told of ballots.
    fn refuse_plain(&mut self, key: &Key, ticket: Option<&Ticket>, scene: &Scene<'_>) -> Reply {
        let mut reply = self.refuse(key, ticket, scene);
        if let Reply::Queued {
            holder: Some(holder),
            ..
        } = &mut reply
        {
            holder.ballot = Ballot::default();
        }
        reply
    }

    /// What a new lease needs of this node, whoever has the lock. Says what its
    /// ballot must exceed.
    fn admit(
        &mut self,
        key: &Key,
        ttl: Ttl,
        ballot: Ballot,
        scene: &Scene<'_>,
    ) -> Result<Ballot, Reply> {
        if let Some(refusal) = self.check(scene) {
            return Err(refusal);
        }
        let seen = self.weigh(key, ballot, scene)?;
        let guard = self.guard.as_ref().filter(|_| scene.policy.is_some());
        match guard.map(|guard| guard.max_ttl).filter(|most| ttl > *most) {
            Some(max_ttl) => Err(Reply::TtlTooLong(max_ttl.duration())),
            None => Ok(seen),
        }
    }

    fn grant(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Ttl,
        ballot: Ballot,
        ticket: Option<&Ticket>,
        scene: &Scene<'_>,
    ) -> Reply {
        self.store(key, token, ttl, scene.now);
        let ticket = ticket.map(|ticket| &*ticket.name);
        self.with_queue(key, |queue| queue.granted(ticket, ballot, &scene.line(key)));
        Reply::Granted
    }

    fn refuse(&mut self, key: &Key, ticket: Option<&Ticket>, scene: &Scene<'_>) -> Reply {
        let holder = self.holder(key, scene.now);
        match (ticket, holder) {
            (None, None) => Reply::Kept,
            (None, holder) => Reply::Held(holder),
            (Some(ticket), holder) => {
                let queue = self.queues.entry(key.clone()).or_default();
                if holder.is_some() {
                    queue.taken();
                }
                let first = queue.join(ticket, &scene.line(key));
                Reply::Queued { holder, first }
            }
        }
    }

    fn extend(&mut self, key: &Key, token: &Token, ttl: Ttl, now: u64) -> Reply {
        match self.keys.get_mut(key) {
            // It never creates a key: the lock may have been somebody else's meanwhile.
            None => Reply::Missing,
            Some(stored) if stored.is(token) => {
                // It never shortens: an old request that was held up on its way
                // must not cut a longer lease that was granted since.
                if let Some(last) = &mut stored.last_millisecond {
                    *last = (*last).max(now.saturating_add(ttl.millis()));
                }
                Reply::Extended
            }
            Some(_) => Reply::Foreign,
        }
    }

    /// Allowed in quarantine, and without a look at the guard: it gives nothing
    /// away, unless a request is parked.
    fn release(
        &mut self,
        key: &Key,
        token: &Token,
        ballots: Option<Ballots>,
        scene: &Scene<'_>,
    ) -> Reply {
        // What of this lease is still on its way must find its ballot too low.
        // One far ahead of the clock is let be: it would stop the whole slot.
        let max_ttl = scene.policy.map(|policy| policy.max_ttl);
        let limit = Ballot::at(scene.now + tolerance(max_ttl), 0);
        let highest = ballots.map(Ballots::highest);
        if let Some(ballot) = highest.filter(|ballot| *ballot <= limit) {
            self.raise(key, ballot);
        }
        match self.keys.get(key) {
            None => Reply::Missing,
            Some(stored) if stored.is(token) => {
                if !self.hand_on(key, ballots.is_none(), scene) {
                    self.keys.remove(key);
                    self.with_queue(key, |queue| queue.freed(&scene.line(key)));
                }
                Reply::Released
            }
            Some(_) => Reply::Foreign,
        }
    }

    /// Judges the ballot as if it were to acquire the lock, and only then takes
    /// it away: one that comes late does no harm to who has won it since.
    fn force(&mut self, key: &Key, ballot: Ballot, scene: &Scene<'_>) -> Reply {
        if let Some(refusal) = self.check(scene) {
            return refusal;
        }
        let now = scene.now;
        match self.weigh(key, ballot, scene) {
            Err(refusal) => return refusal,
            Ok(seen) if ballot <= seen => return Reply::Low { seen, now },
            Ok(_) => {}
        }
        self.raise(key, ballot);
        self.forced.insert(slot(key), ballot);
        match self.keys.remove(key) {
            Some(_) => Reply::Released,
            None => Reply::Missing,
        }
    }

    /// Holds a ballot against the node's clock. Says what it must exceed.
    fn weigh(&self, key: &Key, ballot: Ballot, scene: &Scene<'_>) -> Result<Ballot, Reply> {
        let guard = self.guard.as_ref().filter(|_| scene.policy.is_some());
        let floor = guard.map_or(Ballot::default(), |guard| guard.floor);
        let seen = self.ballots.get(&slot(key)).copied().unwrap_or_default();
        let seen = seen.max(floor);
        let tolerance = tolerance(guard.map(|guard| guard.max_ttl));
        let limit = Ballot::at(scene.now + tolerance, 0);
        // This node's clock is wrong, and only its own: no proposal can help.
        if seen > limit {
            let by = seen.millis().saturating_sub(limit.millis());
            return Err(Reply::ClockBehind(Duration::from_millis(by)));
        }
        if ballot > limit {
            return Err(Reply::Future(scene.now));
        }
        Ok(seen)
    }

    fn inspect(&self, key: &Key, now: u64) -> Reply {
        self.holder(key, now).map_or(Reply::Missing, Reply::Holder)
    }

    fn holder(&self, key: &Key, now: u64) -> Option<Holder> {
        let stored = self.keys.get(key)?;
        Some(Holder {
            value: stored.value.clone(),
            remaining: stored.remaining(now),
            ballot: self.ballots.get(&slot(key)).copied().unwrap_or_default(),
        })
    }

    fn is_forced_since(&self, key: &Key, born: Ballot) -> bool {
        self.forced
            .get(&slot(key))
            .is_some_and(|forced| *forced > born)
    }

    fn raise(&mut self, key: &Key, ballot: Ballot) {
        let seen = self.ballots.entry(slot(key)).or_default();
        *seen = ballot.max(*seen);
    }

    fn store(&mut self, key: &Key, token: &Token, ttl: Ttl, now: u64) {
        let value = Some(token.as_str().as_bytes().to_vec());
        let last_millisecond = Some(now.saturating_add(ttl.millis()));
        let stored = Stored {
            value,
            last_millisecond,
        };
        self.keys.insert(key.clone(), stored);
    }

    /// Forgets this key, and its queue, if their time is over. A key lives through its last
    /// millisecond, as in Redis, so a node never forgets a lease too early.
    pub fn sweep_key(&mut self, key: &Key, now: u64) {
        if self
            .keys
            .get(key)
            .is_some_and(|stored| !stored.is_there(now))
        {
            self.keys.remove(key);
        }
        let is_over = |queue: &Queue| !queue.is_there(now);
        if self.queues.get(key).is_some_and(is_over) {
            self.queues.remove(key);
        }
    }

    /// Forgets every key whose time is over. No reply depends on it: it only
    /// frees the memory of locks that nobody asks for again.
    pub fn sweep(&mut self, now: u64) {
        self.keys.retain(|_, stored| stored.is_there(now));
        self.queues.retain(|_, queue| queue.is_there(now));
    }

    /// Stores something as a stranger would, without a look at what was there.
    pub fn put(&mut self, key: Key, stored: Stored) {
        self.keys.insert(key, stored);
    }

    /// What is stored under `key`, also when its time is over.
    pub fn get(&self, key: &Key) -> Option<&Stored> {
        self.keys.get(key)
    }

    /// Deletes `key` as a stranger would.
    pub fn delete(&mut self, key: &Key) {
        self.keys.remove(key);
    }

    /// Who waits for this lock, if anybody does.
    pub fn queue(&self, key: &Key) -> Option<&Queue> {
        self.queues.get(key)
    }

    /// Ends the time for which a free lock is kept, as the clock would.
    pub fn let_turn_pass(&mut self, key: &Key) {
        self.with_queue(key, Queue::let_turn_pass);
    }

    /// Ends the time of parked requests, as the clock would.
    pub fn let_parking_pass(&mut self, key: &Key) {
        self.with_queue(key, Queue::let_parking_pass);
    }

    /// The restart guard, if there is one.
    pub fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// Puts a guard there, as an administrator does.
    pub fn set_guard(&mut self, guard: Option<Guard>) {
        self.guard = guard;
    }

    /// The highest ballot granted in this slot.
    pub fn ballot(&self, slot: u16) -> Option<Ballot> {
        self.ballots.get(&slot).copied()
    }

    /// Puts a slot's ballot there. No request does that: it is for models that
    /// break a rule on purpose.
    pub fn set_ballot(&mut self, slot: u16, ballot: Ballot) {
        self.ballots.insert(slot, ballot);
    }

    /// The ballot by which a lock was last taken away by force in this slot.
    pub fn forced(&self, slot: u16) -> Option<Ballot> {
        self.forced.get(&slot).copied()
    }

    /// Puts a slot's mark of force there, as [`set_ballot`](Self::set_ballot) does with its ballot.
    pub fn set_forced(&mut self, slot: u16, forced: Ballot) {
        self.forced.insert(slot, forced);
    }

    /// What is stored under the keys after this one, in order, also when its
    /// time is over.
    pub fn keys_after<'a>(&'a self, key: &str) -> impl Iterator<Item = (&'a Key, &'a Stored)> {
        let after = std::ops::Bound::Excluded(Key::new(key));
        self.keys.range((after, std::ops::Bound::Unbounded))
    }

    /// How many keys are stored.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is stored.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Stored {
    /// Whether its time is not over.
    pub fn is_there(&self, now: u64) -> bool {
        self.last_millisecond.is_none_or(|last| now <= last)
    }

    /// How much longer it is there; nothing when it never expires.
    pub fn remaining(&self, now: u64) -> Option<Duration> {
        let left = |last: u64| Duration::from_millis(last.saturating_sub(now));
        self.last_millisecond.map(left)
    }

    fn is(&self, token: &Token) -> bool {
        self.value.as_deref() == Some(token.as_str().as_bytes())
    }
}
