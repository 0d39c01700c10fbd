//! What the command line asks for.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::contenders;

pub(crate) const USAGE: &str = "\
Runs every contender on the same workloads and writes docs/performance.md.

usage: bench/run [OPTION]...
  --quick              a short run, to see that everything works: peers that were not
                       asked for take part in one case of each workload
  --only LIST          only these workloads, such as 1,4
  --contenders LIST    only these, such as redlatch-plain,raw,redsync
  --rounds N           how often everything is measured (3)
  --seconds S          how long the longest measurements take, others in proportion (1.2)
  --json FILE          where all figures are written, after each measurement: else a
                       new file in bench/out
  --continue FILE      goes on with a run that was cut off: what FILE has is not measured
                       again, what failed is
  --from FILE          measures nothing, and writes the page of such a file
  --docs DIRECTORY     where performance.md and images/ are written: docs after a
                       full run, else bench/out

The workloads: 1 latency, 2 throughput, 3 the same over 5 nodes, 4 one hot name,
5 idle waiters, 6 crash of the holder, 7 many leases, 8 a bad node, 9 growth.";

/// How a run was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) scope: Scope,
    pub(crate) json: Option<PathBuf>,
    pub(crate) resume: Option<PathBuf>,
    pub(crate) from: Option<PathBuf>,
    pub(crate) docs: Option<PathBuf>,
}

/// What is to be measured, and how thoroughly. It is kept with the figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scope {
    pub(crate) quick: bool,
    pub(crate) only: Option<Vec<u8>>,
    pub(crate) contenders: Option<Vec<String>>,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
}

impl Settings {
    /// Reads the arguments. The error says which is wrong, and why.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut settings = Self {
            scope: Scope {
                quick: false,
                only: None,
                contenders: None,
                rounds: 0,
                seconds: 0.0,
            },
            json: None,
            resume: None,
            from: None,
            docs: None,
        };
        // All but where the page goes.
        let mut measuring = Vec::new();
        let scope = &mut settings.scope;
        let mut arguments = arguments.into_iter();
        while let Some(option) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{option} needs a value"));
            match &*option {
                "--quick" => scope.quick = true,
                "--only" => scope.only = Some(workloads(&value()?)?),
                "--contenders" => scope.contenders = Some(names(&value()?)?),
                "--rounds" => scope.rounds = positive("--rounds", &value()?)?,
                "--seconds" => scope.seconds = positive("--seconds", &value()?)?,
                "--json" => settings.json = Some(value()?.into()),
                "--continue" => settings.resume = Some(value()?.into()),
                "--from" => settings.from = Some(value()?.into()),
                "--docs" => settings.docs = Some(value()?.into()),
                _ => return Err(format!("there is no option {option:?}; --help lists them")),
            }
            if !["--continue", "--docs"].contains(&&*option) {
                measuring.push(option);
            }
        }
        if let (Some(_), Some(option)) = (&settings.resume, measuring.first()) {
            return Err(format!(
                "--continue goes on as the run was begun, and into the same file: leave {option} away"
            ));
        }
        if scope.rounds == 0 {
            scope.rounds = scope.size(3, 1);
        }
        if scope.seconds == 0.0 {
            scope.seconds = if scope.quick { 0.5 } else { 1.2 };
        }
        Ok(settings)
    }
}

impl Scope {
    /// A size of the full run, or of a quick one.
    pub(crate) fn size(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    pub(crate) fn wants(&self, workload: u8) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|workloads| workloads.contains(&workload))
    }

    /// Whether its figures are for publishing: those of a short run are not.
    pub(crate) fn is_full(&self) -> bool {
        !self.quick && self.only.is_none() && self.contenders.is_none()
    }

    pub(crate) fn json(&self) -> Value {
        let Self {
            quick,
            only,
            contenders,
            rounds,
            seconds,
        } = self;
        json!({
            "quick": quick,
            "only": only,
            "contenders": contenders,
            "rounds": rounds,
            "seconds": seconds,
        })
    }

    pub(crate) fn read(json: &Value) -> Option<Self> {
        let list = |name: &str| json[name].as_array();
        let number = |value: &Value| u8::try_from(value.as_u64()?).ok();
        let text = |value: &Value| Some(value.as_str()?.to_owned());
        Some(Self {
            quick: json["quick"].as_bool()?,
            only: list("only").map(|list| list.iter().filter_map(number).collect()),
            contenders: list("contenders").map(|list| list.iter().filter_map(text).collect()),
            rounds: usize::try_from(json["rounds"].as_u64()?).ok()?,
            seconds: json["seconds"].as_f64()?,
        })
    }
}

fn workloads(list: &str) -> Result<Vec<u8>, String> {
    let workload = |text: &str| match text.trim().parse() {
        Ok(number @ 1..=9) => Ok(number),
        _ => Err(format!("--only: {text:?} is not a workload from 1 to 9")),
    };
    list.split(',').map(workload).collect()
}

fn names(list: &str) -> Result<Vec<String>, String> {
    let name = |name: &str| match contenders::find(name.trim()) {
        Some(contender) => Ok(contender.name.to_owned()),
        None => {
            let all: Vec<_> = contenders::ALL.iter().map(|one| one.name).collect();
            let all = all.join(", ");
            Err(format!("--contenders: no {name:?} among {all}"))
        }
    };
    list.split(',').map(name).collect()
}

fn positive<T: std::str::FromStr + Default + PartialOrd>(
    option: &str,
    text: &str,
) -> Result<T, String> {
    match text.parse::<T>() {
        Ok(number) if number > T::default() => Ok(number),
        _ => Err(format!("{option}: {text:?} is not a number above 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Settings, String> {
        Settings::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn only_a_full_run_is_published() {
        let full = |line| parse(line).map(|settings| settings.scope.is_full());
        assert_eq!(full("--rounds 5 --seconds 3"), Ok(true));
        for line in ["--quick", "--only 1", "--contenders raw"] {
            assert_eq!(full(line), Ok(false), "{line}");
        }
    }

    #[test]
    fn a_run_is_continued_as_it_was_begun() {
        assert!(parse("--continue figures.json --docs x").is_ok());
        for option in ["--only 1", "--quick", "--json other.json", "--rounds 5"] {
            let line = format!("{option} --continue figures.json");
            let error = parse(&line).map(drop).expect_err(&line);
            let option = option.split(' ').next().unwrap_or(option);
            assert!(error.contains(option), "{line}: {error}");
        }
        for line in ["", "--quick --only 1,4 --contenders raw --seconds 0.25"] {
            let scope = parse(line).expect("it is right").scope;
            assert_eq!(Scope::read(&scope.json()), Some(scope), "{line}");
        }
        assert_eq!(Scope::read(&Value::Null), None);
    }

    #[test]
    fn wrong_arguments_are_named() {
        for line in [
            "--only 10",
            "--only",
            "--contenders nobody",
            "--rounds 0",
            "--seconds -1",
            "--seconds soon",
            "--fast",
        ] {
            let error = parse(line).map(drop).expect_err(line);
            let option = line.split(' ').next().unwrap_or(line);
            assert!(error.contains(option), "{line}: {error}");
        }
    }

    #[test]
    fn lists_choose() {
        let settings = parse("--only 1,4 --contenders raw,redsync").expect("it is right");
        let scope = settings.scope;
        assert!(scope.wants(4) && !scope.wants(2));
        assert_eq!(scope.contenders, Some(vec!["raw".into(), "redsync".into()]));
        assert_eq!((scope.rounds, scope.seconds), (3, 1.2));
    }
}
