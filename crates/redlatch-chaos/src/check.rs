//! What a history must look like: linear sweeps over one clock.

use std::collections::BTreeMap;
use std::time::Duration;

use redlatch_core::Fence;

use crate::fault::{Kind, Reach};
use crate::history::{Episode, Hold};

/// What was found in a history.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Two validity periods of one lock that overlap, where promise 1 holds.
    pub(crate) overlaps: Vec<(Hold, Hold)>,
    /// The same where a fault outside promise 1 can have been the cause.
    pub(crate) excused: usize,
    /// An acquisition that was complete before another began, with a fence that is not lower.
    pub(crate) inversions: Vec<(Hold, Hold)>,
    /// A fence with two holders.
    pub(crate) shared_fences: Vec<(Hold, Hold)>,
    /// A token that two processes had.
    pub(crate) shared_tokens: Vec<(Hold, Hold)>,
    /// The longest time without the lock, by kind of fault and how far it went.
    pub(crate) unavailable: BTreeMap<(Reach, Kind), Duration>,
}

impl Findings {
    pub(crate) fn is_sound(&self) -> bool {
        self.overlaps.is_empty()
            && self.inversions.is_empty()
            && self.shared_fences.is_empty()
            && self.shared_tokens.is_empty()
    }
}

/// Checks a history. What a fault outside promise 1 did may show until `grace` after it.
///
/// `stalls` are times in which nothing ran on this machine: no fault made the lock unavailable then.
pub(crate) fn check(
    holds: &[Hold],
    episodes: &[Episode],
    stalls: &[(u64, u64)],
    grace: Duration,
) -> Findings {
    let mut findings = Findings::default();
    let mut locks: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    for hold in holds {
        locks.entry(&hold.lock).or_default().push(hold);
    }
    for mut of_lock in locks.into_values() {
        of_lock.sort_by_key(|hold| hold.acquired);
        find_overlaps(&of_lock, episodes, grace, &mut findings);
        find_inversions(&of_lock, &mut findings);
        find_shared(&of_lock, &mut findings);
        find_gaps(&of_lock, episodes, stalls, &mut findings);
    }
    findings
}

fn find_overlaps(
    by_begin: &[&Hold],
    episodes: &[Episode],
    grace: Duration,
    findings: &mut Findings,
) {
    let grace = grace.as_nanos() as u64;
    let is_excused = |at: u64| {
        let mut outside = episodes.iter().filter(|it| it.reach == Reach::Outside);
        outside.any(|it| it.began <= at && at <= it.ended + grace)
    };
    // Of all that came before, the one that lasts longest.
    let mut last: Option<&Hold> = None;
    for &hold in by_begin {
        match last {
            Some(last) if hold.acquired < last.ended => {
                if is_excused(hold.acquired) {
                    findings.excused += 1;
                } else {
                    findings.overlaps.push((last.clone(), hold.clone()));
                }
            }
            _ => {}
        }
        last = Some(last.map_or(
            hold,
            |last| if last.ended > hold.ended { last } else { hold },
        ));
    }
}

fn find_inversions(by_completion: &[&Hold], findings: &mut Findings) {
    let mut by_question = by_completion.to_vec();
    by_question.sort_by_key(|hold| hold.asked);
    let mut complete = by_completion.iter().peekable();
    let mut highest: Option<&Hold> = None;
    for hold in by_question {
        while let Some(done) = complete.next_if(|done| done.acquired < hold.asked) {
            if highest.is_none_or(|highest| done.fence > highest.fence) {
                highest = Some(done);
            }
        }
        if let Some(highest) = highest.filter(|highest| highest.fence >= hold.fence) {
            findings.inversions.push((highest.clone(), hold.clone()));
        }
    }
}

fn find_shared(holds: &[&Hold], findings: &mut Findings) {
    let mut fences: BTreeMap<Fence, &Hold> = BTreeMap::new();
    let mut tokens: BTreeMap<&str, &Hold> = BTreeMap::new();
    for &hold in holds {
        if let Some(other) = fences.insert(hold.fence, hold) {
            let pair = (other.clone(), hold.clone());
            findings.shared_fences.push(pair);
        }
        // Handed over inside its process, a lease keeps its token and gets another fence.
        let first = tokens.entry(&hold.token).or_insert(hold);
        if first.worker != hold.worker {
            let pair = (first.clone(), hold.clone());
            findings.shared_tokens.push(pair);
        }
    }
}

