//! `redlatch completions`: what a shell needs to complete our command line.

use clap::CommandFactory;

use crate::args::{Args, CompletionsArgs};
use crate::exit_code::{ExitCode, Failure};
use crate::output::print;

pub(super) fn run(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "redlatch", &mut text);
    print(&text)?;
    Ok(ExitCode::Success)
}
