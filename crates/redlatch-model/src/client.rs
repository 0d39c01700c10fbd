//! What a client does: the protocol as it ships.
//!
//! There are no replies on their way. A node's answer is recorded when the
//! request arrives, and the client may act on it in that instant, at any later
//! time, or never: that is as good as a reply that is fast, late or lost.

use redlatch_core::{Ballot, Fence, Lease, Round, Terms, Verdict, Vote};

use crate::config::{instant, ttl};
use crate::model::{Action, LockModel, TOKENS};
use crate::state::{
    Ask, Asking, Broken, ExtendRound, Holding, Lesson, Message, Phase, State, Taken,
};
use crate::variant::Variant;

impl LockModel {
    /// What the client may do now.
    pub(crate) fn client_actions(&self, state: &State, client: usize, actions: &mut Vec<Action>) {
        match &state.clients[client].phase {
            Phase::Idle => {
                if state.clients[client].attempts > 0 {
                    actions.push(Action::Begin(client));
                }
            }
            Phase::Asking(asking) => {
                // Whoever has not answered may be taken to have failed at any time.
                let verdict = self.verdict(state, client);
                if verdict == Verdict::Won && is_valid(asking.sent, state.now) {
                    actions.push(Action::Win(client));
                }
                let future = || lessons(state, client).any(|lesson| lesson == Lesson::Future);
                if verdict == Verdict::Again && asking.proposals > 0 && !future() {
                    actions.push(Action::Propose(client));
                }
                if state.left.resends > 0 {
                    actions.push(Action::Resend(client));
                }
                actions.push(Action::Abandon(client));
            }
            Phase::Holding(holding) => {
                if holding.extends > 0 {
                    actions.push(Action::Extend(client));
                }
                if let Some(round) = &holding.round {
                    let confirmed = self.verdict(state, client) == Verdict::Won;
                    if !round.confirmed && confirmed {
                        actions.push(Action::Confirm(client));
                    }
                    let may = round.confirmed || !self.config.variant.rejoin_waits();
                    let missing = |lesson| matches!(lesson, Lesson::Missing(_));
                    if may && state.left.rejoins > 0 && lessons(state, client).any(missing) {
                        actions.push(Action::Rejoin(client));
                    }
                }
                if self.config.releases {
                    actions.push(Action::Release(client));
                }
            }
        }
    }

    /// Where the client's current round stands.
    pub(crate) fn verdict(&self, state: &State, client: usize) -> Verdict {
        let votes = state
            .nodes
            .iter()
            .map(|node| node.answers[client].map(|answer| answer.vote));
        if self.config.variant == Variant::QuorumOfAnswers {
            let usable: Vec<Vote> = votes.flatten().filter(|v| *v != Vote::Failed).collect();
            if usable.is_empty() {
                return Verdict::Open;
            }
            let mut round = Round::new(usable.len());
            for (number, vote) in usable.into_iter().enumerate() {
                round.vote(number, vote);
            }
            return round.verdict();
        }
        let mut round = Round::new(state.nodes.len());
        for (number, vote) in votes.enumerate() {
            round.vote(number, vote.unwrap_or(Vote::Failed));
        }
        round.verdict()
    }

    pub(crate) fn begin(&self, state: &mut State, client: usize) {
        let now = state.now;
        let this = &mut state.clients[client];
        this.attempts -= 1;
        let number = self.config.attempts[client] - 1 - this.attempts;
        let ballot = this.clock.ballot(now);
        this.phase = Phase::Asking(Asking {
            token: client as u8 * TOKENS + number,
            sent: now,
            ballot,
            proposals: self.config.proposals,
            below: state.history.highest,
        });
        self.send_acquires(state, client);
    }

    /// Only grants of the newest ballot count, so the older answers are forgotten.
    pub(crate) fn propose(&self, state: &mut State, client: usize) {
        let told = lessons(state, client).filter_map(|lesson| match lesson {
            Lesson::Low(ballot) => Some(ballot),
            _ => None,
        });
        let above = told.max().map_or_else(Ballot::default, Ballot::next);
        let now = state.now;
        if let Phase::Asking(asking) = &mut state.clients[client].phase {
            asking.ballot = asking.ballot.max(above);
            asking.proposals -= 1;
            if self.config.variant == Variant::ValidityFromResend {
                asking.sent = now;
            }
        }
        self.send_acquires(state, client);
    }

    pub(crate) fn resend(&self, state: &mut State, client: usize) {
        state.left.resends -= 1;
        let now = state.now;
        if let Phase::Asking(asking) = &mut state.clients[client].phase
            && self.config.variant == Variant::ValidityFromResend
        {
            asking.sent = now;
        }
        let answers: Vec<_> = state.nodes.iter().map(|node| node.answers).collect();
        self.send_acquires(state, client);
        for (number, answers) in answers.into_iter().enumerate() {
            state.node_mut(number).answers = answers;
        }
    }

    fn send_acquires(&self, state: &mut State, client: usize) {
        let Phase::Asking(asking) = &state.clients[client].phase else {
            return;
        };
        let (token, ballot) = (asking.token, asking.ballot);
        broadcast(state, client, token, Ask::Acquire(ballot));
    }

