//! The simulation repeats itself, and finds a mistake that is planted.

use redlatch_sim::check::Rule;
use redlatch_sim::{Outcome, Planted, Setup, Workload, simulate};

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..2 {
        let (one, other) = (traced(seed), traced(seed));
        let differs = one
            .trace
            .iter()
            .zip(&other.trace)
            .find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.hash, other.hash, "seed {seed}");
        assert!(one.acquisitions > 0, "seed {seed}");
    }
    assert_ne!(simulate(Setup::of(0)).hash, simulate(Setup::of(1)).hash);
}

fn traced(seed: u64) -> Outcome {
    simulate(Setup {
        keep_trace: true,
        ..Setup::of(seed)
    })
}

/// One that takes few seeds; `redlatch-sim --planted all`, which `./test` runs,
/// looks for all of them, and many more seeds without one.
#[test]
fn a_planted_mistake_is_found() {
    let quick = [(Planted::WakeUpLost, Rule::Ending)];
    for (planted, rule) in quick {
        let finds = |seed: &u64| {
            let found = simulate(Setup {
                planted: Some(planted),
                workload: Workload::First,
                ..Setup::of(*seed)
            })
            .violations;
            found.iter().any(|violation| violation.rule == rule)
        };
        assert!((0..4).any(|seed| finds(&seed)), "{planted:?} was not found");
    }
}

/// Scripts and plain commands are refused, by servers of both kinds; the history is
/// held against the promises all the same, which `./test` does with many seeds.
#[test]
fn servers_refuse_to_write() {
    let mut seen = [false; 2];
    for seed in 0..12 {
        let outcome = traced(seed);
        assert_eq!(outcome.violations, [], "seed {seed}");
        for (seen, error) in seen.iter_mut().zip(["NOREPLICAS", "OOM "]) {
            *seen |= outcome.trace.iter().any(|line| line.contains(error));
        }
    }
    assert_eq!(seen, [true, true]);
}

/// What clients ask for at the same moment goes out as one command, to servers of both
/// kinds, and is answered in part or as a whole.
#[test]
fn requests_go_together() {
    let answers = |line: &str| -> Vec<String> {
        let (_, answers) = line.split_once(" -> ").unwrap_or_default();
        answers.split_whitespace().map(str::to_owned).collect()
    };
    let is_done = |answer: &String| ["GRANTED", "RELEASED", "EXTENDED"].contains(&&**answer);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..12 {
        let outcome = traced(seed);
        assert_eq!(outcome.violations, [], "seed {seed}");
        let runs = if outcome.plan.contains("running rules") {
            "rules"
        } else {
            "scripts"
        };
        for line in &outcome.trace {
            let answers = answers(line);
            match answers.iter().filter(|answer| is_done(answer)).count() {
                0 => {}
                1 if answers.iter().any(|answer| answer == "nil") => {
                    _ = seen.insert((runs, "part"))
                }
                1 => {}
                _ => _ = seen.insert((runs, "whole")),
            }
        }
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}