/// From when a holder was last known to have the lock to when the next one had it. Counted with
/// the fault that most of it fell into; what comes after a fault, until the next, is its doing.
fn find_gaps(
    by_begin: &[&Hold],
    episodes: &[Episode],
    stalls: &[(u64, u64)],
    findings: &mut Findings,
) {
    let mut last = None;
    for hold in by_begin {
        if let Some(last) = last.filter(|&last| last < hold.acquired) {
            let common = |at: usize| {
                let end = episodes.get(at + 1).map_or(u64::MAX, |next| next.began);
                hold.acquired
                    .min(end)
                    .saturating_sub(episodes[at].began.max(last))
            };
            let most = (0..episodes.len()).max_by_key(|&at| common(at));
            if let Some(at) = most.filter(|&at| common(at) > 0) {
                let key = (episodes[at].reach, episodes[at].kind);
                let stalled =
                    |&(from, to): &(u64, u64)| to.min(hold.acquired).saturating_sub(from.max(last));
                let stalled: u64 = stalls.iter().map(stalled).sum();
                let gap = Duration::from_nanos(hold.acquired - last - stalled);
                let longest = findings.unavailable.entry(key).or_default();
                *longest = gap.max(*longest);
            }
        }
        last = last.max(Some(hold.seen));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::End;

    const NO_GRACE: Duration = Duration::ZERO;

    /// A hold by a worker of its own: asked, acquired, ended, fence.
    fn hold(asked: u64, acquired: u64, ended: u64, fence: u64) -> Hold {
        Hold {
            lock: "job".to_owned(),
            worker: fence,
            asked,
            acquired,
            ended,
            seen: ended,
            fence: Fence::new(fence),
            token: format!("token {fence}"),
            end: End::Released,
        }
    }

    fn episode(kind: Kind, reach: Reach, began: u64, ended: u64) -> Episode {
        let victims = vec![0];
        Episode {
            kind,
            reach,
            victims,
            began,
            ended,
        }
    }

    #[test]
    fn a_history_in_order_is_sound() {
        let holds = [hold(0, 1, 5, 1), hold(2, 5, 9, 2), hold(6, 10, 12, 3)];
        assert!(check(&holds, &[], &[], NO_GRACE).is_sound());
    }

    #[test]
    fn validity_periods_that_overlap_are_found() {
        let findings = check(&[hold(0, 1, 6, 1), hold(0, 5, 9, 2)], &[], &[], NO_GRACE);
        assert_eq!(findings.overlaps.len(), 1);
        assert!(!findings.is_sound());
    }

    #[test]
    fn a_long_period_overlaps_more_than_the_next_one() {
        let holds = [hold(0, 1, 100, 1), hold(0, 2, 3, 2), hold(0, 50, 60, 3)];
        assert_eq!(check(&holds, &[], &[], NO_GRACE).overlaps.len(), 2);
    }

    #[test]
    fn other_locks_may_be_held_at_the_same_time() {
        let mut other = hold(0, 2, 4, 1);
        other.lock = "other".to_owned();
        assert!(check(&[hold(0, 1, 5, 1), other], &[], &[], NO_GRACE).is_sound());
    }

    #[test]
    fn an_overlap_is_excused_only_by_a_fault_outside_promise_1_and_near_it() {
        let holds = [hold(0, 10, 60, 1), hold(0, 50, 90, 2)];
        let outside = episode(Kind::Eviction, Reach::Outside, 20, 40);
        let inside = episode(Kind::FlushAll, Reach::Many, 20, 60);
        let near = Duration::from_nanos(10);
        assert_eq!(
            check(&holds, std::slice::from_ref(&outside), &[], near).excused,
            1
        );
        assert_eq!(check(&holds, &[outside], &[], NO_GRACE).overlaps.len(), 1);
        assert_eq!(check(&holds, &[inside], &[], near).overlaps.len(), 1);
    }

    #[test]
    fn a_fence_that_does_not_grow_is_found() {
        let holds = [hold(0, 1, 2, 7), hold(3, 4, 5, 6)];
        assert_eq!(check(&holds, &[], &[], NO_GRACE).inversions.len(), 1);
        // Also when others came in between, and when it is the same.
        let holds = [hold(0, 1, 2, 7), hold(3, 4, 5, 9), hold(6, 7, 8, 8)];
        assert_eq!(check(&holds, &[], &[], NO_GRACE).inversions.len(), 1);
        let holds = [hold(0, 1, 2, 7), hold(3, 4, 5, 7)];
        assert_eq!(check(&holds, &[], &[], NO_GRACE).inversions.len(), 1);
    }

    #[test]
    fn fences_are_compared_only_where_one_was_complete_before_the_other_began() {
        let holds = [hold(0, 5, 6, 7), hold(4, 8, 9, 6)];
        assert!(check(&holds, &[], &[], NO_GRACE).inversions.is_empty());
    }

    #[test]
    fn a_fence_with_two_holders_is_found() {
        let holds = [hold(0, 1, 2, 7), hold(0, 4, 5, 7)];
        assert_eq!(check(&holds, &[], &[], NO_GRACE).shared_fences.len(), 1);
    }

    #[test]
    fn a_token_in_two_processes_is_found_and_one_handed_over_is_not() {
        let mut next = hold(0, 4, 5, 8);
        next.token = "token 7".to_owned();
        let findings = check(&[hold(0, 1, 2, 7), next.clone()], &[], &[], NO_GRACE);
        assert_eq!(findings.shared_tokens.len(), 1);
        next.worker = 7;
        assert!(check(&[hold(0, 1, 2, 7), next], &[], &[], NO_GRACE).is_sound());
    }

    #[test]
    fn time_without_the_lock_counts_with_the_fault_that_most_of_it_fell_into() {
        let holds = [hold(0, 1, 10, 1), hold(0, 95, 96, 2), hold(0, 99, 100, 3)];
        let episodes = [
            episode(Kind::Calm, Reach::Few, 0, 20),
            episode(Kind::Mute, Reach::Many, 20, 60),
            episode(Kind::Delay, Reach::Few, 90, 99),
        ];
        let stalls = [(0, 15), (50, 60)];
        let found = check(&holds, &episodes, &stalls, NO_GRACE).unavailable;
        let nanos = Duration::from_nanos;
        assert_eq!(found[&(Reach::Many, Kind::Mute)], nanos(85 - 5 - 10));
        assert_eq!(found[&(Reach::Few, Kind::Delay)], nanos(3));
        assert!(!found.contains_key(&(Reach::Few, Kind::Calm)));
    }
}
