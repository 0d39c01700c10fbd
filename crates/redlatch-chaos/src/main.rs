//! Chaos on real Redis: faults by a seed, under a lock workload, and what came of it.
//!
//! ```sh
//! cargo run --release -p redlatch-chaos                           # two minutes
//! cargo run --release -p redlatch-chaos -- --seconds 3600 --seed 7 --log history.jsonl
//! ```
//!
//! Five `redis-server` processes behind fault proxies, or as many as `--nodes` says, four client
//! processes (this program, started again). Each reads a shared set under a lock, sleeps, and writes it back with one more member:
//! what is lost shows that two held the lock. The seed decides the faults; when exactly they meet
//! the clients, the machine does.
//!
//! With `--nodes 1` requests are parked on the node, and every fault of it is one of a quorum.
//!
//! With `--no-guard` as the last argument the clients' restart guard is off, and all nodes are made
//! to forget, again and again: the checker must find what comes of it.
//!
//! Ends with 1 when a promise was broken. The history is then kept in the working directory.
//!
//! # Layout
//!
//! | file | what |
//! | --- | --- |
//! | `arena.rs` | a run, from start to end |
//! | `schedule.rs` | which fault hits whom, and when |
//! | `fault.rs` | the faults, on real servers |
//! | `worker.rs`, `tenure.rs` | a client process, and how long it could rely on a lease |
//! | `resource.rs` | what the locks protect |
//! | `history.rs`, `check.rs` | what happened, and what must not have |
//! | `pulse.rs` | when the machine itself stood still |
//! | `table.rs` | the page that is printed |

// The test kit is for Linux.
#![cfg_attr(not(target_os = "linux"), allow(unused))]

#[cfg(target_os = "linux")]
mod arena;
#[cfg(target_os = "linux")]
mod check;
#[cfg(target_os = "linux")]
mod fault;
#[cfg(target_os = "linux")]
mod history;
#[cfg(target_os = "linux")]
mod pulse;
#[cfg(target_os = "linux")]
mod resource;
#[cfg(target_os = "linux")]
mod schedule;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod tenure;
#[cfg(target_os = "linux")]
mod worker;

use std::process::ExitCode;
use std::time::Duration;

const WORKERS: usize = 4;

/// Short, so that quarantines are.
const MAX_TTL: Duration = Duration::from_secs(2);

/// 1.1 × the longest ttl, and a second.
const QUARANTINE: Duration = Duration::from_millis(3200);

/// How long a fault outside promise 1 may show after it: no lease that it can have harmed is
/// believed in for longer than its ttl.
const GRACE: Duration = Duration::from_secs(4);

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["worker", plan] = arguments[..] {
        worker::run(plan);
        return ExitCode::SUCCESS;
    }
    let Some(options) = Options::parse(&arguments) else {
        eprintln!(
            "usage: redlatch-chaos [--seconds N] [--seed N] [--nodes N] [--log FILE] [--no-guard]"
        );
        return ExitCode::from(64);
    };
    let Options {
        seconds,
        seed,
        nodes,
        log,
        guard,
    } = options;
    let length = Duration::from_secs(seconds);
    println!("redlatch-chaos --seconds {seconds} --seed {seed} --nodes {nodes}\n");
    let outcome = arena::run(arena::Plan {
        seed,
        nodes,
        length,
        guard,
    });
    let findings = check::check(&outcome.holds, &outcome.episodes, &outcome.stalls, GRACE);
    table::print(&outcome, &findings);
    let kept = findings.is_sound()
        && outcome.updates[0].lost == 0
        && outcome.stuck.is_empty()
        && outcome.left_over.is_empty();
    let log = log.or_else(|| (!kept).then(|| format!("redlatch-chaos-{seed}.jsonl")));
    if let Some(log) = log {
        match write_log(&log, &outcome) {
            Ok(()) => println!("The history is in {log}."),
            Err(error) => eprintln!("redlatch-chaos: {log}: {error}"),
        }
    }
    match kept {
        true => {
            println!("Every promise was kept.");
            ExitCode::SUCCESS
        }
        false => {
            println!("A PROMISE WAS BROKEN. Seed: {seed}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("redlatch-chaos: runs on Linux only");
    ExitCode::FAILURE
}

struct Options {
    seconds: u64,
    seed: u64,
    nodes: usize,
    log: Option<String>,
    guard: bool,
}

impl Options {
    fn parse(mut arguments: &[&str]) -> Option<Self> {
        let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
        let mut options = Self {
            seconds: 120,
            seed: now.map_or(0, |now| now.as_secs()),
            nodes: 5,
            log: None,
            guard: true,
        };
        if let Some(rest) = arguments.strip_suffix(&["--no-guard"]) {
            (options.guard, arguments) = (false, rest);
        }
        while let [name, value, rest @ ..] = arguments {
            match *name {
                "--seconds" => options.seconds = value.parse().ok()?,
                "--seed" => options.seed = value.parse().ok()?,
                "--nodes" => options.nodes = value.parse().ok().filter(|nodes| *nodes > 0)?,
                "--log" => options.log = Some((*value).to_owned()),
                _ => return None,
            }
            arguments = rest;
        }
        arguments.is_empty().then_some(options)
    }
}

#[cfg(target_os = "linux")]
fn write_log(path: &str, outcome: &arena::Outcome) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for episode in &outcome.episodes {
        writeln!(file, "{}", episode.to_json())?;
    }
    for hold in &outcome.holds {
        writeln!(file, "{}", hold.to_json())?;
    }
    for failure in &outcome.failures {
        writeln!(file, "{failure}")?;
    }
    for (from, to) in &outcome.stalls {
        writeln!(
            file,
            "{}",
            serde_json::json!({ "stall": from, "until": to })
        )?;
    }
    file.flush()
}
