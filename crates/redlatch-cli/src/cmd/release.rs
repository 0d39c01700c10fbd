//! `redlatch release`: takes a lock away from whoever holds it.

use redlatch::core::Token;
use redlatch::{Exported, Inspection, Redlatch};
use serde_json::json;

use super::ls::as_json;
use crate::args::ReleaseArgs;
use crate::connect::connect;
use crate::exit_code::{ExitCode, Failure};
use crate::output::{Output, confirm, held_by, print};
use crate::settings::Settings;
use crate::table::clean;

pub(super) async fn run(
    args: ReleaseArgs,
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let latch = connect(settings, None, output).await?;
    let name = &args.name;
    let Some(held) = latch.inspect(name).await? else {
        // What was wanted is so already.
        output.info(&format!("nobody holds {name}"));
        return Ok(ExitCode::Success);
    };
    let whose = clean(&held_by(&held.holder));
    match &args.owner {
        Some(owner) => by_token(&latch, name, owner, &held, &whose).await?,
        None => {
            if !args.yes {
                let question = format!("Take {name} away from {whose}?");
                let hint = format!("it is held by {whose}; add --yes to take it away");
                if !confirm(&question, &hint)? {
                    let kept = "nothing was released";
                    return Err(Failure::new(ExitCode::Busy(ExitCode::BUSY), kept));
                }
            }
            // It is said below, with whose it was.
            Output::mute(true);
            latch.force_release(name).await?;
        }
    }
    let text = match output.json {
        true => {
            let mut object = as_json(name, &held);
            object["released"] = json!(true);
            format!("{object}\n")
        }
        false => format!("released {name}, which was held by {whose}\n"),
    };
    print(text.as_bytes())?;
    Ok(ExitCode::Success)
}

async fn by_token(
    latch: &Redlatch,
    name: &str,
    owner: &str,
    held: &Inspection,
    whose: &str,
) -> Result<(), Failure> {
    let wanted = Token::parse(owner.trim())
        .map_err(|error| Failure::usage(format!("--owner is no token: {error}")))?;
    let token = held.holder.token();
    let Some(token) = token.filter(|token| token.id() == wanted.id()) else {
        let other = format!("{name} is held by another lease: {whose}");
        return Err(Failure::new(ExitCode::Busy(ExitCode::BUSY), other)
            .hint("`redlatch release --force` takes it away from whoever holds it"));
    };
    let lease = Exported::new(token.as_str(), held.fence().unwrap_or(0))?;
    latch.mutex(name).adopt(lease).await?.release().await?;
    latch.close().await;
    Ok(())
}
