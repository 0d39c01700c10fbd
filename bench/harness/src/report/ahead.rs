//! Where a peer is ahead of us: each cell, however small it is.

use super::column::{MILLISECONDS, named};
use super::number::number;
use crate::contenders::{self, Contender, REDIS_BENCHMARK};
use crate::measure::figure;
use crate::results::Results;

const FENCED: &str = "redlatch-fenced";
const PLAIN: &str = "redlatch-plain";

/// The figures that are compared: of which workloads, what they are called, by what they are
/// multiplied, and whether more is better.
const COMPARED: &[(&[u8], &str, &str, f64, bool)] = &[
    (&[1, 8], figure::CYCLE_P50, "p50 µs", 1.0, false),
    (&[1, 8], figure::CYCLE_P99, "p99 µs", 1.0, false),
    (&[2, 3, 4], figure::RATE, "cycles/s", 1.0, true),
    (&[2, 3], figure::CLIENT_CPU, "client CPU µs", 1.0, false),
    (&[2, 3], figure::SERVER_CPU, "Redis CPU µs", 1.0, false),
    (&[4], figure::HELD, "held", 1.0, true),
    (&[4], figure::WAIT_P50, "wait p50 ms", MILLISECONDS, false),
    (&[4], figure::WAIT_P99, "wait p99 ms", MILLISECONDS, false),
    (
        &[4],
        figure::SHARE_LEAST,
        "share of the unluckiest",
        1.0,
        true,
    ),
    (&[4], figure::COMMANDS, "commands", 1.0, false),
    (&[5], figure::COMMANDS_RATE, "commands/s", 1.0, false),
    (&[5], figure::CLIENT_LOAD, "client CPU ms/s", 1.0, false),
    (&[5], figure::SERVER_LOAD, "Redis CPU ms/s", 1.0, false),
    (&[6], figure::TAKEOVER, "late by ms", 1.0, false),
    (&[7], figure::LEASE_MEMORY, "bytes a lease", 1.0, false),
    (&[7], figure::CLIENT_KEEPING, "client CPU ms/s", 1.0, false),
    (&[7], figure::SERVER_KEEPING, "Redis CPU ms/s", 1.0, false),
];

/// A table with a row for each cell; nothing where there are no peers.
pub(super) fn section(results: &Results) -> String {
    let cells = cells(results);
    if cells.is_empty() {
        return String::new();
    }
    let rows: String = cells.iter().map(Cell::row).collect();
    format!(
        "### Where a peer is ahead\n\nEvery cell of the tables below in which a peer's median is \
         better than that of redlatch as it comes, which is fenced; plain stands beside it.\n\n\
         | case | | fenced | plain | best peer | |\n| --- | --- | --- | --- | --- | --- |\n{rows}\n"
    )
}

struct Cell {
    case: String,
    figure: &'static str,
    fenced: f64,
    plain: Option<f64>,
    best: f64,
    peer: &'static str,
}

impl Cell {
    fn row(&self) -> String {
        let plain = self.plain.map_or("–".to_owned(), number);
        format!(
            "| {} | {} | {} | {plain} | {} | {} |\n",
            self.case,
            self.figure,
            number(self.fenced),
            number(self.best),
            named(self.peer)
        )
    }
}

fn cells(results: &Results) -> Vec<Cell> {
    let mut cases: Vec<&str> = Vec::new();
    for sample in &results.samples {
        if !cases.contains(&&*sample.case) {
            cases.push(&sample.case);
        }
    }
    // Runs that were continued may have them in another order.
    cases.sort_by_key(|case| case.split('/').next().map(str::to_owned));
    let mut cells = Vec::new();
    for case in cases {
        let workload = case.split('/').next().and_then(|text| text.parse().ok());
        for (workloads, figure, name, scale, more) in COMPARED {
            if !workload.is_some_and(|workload: u8| workloads.contains(&workload)) {
                continue;
            }
            // Nobody holds it for any time there.
            if *figure == figure::HELD && case.ends_with("hold0") {
                continue;
            }
            let of = |contender: &str| {
                let median = |figure| results.median(case, contender, figure);
                let value = match *figure {
                    // Nobody can have it before what was left of the ttl has passed.
                    figure::TAKEOVER => median(figure::TAKEOVER)? - median(figure::LEFT)?,
                    figure => median(figure)?,
                };
                Some(value * scale)
            };
            let is_peer = |peer: &&Contender| !peer.is_ours() && peer.name != REDIS_BENCHMARK;
            let peers = contenders::ALL.iter().filter(is_peer);
            let better = |one: f64, other: f64| if *more { one > other } else { one < other };
            let best = peers
                .filter_map(|peer| Some((of(peer.name)?, peer.name)))
                .reduce(|best, peer| if better(peer.0, best.0) { peer } else { best });
            if let (Some((best, peer)), Some(fenced)) = (best, of(FENCED))
                && better(best, fenced)
            {
                cells.push(Cell {
                    case: case.to_owned(),
                    figure: name,
                    fenced,
                    plain: of(PLAIN),
                    best,
                    peer,
                });
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Figures;
    use crate::results::Sample;

    #[test]
    fn a_cell_is_told_where_a_peer_is_better_in_its_direction() {
        let sample = |case: &str, contender: &str, figures: [(&'static str, f64); 2]| Sample {
            case: case.to_owned(),
            contender: contender.to_owned(),
            figures: Figures::from(figures),
            ..Sample::default()
        };
        let four = |rate, p99| [(figure::RATE, rate), (figure::WAIT_P99, p99)];
        let one = |p50, p99| [(figure::CYCLE_P50, p50), (figure::CYCLE_P99, p99)];
        let six = |taken, left| [(figure::TAKEOVER, taken), (figure::LEFT, left)];
        let results = Results {
            samples: vec![
                sample("4/16x1-hold0", FENCED, four(100.0, 2000.0)),
                sample("4/16x1-hold0", PLAIN, four(900.0, 2000.0)),
                sample("4/16x1-hold0", "redsync", four(300.0, 9000.0)),
                sample("4/16x1-hold0", "rslock", four(400.0, 9000.0)),
                // Neither the floor nor what comes with Redis is a peer.
                sample("1/awake", "raw", one(1.0, 1.0)),
                sample("1/awake", REDIS_BENCHMARK, one(1.0, 1.0)),
                sample("1/awake", FENCED, one(60.0, 90.0)),
                sample("1/awake", "rslock", one(70.0, 80.0)),
                // The one that had more time left is not the one that is late.
                sample("6/crash", FENCED, six(1900.0, 1895.0)),
                sample("6/crash", "redsync", six(1280.0, 1200.0)),
                sample("6/crash", "rslock", six(1203.0, 1200.0)),
            ],
            ..Results::default()
        };
        let rows: String = cells(&results).iter().map(Cell::row).collect();
        let expected = "| 1/awake | p99 µs | 90.0 | – | 80.0 | rslock |\n\
                        | 4/16x1-hold0 | cycles/s | 100 | 900 | 400 | rslock |\n\
                        | 6/crash | late by ms | 5.00 | – | 3.00 | rslock |\n";
        assert_eq!(rows, expected);
        assert_eq!(section(&Results::default()), "");
    }
}
