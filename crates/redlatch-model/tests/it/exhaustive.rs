//! Every state is visited.

use redlatch_model::properties::FORCED;
use redlatch_model::suite::{self, Sound};
use redlatch_model::{Clock, Config, ForceRule, Variant, check};

#[test]
fn the_protocol_holds() {
    let mut runs = suite::sound();
    if std::env::var_os("REDLATCH_MODEL_LARGE").is_some() {
        runs.extend(suite::large());
    }
    for Sound { name, config } in runs {
        let outcome = check(config, None);
        println!("holds: {name}: {}", outcome.figures());
        assert!(outcome.broken.is_none(), "{name}: {}", outcome.trace());
        assert!(outcome.complete, "{name}");
    }
}

/// A model in which nothing ever happens would hold as well.
#[test]
fn what_the_promises_are_about_is_reached() {
    let config = Config {
        ticks: 2,
        attempts: [2, 1],
        proposals: 1,
        extends: 1,
        rejoins: 1,
        releases: true,
        ..Config::new(3)
    };
    let outcome = check(config, None);
    println!("reached: {}", outcome.figures());
    assert!(outcome.unreached.is_empty(), "{:?}", outcome.unreached);
}

#[test]
fn every_broken_variant_is_found() {
    let runs = suite::broken();
    for variant in Variant::ALL {
        let covered = runs.iter().any(|run| run.config.variant == variant);
        assert!(covered || variant == Variant::None, "{variant:?}");
    }
    for run in runs {
        let variant = run.config.variant;
        let outcome = check(run.config.clone(), None);
        let (promise, steps) = outcome.broken.as_ref().expect("a counterexample");
        println!(
            "{variant:?}: {promise}: {} steps, {}",
            steps.len(),
            outcome.figures()
        );
        println!("{}", outcome.trace());
        assert!(
            run.breaks.contains(promise),
            "{variant:?}: {}",
            outcome.trace()
        );
        // The same run of the right protocol holds, so it is the variant that is to blame.
        let control = check(
            Config {
                variant: Variant::None,
                ..run.config
            },
            None,
        );
        println!("control: {}", control.figures());
        assert!(control.broken.is_none(), "{variant:?}: {}", control.trace());
    }
}

/// Why FORCE needs a ballot.
#[test]
fn other_rules_of_force_let_a_lease_come_back() {
    for force in [ForceRule::AboveOwn, ForceRule::MarksAhead] {
        let outcome = check(
            Config {
                force,
                ..suite::forced(Clock::Right)
            },
            None,
        );
        let (promise, _) = outcome.broken.as_ref().expect("a counterexample");
        assert_eq!(*promise, FORCED);
        println!("{force:?}: {}\n{}", outcome.figures(), outcome.trace());
    }
    let force = ForceRule::RaisesAhead;
    let outcome = check(
        Config {
            force,
            ..suite::forced(Clock::Right)
        },
        None,
    );
    println!("{force:?} holds: {}", outcome.figures());
    assert!(outcome.broken.is_none(), "{}", outcome.trace());
}
