//! Measures all that was asked for, and keeps what is found as it goes.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::contenders::{self, Contender};
use crate::machine;
use crate::measure::{self, Figures};
use crate::plan::{self, Case};
use crate::progress::Progress;
use crate::results::{Failure, Results, Sample};
use crate::settings::Settings;
use crate::times;

/// A contender that failed so late, so often, hangs: the others need the time.
const HANGING_SECONDS: f64 = 25.0;
const HANGING_OFTEN: usize = 3;

/// One contender is measured once.
struct Step<'a> {
    case: &'a Case,
    round: usize,
    contender: &'static Contender,
}

/// Runs all cases, contender by contender in each round, round by round. What is
/// found is in the file after each of them.
pub(crate) fn measure_all(settings: &Settings) -> Result<Results, String> {
    let (mut results, file) = begin(settings)?;
    let scope = results.scope.clone().ok_or_else(|| {
        let file = file.display();
        format!("{file}: it can't be continued, because it does not say what was to be measured")
    })?;
    let ready = prepare(&plan::chosen(&scope), &mut results);
    results.setting = merge(&results.setting, machine::describe(&ready));
    let cases = plan::cases(&scope);
    let steps = steps(&cases, &ready, &results);
    if steps.is_empty() && results.samples.is_empty() {
        return Err("nothing is left to measure".to_owned());
    }
    results.complete = false;
    results.write(&file)?;
    let path = file.display();
    eprintln!("figures go to {path}; after an interruption: bench/run --continue {path}");

    let whole = steps.iter().map(|step| step.case.estimate(step.contender));
    let mut progress = Progress::new(steps.len(), whole.sum());
    for step in steps {
        let (case, name) = (step.case, step.contender.name);
        let what = format!(
            "({}) {}: {name}, round {}",
            case.workload, case.label, step.round
        );
        progress.begin(&what);
        // A contender that failed once is not asked again for the same.
        let failed = |failure: &Failure| failure.case == case.id && failure.contender == name;
        if !results.failures.iter().any(failed) {
            let begin = Instant::now();
            let found = match hangs(&results, name) {
                true => Err("not tried: it hung in other cases".to_owned()),
                false => guarded(|| measure::run(case, step.contender)),
            };
            let took = begin.elapsed().as_secs_f64();
            keep(&mut results, &step, took, found, &progress);
            results.write(&file)?;
        }
        progress.end(case.estimate(step.contender));
    }
    progress.finish();
    results.complete = true;
    results.write(&file)?;
    eprint!("{}", times::table(&results));
    Ok(results)
}

/// What there is already, and where it is kept.
fn begin(settings: &Settings) -> Result<(Results, PathBuf), String> {
    if let Some(file) = &settings.resume {
        let mut results = Results::read(file)?;
        // Both may have become better meanwhile.
        results.failures.clear();
        results.left_out.clear();
        return Ok((results, file.clone()));
    }
    let results = Results {
        scope: Some(settings.scope.clone()),
        ..Results::default()
    };
    let file = match &settings.json {
        Some(file) => file.clone(),
        None => {
            let directory = contenders::repository().join("bench/out");
            fs::create_dir_all(&directory)
                .map_err(|error| format!("{}: {error}", directory.display()))?;
            directory.join(format!(
                "figures-{}.json",
                machine::date("%Y-%m-%dT%H%M%SZ")
            ))
        }
    };
    refuse_to_overwrite(&file)?;
    Ok((results, file))
}

fn refuse_to_overwrite(file: &Path) -> Result<(), String> {
    match file.exists() {
        false => Ok(()),
        true => {
            let file = file.display();
            Err(format!(
                "{file} exists: go on with it by --continue {file}, or name another file"
            ))
        }
    }
}

