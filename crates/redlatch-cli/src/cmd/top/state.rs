//! What the screen knows. It draws nothing, asks nobody, and is told the time.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use redlatch::core::{Holder, Owner};
use redlatch::{Listed, NodeStatus, Progress};

use super::input::Mode;

/// A lease that was renewed has this much more left than it would have had:
/// less may come from a slow answer.
const RENEWED: Duration = Duration::from_millis(200);

/// How long a notice stays.
const NOTICE: Duration = Duration::from_secs(8);

/// All that is shown.
pub(super) struct State {
    pub(super) nodes: Vec<Node>,
    /// All that were found, by name.
    locks: Vec<Lock>,
    /// Whether the locks were ever listed.
    pub(super) is_listed: bool,
    /// Why the last look at the locks failed.
    pub(super) trouble: Option<String>,
    pub(super) progress: Option<Progress>,
    pub(super) filter: String,
    pub(super) sort: Column,
    pub(super) is_reversed: bool,
    /// The chosen lock. By name, so that it stays chosen when others come and go.
    pub(super) chosen: Option<String>,
    pub(super) mode: Mode,
    pub(super) readonly: bool,
    notice: Option<(Notice, Instant)>,
}

/// One node, as it answered last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) took: Duration,
    pub(super) condition: Condition,
}

/// Whether a node grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Armed,
    /// Nothing is guarded.
    Unguarded,
    New,
    Quarantine(Duration),
    Down(String),
    /// Not asked yet.
    Unknown,
}

/// One lock, as it was seen last.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) name: String,
    pub(super) owner: Owner,
    /// Tells its lease from others; the token itself is a secret.
    pub(super) lease: u64,
    pub(super) remaining: Option<Duration>,
    pub(super) fence: Option<u64>,
    pub(super) on_nodes: usize,
    pub(super) nodes: usize,
    pub(super) has_quorum: bool,
    /// How many renewals were seen.
    pub(super) renewals: u32,
    pub(super) seen: Instant,
}

/// A line that comes and goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) is_bad: bool,
}

/// What locks can be sorted by, and what of them is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Host,
    Pid,
    User,
    Program,
    Age,
    Left,
    Renewals,
    Fence,
    Nodes,
}

impl Column {
    pub(super) const ALL: [Self; 10] = [
        Self::Name,
        Self::Host,
        Self::Pid,
        Self::User,
        Self::Program,
        Self::Age,
        Self::Left,
        Self::Renewals,
        Self::Fence,
        Self::Nodes,
    ];

    pub(super) fn headline(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::Host => "HOST",
            Self::Pid => "PID",
            Self::User => "USER",
            Self::Program => "PROGRAM",
            Self::Age => "AGE",
            Self::Left => "LEFT",
            Self::Renewals => "RENEWED",
            Self::Fence => "FENCE",
            Self::Nodes => "NODES",
        }
    }
}

impl Node {
    pub(super) fn new(status: NodeStatus, is_guarded: bool) -> Self {
        let condition = match status.guard {
            Err(error) => Condition::Down(error.to_string()),
            Ok(_) if !is_guarded => Condition::Unguarded,
            Ok(None) => Condition::New,
            Ok(Some(view)) if view.quarantine.is_zero() => Condition::Armed,
            Ok(Some(view)) => Condition::Quarantine(view.quarantine),
        };
        Self {
            name: status.node,
            took: status.took,
            condition,
        }
    }
}

impl Lock {
    pub(super) fn new(listed: &Listed, now: Instant) -> Self {
        let inspection = &listed.inspection;
        Self {
            name: listed.name.clone(),
            owner: inspection.owner(),
            lease: lease(&inspection.holder),
            remaining: inspection.remaining(),
            fence: inspection.fence(),
            on_nodes: inspection.on_nodes,
            nodes: inspection.nodes,
            has_quorum: inspection.has_quorum(),
            renewals: 0,
            seen: now,
        }
    }

    /// What is left by now; nothing when it never expires.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        let since = now.saturating_duration_since(self.seen);
        Some(self.remaining?.saturating_sub(since))
    }

    /// Counts what was seen of the same lease before.
    fn follow(&mut self, before: &Self) {
        if self.lease != before.lease {
            return;
        }
        let is_renewed = match (self.remaining, before.left(self.seen)) {
            (Some(now), Some(expected)) => now > expected + RENEWED,
            _ => false,
        };
        self.renewals = before.renewals + u32::from(is_renewed);
    }

    fn matches(&self, words: &str) -> bool {
        let Owner {
            host,
            user,
            program,
            note,
            ..
        } = &self.owner;
        let texts = [host, user, program, note].into_iter().flatten();
        texts
            .chain([&self.name])
            .any(|text| text.to_lowercase().contains(words))
    }
}

