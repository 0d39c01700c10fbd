//! `redlatch init`: arms new nodes.

use redlatch::{Admin, NodeStatus};
use serde_json::json;

use crate::args::InitArgs;
use crate::connect::builder;
use crate::exit_code::{ExitCode, Failure};
use crate::output::{Output, confirm, print};
use crate::settings::Settings;

pub(super) async fn run(
    args: InitArgs,
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let admin = builder(settings)?.admin().await?;
    let statuses = match args {
        InitArgs {
            reconfigure: true,
            yes,
            ..
        } => {
            let question = "Leases of the programs that use these nodes will be lost. Go on?";
            if !yes && !confirm(question, "add --yes; leases on these nodes will be lost")? {
                return Err(Failure::own("nothing was changed"));
            }
            admin.reconfigure().await
        }
        InitArgs {
            assume_fresh: true, ..
        } => admin.assume_fresh().await,
        _ => begin(&admin).await?,
    };
    let mut text = String::new();
    for status in &statuses {
        match output.json {
            true => text.push_str(&format!("{}\n", as_json(status))),
            false => text.push_str(&format!("{status}\n")),
        }
    }
    print(text.as_bytes())?;
    let done = |status: &NodeStatus| match args.reconfigure {
        true => status.guard.is_ok(),
        false => status.is_armed(),
    };
    match statuses.iter().all(done) {
        true => Ok(ExitCode::Success),
        false => {
            let problem = "not all nodes could be reached, or belong to this deployment";
            Err(Failure::new(ExitCode::Unavailable, problem)
                .hint("mend what is said of them, and call it again"))
        }
    }
}

/// Arms the nodes of a deployment that has never been used. A node that is new
/// beside others that are not may have forgotten what it granted.
async fn begin(admin: &Admin) -> Result<Vec<NodeStatus>, Failure> {
    let statuses = admin.status().await;
    let is_new = |status: &NodeStatus| matches!(status.guard, Ok(None));
    let new = statuses.iter().filter(|status| is_new(status)).count();
    match new {
        0 => Ok(statuses),
        new if new == statuses.len() => Ok(admin.assume_fresh().await),
        new => {
            let lines = statuses.iter().map(ToString::to_string);
            let lines: Vec<String> = lines.collect();
            Err(Failure::new(
                ExitCode::Unavailable,
                format!(
                    "{new} of {} nodes are new, and may have forgotten locks that are held: {}",
                    statuses.len(),
                    lines.join("; ")
                ),
            )
            .hint(
                "they join by themselves after a quarantine; if you know that they never held a \
                 lock, or that none is held, `redlatch init --assume-fresh` lets them in at once",
            ))
        }
    }
}

fn as_json(status: &NodeStatus) -> serde_json::Value {
    let guard = status.guard.as_ref();
    let view = guard.ok().and_then(Option::as_ref);
    json!({
        "node": status.node,
        "armed": status.is_armed(),
        "deployment": view.map(|view| &view.deployment),
        "quarantine_ms": view.map(|view| view.quarantine.as_millis() as u64),
        "error": guard.err().map(ToString::to_string),
    })
}
