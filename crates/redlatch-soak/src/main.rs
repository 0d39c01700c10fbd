//! Soak: mixed use of locks on real Redis servers for a long time, and whether anything grew.
//!
//! ```sh
//! cargo run --release -p redlatch-soak                            # an hour, a million acquisitions
//! cargo run --release -p redlatch-soak -- --seconds 600 --acquisitions-per-second 500 --log soak.jsonl
//! ```
//!
//! Three `redis-server` processes, three client processes that stay (this program, started again),
//! and others that come and go, half of them killed. Again and again the connections to a node are
//! closed by CLIENT KILL. What clients and servers use is measured all the time, and the last tenth
//! of the run is compared with its second tenth.
//!
//! With `--leak WHAT` (`guards`, `tasks`, `handles`, `memory`, or several with commas) the clients
//! lose things on purpose: it must be found.
//!
//! Ends with 1 when something grew, was left behind, or failed as nothing here should.
//!
//! # Layout
//!
//! | file | what |
//! | --- | --- |
//! | `stage.rs` | a run, from start to end |
//! | `worker.rs` | a client process |
//! | `uses.rs` | what its tasks do with locks |
//! | `threads.rs` | what a thread without async does with them |
//! | `gauge.rs` | what is measured |
//! | `verdict.rs` | whether it is flat |

// The test kit is for Linux.
#![cfg_attr(not(target_os = "linux"), allow(unused))]

#[cfg(target_os = "linux")]
mod gauge;
#[cfg(target_os = "linux")]
mod stage;
#[cfg(target_os = "linux")]
mod threads;
#[cfg(target_os = "linux")]
mod uses;
#[cfg(target_os = "linux")]
mod verdict;
#[cfg(target_os = "linux")]
mod worker;

use std::process::ExitCode;
use std::time::Duration;

const NODES: usize = 3;

/// Client processes that stay from start to end.
const WORKERS: usize = 3;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["worker", plan] = arguments[..] {
        worker::run(plan);
        return ExitCode::SUCCESS;
    }
    let Some(plan) = parse(&arguments) else {
        eprintln!(
            "usage: redlatch-soak [--seconds N] [--acquisitions-per-second N] [--seed N] [--log FILE]\n\
             \x20                    [--leak guards,tasks,handles,memory]"
        );
        return ExitCode::from(64);
    };
    match stage::run(plan) {
        Ok(()) => {
            println!("Nothing grew, and nothing was left behind.");
            ExitCode::SUCCESS
        }
        Err(faults) => {
            for fault in faults {
                println!("NOT SOUND: {fault}");
            }
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("redlatch-soak: runs on Linux only");
    ExitCode::FAILURE
}

/// What to run.
#[derive(Clone, Debug)]
struct Plan {
    length: Duration,
    /// Acquisitions a second, of all workers together.
    rate: u64,
    seed: u64,
    log: Option<String>,
    /// What is lost on purpose.
    leak: String,
}

impl Plan {
    /// How long a lock is held when it is held for long: so short that there are many such times
    /// in each tenth of the run.
    fn long(&self) -> Duration {
        let (least, most) = (Duration::from_millis(400), Duration::from_secs(8));
        (self.length / 30).clamp(least, most)
    }
}

fn parse(mut arguments: &[&str]) -> Option<Plan> {
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    let mut plan = Plan {
        length: Duration::from_secs(3600),
        // A little more than a million in an hour.
        rate: 285,
        seed: now.map_or(0, |now| now.as_secs()),
        log: None,
        leak: String::new(),
    };
    while let [name, value, rest @ ..] = arguments {
        match *name {
            "--seconds" => plan.length = Duration::from_secs(value.parse().ok()?),
            "--acquisitions-per-second" => plan.rate = value.parse().ok()?,
            "--seed" => plan.seed = value.parse().ok()?,
            "--log" => plan.log = Some((*value).to_owned()),
            "--leak" => {
                let known = ["guards", "tasks", "handles", "memory"];
                if !value.split(',').all(|what| known.contains(&what)) {
                    return None;
                }
                plan.leak = (*value).to_owned();
            }
            _ => return None,
        }
        arguments = rest;
    }
    // Ten tenths need some samples each.
    let sensible = plan.length >= Duration::from_secs(10) && plan.rate > 0;
    (arguments.is_empty() && sensible).then_some(plan)
}
