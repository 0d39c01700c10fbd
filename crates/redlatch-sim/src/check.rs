//! Checks histories against what is promised: one clock, one pass each.

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{End, Entry, Event};

/// The rules that a history can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Two held the same lock at the same time.
    Exclusion,
    /// A later holder has no higher fence.
    FenceOrder,
    /// A fence has two holders.
    OneHolder,
    /// A token names two leases.
    OneLease,
    /// A call, or a lease, came to no end.
    Ending,
    /// Something is left on a node.
    NothingLeft,
    /// Somebody waits, and nobody holds the lock, for too long.
    Progress,
    /// A lease was lost that is renewed, and nothing was wrong.
    Keeping,
}

/// A rule that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// How.
    pub how: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.how)
    }
}

/// One acquisition, put together from its entries.
#[derive(Clone, Debug)]
struct Held<'a> {
    call: usize,
    lock: usize,
    adopts: Option<usize>,
    owner: Option<usize>,
    renewed: bool,
    /// Where in the history it began and was acquired.
    began: usize,
    acquired: usize,
    token: &'a str,
    fence: u64,
    ended: Option<usize>,
}

/// A history, read once.
pub struct Checker<'a> {
    history: &'a [Entry],
    /// In the order in which they were acquired.
    held: Vec<Held<'a>>,
    unanswered: Vec<usize>,
    /// Locks that were taken away: which, and between which two places in the
    /// history it may have happened.
    forced: Vec<(usize, usize, usize)>,
    /// Where in the history each lease began.
    leases: BTreeMap<&'a str, usize>,
}

impl<'a> Checker<'a> {
    /// Reads a history.
    pub fn new(history: &'a [Entry]) -> Self {
        let mut begun = BTreeMap::new();
        let mut held: Vec<Held<'a>> = Vec::new();
        let mut by_call = BTreeMap::new();
        let mut forces = BTreeMap::new();
        let mut forced: Vec<(usize, usize, usize)> = Vec::new();
        let mut leases = BTreeMap::new();
        for (at, Entry { call, event, .. }) in history.iter().enumerate() {
            match event {
                Event::Begin {
                    lock,
                    adopts,
                    owner,
                    renewed,
                    ..
                } => {
                    begun.insert(*call, (at, *lock, *adopts, *owner, *renewed));
                }
                Event::GaveUp => {
                    begun.remove(call);
                }
                Event::Acquired { token, fence } => {
                    let Some((began, lock, adopts, owner, renewed)) = begun.remove(call) else {
                        continue;
                    };
                    leases.entry(token.as_str()).or_insert(began);
                    by_call.insert(*call, held.len());
                    held.push(Held {
                        call: *call,
                        lock,
                        adopts,
                        owner,
                        renewed,
                        began,
                        acquired: at,
                        token,
                        fence: *fence,
                        ended: None,
                    });
                }
                Event::Ended(_) => {
                    if let Some(one) = by_call.get(call) {
                        held[*one].ended.get_or_insert(at);
                    }
                }
                Event::Forces { lock } => {
                    forces.insert(*call, forced.len());
                    forced.push((*lock, at, history.len()));
                }
                Event::Forced { done } => {
                    if let Some(one) = forces.get(call).filter(|_| *done) {
                        forced[*one].2 = at;
                    }
                }
            }
        }
        Self {
            history,
            held,
            unanswered: begun.into_keys().collect(),
            forced,
            leases,
        }
    }

    /// How many acquisitions there were.
    pub fn acquisitions(&self) -> usize {
        self.held.len()
    }

    /// Whether the lease of `held` may have been taken away before `by`: whoever
    /// has it may not know yet, and hand it on.
    fn is_forced(&self, held: &Held<'_>, by: usize) -> bool {
        let begun = self.leases.get(held.token).copied().unwrap_or(held.began);
        let hits = |(lock, from, to): &(usize, usize, usize)| {
            *lock == held.lock && *from < by && begun < *to
        };
        self.forced.iter().any(hits)
    }

    /// Whether it is one holder who has locked it again.
    fn is_again(before: &Held<'_>, next: &Held<'_>) -> bool {
        next.owner.is_some() && next.owner == before.owner && next.token == before.token
    }

