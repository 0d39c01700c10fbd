//! Checks the model at a size of your own, or at those that are published.

use std::process::ExitCode;

use redlatch_model::{Clock, Config, Crash, ForceRule, Variant, check_with, suite};

const USAGE: &str = "\
redlatch-model --suite sound|large
redlatch-model [--nodes N] [--ticks N] [--attempts A,B] [--clocks A,B]... [--proposals N]
               [--extends N] [--rejoins N] [--resends N] [--crashes N] [--kinds K,K,...]
               [--forces N] [--force-window N] [--administrator C] [--deletes N] [--wipes N] [--releases]
               [--superseded] [--strays] [--no-symmetry] [--variant V] [--states MOST]
clocks: Behind Right Ahead Wild    kinds: Kept Emptied RolledBack Flushed";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [option, name] = &words[..]
        && option == "--suite"
    {
        let runs = match name.as_str() {
            "sound" => suite::sound(),
            "large" => suite::large(),
            other => {
                eprintln!("no such suite: {other}\n{USAGE}");
                return ExitCode::from(64);
            }
        };
        let held = runs.into_iter().all(|run| {
            println!("== {}", run.name);
            report(run.config, None)
        });
        return if held {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let (config, most) = match read(&words) {
        Ok(read) => read,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(64);
        }
    };
    println!("{config:?}");
    match report(config, most) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Checks, tells how it goes and how it ends, and says whether it held.
fn report(config: Config, most: Option<usize>) -> bool {
    let outcome = check_with(config, most, |states, depth, took| {
        if took.as_secs() % 10 == 0 {
            eprintln!("{states} states, depth {depth}, {} s", took.as_secs());
        }
    });
    let end = if outcome.complete {
        "all"
    } else {
        "stopped after"
    };
    println!("{end} {}", outcome.figures());
    for name in &outcome.unreached {
        println!("never reached: {name}");
    }
    print!("{}", outcome.trace());
    outcome.broken.is_none()
}

fn read(words: &[String]) -> Result<(Config, Option<usize>), String> {
    let mut config = Config::new(3);
    let mut most = None;
    let mut clocks = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: &String| {
            let problem = |_| format!("{word} needs a number, not {text}");
            text.parse::<u8>().map_err(problem)
        };
        match word.as_str() {
            "--nodes" => config.nodes = number(value()?)?.into(),
            "--ticks" => config.ticks = number(value()?)?,
            "--attempts" => config.attempts = pair(value()?, |text| text.parse().ok())?,
            "--clocks" => clocks.push(pair(value()?, clock)?),
            "--proposals" => config.proposals = number(value()?)?,
            "--extends" => config.extends = number(value()?)?,
            "--rejoins" => config.rejoins = number(value()?)?,
            "--resends" => config.resends = number(value()?)?,
            "--crashes" => config.crashes = number(value()?)?,
            "--kinds" => config.kinds = kinds(value()?)?,
            "--forces" => config.forces = number(value()?)?,
            "--force-window" => config.force_window = number(value()?)?,
            "--force" => config.force = force(value()?)?,
            "--administrator" => {
                config.administrator = clock(value()?).ok_or("no such clock")?;
            }
            "--deletes" => config.deletes = number(value()?)?,
            "--wipes" => config.wipes = number(value()?)?,
            "--releases" => config.releases = true,
            "--superseded" => config.superseded = true,
            "--strays" => config.strays = true,
            "--no-symmetry" => config.symmetry = false,
            "--variant" => config.variant = variant(value()?)?,
            "--states" => most = Some(value()?.parse().map_err(|_| "how many states?")?),
            other => return Err(format!("unknown: {other}")),
        }
    }
    if !clocks.is_empty() {
        config.clocks = clocks;
    }
    Ok((config, most))
}

fn pair<T: Copy>(text: &str, read: impl Fn(&str) -> Option<T>) -> Result<[T; 2], String> {
    let both = text.split_once(',');
    let both = both.and_then(|(first, second)| Some([read(first)?, read(second)?]));
    both.ok_or(format!("{text} is no pair"))
}

fn clock(text: &str) -> Option<Clock> {
    let all = [Clock::Behind, Clock::Right, Clock::Ahead, Clock::Wild];
    all.into_iter().find(|clock| format!("{clock:?}") == text)
}

fn kinds(text: &str) -> Result<Vec<Crash>, String> {
    let kind = |name: &str| {
        let mut all = Crash::ALL.into_iter();
        all.find(|kind| format!("{kind:?}") == name)
            .ok_or(format!("no such kind: {name}"))
    };
    text.split(',').map(kind).collect()
}

fn force(text: &str) -> Result<ForceRule, String> {
    use ForceRule::{AboveOwn, ByBallot, MarksAhead, RaisesAhead};
    let mut all = [AboveOwn, ByBallot, MarksAhead, RaisesAhead].into_iter();
    all.find(|rule| format!("{rule:?}") == text)
        .ok_or(format!("no such rule: {text}"))
}

fn variant(text: &str) -> Result<Variant, String> {
    let mut all = Variant::ALL.into_iter();
    all.find(|variant| format!("{variant:?}") == text)
        .ok_or(format!("no such variant: {text}"))
}
