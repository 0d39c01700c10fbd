//! What keeps the number of states small without losing any behaviour.
//!
//! Two states that differ in nothing that can ever matter are brought into one
//! form, and what can break no promise any more is not followed further.

use redlatch_core::Ballot;

use crate::config::Crash;
use crate::force::ForceRule;
use crate::model::LockModel;
use crate::state::{Ask, Client, Lesson, Message, Node, Phase, State};
use crate::variant::Variant;

impl LockModel {
    /// Brings states that differ in nothing that matters into one form.
    pub(crate) fn normalise(&self, state: &mut State) {
        for client in 0..state.clients.len() {
            self.forget_answers(state, client);
        }
        self.forget_rounds(state);
        let keep = state.left.crashes > 0 && self.config.kinds.contains(&Crash::RolledBack);
        for number in 0..state.nodes.len() {
            let node = &state.nodes[number];
            if !keep && node.saved.is_some() {
                state.node_mut(number).saved = None;
            }
        }
        self.drop_fences(state);
        self.drop_spent(state);
        state.rank_nodes();
        if self.config.symmetry {
            state.nodes.sort_by_key(|node| node.rank());
        }
    }

    fn forget_answers(&self, state: &mut State, client: usize) {
        let (all, missing) = match &state.clients[client].phase {
            Phase::Idle => (false, false),
            Phase::Asking(_) => (true, true),
            Phase::Holding(holding) => match &holding.round {
                None => (false, false),
                Some(round) => (!round.confirmed, true),
            },
        };
        let keeps = |lesson| all || missing && matches!(lesson, Lesson::Missing(_));
        for number in 0..state.nodes.len() {
            if let Some(answer) = state.nodes[number].answers[client]
                && !keeps(answer.lesson)
            {
                state.node_mut(number).answers[client] = None;
            }
        }
    }

    /// A round that is confirmed only matters as long as REJOIN may follow.
    fn forget_rounds(&self, state: &mut State) {
        if state.left.rejoins > 0 {
            return;
        }
        for client in &mut state.clients {
            if let Phase::Holding(holding) = &mut client.phase
                && holding.round.as_ref().is_some_and(|round| round.confirmed)
            {
                holding.round = None;
            }
        }
    }

    /// Keeps only the fences that somebody could still repeat.
    fn drop_fences(&self, state: &mut State) {
        let under_way = |client: &Client| match &client.phase {
            Phase::Asking(asking) => Some(asking.below),
            _ => None,
        };
        let below = state.clients.iter().filter_map(under_way).min();
        let repeatable = |fence: &Ballot| below.is_some_and(|below| *fence > below);
        state.history.fences.retain(repeatable);
    }

    /// Drops what can make no difference any more. Only once no node can
    /// forget: until then every late message is of interest.
    fn drop_spent(&self, state: &mut State) {
        if self.config.variant != Variant::None || self.config.strays || state.left.crashes > 0 {
            return;
        }
        for number in 0..state.nodes.len() {
            let node = &state.nodes[number];
            if node
                .inbox
                .iter()
                .any(|message| self.is_spent(state, node, message))
            {
                let inbox = node.inbox.iter().copied();
                let inbox = inbox
                    .filter(|message| !self.is_spent(state, node, message))
                    .collect();
                state.node_mut(number).inbox = inbox;
            }
        }
    }

    fn is_spent(&self, state: &State, node: &Node, message: &Message) -> bool {
        if let Ask::Force(ballot) = message.ask {
            let current = state
                .force
                .as_ref()
                .is_some_and(|force| force.ballot == ballot);
            let judged = self.config.force == ForceRule::ByBallot;
            return judged && !current && ballot <= self.seen(node);
        }
        let Some(client) = state.clients.get(message.from) else {
            return false;
        };
        let wanted = client.phase.token() == Some(message.token);
        let token = self.tokens[usize::from(message.token)].as_str();
        let has = Node::has(node.state.get(&self.key), token);
        let (slot, seen) = (self.slot_of(&node.state), self.seen(node));
        match message.ask {
            Ask::Force(_) => false,
            // It could only prolong what nobody holds: as good as others' messages being late.
            Ask::Extend(_) => !wanted,
            Ask::Acquire(ballot) | Ask::Rejoin(_, ballot) => !wanted && !has && ballot <= seen,
            Ask::Release(ballot) => !has && ballot <= slot,
        }
    }

    fn seen(&self, node: &Node) -> Ballot {
        let floor = node.state.guard().map(|guard| guard.floor);
        self.slot_of(&node.state).max(floor.unwrap_or_default())
    }

    /// Whether a promise can still be broken.
    pub(crate) fn is_open(&self, state: &State) -> bool {
        if self.config.strays {
            return true;
        }
        let may_win =
            |client: &Client| client.attempts > 0 || matches!(client.phase, Phase::Asking(_));
        let may_extend = |client: &Client| match &client.phase {
            Phase::Holding(holding) => holding.extends > 0 || holding.round.is_some(),
            _ => false,
        };
        let taken = state.history.interfered
            || state.left.forces > 0
            || state.left.wipes > 0
            || self.config.superseded;
        // Two leases, or two fences, need somebody who may still win one.
        let clients = &state.clients;
        clients.iter().any(may_win) || (taken && clients.iter().any(may_extend))
    }
}