    /// No two validity periods on one lock overlap, but for a lock that was
    /// taken away by force. Plain locks only when `plain` says so: nothing
    /// protects them from nodes that forget.
    pub fn exclusion(&self, plain: bool) -> Vec<Violation> {
        let mut broken = Vec::new();
        // The one that goes on longest, of those before, for each lock.
        let mut last: BTreeMap<usize, &Held<'_>> = BTreeMap::new();
        let end = |held: &Held<'_>| held.ended.unwrap_or(self.history.len());
        let held = self.held.iter();
        for next in held.filter(|held| plain || held.fence > 0) {
            if let Some(before) = last.get(&next.lock) {
                // Whoever adopts a lease shares it with whom it has it from.
                if end(before) > next.acquired
                    && next.adopts != Some(before.call)
                    && !Self::is_again(before, next)
                    && !self.is_forced(before, next.acquired)
                    && !self.is_forced(next, next.acquired)
                {
                    broken.push(self.violation(Rule::Exclusion, before, next));
                }
                if end(before) > end(next) {
                    continue;
                }
            }
            last.insert(next.lock, next);
        }
        broken
    }

    /// An acquisition that completed before another began has the lower fence.
    ///
    /// A lease that is handed on inside a process began with its first holder:
    /// when its keys have vanished from the nodes, which exclusion is not
    /// promised for, those whom it is handed to can't know.
    pub fn fence_order(&self) -> Vec<Violation> {
        let mut broken = Vec::new();
        let lease = |held: &Held<'a>| Held {
            began: self.leases.get(held.token).copied().unwrap_or(held.began),
            ..held.clone()
        };
        let fenced = || self.held.iter().filter(|held| held.fence > 0);
        let mut by_begin: Vec<Held<'a>> = fenced().map(lease).collect();
        by_begin.sort_by_key(|held| held.began);
        let mut done = fenced().peekable();
        let mut highest: BTreeMap<usize, &Held<'_>> = BTreeMap::new();
        for next in &by_begin {
            while let Some(before) = done.next_if(|before| before.acquired < next.began) {
                let high = highest.entry(before.lock).or_insert(before);
                if before.fence > high.fence {
                    *high = before;
                }
            }
            if let Some(before) = highest.get(&next.lock)
                && next.adopts.is_none()
                && next.fence <= before.fence
            {
                broken.push(self.violation(Rule::FenceOrder, before, next));
            }
        }
        broken
    }

    /// Fences grow from holder to holder. It follows from exclusion and what is
    /// promised of fences, and holds for the same faults as exclusion.
    pub fn fences_grow(&self) -> Vec<Violation> {
        let mut broken = Vec::new();
        let mut last: BTreeMap<usize, &Held<'_>> = BTreeMap::new();
        let held = self.held.iter();
        for next in held.filter(|held| held.adopts.is_none() && held.fence > 0) {
            if let Some(before) = last.insert(next.lock, next)
                && next.fence <= before.fence
                && !Self::is_again(before, next)
                && !self.is_forced(next, next.acquired)
            {
                broken.push(self.violation(Rule::FenceOrder, before, next));
            }
        }
        broken
    }

    /// Every fence has one holder, and every token names one lease.
    pub fn names(&self) -> Vec<Violation> {
        let mut broken = Vec::new();
        let mut fences: BTreeMap<(usize, u64), &Held<'_>> = BTreeMap::new();
        let mut tokens: BTreeMap<&str, &Held<'_>> = BTreeMap::new();
        for next in &self.held {
            if next.adopts.is_none()
                && next.fence > 0
                && let Some(before) = fences.insert((next.lock, next.fence), next)
                && !Self::is_again(before, next)
            {
                broken.push(self.violation(Rule::OneHolder, before, next));
            }
            // Holders inside one process share a lease, and the ballot in their fences.
            let lease = |held: &Held<'_>| (held.lock, held.fence >> 10);
            if let Some(before) = tokens.insert(next.token, next)
                && lease(before) != lease(next)
            {
                broken.push(self.violation(Rule::OneLease, before, next));
            }
        }
        broken
    }

    /// Every call is answered, and every acquisition ends.
    pub fn endings(&self) -> Vec<Violation> {
        let open = self.held.iter().filter(|held| held.ended.is_none());
        let open = open.map(|held| format!("call {} still holds the lock", held.call));
        let unanswered = self.unanswered.iter();
        let unanswered = unanswered.map(|call| format!("call {call} has never returned"));
        let broken = open.chain(unanswered).map(|how| Violation {
            rule: Rule::Ending,
            how,
        });
        broken.collect()
    }

    /// Between these two times, in which nothing is wrong, no lease is lost that is
    /// renewed for as long as it is held. What an owner locks again has the terms
    /// of the first time, and what is adopted may be over.
    pub fn keeping(&self, from: u64, to: u64) -> Vec<Violation> {
        let is_lost = |held: &&Held<'_>| {
            let acquired = self.history[held.acquired].at;
            let end = held.ended.map(|ended| &self.history[ended]);
            held.renewed
                && held.adopts.is_none()
                && held.owner.is_none()
                && acquired >= from
                && end.is_some_and(|end| end.at <= to && end.event == Event::Ended(End::Lost))
        };
        let lost = self.held.iter().filter(is_lost).map(|held| Violation {
            rule: Rule::Keeping,
            how: format!("{} was lost", self.describe(held)),
        });
        lost.collect()
    }

    /// Between these two times, nobody waits for a free lock for longer than `bound`.
    pub fn progress(&self, from: u64, to: u64, bound: u64) -> Vec<Violation> {
        let waits = self.idle_times(from, to).into_iter();
        let long = waits.filter(|(.., idle)| *idle > bound);
        let broken = long.map(|(lock, since, idle)| {
            let how = format!("lock {lock} was free and waited for from {since} on, for {idle} µs");
            let rule = Rule::Progress;
            Violation { rule, how }
        });
        broken.collect()
    }

    /// The times between these two in which a lock was free and waited for: the
    /// lock, since when, and for how long.
    pub fn idle_times(&self, from: u64, to: u64) -> Vec<(usize, u64, u64)> {
        #[derive(Default)]
        struct Lock {
            holders: usize,
            waiters: usize,
            /// Since when somebody has waited and nobody has held it.
            idle: Option<u64>,
        }
        let mut locks: BTreeMap<usize, Lock> = BTreeMap::new();
        let mut calls: BTreeMap<usize, (usize, bool, bool)> = BTreeMap::new();
        let mut found: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let mut look = |lock: usize, state: &mut Lock, now: u64| {
            if let Some(since) = state.idle {
                let idle = now.min(to).saturating_sub(since.max(from));
                // As long as it goes on, it is the same one.
                found.insert((lock, since), idle);
            }
            state.idle = match state.holders == 0 && state.waiters > 0 {
                true => state.idle.or(Some(now)),
                false => None,
            };
        };
        for Entry { at, call, event } in self.history {
            if let Event::Begin { lock, waits, .. } = event {
                calls.insert(*call, (*lock, *waits, false));
            }
            let Some((lock, waits, holds)) = calls.get_mut(call) else {
                continue;
            };
            let state = locks.entry(*lock).or_default();
            match event {
                Event::Begin { .. } => state.waiters += usize::from(*waits),
                Event::Acquired { .. } | Event::GaveUp => {
                    state.waiters -= usize::from(std::mem::take(waits));
                    *holds = matches!(event, Event::Acquired { .. });
                    state.holders += usize::from(*holds);
                }
                Event::Ended(_) => state.holders -= usize::from(std::mem::take(holds)),
                Event::Forces { .. } | Event::Forced { .. } => {}
            }
            look(*lock, state, *at);
        }
        for (lock, state) in &mut locks {
            look(*lock, state, to);
        }
        let found = found.into_iter();
        found
            .map(|((lock, since), idle)| (lock, since, idle))
            .collect()
    }

    fn violation(&self, rule: Rule, before: &Held<'_>, next: &Held<'_>) -> Violation {
        let how = format!("{}, then {}", self.describe(before), self.describe(next));
        Violation { rule, how }
    }

    fn describe(&self, held: &Held<'_>) -> String {
        let at = |entry: usize| self.history[entry].at;
        let end = held
            .ended
            .map_or("...".to_owned(), |end| at(end).to_string());
        format!(
            "call {} (lock {}, {} to {end} µs, fence {}, token {})",
            held.call,
            held.lock,
            at(held.acquired),
            held.fence,
            held.token.get(..6).unwrap_or(held.token),
        )
    }
}

/// Nothing is left on the nodes: here are those where something is.
pub fn nothing_left(left: &[(usize, String)]) -> Vec<Violation> {
    let show = |(node, key): &(usize, String)| Violation {
        rule: Rule::NothingLeft,
        how: format!("node {node} still has {key}"),
    };
    left.iter().map(show).collect()
}
