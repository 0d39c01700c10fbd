//! The commands, one a file.

mod completions;
mod config;
mod elect;
mod lease;
mod man;
mod run;

use crate::args::Command;
use crate::exit_code::{ExitCode, Failure};
use crate::output::Output;
use crate::settings::Settings;

pub(crate) async fn run(
    command: Command,
    settings: Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(args) => run::run(args, settings, output).await,
        Command::Elect(args) => elect::run(args, settings, output).await,
        Command::Config(_) => config::run(&settings, output),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
