//! When a lease is renewed, and when it is lost.

use std::fmt;
use std::time::Duration;

use crate::instant::{Instant, nanos};
use crate::validity::Ttl;

/// What a holder has asked for, beside the lock itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The length of the lease, from each renewal on.
    pub ttl: Ttl,
    /// Whether it is renewed while it is held.
    pub renewal: bool,
    /// The longest time for which it may be held in all.
    pub max_hold: Option<Duration>,
}

/// The right to a lock until a deadline, on the holder's own clock.
///
/// The methods that are told the time take `&mut self`: a lease that was once
/// seen as old stays old, and a lost one stays lost, whatever the clock says later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What its holder has asked for: the length, and whether it is renewed.
    ttl: Ttl,
    renewal: bool,
    /// In a box of its own, since few have one and a process may hold very many leases.
    limit: Option<Box<Limit>>,
    /// When the last request that a quorum confirmed was sent, and what it asked
    /// for. The nodes started to count later than that, so they end later too.
    confirmed: Instant,
    length: Ttl,
    /// The oldest that the lease was ever seen, since it was last confirmed, and
    /// the age at which a renewal is next worth a try; both in nanoseconds.
    age: u64,
    renew_at: u64,
    loss: Option<Loss>,
}

/// The longest time for which a lease may be held, and how much of it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Limit {
    most: Duration,
    /// When the first request for the lease was sent.
    born: Instant,
    /// The longest that it was ever seen as held.
    held: Duration,
}

impl Limit {
    fn new(most: Option<Duration>, born: Instant) -> Option<Box<Self>> {
        let held = Duration::ZERO;
        most.map(|most| Box::new(Self { most, born, held }))
    }

    fn left(&self) -> Duration {
        self.most.saturating_sub(self.held)
    }
}

/// Why a lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// Its time ran out: no quorum of nodes could be reached to renew it, or
    /// renewal is off.
    Expired,
    /// A quorum of nodes no longer has it: the key expired there, was deleted,
    /// or belongs to somebody else.
    Taken,
    /// It was held for the longest time that its holder had asked for.
    MaxHold,
    /// Its holder gave it back, or handed it over.
    Released,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ran out before it could be renewed",
            Self::Taken => "most nodes no longer have it: it expired there, or was taken away",
            Self::MaxHold => "it was held for the longest time allowed (max_hold)",
            Self::Released => "its guard was released",
        })
    }
}

/// What is to be done about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, for this long.
    Wait(Duration),
    /// Send an EXTEND of this length to every node.
    Renew(Ttl),
    /// Tell the holder that it is lost.
    Lost(Loss),
}

impl Lease {
    /// A lease that a quorum has granted; `sent` is when the first request for
    /// its token went out, and `length` what was asked for.
    pub fn granted(terms: Terms, sent: Instant, length: Ttl) -> Self {
        Self {
            ttl: terms.ttl,
            renewal: terms.renewal,
            limit: Limit::new(terms.max_hold, sent),
            confirmed: sent,
            length,
            age: 0,
            renew_at: nanos(length.duration()) / 3,
            loss: None,
        }
    }

    /// The length to ask for first: the ttl, unless it may not be held that long.
    pub fn first_length(terms: Terms) -> Ttl {
        clip(terms.ttl, terms.max_hold)
    }

    /// What its holder has asked for.
    pub fn terms(&self) -> Terms {
        Terms {
            ttl: self.ttl,
            renewal: self.renewal,
            max_hold: self.limit.as_ref().map(|limit| limit.most),
        }
    }

    /// The length that a quorum has last confirmed.
    pub fn length(&self) -> Ttl {
        self.length
    }

    /// What is left of the lease. Nothing, for ever, once it is lost.
    pub fn remaining(&mut self, now: Instant) -> Duration {
        self.observe(now);
        match self.loss {
            Some(_) => Duration::ZERO,
            None => self.validity(),
        }
    }

    /// Why it is lost, if it is.
    pub fn loss(&mut self, now: Instant) -> Option<Loss> {
        self.observe(now);
        self.loss
    }

