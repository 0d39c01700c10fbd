//! Runs that are too long to find by visiting every state: the steps are given.

use redlatch_model::state::{Ask, Broken, Message, Phase, State};
use redlatch_model::{Action, Clock, Config, Crash, ForceRule, LockModel};
use stateright::Model;

/// A model and where it stands.
struct Run {
    model: LockModel,
    state: State,
}

impl Run {
    fn new(config: Config) -> Self {
        let model = LockModel::new(Config {
            symmetry: false,
            ..config
        });
        let state = model.init_states().remove(0);
        Self { model, state }
    }

    /// Takes a step if it is possible; says whether.
    fn step(&mut self, action: Action) -> bool {
        let mut possible = Vec::new();
        self.model.actions(&self.state, &mut possible);
        if !possible.contains(&action) {
            return false;
        }
        println!("{}", self.model.describe(&self.state, action));
        if let Some(next) = self.model.next_state(&self.state, action) {
            self.state = next;
        }
        true
    }

    /// Everything of this kind that is on its way to the node arrives.
    fn deliver(&mut self, node: usize, kind: fn(&Ask) -> bool) {
        let inbox = self.state.nodes[node].inbox.clone();
        for message in inbox
            .into_iter()
            .filter(|message: &Message| kind(&message.ask))
        {
            self.step(Action::Deliver(node, message));
        }
    }

    fn deliver_to_all(&mut self, kind: fn(&Ask) -> bool) {
        for node in 0..self.state.nodes.len() {
            self.deliver(node, kind);
        }
    }

    /// A renewal: EXTEND to all, then REJOIN to whoever has lost the key.
    fn renew(&mut self) {
        self.step(Action::Extend(0));
        self.deliver_to_all(|ask| matches!(ask, Ask::Extend(_)));
        self.step(Action::Confirm(0));
        // The first may be told that its ballot is too low.
        for _ in 0..2 {
            if self.step(Action::Rejoin(0)) {
                self.deliver_to_all(|ask| matches!(ask, Ask::Rejoin(..)));
            }
        }
    }

    fn holds(&self) -> bool {
        matches!(self.state.clients[0].phase, Phase::Holding(_))
    }
}

/// One node after another restarts, each once the one before it is armed again.
fn lease_after_rolling_restarts(nodes: usize, clock: Clock, crash: Crash, rejoins: u8) -> bool {
    let mut run = Run::new(Config {
        ticks: 60,
        clocks: vec![[clock, Clock::Right]],
        attempts: [1, 1],
        extends: 60,
        rejoins,
        crashes: nodes as u8,
        ..Config::new(nodes)
    });
    assert!(run.step(Action::Begin(0)));
    run.deliver_to_all(|ask| matches!(ask, Ask::Acquire(_)));
    assert!(run.step(Action::Win(0)));
    for node in 0..nodes {
        assert!(run.step(Action::Crash(node, crash)));
        for _ in 0..4 {
            run.step(Action::Tick);
            run.renew();
        }
    }
    run.holds()
}

#[test]
fn a_lease_outlives_rolling_restarts_of_all_nodes() {
    for nodes in [3, 5] {
        for clock in [Clock::Right, Clock::Behind, Clock::Ahead] {
            for crash in [
                Crash::Emptied,
                Crash::Kept,
                Crash::RolledBack,
                Crash::Flushed,
            ] {
                assert!(lease_after_rolling_restarts(nodes, clock, crash, 60));
            }
        }
    }
}

#[test]
fn without_rejoin_rolling_restarts_end_a_lease() {
    let nobody_rejoins = 0;
    let held = lease_after_rolling_restarts(3, Clock::Right, Crash::Emptied, nobody_rejoins);
    assert!(!held);
}

/// REJOIN alone, with no late ACQUIRE, brings a lease back after the FORCE as it is.
fn comes_back_by_rejoin(force: ForceRule) -> bool {
    let mut run = Run::new(Config {
        attempts: [1, 0],
        extends: 2,
        rejoins: 1,
        forces: 1,
        force,
        ..Config::new(3)
    });
    let is_force = |ask: &Ask| matches!(ask, Ask::Force(_));
    let is_extend = |ask: &Ask| matches!(ask, Ask::Extend(_));
    run.step(Action::Begin(0));
    // The ACQUIRE to node 2 is lost: its slot stays below the lease.
    run.deliver(0, |ask| matches!(ask, Ask::Acquire(_)));
    run.deliver(1, |ask| matches!(ask, Ask::Acquire(_)));
    assert!(run.step(Action::Win(0)));
    run.step(Action::Force);
    run.deliver(2, is_force);
    run.step(Action::Extend(0));
    run.deliver_to_all(is_extend);
    assert!(run.step(Action::Confirm(0)));
    assert!(run.step(Action::Rejoin(0)));
    run.deliver(2, |ask| matches!(ask, Ask::Rejoin(..)));
    run.deliver(1, is_force);
    // By ballot, a node that has seen a higher one says so, and the administrator asks again.
    while run.step(Action::ForceAgain) {
        run.deliver(2, is_force);
        run.deliver(1, is_force);
    }
    run.step(Action::Extend(0));
    run.deliver_to_all(is_extend);
    run.step(Action::Confirm(0));
    run.state.history.broken == Some(Broken::ExtendedAfterForce)
}

#[test]
fn rejoin_brings_a_lease_back_where_force_marks_above_its_own() {
    assert!(comes_back_by_rejoin(ForceRule::AboveOwn));
    assert!(!comes_back_by_rejoin(ForceRule::ByBallot));
}

/// A node has done the FORCE, forgets it, waits out its quarantine and is
/// rejoined, all before the next node hears of the FORCE.
fn comes_back_after_slow_force(force_window: u8) -> bool {
    let mut run = Run::new(Config {
        ticks: 8,
        attempts: [1, 0],
        extends: 8,
        rejoins: 4,
        crashes: 1,
        forces: 1,
        force_window,
        ..Config::new(3)
    });
    let is_force = |ask: &Ask| matches!(ask, Ask::Force(_));
    run.step(Action::Begin(0));
    run.deliver_to_all(|ask| matches!(ask, Ask::Acquire(_)));
    assert!(run.step(Action::Win(0)));
    run.step(Action::Force);
    run.deliver(0, is_force);
    run.step(Action::ForceAgain);
    run.deliver(0, is_force);
    assert!(run.step(Action::Crash(0, Crash::Emptied)));
    for _ in 0..3 {
        run.step(Action::Tick);
        run.renew();
    }
    run.deliver(1, is_force);
    run.renew();
    run.state.history.broken == Some(Broken::ExtendedAfterForce)
}

#[test]
fn a_force_must_not_take_longer_than_a_quarantine() {
    assert!(comes_back_after_slow_force(3));
    assert!(!comes_back_after_slow_force(0));
}
