//! The restart guard: what a node that may have forgotten something does.

use std::sync::Arc;
use std::time::Duration;

use super::{NodeState, Scene};
use crate::fence::Ballot;
use crate::request::{GuardOrder, GuardView, Reply};
use crate::validity::Ttl;

/// The restart guard: how a node finds out that it may have forgotten something.
///
/// It is stored beside the locks and names the run of the server that wrote it.
/// When a server finds none, or that of another run, it was restarted, emptied,
/// rolled back or promoted: it may have forgotten leases that are still valid.
/// It then grants nothing until every lease it may have forgotten has run out,
/// and no ballot that could be as low as one of theirs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// The run of the server that this was written in.
    pub run: Arc<str>,
    /// When the node may grant again, in milliseconds of its own clock.
    pub armed: u64,
    /// How long the quarantine before that was to last.
    pub quarantine: u64,
    /// Above every ballot that the node may have forgotten; never below that
    /// of `armed`.
    pub floor: Ballot,
    /// The longest ttl that the node allows.
    pub max_ttl: Ttl,
    /// The deployment that the node belongs to.
    pub deployment: Arc<str>,
}

/// What clients of a guarded deployment tell every node about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The deployment's name, number of nodes and longest ttl. A client that
    /// was given only some of the nodes, or counts on shorter leases, names
    /// another, and is refused instead of locking beside the others.
    pub deployment: Arc<str>,
    /// The longest ttl that a node is to allow when it begins.
    pub max_ttl: Ttl,
}

/// How long a node that may have forgotten something grants nothing: longer
/// than the longest lease can be valid, by more than clocks can differ.
pub fn quarantine(max_ttl: Ttl) -> u64 {
    max_ttl.millis() + max_ttl.millis().div_ceil(10) + 1000
}

/// How far a ballot may be ahead of a node's clock: half a quarantine, and ten
/// seconds at most, so that no ballot reaches the floor of a node that forgets it.
pub fn tolerance(max_ttl: Option<Ttl>) -> u64 {
    max_ttl.map_or(10_000, |max_ttl| (quarantine(max_ttl) / 2).min(10_000))
}

impl NodeState {
    /// The restart guard. Says why nothing is granted or confirmed, if so.
    pub(super) fn check(&mut self, scene: &Scene<'_>) -> Option<Reply> {
        let policy = scene.policy?;
        let same_run = |guard: &Guard| guard.run == *scene.run;
        if !self.guard.as_ref().is_some_and(same_run) {
            let new = Guard::quarantined(self.guard.take(), scene, policy);
            self.guard = Some(new);
        }
        let guard = self.guard.as_mut()?;
        if guard.deployment != policy.deployment {
            return Some(Reply::Mismatch(guard.deployment.to_string()));
        }
        // The node's clock was stepped back: it must not wait for ever.
        guard.armed = guard.armed.min(scene.now + guard.quarantine);
        let left = guard.armed.saturating_sub(scene.now);
        (left > 0).then(|| Reply::Quarantined(Duration::from_millis(left)))
    }

    /// Whether the restart guard would let a request pass. Unlike
    /// [`check`](Self::check) it changes nothing.
    pub(super) fn is_on_guard(&self, scene: &Scene<'_>) -> bool {
        let Some(policy) = scene.policy else {
            return true;
        };
        self.guard.as_ref().is_some_and(|guard| {
            guard.run == *scene.run
                && guard.deployment == policy.deployment
                && guard.armed <= scene.now
        })
    }

    pub(super) fn look_after_guard(&mut self, order: GuardOrder, scene: &Scene<'_>) -> Reply {
        let foreign = |guard: &&Guard| {
            let ours = scene.policy.map(|policy| &policy.deployment);
            ours.is_some_and(|ours| guard.deployment != *ours)
        };
        let now = scene.now;
        match (order, scene.policy) {
            (GuardOrder::Read, _) | (_, None) => {}
            (GuardOrder::AssumeFresh, Some(policy)) => match &self.guard {
                Some(guard) if foreign(&guard) => {
                    return Reply::Mismatch(guard.deployment.to_string());
                }
                Some(guard) if guard.run == *scene.run && guard.armed <= now => {}
                _ => self.guard = Some(Guard::armed_in(0, scene, policy)),
            },
            (GuardOrder::Reconfigure, Some(policy)) => {
                // Leases of either deployment must have run out.
                let earlier = self.guard.take();
                let longest = earlier
                    .as_ref()
                    .map_or(policy.max_ttl, |guard| guard.max_ttl);
                let longest = longest.max(policy.max_ttl);
                let mut guard = Guard::armed_in(quarantine(longest), scene, policy);
                if let Some(earlier) = earlier {
                    guard.floor = guard.floor.max(earlier.floor);
                }
                self.guard = Some(guard);
            }
        }
        Reply::Guard(self.guard.as_ref().map(|guard| GuardView {
            deployment: guard.deployment.to_string(),
            quarantine: Duration::from_millis(match guard.run == *scene.run {
                true => guard.armed.saturating_sub(now),
                // It will find out with the next request.
                false => quarantine(guard.max_ttl),
            }),
        }))
    }
}

impl Guard {
    /// The guard of a server that has just found that it may have forgotten
    /// something. What an earlier run knew of its deployment still counts.
    fn quarantined(earlier: Option<Guard>, scene: &Scene<'_>, policy: &Policy) -> Self {
        let (policy, floor) = match earlier {
            None => (policy.clone(), Ballot::default()),
            Some(guard) => {
                let (deployment, max_ttl) = (guard.deployment, guard.max_ttl);
                (
                    Policy {
                        deployment,
                        max_ttl,
                    },
                    guard.floor,
                )
            }
        };
        let mut guard = Self::armed_in(quarantine(policy.max_ttl), scene, &policy);
        guard.floor = guard.floor.max(floor);
        guard
    }

    /// A guard that lets the server grant after so many milliseconds.
    fn armed_in(quarantine: u64, scene: &Scene<'_>, policy: &Policy) -> Self {
        let armed = scene.now + quarantine;
        Self {
            run: scene.run.clone(),
            armed,
            quarantine,
            floor: Ballot::at(armed, 0),
            max_ttl: policy.max_ttl,
            deployment: policy.deployment.clone(),
        }
    }
}
