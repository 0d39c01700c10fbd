//! What comes with Redis, beside the floor.
//!
//! It can't do two commands in turn, so each is measured alone, and a cycle is
//! taken for the sum of the two. The release finds no lock to delete: a key that
//! was drawn at random is hardly ever one that exists.

use std::process::Command;
use std::time::Duration;

use super::{Figures, figure};
use crate::contenders::REDIS_BENCHMARK;
use crate::limited;
use crate::plan::Cycles;
use crate::servers::Servers;

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                       return redis.call('DEL', KEYS[1]) else return 0 end";

/// As long as those of the floor.
const TOKEN: &str = r#"0000012345-0000000000000001 {"host":"machine","pid":12345}"#;
const KEY: &str = "redlatch:b0:__rand_int__";

/// How long one of its runs may take: it counts requests, not seconds.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn run(cycles: &Cycles, servers: &Servers) -> Result<Figures, String> {
    // It counts requests, not seconds: about as many as it can do in that time.
    let rate = if cycles.tasks == 1 {
        10_000.0
    } else {
        30_000.0
    };
    let count = (rate * cycles.seconds / 2.0) as usize;
    let ask = |command: &[&str]| ask(servers.port(), cycles.tasks, count, command);
    let acquire = ask(&["SET", KEY, TOKEN, "NX", "PX", "10000"])?;
    let script = servers.load_script(RELEASE);
    let release = ask(&["EVALSHA", &script, "1", KEY, TOKEN])?;
    let mut figures = Figures::new();
    let rate = 1.0 / (1.0 / acquire.rate + 1.0 / release.rate);
    figures.insert(figure::RATE, rate);
    figures.insert(figure::CYCLE_P50, acquire.p50_us + release.p50_us);
    figures.insert(figure::CYCLE_P99, acquire.p99_us + release.p99_us);
    Ok(figures)
}

/// One command, again and again.
#[derive(Debug, PartialEq)]
struct Outcome {
    rate: f64,
    p50_us: f64,
    p99_us: f64,
}

fn ask(port: u16, clients: usize, count: usize, command: &[&str]) -> Result<Outcome, String> {
    let mut benchmark = Command::new(REDIS_BENCHMARK);
    benchmark
        .args(["-p", &port.to_string(), "-c", &clients.to_string()])
        .args(["-n", &count.to_string(), "-r", "1000000000", "--csv"])
        .args(command);
    let text = limited::output(&mut benchmark, LIMIT)?.stdout;
    parse(&text).ok_or_else(|| format!("{REDIS_BENCHMARK} said {text:?}"))
}

/// Reads its table: the columns are named in the first line.
fn parse(csv: &str) -> Option<Outcome> {
    let mut lines = csv.lines().skip_while(|line| !line.starts_with("\"test\""));
    let names = cells(lines.next()?);
    let values = cells(lines.next()?);
    // The command is the first cell, and may have commas and quotes in it.
    let value = |name: &str| {
        let back = names.len() - names.iter().position(|column| *column == name)?;
        values
            .get(values.len().checked_sub(back)?)?
            .parse::<f64>()
            .ok()
    };
    Some(Outcome {
        rate: value("rps")?,
        p50_us: value("p50_latency_ms")? * 1000.0,
        p99_us: value("p99_latency_ms")? * 1000.0,
    })
}

fn cells(line: &str) -> Vec<&str> {
    let cells = line.trim().split(',');
    cells.map(|cell| cell.trim_matches('"')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_table_is_read_by_the_names_of_the_columns() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                   \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                   \"EVAL f(a, b) {\"x\",1}\",\"12500.50\",\"0.040\",\"0.016\",\"0.039\",\
                   \"0.047\",\"0.063\",\"0.719\"\n";
        let outcome = parse(csv).expect("it is complete");
        assert_eq!(
            (outcome.rate, outcome.p50_us, outcome.p99_us),
            (12500.5, 39.0, 63.0)
        );
        assert_eq!(parse("Could not connect"), None);
    }
}
