//! `redlatch man`: the manual pages, made from the command line itself.

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{Args, ManArgs};
use crate::exit_code::{ExitCode, Failure};
use crate::output::print;

pub(super) fn run(args: &ManArgs) -> Result<ExitCode, Failure> {
    let mut redlatch = Args::command();
    redlatch.build();
    let page = match &args.command {
        None => redlatch,
        Some(name) => match redlatch.find_subcommand(name) {
            // Named as its page is: redlatch-run(1).
            Some(command) => command.clone().name(format!("redlatch-{name}")),
            None => {
                return Err(Failure::usage(format!("there is no command {name:?}"))
                    .hint("`redlatch help` lists them"));
            }
        },
    };
    let mut text = Vec::new();
    let rendered = Man::new(page).render(&mut text);
    rendered.map_err(|error| Failure::own(format!("can't write the manual: {error}")))?;
    print(&text)?;
    Ok(ExitCode::Success)
}
