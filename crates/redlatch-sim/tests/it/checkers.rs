//! Each checker passes a good history and finds the rule broken in a bad one.

use redlatch_sim::check::{Checker, Rule, Violation, nothing_left};
use redlatch_sim::history::{End, Entry, Event};

/// A history, a line at a time: the time in seconds, the call, what happens.
fn history(lines: &[(u64, usize, Event)]) -> Vec<Entry> {
    let entry = |(seconds, call, event): &(u64, usize, Event)| Entry {
        at: seconds * 1_000_000,
        call: *call,
        event: event.clone(),
    };
    lines.iter().map(entry).collect()
}

fn begin() -> Event {
    Event::Begin {
        lock: 0,
        waits: true,
        adopts: None,
        owner: None,
        renewed: true,
    }
}

fn adopt(from: usize) -> Event {
    Event::Begin {
        lock: 0,
        waits: false,
        adopts: Some(from),
        owner: None,
        renewed: true,
    }
}

/// Fences are given as ballot and hand-off number.
fn acquired(token: &str, ballot: u64, number: u64) -> Event {
    Event::Acquired {
        token: token.into(),
        fence: ballot << 10 | number,
    }
}

const RELEASED: Event = Event::Ended(End::Released);
const LOST: Event = Event::Ended(End::Lost);

fn all(history: &[Entry]) -> Vec<Rule> {
    let checker = Checker::new(history);
    let found = [
        checker.exclusion(true),
        checker.fence_order(),
        checker.fences_grow(),
        checker.names(),
        checker.endings(),
        checker.progress(0, 100_000_000, 3_000_000),
    ];
    let mut rules: Vec<Rule> = found
        .concat()
        .iter()
        .map(|violation| violation.rule)
        .collect();
    rules.dedup();
    rules
}

#[test]
fn a_good_history_passes() {
    let good = history(&[
        (1, 1, begin()),
        (1, 2, begin()),
        (2, 1, acquired("a", 10, 0)),
        (3, 1, RELEASED),
        (3, 2, acquired("a", 10, 1)),
        (4, 3, begin()),
        (5, 2, LOST),
        (6, 3, acquired("b", 11, 0)),
        (6, 3, Event::Ended(End::Detached)),
        (7, 4, adopt(3)),
        (7, 4, acquired("b", 11, 0)),
        (8, 5, begin()),
        (9, 4, RELEASED),
        (9, 5, Event::GaveUp),
    ]);
    assert_eq!(all(&good), []);
    assert_eq!(Checker::new(&good).acquisitions(), 4);
}

#[test]
fn two_holders_at_once_are_found() {
    let bad = history(&[
        (1, 1, begin()),
        (1, 2, begin()),
        (2, 1, acquired("a", 10, 0)),
        (3, 2, acquired("b", 11, 0)),
        (4, 1, RELEASED),
        (5, 2, RELEASED),
    ]);
    assert_eq!(all(&bad), [Rule::Exclusion]);
}

#[test]
fn a_short_hold_inside_a_long_one_does_not_hide_the_next() {
    let bad = history(&[
        (1, 1, begin()),
        (1, 2, begin()),
        (1, 3, begin()),
        (2, 1, acquired("a", 10, 0)),
        (3, 2, acquired("b", 11, 0)),
        (4, 2, RELEASED),
        (5, 3, acquired("c", 12, 0)),
        (6, 3, RELEASED),
        (7, 1, RELEASED),
    ]);
    assert_eq!(Checker::new(&bad).exclusion(true).len(), 2);
}

#[test]
fn a_fence_that_is_lower_than_a_completed_one_is_found() {
    let bad = history(&[
        (1, 1, begin()),
        (2, 1, acquired("a", 10, 0)),
        (3, 1, RELEASED),
        (4, 2, begin()),
        (5, 2, acquired("b", 9, 0)),
        (6, 2, RELEASED),
    ]);
    assert_eq!(all(&bad), [Rule::FenceOrder]);
    assert_eq!(Checker::new(&bad).fence_order().len(), 1);
}

#[test]
fn only_what_began_later_must_have_a_higher_fence() {
    let overlapping = history(&[
        (1, 1, begin()),
        (1, 2, begin()),
        (2, 1, acquired("a", 10, 0)),
        (3, 1, RELEASED),
        (5, 2, acquired("b", 9, 0)),
        (6, 2, RELEASED),
    ]);
    let checker = Checker::new(&overlapping);
    assert_eq!(checker.fence_order(), []);
    assert_eq!(
        checker.fences_grow().len(),
        1,
        "unless exclusion is promised"
    );
}

#[test]
fn a_fence_with_two_holders_is_found() {
    let bad = history(&[
        (1, 1, begin()),
        (1, 2, begin()),
        (2, 1, acquired("a", 10, 0)),
        (3, 1, RELEASED),
        (5, 2, acquired("b", 10, 0)),
        (6, 2, RELEASED),
    ]);
    assert!(all(&bad).contains(&Rule::OneHolder));
}

#[test]
fn a_token_of_two_leases_is_found() {
    let bad = history(&[
        (1, 1, begin()),
        (2, 1, acquired("a", 10, 0)),
        (3, 1, RELEASED),
        (4, 2, begin()),
        (5, 2, acquired("a", 11, 0)),
        (6, 2, RELEASED),
    ]);
    assert_eq!(all(&bad), [Rule::OneLease]);
}

#[test]
fn holders_and_calls_without_an_end_are_found() {
    let held = history(&[(1, 1, begin()), (2, 1, acquired("a", 10, 0))]);
    assert_eq!(all(&held), [Rule::Ending]);
    let called = history(&[(99, 1, begin())]);
    assert_eq!(all(&called), [Rule::Ending]);
}

