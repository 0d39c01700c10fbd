//! The ways to get the protocol wrong, each of which the model must find.
//!
//! None of them has a copy of the rules: each changes what a node remembers
//! before or after [`NodeState::apply`], what it is told of its surroundings,
//! or what the client makes of an answer.

use redlatch_core::fence::slot;
use redlatch_core::rules::{Guard, Stored, tolerance};
use redlatch_core::{Ballot, Key, NodeState, Reply, Request, Scene, Token};

use crate::config::{TICK, TTL, ttl};

/// One way to get it wrong, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// The protocol as it is.
    None,
    /// A node grants any ballot when the key is free.
    NoCounterCheck,
    /// A re-proposal is granted, and the slot stays at the old ballot.
    ProposalLeavesSlot,
    /// Nodes have no restart guard.
    NoGuard,
    /// The restart guard is a mere marker: that it is there is enough, whichever run wrote it.
    GuardIsMarker,
    /// The quarantine is shorter than a lease can be.
    ShortQuarantine,
    /// EXTEND creates a key that is missing, on a node in quarantine.
    ExtendCreatesInQuarantine,
    /// EXTEND creates a key that is missing, where others were granted the lock since.
    ExtendCreatesAfterOthers,
    /// EXTEND creates a key that is missing, also after its RELEASE.
    ExtendCreatesAfterRelease,
    /// After a quarantine any ballot is granted.
    NoFloor,
    /// A ballot may be as far ahead of the node's clock as it likes.
    NoBound,
    /// The holder counts its lease from its last ACQUIRE, not from the first.
    ValidityFromResend,
    /// The quorum is counted over the nodes that answered.
    QuorumOfAnswers,
    /// REJOIN does not ask whether the lock was taken away by force.
    RejoinIgnoresForce,
    /// REJOIN is sent without waiting for a quorum to confirm.
    RejoinWithoutQuorum,
    /// The same, and what REJOIN is granted counts as confirmed.
    RejoinCounts,
    /// RELEASE deletes the key and leaves the slot as it was.
    ReleaseLeavesSlot,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::None,
        Self::NoCounterCheck,
        Self::ProposalLeavesSlot,
        Self::NoGuard,
        Self::GuardIsMarker,
        Self::ShortQuarantine,
        Self::ExtendCreatesInQuarantine,
        Self::ExtendCreatesAfterOthers,
        Self::ExtendCreatesAfterRelease,
        Self::NoFloor,
        Self::NoBound,
        Self::ValidityFromResend,
        Self::QuorumOfAnswers,
        Self::RejoinIgnoresForce,
        Self::RejoinWithoutQuorum,
        Self::RejoinCounts,
        Self::ReleaseLeavesSlot,
    ];

    /// What a node does under this variant.
    pub(crate) fn apply(self, node: &mut NodeState, request: &Request, scene: &Scene<'_>) -> Reply {
        let Some(slot) = request.key().map(slot) else {
            return node.apply(request, scene);
        };
        if self == Self::None {
            return node.apply(request, scene);
        }
        let before = node.clone();
        let seen = before.ballot(slot).unwrap_or_default();
        let mut scene = scene.clone();
        if self == Self::NoGuard {
            scene.policy = None;
        }
        let scene = &scene;
        match (self, request) {
            (Self::NoCounterCheck, Request::Acquire { .. }) => {
                without_counters(node, slot);
                let reply = node.apply(request, scene);
                restore_counters(node, &before, slot);
                reply
            }
            (Self::ProposalLeavesSlot, Request::Acquire { key, token, .. }) => {
                let again = holds(node, key, token, scene.now);
                let reply = node.apply(request, scene);
                if again {
                    node.set_ballot(slot, seen);
                }
                reply
            }
            (Self::ShortQuarantine, _) => {
                let reply = node.apply(request, scene);
                edit_new_guard(node, &before, |guard| {
                    guard.armed = scene.now + TICK / 2;
                    guard.floor = Ballot::at(guard.armed, 0);
                });
                reply
            }
            (Self::NoFloor, _) => {
                let reply = node.apply(request, scene);
                edit_new_guard(node, &before, |guard| guard.floor = Ballot::default());
                reply
            }
            (
                Self::NoBound,
                Request::Acquire {
                    ballot: Some(ballot),
                    ..
                },
            ) => {
                let reply = node.apply(&bounded(request, scene.now), scene);
                if reply == Reply::Granted {
                    node.set_ballot(slot, seen.max(*ballot));
                }
                reply
            }
            (Self::RejoinIgnoresForce, Request::Rejoin { .. }) => {
                let mut request = request.clone();
                if let Request::Rejoin { born, .. } = &mut request {
                    *born = Ballot::new(u64::MAX);
                }
                node.apply(&request, scene)
            }
            (Self::ReleaseLeavesSlot, Request::Release { .. }) => {
                let reply = node.apply(request, scene);
                node.set_ballot(slot, seen);
                reply
            }
            _ => node.apply(request, scene),
        }
    }

    /// Whether an EXTEND that was answered like this creates the key all the
    /// same; `others` and `released` say what became of the lock on this node.
    pub(crate) fn extend_creates(self, reply: &Reply, others: bool, released: bool) -> bool {
        match self {
            Self::ExtendCreatesInQuarantine => matches!(reply, Reply::Quarantined(_)),
            Self::ExtendCreatesAfterOthers => *reply == Reply::Missing && others,
            Self::ExtendCreatesAfterRelease => *reply == Reply::Missing && released,
            _ => false,
        }
    }

    /// Whether it asks what was released on a node.
    pub(crate) fn needs_released(self) -> bool {
        self == Self::ExtendCreatesAfterRelease
    }

    /// Whether REJOIN waits for a quorum.
    pub(crate) fn rejoin_waits(self) -> bool {
        !matches!(self, Self::RejoinWithoutQuorum | Self::RejoinCounts)
    }
}

