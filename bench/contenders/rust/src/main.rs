//! The contenders of the benchmark that are written in Rust.
//!
//! Takes one argument, a job in JSON, and answers with lines of JSON on stdout:
//! `bench/README.md` has the protocol. The locks are `redlatch-fenced` and
//! `redlatch-plain`, `rslock`, and `raw`: the same Redis commands as those of
//! `redlatch-plain`, with no lock library around them; and `raw-turns`.
//!
//! # Layout
//!
//! | file | what |
//! | --- | --- |
//! | `job.rs` | what is to be done, and what is said about it |
//! | `lock.rs` | the locks, behind one face |
//! | `raw.rs` | the commands alone |
//! | `turns.rs` | taking turns by the barest commands |
//! | `modes.rs` | `cycles`, `hold`, `wait` and `leases` |

mod job;
mod lock;
mod modes;
mod raw;
mod turns;

use std::process::ExitCode;

use crate::job::{Job, Orders, say};

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&serde_json::json!({ "event": "error", "message": error.to_string() }));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let usage = "one argument is needed, a job in JSON: see bench/README.md";
    let job = Job::parse(&std::env::args().nth(1).ok_or(usage)?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(modes::run(job, Orders::new()))
}