/// Prepares contenders, and notes those that can't be.
fn prepare(chosen: &[&'static Contender], results: &mut Results) -> Vec<&'static Contender> {
    let mut languages: Vec<(&str, Result<(), String>)> = Vec::new();
    let mut ready = Vec::new();
    for contender in chosen {
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
            Ok(()) => ready.push(*contender),
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

/// What is left to measure, in order.
fn steps<'a>(cases: &'a [Case], ready: &[&'static Contender], results: &Results) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for case in cases {
        let rounds = ready.iter().map(|contender| case.rounds_of(contender));
        for round in 1..=rounds.max().unwrap_or(0) {
            let left = ready.iter().filter(|contender| {
                case.admits(contender)
                    && round <= case.rounds_of(contender)
                    && !results.has(&case.id, contender.name, round)
            });
            steps.extend(left.map(|contender| Step {
                case,
                round,
                contender,
            }));
        }
    }
    steps
}

/// What was known, and what is seen now: where they differ, both.
fn merge(known: &[(String, String)], now: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut merged = known.to_vec();
    for (name, value) in now {
        match merged.iter_mut().find(|(known, _)| *known == name) {
            None => merged.push((name, value)),
            Some((_, known)) if known.split("; later ").any(|known| known == value) => {}
            Some((_, known)) => *known += &format!("; later {value}"),
        }
    }
    merged
}

/// A contender that can't be measured must not end the run, nor what starts its servers.
fn guarded(measure: impl FnOnce() -> Result<Figures, String>) -> Result<Figures, String> {
    catch_unwind(AssertUnwindSafe(measure)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(text.unwrap_or("the harness panicked").to_owned())
    })
}

fn hangs(results: &Results, contender: &str) -> bool {
    let hung =
        |failure: &&Failure| failure.contender == contender && failure.took >= HANGING_SECONDS;
    results.failures.iter().filter(hung).count() >= HANGING_OFTEN
}

fn keep(
    results: &mut Results,
    step: &Step<'_>,
    took: f64,
    found: Result<Figures, String>,
    progress: &Progress,
) {
    let case = step.case.id.clone();
    let contender = step.contender.name.to_owned();
    match found {
        Ok(figures) => results.samples.push(Sample {
            case,
            contender,
            round: step.round,
            took,
            figures,
        }),
        Err(message) => {
            progress.note(&format!("{contender} failed in {case}: {message}"));
            results.failures.push(Failure {
                case,
                contender,
                took,
                message,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Settings {
        Settings::parse(line.split_whitespace().map(str::to_owned)).expect("it is right")
    }

    fn names(steps: &[Step<'_>]) -> Vec<String> {
        let name =
            |step: &Step<'_>| format!("{} {} {}", step.case.id, step.round, step.contender.name);
        steps.iter().map(name).collect()
    }

    #[test]
    fn only_what_is_missing_is_measured() {
        let scope = parse("--only 2 --contenders raw,redsync --rounds 2").scope;
        let (cases, ready) = (plan::cases(&scope), plan::chosen(&scope));
        let mut results = Results::default();
        let all = [
            "2/64 1 raw",
            "2/64 1 redsync",
            "2/64 2 raw",
            "2/64 2 redsync",
            "2/64 3 raw",
            "2/64 4 raw",
            "2/64 5 raw",
            "2/64 6 raw",
            "2/1024 1 raw",
            "2/1024 1 redsync",
            "2/1024 2 raw",
            "2/1024 2 redsync",
            "2/1024 3 raw",
            "2/1024 4 raw",
            "2/1024 5 raw",
            "2/1024 6 raw",
        ];
        let left = names(&steps(&cases, &ready, &results));
        assert_eq!(left, all, "contenders take turns, round by round");
        // Cut off after the first of the second case; and one of the first had failed.
        for (case, contender, round) in [
            ("2/64", "raw", 1),
            ("2/64", "redsync", 1),
            ("2/64", "raw", 2),
            ("2/1024", "raw", 1),
        ] {
            results.samples.push(Sample {
                case: case.into(),
                contender: contender.into(),
                round,
                ..Sample::default()
            });
        }
        let left = names(&steps(&cases, &ready, &results));
        assert_eq!(left, [&all[3..8], &all[9..]].concat());
    }

    #[test]
    fn failures_are_tried_again_and_figures_are_kept() {
        let file = std::env::temp_dir().join(format!("continue-{}.json", std::process::id()));
        let line = format!("--only 1 --json {}", file.display());
        let (mut results, place) = begin(&parse(&line)).expect("it is new");
        assert_eq!(place, file);
        results.samples.push(Sample::default());
        results.failures.push(failure("raw", 1.0));
        results.write(&file).expect("it is written");
        let error = begin(&parse(&line)).map(drop).expect_err("it is there");
        assert!(error.contains("--continue"), "{error}");

        let again = format!("--continue {}", file.display());
        let (results, place) = begin(&parse(&again)).expect("it can be continued");
        assert_eq!(place, file);
        assert_eq!((results.samples.len(), results.failures.len()), (1, 0));
        assert_eq!(results.scope, Some(parse(&line).scope));
        fs::remove_file(&file).expect("it is ours");
    }

    #[test]
    fn what_changed_meanwhile_is_told() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let pair = |(name, value): &(&str, &str)| ((*name).into(), (*value).into());
            pairs.iter().map(pair).collect()
        };
        let first = pairs(&[("Redis", "7.0.15"), ("Go", "1.26")]);
        let second = pairs(&[("Redis", "8.0.0"), ("Java", "17")]);
        let both = pairs(&[
            ("Redis", "7.0.15; later 8.0.0"),
            ("Go", "1.26"),
            ("Java", "17"),
        ]);
        assert_eq!(merge(&first, second.clone()), both);
        assert_eq!(merge(&both, second), both, "said once");
        assert_eq!(merge(&[], first.clone()), first);
    }

    #[test]
    fn nothing_that_fails_ends_the_run() {
        let panicked = guarded(|| panic!("port {} is taken", 7));
        assert_eq!(panicked.map(drop), Err("port 7 is taken".to_owned()));
        let mut results = Results::default();
        results
            .failures
            .extend([failure("raw", 60.0), failure("raw", 60.0)]);
        results
            .failures
            .extend([failure("redsync", 60.0), failure("raw", 1.0)]);
        assert!(!hangs(&results, "raw"));
        results.failures.push(failure("raw", 60.0));
        assert!(hangs(&results, "raw") && !hangs(&results, "redsync"));
    }

    fn failure(contender: &str, took: f64) -> Failure {
        Failure {
            case: "1/as-is".into(),
            contender: contender.into(),
            took,
            message: "no \"done\"".into(),
        }
    }
}
