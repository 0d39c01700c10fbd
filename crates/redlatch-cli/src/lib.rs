//! The command `redlatch`: does for a fleet what `flock` does for one machine.
//!
//! Raw arguments (`args`) become resolved settings (`settings`), and then one
//! of the commands (`cmd`) runs and says how the process ends (`exit_code`).
//! `child` starts and watches over the command that a lock is held for.
//!
//! A library only so that what it parses can be fuzzed: no promise is made about it.

mod args;
mod child;
mod cmd;
mod connect;
mod duration;
mod exit_code;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hold;
mod node_url;
mod output;
mod settings;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::Parser;

use crate::args::Args;
use crate::exit_code::{ExitCode, Failure};
use crate::output::Output;

/// All that the command does, from its arguments to its exit code.
pub fn main() -> std::process::ExitCode {
    // This very program also starts the child and minds its process group.
    child::divert();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let output = Output::new(&args.global);
    output.start_tracing();
    let code = match catch_unwind(AssertUnwindSafe(|| run(args, &output))) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => {
            output.failure(&failure);
            failure.code
        }
        // What happened was told when it did.
        Err(_) => ExitCode::Failure,
    };
    code.leave()
}

/// Panics where a test has asked for it.
fn planted(_place: &str) {
    #[cfg(feature = "planted")]
    if std::env::var_os("REDLATCH_PLANTED").is_some_and(|planted| planted == _place) {
        panic!("planted in {_place}");
    }
}

fn run(args: Args, output: &Output) -> Result<ExitCode, Failure> {
    // One thread is enough: a client has two tasks, and the child has a thread of its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::own(format!("could not start: {error}")))?;
    runtime.block_on(cmd::run(args, output))
}

/// Help and version go to stdout and are no failure; the rest is wrong usage.
fn usage(error: &clap::Error) -> std::process::ExitCode {
    let _ = error.print();
    usage_code(error).leave()
}

fn usage_code(error: &clap::Error) -> ExitCode {
    match error.use_stderr() {
        true => ExitCode::Usage,
        false => ExitCode::Success,
    }
}