    /// What is to be done now.
    pub fn next(&mut self, now: Instant) -> Step {
        let left = self.until_notice(now);
        if let Some(loss) = self.loss {
            return Step::Lost(loss);
        }
        if left.is_zero() {
            let loss = self.ending();
            self.loss = Some(loss);
            return Step::Lost(loss);
        }
        if self.renewal && self.age < self.renew_at {
            return Step::Wait(left.min(Duration::from_nanos(self.renew_at - self.age)));
        }
        match self.renewal() {
            Some(length) => Step::Renew(length),
            None => Step::Wait(left),
        }
    }

    /// How long it is until its holder is told that it ends, unless it is
    /// renewed before: a little before the validity ends, never after.
    pub fn until_notice(&mut self, now: Instant) -> Duration {
        self.remaining(now).saturating_sub(self.notice())
    }

    /// A quorum has confirmed the EXTEND that was sent at `sent`. Too late for a
    /// lost lease: it stays lost, and this returns false.
    pub fn extended(&mut self, sent: Instant, length: Ttl, now: Instant) -> bool {
        if self.remaining(now).is_zero() {
            return false;
        }
        // An EXTEND never shortens what the nodes already hold.
        if length.validity(now.since(sent)) > self.validity() {
            self.confirmed = sent;
            self.length = length;
            self.age = now.nanos_since(sent);
        }
        // A longer lease that the holder asked for by hand is kept up.
        self.ttl = self.ttl.max(length);
        self.renew_at = self.age.saturating_add(nanos(length.duration()) / 3);
        true
    }

    /// An EXTEND is on its way. If no quorum confirms it, the next one is due
    /// before long, and the lease still ends on time.
    pub fn extending(&mut self, now: Instant) {
        self.observe(now);
        self.renew_at = self.age.saturating_add(nanos(self.length.duration()) / 10);
    }

    /// The same lease for another holder in the same process, with terms of its
    /// own. Nothing when too little of it is left to be worth handing on: a lost
    /// lease above all.
    pub fn handed_on(&mut self, terms: Terms, now: Instant) -> Option<Self> {
        if self.remaining(now) < self.length.duration() / 3 {
            return None;
        }
        Some(Self {
            ttl: terms.ttl,
            renewal: terms.renewal,
            limit: Limit::new(terms.max_hold, now),
            ..self.clone()
        })
    }

    /// As much of `ttl` as may still be asked for: no more than is left of max_hold.
    pub fn allowed(&self, ttl: Ttl) -> Ttl {
        clip(ttl, self.limit.as_deref().map(Limit::left))
    }

    /// So many nodes refused to extend it that somebody else may have it.
    pub fn refused(&mut self) {
        self.loss.get_or_insert(Loss::Taken);
    }

    /// Its holder is done with it.
    pub fn release(&mut self) {
        self.loss.get_or_insert(Loss::Released);
    }

    /// What to ask for in the next renewal; nothing when there is to be none.
    fn renewal(&self) -> Option<Ttl> {
        if !self.renewal {
            return None;
        }
        let length = self.allowed(self.ttl);
        // Towards the end of max_hold a renewal would add next to nothing.
        let worth = self.validity() + self.notice();
        let adds = self.limit.is_none() || length.validity(Duration::ZERO) > worth;
        adds.then_some(length)
    }

    /// What is left of it at the age at which it was last seen.
    fn validity(&self) -> Duration {
        self.length.validity(Duration::from_nanos(self.age))
    }

    /// Why the lease ends when nobody takes it away.
    fn ending(&self) -> Loss {
        let margin = self.length.drift() + 2 * self.notice();
        match &self.limit {
            Some(limit) if limit.left() <= margin => Loss::MaxHold,
            _ => Loss::Expired,
        }
    }

    /// How long before the end of its validity the holder is told: enough for a
    /// timer that fires a few milliseconds late.
    fn notice(&self) -> Duration {
        self.length.duration() / 50 + Duration::from_millis(5)
    }

    fn observe(&mut self, now: Instant) {
        self.age = self.age.max(now.nanos_since(self.confirmed));
        if let Some(limit) = &mut self.limit {
            limit.held = limit.held.max(now.since(limit.born));
        }
        if self.loss.is_none() && self.validity().is_zero() {
            self.loss = Some(self.ending());
        }
    }
}

fn clip(ttl: Ttl, most: Option<Duration>) -> Ttl {
    let Some(most) = most else { return ttl };
    Ttl::new(most.max(Duration::from_millis(1))).map_or(ttl, |most| ttl.min(most))
}
