//! Checks histories against what is promised: one clock, one pass each.

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{Entry, Event};

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
}

impl<'a> Checker<'a> {
    /// Reads a history.
    pub fn new(history: &'a [Entry]) -> Self {
        let mut begun = BTreeMap::new();
        let mut held: Vec<Held<'a>> = Vec::new();
        let mut by_call = BTreeMap::new();
        for (at, Entry { call, event, .. }) in history.iter().enumerate() {
            match event {
                Event::Begin { lock, adopts, .. } => {
                    begun.insert(*call, (at, *lock, *adopts));
                }
                Event::GaveUp => {
                    begun.remove(call);
                }
                Event::Acquired { token, fence } => {
                    let Some((began, lock, adopts)) = begun.remove(call) else {
                        continue;
                    };
                    by_call.insert(*call, held.len());
                    held.push(Held {
                        call: *call,
                        lock,
                        adopts,
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
            }
        }
        Self {
            history,
            held,
            unanswered: begun.into_keys().collect(),
        }
    }

    /// How many acquisitions there were.
    pub fn acquisitions(&self) -> usize {
        self.held.len()
    }

    /// No two validity periods on one lock overlap.
    pub fn exclusion(&self) -> Vec<Violation> {
        let mut broken = Vec::new();
        // The one that goes on longest, of those before, for each lock.
        let mut last: BTreeMap<usize, &Held<'_>> = BTreeMap::new();
        let end = |held: &Held<'_>| held.ended.unwrap_or(self.history.len());
        for next in &self.held {
            if let Some(before) = last.get(&next.lock) {
                // Whoever adopts a lease shares it with whom it has it from.
                if end(before) > next.acquired && next.adopts != Some(before.call) {
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
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        let lease = |held: &Held<'a>| Held {
            began: *first.entry(held.token).or_insert(held.began),
            ..held.clone()
        };
        let mut by_begin: Vec<Held<'a>> = self.held.iter().map(lease).collect();
        by_begin.sort_by_key(|held| held.began);
        let mut done = self.held.iter().peekable();
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
        for next in self.held.iter().filter(|held| held.adopts.is_none()) {
            if let Some(before) = last.insert(next.lock, next)
                && next.fence <= before.fence
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
                && let Some(before) = fences.insert((next.lock, next.fence), next)
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
        let show = |held: &Held<'_>| {
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
        };
        let how = format!("{}, then {}", show(before), show(next));
        Violation { rule, how }
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