/// Tells one lease from another without being its token.
pub(super) fn lease(holder: &Holder) -> u64 {
    let mut hasher = DefaultHasher::new();
    holder.value.hash(&mut hasher);
    hasher.finish()
}

impl State {
    pub(super) fn new(nodes: Vec<String>, readonly: bool) -> Self {
        let unknown = |name| Node {
            name,
            took: Duration::ZERO,
            condition: Condition::Unknown,
        };
        Self {
            nodes: nodes.into_iter().map(unknown).collect(),
            locks: Vec::new(),
            is_listed: false,
            trouble: None,
            progress: None,
            filter: String::new(),
            sort: Column::Name,
            is_reversed: false,
            chosen: None,
            mode: Mode::Browse,
            readonly,
            notice: None,
        }
    }

    /// Takes in what was listed, in place of what was known.
    pub(super) fn listed(&mut self, mut locks: Vec<Lock>, trouble: Option<String>) {
        let known: HashMap<&str, &Lock> =
            self.locks.iter().map(|lock| (&*lock.name, lock)).collect();
        for lock in &mut locks {
            if let Some(before) = known.get(&*lock.name) {
                lock.follow(before);
            }
        }
        let at = self.position();
        self.locks = locks;
        self.is_listed = true;
        self.trouble = trouble;
        self.progress = None;
        // In the details, and while it is asked for, a lock that was freed stays chosen.
        if self.mode.is_free_to_choose() && self.position().is_none() {
            self.choose(at.unwrap_or(0));
        }
    }

    /// The locks that pass the filter, in order.
    pub(super) fn shown(&self) -> Vec<&Lock> {
        let words = self.filter.to_lowercase();
        let locks = self.locks.iter().filter(|lock| lock.matches(&words));
        let mut shown: Vec<&Lock> = locks.collect();
        let endless = Duration::MAX;
        shown.sort_by(|one, other| {
            let (a, b) = (&one.owner, &other.owner);
            let order = match self.sort {
                Column::Name => one.name.cmp(&other.name),
                Column::Host => a.host.cmp(&b.host),
                Column::Pid => a.pid.cmp(&b.pid),
                Column::User => a.user.cmp(&b.user),
                Column::Program => a.program.cmp(&b.program),
                // The oldest first: who looks for something looks for that.
                Column::Age => a
                    .since
                    .unwrap_or(u64::MAX)
                    .cmp(&b.since.unwrap_or(u64::MAX)),
                Column::Left => {
                    let left = |lock: &Lock| lock.left(lock.seen).unwrap_or(endless);
                    left(one).cmp(&left(other))
                }
                Column::Renewals => other.renewals.cmp(&one.renewals),
                Column::Fence => other.fence.cmp(&one.fence),
                Column::Nodes => one.on_nodes.cmp(&other.on_nodes),
            };
            let order = match self.is_reversed {
                true => order.reverse(),
                false => order,
            };
            order.then_with(|| one.name.cmp(&other.name))
        });
        shown
    }

    /// How many locks there are, whatever the filter says.
    pub(super) fn count(&self) -> usize {
        self.locks.len()
    }

    /// Where the chosen lock is among those that are shown.
    pub(super) fn position(&self) -> Option<usize> {
        let chosen = self.chosen.as_deref()?;
        self.shown().iter().position(|lock| lock.name == chosen)
    }

    /// The chosen lock, as long as somebody holds it.
    pub(super) fn chosen(&self) -> Option<&Lock> {
        let chosen = self.chosen.as_deref()?;
        self.locks.iter().find(|lock| lock.name == chosen)
    }

    /// Chooses the lock at this place, or the last one.
    pub(super) fn choose(&mut self, at: usize) {
        let shown = self.shown();
        let lock = shown.get(at).or(shown.last());
        self.chosen = lock.map(|lock| lock.name.clone());
    }

    pub(super) fn notify(&mut self, text: impl Into<String>, is_bad: bool, now: Instant) {
        let text = text.into();
        self.notice = Some((Notice { text, is_bad }, now));
    }

