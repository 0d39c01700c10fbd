//! `redlatch wait`: waits until nobody holds a lock, without taking it.

use crate::args::WaitArgs;
use crate::connect::connect;
use crate::exit_code::{ExitCode, Failure};
use crate::output::Output;
use crate::settings::Settings;

pub(super) async fn run(
    args: WaitArgs,
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let latch = connect(settings, None, output).await?;
    latch.wait_until_free(&args.name, args.wait).await?;
    Ok(ExitCode::Success)
}
