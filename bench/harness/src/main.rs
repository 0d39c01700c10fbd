//! Runs every contender on the same workloads and writes `docs/performance.md`.
//!
//! `bench/run` builds and starts it; `bench/README.md` says what it does, and how
//! contenders are told what to do.
//!
//! # Layout
//!
//! | file | what |
//! | --- | --- |
//! | `settings.rs` | the command line |
//! | `contenders.rs` | who takes part, and what each can do |
//! | `plan.rs` | the workloads, as data |
//! | `run.rs` | all of them in turn, continued where they were cut off |
//! | `measure.rs` | one run of one contender, by kind: `measure/cycles.rs`, `standing.rs`, `allocations.rs`, `redis_benchmark.rs` |
//! | `process.rs` | a contender's process, and the job that it gets |
//! | `one_core.rs` | one core for all that is started meanwhile |
//! | `servers.rs` | fresh Redis servers for each run, and what they have done |
//! | `limited.rs` | programs that are run to their end, but not for ever |
//! | `usage.rs` | processor time and memory, from `/proc` |
//! | `stats.rs` | medians, percentiles, shares |
//! | `results.rs` | what was found, also as JSON |
//! | `times.rs` | where the time of a run went |
//! | `report.rs` | the page: `report/tables.rs` and `column.rs`, `plots.rs`, `charts.rs` and `svg.rs`, `aims.rs`, `ahead.rs`, `page.rs` |
//! | `machine.rs` | where and with what it was measured |
//! | `progress.rs` | what is said meanwhile |

mod contenders;
mod limited;
mod machine;
mod measure;
mod one_core;
mod plan;
mod process;
mod progress;
mod report;
mod results;
mod run;
mod servers;
mod settings;
mod stats;
mod times;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::contenders::Contender;
use crate::results::{Failure, Results};
use crate::settings::{Scope, Settings};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help") {
        println!("{}", settings::USAGE);
        return ExitCode::SUCCESS;
    }
    let settings = match Settings::parse(arguments) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(64);
        }
    };
    match run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(settings: &Settings) -> Result<(), String> {
    let results = match &settings.from {
        Some(file) => Results::read(file)?,
        None => run::measure_all(settings)?,
    };
    let docs = settings.docs.clone().unwrap_or_else(|| docs(&results));
    let page = report::write(&results, &docs)?;
    eprintln!("written: {}", page.display());
    // That a peer can't do something is a finding, and on the page. That we or
    // the floor can't is a fault.
    let ours = |failure: &&Failure| {
        let contender = contenders::find(&failure.contender);
        contender.is_some_and(Contender::is_ours)
    };
    match results.failures.iter().find(ours) {
        None => Ok(()),
        Some(failure) => {
            let Failure {
                case,
                contender,
                message,
                ..
            } = failure;
            Err(format!("{contender} failed in {case}: {message}"))
        }
    }
}

/// Where the page goes. What a short run found is not for publishing, nor a part.
fn docs(results: &Results) -> PathBuf {
    let full = results.scope.as_ref().is_none_or(Scope::is_full);
    let place = if full && results.complete {
        "docs"
    } else {
        "bench/out"
    };
    contenders::repository().join(place)
}