#[test]
fn a_free_lock_that_is_waited_for_too_long_is_found() {
    let waits = [
        (1, 1, begin()),
        (2, 1, acquired("a", 10, 0)),
        (3, 2, begin()),
        (4, 1, RELEASED),
        (10, 2, acquired("b", 11, 0)),
        (10, 2, RELEASED),
    ];
    let bad = history(&waits);
    assert_eq!(all(&bad), [Rule::Progress]);
    let checker = Checker::new(&bad);
    let none: Vec<Violation> = Vec::new();
    assert_eq!(
        checker.progress(0, 100_000_000, 6_000_000),
        none,
        "not too long"
    );
    assert_eq!(
        checker.progress(8_000_000, 100_000_000, 3_000_000),
        none,
        "faults until 8 s"
    );
    let never = history(&waits[..4]);
    assert_eq!(
        Checker::new(&never)
            .progress(0, 20_000_000, 3_000_000)
            .len(),
        1
    );
}

#[test]
fn a_lease_that_is_lost_without_need_is_found() {
    let lost = |begin: Event| history(&[(2, 1, begin), (3, 1, acquired("a", 10, 0)), (5, 1, LOST)]);
    let keeping = |history: &[Entry], from: u64, to: u64| {
        let checker = Checker::new(history);
        let found = checker.keeping(from * 1_000_000, to * 1_000_000);
        found
            .iter()
            .map(|violation| violation.rule)
            .collect::<Vec<_>>()
    };
    let kept = lost(begin());
    assert_eq!(keeping(&kept, 1, 9), vec![Rule::Keeping]);
    let none: Vec<Rule> = Vec::new();
    assert_eq!(keeping(&kept, 4, 9), none, "won while something was wrong");
    assert_eq!(keeping(&kept, 1, 4), none, "lost when it was over");
    let limited = Event::Begin {
        lock: 0,
        waits: true,
        adopts: None,
        owner: None,
        renewed: false,
    };
    assert_eq!(keeping(&lost(limited), 1, 9), none);
    assert_eq!(keeping(&lost(adopt(7)), 1, 9), none);
}

#[test]
fn what_is_left_on_a_node_is_found() {
    assert_eq!(nothing_left(&[]), []);
    let left = nothing_left(&[(2, "redlatch:lock0".into())]);
    assert_eq!(left[0].rule, Rule::NothingLeft);
}

fn begin_as(owner: usize) -> Event {
    Event::Begin {
        lock: 0,
        waits: true,
        adopts: None,
        owner: Some(owner),
        renewed: true,
    }
}

#[test]
fn an_owner_may_lock_again_and_nobody_else() {
    let shared = |second| {
        history(&[
            (1, 1, begin_as(7)),
            (2, 1, acquired("a", 10, 0)),
            (3, 2, second),
            (4, 2, acquired("a", 10, 0)),
            (5, 1, RELEASED),
            (6, 2, RELEASED),
        ])
    };
    assert_eq!(all(&shared(begin_as(7))), []);
    let other = all(&shared(begin_as(8)));
    assert!(other.contains(&Rule::Exclusion) && other.contains(&Rule::OneHolder));
    let nobody = all(&shared(begin()));
    assert!(nobody.contains(&Rule::Exclusion) && nobody.contains(&Rule::OneHolder));
}

#[test]
fn a_lock_taken_by_force_may_have_two_holders_and_no_other() {
    let taken = |lock, from, done, to| {
        history(&[
            (1, 1, begin()),
            (2, 1, acquired("a", 10, 0)),
            (from, 9, Event::Forces { lock }),
            (to, 9, Event::Forced { done }),
            (5, 2, begin()),
            (6, 2, acquired("b", 11, 0)),
            (7, 1, LOST),
            (8, 2, RELEASED),
        ])
    };
    assert_eq!(all(&taken(0, 3, true, 4)), []);
    assert_eq!(
        all(&taken(1, 3, true, 4)),
        [Rule::Exclusion],
        "another lock"
    );
    // The fence of the next one is higher all the same.
    let mut lower = taken(0, 3, true, 4);
    lower[5].event = acquired("b", 9, 0);
    assert_eq!(all(&lower), [Rule::FenceOrder]);
}

#[test]
fn a_force_that_was_done_before_a_lease_began_does_not_excuse_it() {
    let late = |done| {
        history(&[
            (1, 9, Event::Forces { lock: 0 }),
            (2, 9, Event::Forced { done }),
            (3, 1, begin()),
            (4, 1, acquired("a", 10, 0)),
            (5, 2, begin()),
            (6, 2, acquired("b", 11, 0)),
            (7, 1, LOST),
            (8, 2, RELEASED),
        ])
    };
    assert_eq!(all(&late(true)), [Rule::Exclusion]);
    assert_eq!(all(&late(false)), [], "what was given up may still arrive");
}

#[test]
fn plain_locks_have_no_fences_and_exclude_each_other_where_it_is_promised() {
    let plain = |token: &str| Event::Acquired {
        token: token.into(),
        fence: 0,
    };
    let one_by_one = history(&[
        (1, 1, begin()),
        (2, 1, plain("a")),
        (3, 1, RELEASED),
        (4, 2, begin()),
        (5, 2, plain("b")),
        (6, 2, RELEASED),
    ]);
    assert_eq!(all(&one_by_one), []);
    let both = history(&[
        (1, 1, begin()),
        (2, 1, plain("a")),
        (3, 2, begin()),
        (4, 2, plain("b")),
        (5, 1, RELEASED),
        (6, 2, RELEASED),
    ]);
    assert_eq!(all(&both), [Rule::Exclusion]);
    assert_eq!(Checker::new(&both).exclusion(false), []);
}
