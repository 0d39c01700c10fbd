//! The commands, one a file.

mod bench;
mod completions;
pub(crate) mod config;
mod doctor;
mod elect;
mod init;
mod lease;
mod ls;
mod man;
mod release;
mod run;
mod show;
mod top;
mod wait;

use crate::args::{Args, Command};
use crate::exit_code::{ExitCode, Failure};
use crate::output::Output;
use crate::settings::Settings;

/// Whether a command makes sense with these settings, before any node is asked.
#[cfg(feature = "fuzzing")]
pub(crate) fn check(command: &Command, settings: &Settings) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run::check(args, settings).map(|_| ()),
        Command::Elect(args) => lease::Terms::new(&args.lease, settings).map(|_| ()),
        Command::Top(args) => top::check(args),
        Command::Bench(args) => bench::check(args),
        _ => Ok(()),
    }
}

pub(crate) async fn run(args: Args, output: &Output) -> Result<ExitCode, Failure> {
    // Only where they are needed: help must not fail for a wrong file.
    let settings = || Settings::resolve(&args.global);
    match args.command {
        Command::Run(args) => run::run(args, settings()?, output).await,
        Command::Elect(args) => elect::run(args, settings()?, output).await,
        Command::Ls(args) => ls::run(args, &settings()?, output).await,
        Command::Show(args) => show::run(args, &settings()?, output).await,
        Command::Top(args) => top::run(args, &settings()?, output).await,
        Command::Wait(args) => wait::run(args, &settings()?, output).await,
        Command::Release(args) => release::run(args, &settings()?, output).await,
        Command::Init(args) => init::run(args, &settings()?, output).await,
        Command::Doctor(_) => doctor::run(&settings()?, output).await,
        Command::Bench(args) => bench::run(args, &settings()?, output).await,
        Command::Config(_) => config::run(&settings()?, output),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
