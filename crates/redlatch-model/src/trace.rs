//! A run of the model in words, for people to follow.

use redlatch_core::Reply;

use crate::config::show;
use crate::model::{Action, LockModel};
use crate::state::{Ask, Message, State};

impl LockModel {
    /// The steps of a run, one text each.
    pub(crate) fn tell(&self, path: &[(State, Option<Action>)]) -> Vec<String> {
        let step =
            |(state, action): &(State, Option<Action>)| Some(self.describe(state, (*action)?));
        path.iter().filter_map(step).collect()
    }

    /// One step: when, who, what, and what was answered.
    pub fn describe(&self, state: &State, action: Action) -> String {
        let name = |client: usize| ['A', 'B'][client];
        let node = |number: usize| format!("node {}", state.nodes[number].name + 1);
        let what = match action {
            Action::Tick => "a tick passes".to_owned(),
            Action::Begin(client) => {
                let ballot = state.clients[client].clock.ballot(state.now);
                format!(
                    "{} asks for the lock with ballot {}",
                    name(client),
                    show(ballot)
                )
            }
            Action::Propose(client) => format!("{} proposes a higher ballot", name(client)),
            Action::Resend(client) => format!("{} sends its ACQUIREs once more", name(client)),
            Action::Abandon(client) => format!("{} gives up and sends RELEASE", name(client)),
            Action::Win(client) => format!("{} has won the lock", name(client)),
            Action::Extend(client) => format!("{} sends EXTEND", name(client)),
            Action::Confirm(client) => format!("{}'s lease is extended", name(client)),
            Action::Rejoin(client) => format!("{} sends REJOIN", name(client)),
            Action::Release(client) => format!("{} sends RELEASE", name(client)),
            Action::Deliver(number, message) => {
                let reply = self.deliver(&mut state.clone(), number, message);
                let reply = reply.as_ref().map_or_else(|| "no change".into(), answer);
                format!("{} gets {} -> {reply}", node(number), self.name(message))
            }
            Action::Crash(number, kind) => format!("{} goes down: {kind:?}", node(number)),
            Action::Force => "the administrator sends FORCE".to_owned(),
            Action::ForceAgain => "the administrator sends FORCE with a higher ballot".to_owned(),
            Action::Delete(number) => format!("a stranger deletes the key on {}", node(number)),
            Action::Wipe => "a stranger deletes the key on every node".to_owned(),
        };
        format!("t={} {what}", state.now)
    }

    fn name(&self, message: Message) -> String {
        let token = self.tokens[usize::from(message.token)].as_str();
        match message.ask {
            Ask::Acquire(ballot) => format!("ACQUIRE({token}, {})", show(ballot)),
            Ask::Extend(_) => format!("EXTEND({token})"),
            Ask::Rejoin(born, ballot) => {
                format!("REJOIN({token}, born {}, {})", show(born), show(ballot))
            }
            Ask::Release(ballot) => format!("RELEASE({token}, {})", show(ballot)),
            Ask::Force(ballot) => format!("FORCE({})", show(ballot)),
        }
    }
}

fn answer(reply: &Reply) -> String {
    match reply {
        Reply::Low { seen, .. } => format!("LOW({})", show(*seen)),
        Reply::Held(_) | Reply::Kept | Reply::Queued { .. } => "HELD".to_owned(),
        other => format!("{other:?}").to_uppercase(),
    }
}
