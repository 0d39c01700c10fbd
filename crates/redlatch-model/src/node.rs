//! What happens at a node: messages arrive, it goes down, strangers delete keys.

use std::sync::Arc;

use redlatch_core::fence::slot;
use redlatch_core::{Ballot, Ballots, NodeState, Reply, Request, Scene, Vote};

use crate::config::{Crash, millis, ttl};
use crate::model::LockModel;
use crate::state::{Answer, Ask, Broken, Lesson, Message, Node, Phase, State, Taken};
use crate::variant::{Variant, stored};

impl LockModel {
    /// A message arrives. Nothing when that makes no difference: it may then
    /// just as well be still on its way.
    pub(crate) fn deliver(
        &self,
        state: &mut State,
        number: usize,
        message: Message,
    ) -> Option<Reply> {
        let before = state.nodes[number].clone();
        state
            .node_mut(number)
            .inbox
            .retain(|other| *other != message);
        let reply = self.apply(state, number, message);
        let heard = self.hear(state, number, message, &reply);
        self.look_for_strays(state, number, message, &before);
        let node = &state.nodes[number];
        let changed = *node.state != *before.state || node.released != before.released;
        (changed || heard).then_some(reply)
    }

    fn apply(&self, state: &mut State, number: usize, message: Message) -> Reply {
        let now = millis(state.now);
        let born = match &state.clients.get(message.from).map(|client| &client.phase) {
            Some(Phase::Holding(holding)) if holding.token == message.token => holding.born,
            _ => Ballot::default(),
        };
        let variant = self.config.variant;
        let node = state.node_mut(number);
        let scene = Scene::new(now, &self.runs[0], Some(&self.policy));
        let memory = Arc::make_mut(&mut node.state);
        if let Ask::Force(ballot) = message.ask {
            return self.apply_force(memory, ballot, &scene);
        }
        let request = self.request(message);
        let mut reply = variant.apply(memory, &request, &scene);
        if let Ask::Extend(_) = message.ask {
            let free = memory.get(&self.key).is_none();
            let others = self.slot_of(memory) > born;
            let released = node.released & 1 << message.token != 0;
            if free && variant.extend_creates(&reply, others, released) {
                let token = &self.tokens[usize::from(message.token)];
                memory.put(self.key.clone(), stored(token, now));
                reply = Reply::Extended;
            }
        }
        reply
    }

    /// The message as the rules know it.
    pub(crate) fn request(&self, message: Message) -> Request {
        let key = self.key.clone();
        let token = || self.tokens[usize::from(message.token)].clone();
        match message.ask {
            Ask::Acquire(ballot) => Request::Acquire {
                key,
                token: token(),
                ttl: ttl(),
                ballot: Some(ballot),
                ticket: None,
            },
            Ask::Extend(_) => Request::Extend {
                key,
                token: token(),
                ttl: ttl(),
                plain: false,
            },
            Ask::Rejoin(born, ballot) => Request::Rejoin {
                key,
                token: token(),
                ttl: ttl(),
                born,
                ballot,
            },
            Ask::Release(ballot) => Request::Release {
                key,
                token: token(),
                ballots: Some(Ballots::up_to(ballot)),
                leaves: None,
                unparks: None,
            },
            Ask::Force(ballot) => Request::Force { key, ballot },
        }
    }

    /// The sender learns what was answered, when it still wants to know.
    fn hear(&self, state: &mut State, number: usize, message: Message, reply: &Reply) -> bool {
        if let Ask::Force(ballot) = message.ask {
            return self.hear_force(state, number, ballot, reply);
        }
        let counts = self.config.variant == Variant::RejoinCounts;
        let answer = match (&state.clients[message.from].phase, message.ask) {
            (Phase::Asking(asking), Ask::Acquire(ballot))
                if asking.token == message.token && asking.ballot == ballot =>
            {
                Answer::from(reply)
            }
            (Phase::Holding(holding), Ask::Extend(round))
                if holding.token == message.token && holding.extends == round =>
            {
                Answer::from(reply)
            }
            // REJOIN never counts; a ballot that was too low is worth another try.
            (Phase::Holding(holding), Ask::Rejoin(..)) if holding.token == message.token => {
                match reply {
                    Reply::Low { seen, .. } => Answer {
                        vote: Vote::Refused,
                        lesson: Lesson::Missing(*seen),
                    },
                    Reply::Granted if counts => Answer::from(reply),
                    _ => return false,
                }
            }
            _ => return false,
        };
        if !self.is_news(state, answer) {
            return false;
        }
        // A node that was asked twice votes once, and its first word counts.
        let heard = state.nodes[number].answers[message.from];
        let first = heard.is_none() || matches!(message.ask, Ask::Rejoin(..));
        if first {
            state.node_mut(number).answers[message.from] = Some(answer);
        }
        first
    }

