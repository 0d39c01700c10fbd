//! The model: which steps there are, and where each leads.

use std::sync::Arc;

use redlatch_core::request::GuardOrder;
use redlatch_core::{Ballot, Key, NodeState, Policy, Request, Scene, Token};
use stateright::{Model, Property};

use crate::config::{ARMED, Config, Crash, millis, ttl};
use crate::properties;
use crate::state::{Budget, Client, History, Message, Node, Phase, State};

/// redlatch's lock protocol: one lock, two clients, some nodes, and what goes wrong.
#[derive(Clone, Debug)]
pub struct LockModel {
    /// What happens at most.
    pub config: Config,
    pub(crate) key: Key,
    pub(crate) tokens: Vec<Token>,
    pub(crate) other_lock: Request,
    pub(crate) runs: [Arc<str>; 2],
    pub(crate) policy: Policy,
}

/// How many tokens are set aside for each client.
pub(crate) const TOKENS: u8 = 8;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time goes on.
    Tick,
    /// A client asks for the lock, under a new token.
    Begin(usize),
    /// It proposes again, with a ballot above what it was told.
    Propose(usize),
    /// It sends its ACQUIREs once more.
    Resend(usize),
    /// It gives up: timed out, refused, cancelled or told that its clock is wrong.
    Abandon(usize),
    /// A quorum has granted: it holds the lock.
    Win(usize),
    /// The holder sends EXTEND to all nodes.
    Extend(usize),
    /// A quorum has confirmed: the lease is longer.
    Confirm(usize),
    /// The holder sends REJOIN to the nodes that have lost its key.
    Rejoin(usize),
    /// The holder gives the lock back.
    Release(usize),
    /// A message arrives.
    Deliver(usize, Message),
    /// A node restarts or is emptied, and finds out by a request for another lock.
    Crash(usize, Crash),
    /// An administrator sends FORCE to all nodes.
    Force,
    /// It sends it again, with a ballot above what it was told.
    ForceAgain,
    /// A stranger deletes the key on one node.
    Delete(usize),
    /// A stranger deletes the key on all nodes.
    Wipe,
}

impl LockModel {
    /// A model of this size.
    pub fn new(config: Config) -> Self {
        let token = |client: char, number: u8| {
            let id = format!("{client}{}", number + 1);
            Token::with_id(&id, "").expect("a letter and a digit are an id")
        };
        let tokens = ['A', 'B']
            .into_iter()
            .flat_map(|client| (0..TOKENS).map(move |number| token(client, number)))
            .collect();
        let administrator = Token::with_id("administrator", "").expect("a word is an id");
        let other_lock = Request::Extend {
            key: Key::new("another lock"),
            token: administrator.clone(),
            ttl: ttl(),
            plain: false,
        };
        Self {
            tokens,
            other_lock,
            key: Key::new("lock"),
            runs: ["this run".into(), "the next run".into()],
            policy: Policy {
                deployment: "model".into(),
                max_ttl: ttl(),
            },
            config,
        }
    }

    fn node(&self, name: usize) -> Node {
        let mut state = NodeState::default();
        let scene = Scene::new(ARMED, &self.runs[0], Some(&self.policy));
        state.apply(&Request::Guard(GuardOrder::AssumeFresh), &scene);
        Node::new(name, state)
    }

    /// What time does by itself: leases run out, and so do keys.
    fn tick(&self, state: &mut State) {
        state.now += 1;
        for number in 0..state.nodes.len() {
            let now = millis(state.now);
            let node = state.node_mut(number);
            Arc::make_mut(&mut node.state).sweep(now);
            node.saved = Some(node.state.clone());
        }
        for client in 0..state.clients.len() {
            self.lapse(state, client);
        }
        if state
            .force
            .as_ref()
            .is_some_and(|force| state.now > force.sent + self.config.force_window)
        {
            self.end_force(state);
        }
    }
}

impl Model for LockModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let config = &self.config;
        let begin = |clocks: &[crate::Clock; 2]| {
            let client = |number: usize| Client {
                clock: clocks[number],
                attempts: config.attempts[number],
                phase: Phase::Idle,
            };
            let mut state = State {
                now: 0,
                nodes: (0..config.nodes)
                    .map(|name| Arc::new(self.node(name)))
                    .collect(),
                clients: [client(0), client(1)],
                force: None,
                left: Budget {
                    rejoins: config.rejoins,
                    resends: config.resends,
                    crashes: config.crashes,
                    forces: config.forces,
                    deletes: config.deletes,
                    wipes: config.wipes,
                },
                history: History {
                    highest: Ballot::default(),
                    fences: Vec::new(),
                    interfered: false,
                    broken: None,
                },
            };
            self.normalise(&mut state);
            state
        };
        config.clocks.iter().map(begin).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // What comes after a broken promise is of no interest.
        if state.history.broken.is_some() || !self.is_open(state) {
            return;
        }
        for client in 0..state.clients.len() {
            self.client_actions(state, client, actions);
        }
        for (number, node) in state.nodes.iter().enumerate() {
            let deliver = |message: &Message| Action::Deliver(number, *message);
            actions.extend(node.inbox.iter().map(deliver));
            if state.left.crashes > 0 {
                let crash = |kind: &Crash| Action::Crash(number, *kind);
                actions.extend(self.config.kinds.iter().map(crash));
            }
            if state.left.deletes > 0 {
                actions.push(Action::Delete(number));
            }
        }
        if state.left.forces > 0 && state.force.is_none() {
            actions.push(Action::Force);
        }
        if state
            .force
            .as_ref()
            .is_some_and(|force| force.low >= force.ballot)
        {
            actions.push(Action::ForceAgain);
        }
        if state.left.wipes > 0 {
            actions.push(Action::Wipe);
        }
        if state.now < self.config.ticks {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => self.tick(&mut state),
            Action::Deliver(node, message) => {
                self.deliver(&mut state, node, message)?;
            }
            Action::Crash(node, kind) => self.crash(&mut state, node, kind),
            Action::Force => self.force(&mut state),
            Action::ForceAgain => self.force_again(&mut state),
            Action::Delete(node) => self.delete(&mut state, node)?,
            Action::Wipe => self.wipe(&mut state),
            Action::Begin(client) => self.begin(&mut state, client),
            Action::Propose(client) => self.propose(&mut state, client),
            Action::Resend(client) => self.resend(&mut state, client),
            Action::Abandon(client) => self.abandon(&mut state, client),
            Action::Win(client) => self.win(&mut state, client),
            Action::Extend(client) => self.extend(&mut state, client),
            Action::Confirm(client) => self.confirm(&mut state, client),
            Action::Rejoin(client) => self.rejoin(&mut state, client),
            Action::Release(client) => self.abandon(&mut state, client),
        }
        self.normalise(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(&self.config)
    }
}