    /// A token that was not won, or is no longer wanted, is released everywhere.
    pub(crate) fn abandon(&self, state: &mut State, client: usize) {
        let (token, high) = match &state.clients[client].phase {
            Phase::Idle => return,
            Phase::Asking(asking) => (asking.token, asking.ballot),
            Phase::Holding(holding) => (holding.token, holding.high),
        };
        // A client that hears how wrong its clock is goes by the node's from then on.
        if lessons(state, client).any(|lesson| lesson == Lesson::Future) {
            state.clients[client].clock = crate::Clock::Right;
        }
        state.clients[client].phase = Phase::Idle;
        broadcast(state, client, token, Ask::Release(high));
    }

    /// What is over without the client's doing: an attempt or a lease whose time has run out.
    pub(crate) fn lapse(&self, state: &mut State, client: usize) {
        let since = match &state.clients[client].phase {
            Phase::Idle => return,
            Phase::Asking(asking) => asking.sent,
            Phase::Holding(holding) => holding.confirmed,
        };
        // An attempt whose next resend would make it look young again goes on.
        let resends = self.config.variant == Variant::ValidityFromResend
            && matches!(state.clients[client].phase, Phase::Asking(_));
        if !resends && !is_valid(since, state.now) {
            self.abandon(state, client);
        }
    }

    pub(crate) fn win(&self, state: &mut State, client: usize) {
        let Phase::Asking(asking) = state.clients[client].phase.clone() else {
            return;
        };
        let history = &mut state.history;
        let (fence, ballot) = (Fence::of(asking.ballot), asking.ballot);
        if history.highest > Ballot::default() && ballot == history.highest
            || history.fences.contains(&ballot)
        {
            history.broken = Some(Broken::FenceTwice);
        }
        if asking.below > Ballot::default() && fence <= Fence::of(asking.below) {
            history.broken = Some(Broken::FenceOrder);
        }
        if history.highest > Ballot::default() {
            history.fences.push(history.highest.min(ballot));
            history.fences.sort();
        }
        history.highest = history.highest.max(ballot);
        state.clients[client].phase = Phase::Holding(Holding {
            token: asking.token,
            born: ballot,
            high: ballot,
            confirmed: asking.sent,
            extends: self.config.extends,
            round: None,
            taken: Taken::No,
        });
        for number in 0..state.nodes.len() {
            state.node_mut(number).answers[client] = None;
        }
    }

    pub(crate) fn extend(&self, state: &mut State, client: usize) {
        let (now, highest) = (state.now, state.history.highest);
        let Phase::Holding(holding) = &mut state.clients[client].phase else {
            return;
        };
        holding.extends -= 1;
        holding.round = Some(ExtendRound {
            sent: now,
            confirmed: false,
            taken: holding.taken,
            superseded: highest > holding.born,
        });
        let (token, round) = (holding.token, holding.extends);
        broadcast(state, client, token, Ask::Extend(round));
    }

    pub(crate) fn confirm(&self, state: &mut State, client: usize) {
        let (now, superseded) = (state.now, self.config.superseded);
        let Phase::Holding(holding) = &mut state.clients[client].phase else {
            return;
        };
        let mut lease = lease(holding.confirmed);
        let Some(round) = &mut holding.round else {
            return;
        };
        if !lease.extended(instant(round.sent), ttl(), instant(now)) {
            return;
        }
        round.confirmed = true;
        holding.confirmed = holding.confirmed.max(round.sent);
        state.history.broken = match round.taken {
            Taken::Forced => Some(Broken::ExtendedAfterForce),
            Taken::Wiped => Some(Broken::ExtendedAfterWipe),
            _ if round.superseded && superseded => Some(Broken::ExtendedAfterSuccessor),
            _ => None,
        };
    }

    pub(crate) fn rejoin(&self, state: &mut State, client: usize) {
        let now = state.now;
        state.left.rejoins -= 1;
        let clock = state.clients[client].clock;
        let told = lessons(state, client).filter_map(|lesson| match lesson {
            Lesson::Missing(above) => Some(above),
            _ => None,
        });
        let told = told.max().unwrap_or_default();
        let Phase::Holding(holding) = &mut state.clients[client].phase else {
            return;
        };
        holding.high = clock.ballot(now).max(holding.high.max(told).next());
        let (token, ask) = (holding.token, Ask::Rejoin(holding.born, holding.high));
        for number in 0..state.nodes.len() {
            let Some(answer) = state.nodes[number].answers[client] else {
                continue;
            };
            if matches!(answer.lesson, Lesson::Missing(_)) {
                let node = state.node_mut(number);
                node.answers[client] = None;
                node.send(Message {
                    from: client,
                    token,
                    ask,
                });
            }
        }
    }
}

/// Whether a lease that counts from this tick is valid.
pub(crate) fn is_valid(since: u8, now: u8) -> bool {
    !lease(since).remaining(instant(now)).is_zero()
}

fn lease(since: u8) -> Lease {
    let terms = Terms {
        ttl: ttl(),
        renewal: true,
        max_hold: None,
    };
    Lease::granted(terms, instant(since), ttl())
}

fn lessons(state: &State, client: usize) -> impl Iterator<Item = Lesson> {
    state
        .nodes
        .iter()
        .filter_map(move |node| node.answers[client].map(|answer| answer.lesson))
}

/// Begins a round: sends to all nodes at once.
fn broadcast(state: &mut State, from: usize, token: u8, ask: Ask) {
    for number in 0..state.nodes.len() {
        let node = state.node_mut(number);
        node.answers[from] = None;
        node.send(Message { from, token, ask });
    }
}