    /// Whether a client can do more than it could: a plain no is as good as
    /// no answer to one that may give up at any time.
    fn is_news(&self, state: &State, answer: Answer) -> bool {
        if self.config.variant == Variant::QuorumOfAnswers {
            return true;
        }
        match answer.lesson {
            Lesson::Nothing => answer.vote == Vote::Granted,
            Lesson::Low(_) => self.config.proposals > 0,
            Lesson::Future => true,
            Lesson::Missing(_) => state.left.rejoins > 0,
        }
    }

    fn look_for_strays(&self, state: &mut State, number: usize, message: Message, before: &Node) {
        let remembers = self.config.strays || self.config.variant.needs_released();
        if !remembers || matches!(message.ask, Ask::Force(_)) {
            return;
        }
        let token = self.tokens[usize::from(message.token)].as_str();
        let node = state.node_mut(number);
        let has = |node: &Node| Node::has(node.state.get(&self.key), token);
        let appeared = has(node) && !has(before);
        if appeared && node.released & 1 << message.token != 0 && self.config.strays {
            state.history.broken = Some(Broken::StrayKey);
        } else if let Ask::Release(_) = message.ask {
            node.released |= 1 << message.token;
        }
    }

    /// A node goes down, comes back, and at once serves a request for another
    /// lock, by which it finds out that it may have forgotten something.
    ///
    /// "At once" loses nothing: until a node has found out, nobody can tell
    /// that it has not gone down just now.
    pub(crate) fn crash(&self, state: &mut State, number: usize, kind: Crash) {
        state.left.crashes -= 1;
        let now = millis(state.now);
        let variant = self.config.variant;
        let node = state.node_mut(number);
        match kind {
            Crash::Kept => {}
            Crash::Emptied | Crash::Flushed => node.state = Arc::default(),
            Crash::RolledBack => node.state = node.saved.clone().unwrap_or_default(),
        }
        let restarted = kind != Crash::Flushed && variant != Variant::GuardIsMarker;
        let run = &self.runs[usize::from(restarted)];
        let scene = Scene::new(now, run, Some(&self.policy));
        let memory = Arc::make_mut(&mut node.state);
        variant.apply(memory, &self.other_lock, &scene);
        // A guard of the node's current run is always that of the first name:
        // how many runs there were makes no difference.
        if let Some(mut guard) = memory.guard().cloned() {
            guard.run = self.runs[0].clone();
            memory.set_guard(Some(guard));
        }
        // A node that forgot may take an old message for a new one. That is a
        // matter of its quarantine, not of what is promised about RELEASE.
        node.released = 0;
    }

    pub(crate) fn delete(&self, state: &mut State, number: usize) -> Option<()> {
        state.nodes[number].state.get(&self.key)?;
        Arc::make_mut(&mut state.node_mut(number).state).delete(&self.key);
        state.left.deletes -= 1;
        state.history.interfered = true;
        Some(())
    }

    /// A stranger deletes the key everywhere, at a time when nothing of the
    /// lease is on its way: a deletion leaves no mark by which a node could tell
    /// a late ACQUIRE from a new one.
    pub(crate) fn wipe(&self, state: &mut State) {
        state.left.wipes -= 1;
        state.history.interfered = true;
        for number in 0..state.nodes.len() {
            let node = state.node_mut(number);
            Arc::make_mut(&mut node.state).delete(&self.key);
            node.inbox.clear();
            node.answers = [None; 2];
        }
        for client in &mut state.clients {
            if let Phase::Holding(holding) = &mut client.phase {
                holding.taken = Taken::Wiped;
                holding.round = None;
            }
        }
    }

    pub(crate) fn slot_of(&self, memory: &NodeState) -> Ballot {
        memory.ballot(slot(&self.key)).unwrap_or_default()
    }
}
