//! Runs the checker, and says what it found in words.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::config::Config;
use crate::model::LockModel;

/// What a run of the checker has found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How many different states there are, as far as the run went.
    pub states: usize,
    /// The number of steps to the farthest of them.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Whether all of them were visited.
    pub complete: bool,
    /// The promise that does not hold, and the steps that break it.
    pub broken: Option<(&'static str, Vec<String>)>,
    /// What should be reached in some state, and is not.
    pub unreached: Vec<&'static str>,
}

/// Visits every state that this configuration can reach, nearest first, or
/// stops at the first that breaks a promise.
pub fn check(config: Config, limit: Option<usize>) -> Outcome {
    check_with(config, limit, |_, _, _| ())
}

/// The same, and tells once a second how far it is: states, depth, time.
pub fn check_with(
    config: Config,
    limit: Option<usize>,
    mut progress: impl FnMut(usize, usize, Duration),
) -> Outcome {
    let began = Instant::now();
    let model = LockModel::new(config);
    let builder = model
        .clone()
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures);
    let builder = match limit {
        Some(limit) => builder.target_state_count(limit),
        None => builder,
    };
    let checker = builder.spawn_bfs();
    let mut told = began;
    while !checker.is_done() {
        std::thread::sleep(Duration::from_millis(5));
        if told.elapsed() > Duration::from_secs(1) {
            told = Instant::now();
            progress(
                checker.unique_state_count(),
                checker.max_depth(),
                began.elapsed(),
            );
        }
    }
    let took = began.elapsed();
    let mut broken = None;
    let mut unreached = Vec::new();
    for property in model.properties() {
        let found = checker.discovery(property.name);
        match (property.expectation, found) {
            (Expectation::Always, Some(path)) => {
                let steps = path.into_vec();
                broken = Some((property.name, model.tell(&steps)));
            }
            (Expectation::Sometimes, None) => unreached.push(property.name),
            _ => {}
        }
    }
    Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took,
        complete: broken.is_none() && limit.is_none_or(|limit| checker.state_count() < limit),
        broken,
        unreached,
    }
}

impl Outcome {
    /// The figures, in one line.
    pub fn figures(&self) -> String {
        format!(
            "{} states, depth {}, {:.1} s",
            self.states,
            self.depth,
            self.took.as_secs_f64()
        )
    }

    /// The steps that break a promise, one a line.
    pub fn trace(&self) -> String {
        let mut text = String::new();
        if let Some((promise, steps)) = &self.broken {
            let _ = writeln!(text, "broken: {promise}");
            for (number, step) in steps.iter().enumerate() {
                let _ = writeln!(text, "{:4}  {step}", number + 1);
            }
        }
        text
    }
}
