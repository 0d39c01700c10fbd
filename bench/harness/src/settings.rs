//! What the command line asks for.

use std::path::PathBuf;

use crate::contenders;

pub(crate) const USAGE: &str = "\
Runs every contender on the same workloads and writes docs/performance.md.

usage: bench/run [OPTION]...
  --quick              a short run, to see that everything works
  --only LIST          only these workloads, such as 1,4
  --contenders LIST    only these, such as redlatch-plain,raw,redsync
  --rounds N           how often everything is measured (3)
  --seconds S          how long the longest measurements take, others in proportion (1.5)
  --json FILE          writes all figures there, too
  --from FILE          measures nothing, and writes the page of such a file
  --docs DIRECTORY     where performance.md and images/ are written: docs after a
                       full run, else bench/out

The workloads: 1 latency, 2 throughput, 3 the same over 5 nodes, 4 one hot name,
5 idle waiters, 6 crash of the holder, 7 many leases, 8 a bad node, 9 growth.";

/// How a run was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) quick: bool,
    pub(crate) only: Option<Vec<u8>>,
    pub(crate) contenders: Option<Vec<String>>,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) json: Option<PathBuf>,
    pub(crate) from: Option<PathBuf>,
    docs: Option<PathBuf>,
}

impl Settings {
    /// Reads the arguments. The error says which is wrong, and why.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut settings = Self {
            quick: false,
            only: None,
            contenders: None,
            rounds: 0,
            seconds: 0.0,
            json: None,
            from: None,
            docs: None,
        };
        let mut arguments = arguments.into_iter();
        while let Some(option) = arguments.next() {
            if option == "--quick" {
                settings.quick = true;
                continue;
            }
            let mut value = || arguments.next().ok_or(format!("{option} needs a value"));
            match &*option {
                "--only" => settings.only = Some(workloads(&value()?)?),
                "--contenders" => settings.contenders = Some(names(&value()?)?),
                "--rounds" => settings.rounds = positive("--rounds", &value()?)?,
                "--seconds" => settings.seconds = positive("--seconds", &value()?)?,
                "--json" => settings.json = Some(value()?.into()),
                "--from" => settings.from = Some(value()?.into()),
                "--docs" => settings.docs = Some(value()?.into()),
                _ => return Err(format!("there is no option {option:?}; --help lists them")),
            }
        }
        if settings.rounds == 0 {
            settings.rounds = settings.size(3, 1);
        }
        if settings.seconds == 0.0 {
            settings.seconds = if settings.quick { 0.5 } else { 1.5 };
        }
        Ok(settings)
    }

    /// A size of the full run, or of a quick one.
    pub(crate) fn size(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    pub(crate) fn wants(&self, workload: u8) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|workloads| workloads.contains(&workload))
    }

    /// Where the page goes. What a short run found is not for publishing.
    pub(crate) fn docs(&self) -> PathBuf {
        let full = !self.quick && self.only.is_none() && self.contenders.is_none();
        let usual = if full { "docs" } else { "bench/out" };
        let usual = contenders::repository().join(usual);
        self.docs.clone().unwrap_or(usual)
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
        let docs = |line| parse(line).map(|settings| settings.docs());
        let published = contenders::repository().join("docs");
        assert_eq!(docs("--rounds 5 --seconds 3"), Ok(published.clone()));
        for line in ["--quick", "--only 1", "--contenders raw"] {
            assert_ne!(docs(line), Ok(published.clone()), "{line}");
        }
        assert_eq!(docs("--quick --docs x"), Ok("x".into()));
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
        assert!(settings.wants(4) && !settings.wants(2));
        assert_eq!(
            settings.contenders,
            Some(vec!["raw".into(), "redsync".into()])
        );
        assert_eq!((settings.rounds, settings.seconds), (3, 1.5));
    }
}