    pub(super) fn notice(&self, now: Instant) -> Option<&Notice> {
        let (notice, since) = self.notice.as_ref()?;
        (now.saturating_duration_since(*since) < NOTICE).then_some(notice)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::cmd::top) fn lock(name: &str, lease: u64, left: u64, seen: Instant) -> Lock {
        let mut owner = Owner::default();
        owner.host = Some("web-3".into());
        owner.pid = Some(4711);
        owner.user = Some("ada".into());
        owner.program = Some("backup".into());
        Lock {
            name: name.into(),
            owner,
            lease,
            remaining: Some(Duration::from_millis(left)),
            fence: Some(1_881_973_518_912_344_064 + lease),
            on_nodes: 3,
            nodes: 3,
            has_quorum: true,
            renewals: 0,
            seen,
        }
    }

    pub(in crate::cmd::top) fn state(names: &[&str], now: Instant) -> State {
        let mut state = State::new(vec!["redis://a".into(), "redis://b".into()], false);
        let locks = names.iter().zip(1..);
        let locks = locks.map(|(name, lease)| lock(name, lease, 30_000, now));
        state.listed(locks.collect(), None);
        state
    }

    fn names(state: &State) -> Vec<&str> {
        state.shown().iter().map(|lock| &*lock.name).collect()
    }

    #[test]
    fn a_renewal_is_seen_by_what_is_left() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut state = state(&[], begin);
        // Each time: when it was seen, the lease, what was left, and the renewals by then.
        for (millis, lease, left, renewals) in [
            (0, 1, 30_000, 0),
            (1000, 1, 29_000, 0),
            // An answer that came late.
            (2000, 1, 28_150, 0),
            (11_000, 1, 29_500, 1),
            (21_000, 1, 29_500, 2),
            // Somebody else has it now.
            (22_000, 2, 30_000, 0),
        ] {
            state.listed(vec![lock("job", lease, left, at(millis))], None);
            assert_eq!(state.shown()[0].renewals, renewals, "at {millis}");
        }
    }

    #[test]
    fn what_is_left_goes_down_between_two_looks() {
        let begin = Instant::now();
        let lock = lock("job", 1, 3000, begin);
        let left = |millis| lock.left(begin + Duration::from_millis(millis));
        assert_eq!(left(1000), Some(Duration::from_secs(2)));
        assert_eq!(left(9000), Some(Duration::ZERO));
    }

    #[test]
    fn the_filter_looks_at_all_that_people_know_of_a_lock() {
        let mut state = state(&["backup:a", "deploy"], Instant::now());
        for (filter, shown) in [
            ("", vec!["backup:a", "deploy"]),
            ("DEPL", vec!["deploy"]),
            ("web-3", vec!["backup:a", "deploy"]),
            ("nobody", vec![]),
        ] {
            state.filter = filter.into();
            assert_eq!(names(&state), shown, "{filter}");
        }
    }

    #[test]
    fn locks_are_sorted_by_each_column_and_back() {
        let now = Instant::now();
        let mut state = state(&[], now);
        let (mut a, b) = (lock("a", 1, 9000, now), lock("b", 2, 5000, now));
        a.owner.since = Some(7);
        let mut c = lock("c", 3, 0, now);
        c.remaining = None;
        c.owner.host = None;
        c.on_nodes = 1;
        state.listed(vec![a, b, c], None);
        for (sort, order) in [
            (Column::Name, ["a", "b", "c"]),
            (Column::Host, ["c", "a", "b"]),
            (Column::Left, ["b", "a", "c"]),
            (Column::Age, ["a", "b", "c"]),
            (Column::Fence, ["c", "b", "a"]),
            (Column::Nodes, ["c", "a", "b"]),
        ] {
            state.sort = sort;
            assert_eq!(names(&state), order, "{sort:?}");
        }
        state.sort = Column::Left;
        state.is_reversed = true;
        assert_eq!(names(&state), ["c", "a", "b"]);
    }

    #[test]
    fn the_chosen_lock_stays_chosen_while_others_come_and_go() {
        let now = Instant::now();
        let mut state = state(&["b", "c", "d"], now);
        assert_eq!(state.chosen.as_deref(), Some("b"));
        state.choose(1);
        state.listed(vec![lock("a", 9, 1, now), lock("c", 2, 1, now)], None);
        assert_eq!(state.chosen.as_deref(), Some("c"));
        // When it is freed, the one in its place is.
        state.listed(vec![lock("a", 9, 1, now), lock("e", 2, 1, now)], None);
        assert_eq!(state.chosen.as_deref(), Some("e"));
        state.listed(Vec::new(), None);
        assert_eq!(state.chosen, None);
    }
}
