//! Many bursts, in figures.

use std::fmt::Write;
use std::time::Duration;

use crate::contest::{Kind, Outcome, contest};

/// What came of many bursts of contenders.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    /// Of the one who had the lock first.
    pub(crate) first_rounds: Spread,
    /// Of everybody.
    pub(crate) rounds: Spread,
    /// Until the first one had it, and until all have had it: the mean.
    pub(crate) first: Duration,
    pub(crate) all: Duration,
    /// For each acquisition, to all nodes.
    pub(crate) requests: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    p99: u64,
    pub(crate) max: u64,
}

impl Summary {
    pub(crate) fn of(kind: Kind, contenders: usize, seed: u64, bursts: u64) -> Self {
        let seeds = (0..bursts).map(|burst| seed.wrapping_mul(1_000_003) + burst);
        let outcomes: Vec<Outcome> = seeds.map(|seed| contest(kind, contenders, seed)).collect();
        let mean = |time: fn(&Outcome) -> Duration| {
            outcomes.iter().map(time).sum::<Duration>() / bursts as u32
        };
        let requests: u64 = outcomes.iter().map(|outcome| outcome.requests).sum();
        Self {
            first_rounds: Spread::of(outcomes.iter().map(|outcome| outcome.rounds[0])),
            rounds: Spread::of(outcomes.iter().flat_map(|outcome| outcome.rounds.clone())),
            first: mean(|outcome| outcome.first),
            all: mean(|outcome| outcome.last),
            requests: requests as f64 / (bursts * contenders as u64) as f64,
        }
    }
}

impl Spread {
    fn of(values: impl Iterator<Item = u64>) -> Self {
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        Self {
            mean: values.iter().sum::<u64>() as f64 / values.len() as f64,
            p99: values[(values.len() - 1) * 99 / 100],
            max: values[values.len() - 1],
        }
    }

    fn show(&self) -> String {
        format!("{:.1} / {} / {}", self.mean, self.p99, self.max)
    }
}

/// The whole table, in Markdown.
pub(crate) fn table(seed: u64, bursts: u64) -> String {
    let mut table = String::from(
        "| contenders | | rounds of the first one (mean / p99 / most) | rounds per acquisition \
         (mean / p99 / most) | first one has it after | all have had it after | requests per acquisition |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for contenders in [2, 4, 8, 16, 32, 64] {
        for (kind, name) in [
            (Kind::Ours, "redlatch"),
            (Kind::WithoutKeeping, "without the kept split vote"),
            (Kind::Redlock, "plain Redlock"),
        ] {
            let summary = Summary::of(kind, contenders, seed, bursts);
            let millis = |time: Duration| time.as_secs_f64() * 1000.0;
            let _ = writeln!(
                table,
                "| {contenders} | {name} | {} | {} | {:.1} ms | {:.0} ms | {:.0} |",
                summary.first_rounds.show(),
                summary.rounds.show(),
                millis(summary.first),
                millis(summary.all),
                summary.requests,
            );
        }
    }
    table
}