/// What is stored for a token that begins now.
pub(crate) fn stored(token: &Token, now: u64) -> Stored {
    Stored {
        value: Some(token.as_str().as_bytes().to_vec()),
        last_millisecond: Some(now + TTL),
    }
}

fn holds(node: &NodeState, key: &Key, token: &Token, now: u64) -> bool {
    node.get(key).is_some_and(|stored| {
        stored.value.as_deref() == Some(token.as_str().as_bytes())
            && stored.last_millisecond.is_none_or(|last| now <= last)
    })
}

/// Hides from the node what it would compare a ballot with.
fn without_counters(node: &mut NodeState, slot: u16) {
    node.set_ballot(slot, Ballot::default());
    if let Some(mut guard) = node.guard().cloned() {
        guard.floor = Ballot::default();
        node.set_guard(Some(guard));
    }
}

fn restore_counters(node: &mut NodeState, before: &NodeState, slot: u16) {
    let seen = |node: &NodeState| node.ballot(slot).unwrap_or_default();
    node.set_ballot(slot, seen(before).max(seen(node)));
    if let (Some(old), Some(mut guard)) = (before.guard(), node.guard().cloned()) {
        guard.floor = guard.floor.max(old.floor);
        node.set_guard(Some(guard));
    }
}

fn edit_new_guard(node: &mut NodeState, before: &NodeState, edit: impl FnOnce(&mut Guard)) {
    let Some(mut guard) = node.guard().cloned() else {
        return;
    };
    if before.guard().map(|guard| &guard.run) != Some(&guard.run) {
        edit(&mut guard);
        node.set_guard(Some(guard));
    }
}

/// The same request with a ballot that the node accepts.
fn bounded(request: &Request, now: u64) -> Request {
    let mut request = request.clone();
    if let Request::Acquire {
        ballot: Some(ballot),
        ..
    } = &mut request
    {
        *ballot = (*ballot).min(Ballot::at(now + tolerance(Some(ttl())), 0));
    }
    request
}
