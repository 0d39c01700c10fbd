//! FORCE: how an administrator takes the lock away from whoever holds it.
//!
//! The model found a hole in the first rule that we had, so it also knows that
//! one, and others that were thought of instead.

use redlatch_core::fence::slot;
use redlatch_core::rules::tolerance;
use redlatch_core::{Ballot, NodeState, Reply, Request, Round, Scene};

use crate::config::ttl;
use crate::model::LockModel;
use crate::state::{Ask, ForceRound, Message, Phase, State, Taken};

/// Who sends what no client sends.
const ADMINISTRATOR: usize = usize::MAX;

/// What a node does with FORCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForceRule {
    /// The rule: FORCE carries a ballot, and a node judges it as it does that of
    /// an ACQUIRE. It is complete when a quorum has accepted the same ballot:
    /// one of those nodes has granted the lease, so the ballot is above it on all.
    ByBallot,
    /// It deletes the key and marks the slot just above what *this* node has
    /// granted. Where an ACQUIRE of the lease is still on its way, that mark is
    /// below the lease, and the ACQUIRE or a REJOIN brings the lease back.
    AboveOwn,
    /// It raises slot and mark as high as any ballot can be by now.
    RaisesAhead,
    /// It does so with the mark alone.
    MarksAhead,
}

impl LockModel {
    /// What a node does with FORCE: what the rules say, or what one of the
    /// other rules would have done.
    pub(crate) fn apply_force(
        &self,
        node: &mut NodeState,
        ballot: Ballot,
        scene: &Scene<'_>,
    ) -> Reply {
        let key = self.key.clone();
        if self.config.force == ForceRule::ByBallot {
            let force = Request::Force { key, ballot };
            return self.config.variant.apply(node, &force, scene);
        }
        let slot = slot(&key);
        let floor = node.guard().map(|guard| guard.floor);
        let above = node.ballot(slot).max(floor).unwrap_or_default().next();
        let ahead = Ballot::at(scene.now + tolerance(Some(ttl())), 0);
        let (seen, mark) = match self.config.force {
            ForceRule::RaisesAhead => (above.max(ahead), above.max(ahead.next())),
            ForceRule::MarksAhead => (above, above.max(ahead.next())),
            ForceRule::ByBallot | ForceRule::AboveOwn => (above, above),
        };
        node.set_ballot(slot, seen);
        node.set_forced(slot, mark);
        node.sweep_key(&key, scene.now);
        let held = node.get(&key).is_some();
        node.delete(&key);
        if held {
            Reply::Released
        } else {
            Reply::Missing
        }
    }

    pub(crate) fn force(&self, state: &mut State) {
        state.left.forces -= 1;
        state.history.interfered = true;
        let ballot = self.config.administrator.ballot(state.now);
        state.force = Some(ForceRound {
            sent: state.now,
            ballot,
            low: Ballot::default(),
        });
        send_force(state, ballot);
        for client in &mut state.clients {
            if let Phase::Holding(holding) = &mut client.phase {
                holding.taken = Taken::UnderWay;
            }
        }
    }

    /// The administrator proposes a ballot above all that it was told.
    pub(crate) fn force_again(&self, state: &mut State) {
        let Some(force) = &mut state.force else {
            return;
        };
        let ballot = force.low.next();
        force.ballot = ballot;
        force.low = Ballot::default();
        for number in 0..state.nodes.len() {
            state.node_mut(number).forced = false;
        }
        send_force(state, ballot);
    }

    /// The FORCE is complete when a quorum has done it, each soon after it was sent.
    pub(crate) fn hear_force(
        &self,
        state: &mut State,
        number: usize,
        ballot: Ballot,
        reply: &Reply,
    ) -> bool {
        let Some(force) = &mut state.force else {
            return false;
        };
        match reply {
            _ if force.ballot != ballot => return false,
            Reply::Low { seen, .. } => {
                let news = *seen > force.low;
                force.low = force.low.max(*seen);
                return news;
            }
            Reply::Granted | Reply::Released | Reply::Missing => {}
            _ => return false,
        }
        state.node_mut(number).forced = true;
        let done = state.nodes.iter().filter(|node| node.forced).count();
        if done >= Round::quorum(state.nodes.len()) {
            for client in &mut state.clients {
                if let Phase::Holding(holding) = &mut client.phase
                    && holding.taken == Taken::UnderWay
                {
                    holding.taken = Taken::Forced;
                }
            }
            self.end_force(state);
        }
        true
    }

    pub(crate) fn end_force(&self, state: &mut State) {
        state.force = None;
        for number in 0..state.nodes.len() {
            state.node_mut(number).forced = false;
        }
    }
}

fn send_force(state: &mut State, ballot: Ballot) {
    for number in 0..state.nodes.len() {
        state.node_mut(number).send(Message {
            from: ADMINISTRATOR,
            token: 0,
            ask: Ask::Force(ballot),
        });
    }
}
