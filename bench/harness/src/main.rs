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
//! | `measure.rs` | one run of one contender, by kind: `measure/cycles.rs`, `standing.rs`, `redis_benchmark.rs` |
//! | `process.rs` | a contender's process, and the job that it gets |
//! | `servers.rs` | fresh Redis servers for each run, and what they have done |
//! | `usage.rs` | processor time and memory, from `/proc` |
//! | `stats.rs` | medians, percentiles, shares |
//! | `results.rs` | what was found, also as JSON |
//! | `report.rs` | the page: `report/tables.rs` and `column.rs`, `plots.rs`, `charts.rs` and `svg.rs`, `aims.rs`, `page.rs` |
//! | `machine.rs` | where and with what it was measured |
//! | `progress.rs` | what is said meanwhile |

mod contenders;
mod machine;
mod measure;
mod plan;
mod process;
mod progress;
mod report;
mod results;
mod servers;
mod settings;
mod stats;
mod usage;

use std::process::ExitCode;

use crate::contenders::Contender;
use crate::progress::Progress;
use crate::results::{Failure, Results, Sample};
use crate::settings::Settings;

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
        None => measure_all(settings)?,
    };
    if let Some(file) = &settings.json {
        results.write(file)?;
    }
    let page = report::write(&results, &settings.docs())?;
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
            } = failure;
            Err(format!("{contender} failed in {case}: {message}"))
        }
    }
}

/// Runs all cases, contender by contender in each round, round by round.
fn measure_all(settings: &Settings) -> Result<Results, String> {
    let mut results = Results::default();
    let ready = prepare(settings, &mut results);
    results.setting = machine::describe(&ready);
    let cases = plan::cases(settings);
    let mut steps = Vec::new();
    for case in &cases {
        for round in 1..=case.rounds {
            let admitted = ready
                .iter()
                .filter(|contender| case.admits(contender) && round <= case.rounds_of(contender));
            steps.extend(admitted.map(|contender| (case, round, *contender)));
        }
    }
    if steps.is_empty() {
        return Err("nothing is left to measure".to_owned());
    }
    let whole = steps
        .iter()
        .map(|(case, _, contender)| case.estimate(contender));
    let mut progress = Progress::new(steps.len(), whole.sum());
    for (case, round, contender) in steps {
        let name = contender.name;
        let what = format!("({}) {}: {name}, round {round}", case.workload, case.label);
        progress.begin(&what);
        // A contender that failed once is not asked again for the same.
        let failed = |failure: &Failure| failure.case == case.id && failure.contender == name;
        if !results.failures.iter().any(failed) {
            match measure::run(case, contender) {
                Ok(figures) => results.samples.push(Sample {
                    case: case.id.clone(),
                    contender: name.to_owned(),
                    figures,
                }),
                Err(message) => {
                    progress.note(&format!("{what}: {message}"));
                    results.failures.push(Failure {
                        case: case.id.clone(),
                        contender: name.to_owned(),
                        message,
                    });
                }
            }
        }
        progress.end(case.estimate(contender));
    }
    let took = progress.finish();
    let rounds = format!(
        "{} round(s) in which contenders take turns, {} s for the longest measurements",
        settings.rounds, settings.seconds
    );
    results
        .setting
        .push(("Measured in".to_owned(), progress::minutes(took)));
    results.setting.push(("Method".to_owned(), rounds));
    Ok(results)
}

/// Prepares the contenders that were chosen, and notes those that can't be.
fn prepare(settings: &Settings, results: &mut Results) -> Vec<&'static Contender> {
    let mut languages: Vec<(&str, Result<(), String>)> = Vec::new();
    let mut ready = Vec::new();
    for contender in plan::chosen(settings) {
        let known = languages
            .iter()
            .position(|(language, _)| *language == contender.language);
        let known = known.unwrap_or_else(|| {
            eprintln!(
                "preparing {}",
                if contender.language.is_empty() {
                    contender.name
                } else {
                    contender.language
                }
            );
            languages.push((contender.language, contenders::prepare(contender)));
            languages.len() - 1
        });
        match &languages[known].1 {
            Ok(()) => ready.push(contender),
            Err(why) => {
                eprintln!("{} is left out: {why}", contender.name);
                results
                    .left_out
                    .push((contender.name.to_owned(), why.clone()));
            }
        }
    }
    ready
}
