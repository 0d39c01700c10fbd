//! `redlatch ls`: the locks that somebody holds.

use std::time::{Duration, Instant};

use redlatch::{Inspection, Progress};
use serde_json::{Value, json};

use crate::args::LsArgs;
use crate::connect::connect;
use crate::duration;
use crate::exit_code::{ExitCode, Failure};
use crate::output::{Output, age, describe, print};
use crate::settings::Settings;
use crate::table::{Cell, Color, Table};

/// How often people are told how far it has come.
const TOLD: Duration = Duration::from_millis(100);

pub(super) async fn run(
    args: LsArgs,
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    // Nodes that can't be asked are named below, once.
    Output::mute(true);
    let latch = connect(settings, None, output).await?;
    let mut told = Instant::now();
    let listing = latch
        .locks_with_progress(&args.glob, |progress| {
            if told.elapsed() >= TOLD {
                told = Instant::now();
                output.progress(&so_far(progress));
            }
        })
        .await;
    Output::mute(false);
    output.progress("");
    let listing = listing?;
    for (node, error) in &listing.failures {
        output.warn(&format!("{node} was not asked to the end: {error}"));
    }
    let mut table = Table::new(HEADLINE, output.paint);
    let mut lines = String::new();
    for lock in &listing.locks {
        match output.json {
            true => lines.push_str(&format!("{}\n", as_json(&lock.name, &lock.inspection))),
            false => table.row(row(&lock.name, &lock.inspection)),
        }
    }
    match (output.json, listing.locks.is_empty()) {
        (true, _) => print(lines.as_bytes())?,
        (false, true) => output.info("nobody holds a lock"),
        (false, false) => print(table.text().as_bytes())?,
    }
    Ok(ExitCode::Success)
}

fn so_far(progress: Progress) -> String {
    let Progress {
        looked_at, found, ..
    } = progress;
    match progress.total {
        Some(total) => format!("looked at {looked_at} of {total} keys, found {found} locks"),
        None => format!("looked at {looked_at} keys, found {found} locks"),
    }
}

const HEADLINE: [&str; 10] = [
    "NAME", "HOST", "PID", "USER", "PROGRAM", "SINCE", "LEFT", "FENCE", "NODES", "NOTE",
];

fn row(name: &str, inspection: &Inspection) -> Vec<Cell> {
    let owner = inspection.owner();
    let or_empty = |text: Option<String>| Cell::new(text.unwrap_or_default());
    let left = match inspection.remaining() {
        Some(left) => Cell::new(duration::spoken(left)),
        None => Cell::new("for ever").color(Color::Red),
    };
    let Inspection {
        on_nodes, nodes, ..
    } = inspection;
    let nodes = match nodes {
        1 => Cell::new(""),
        nodes if inspection.has_quorum() => Cell::new(format!("{on_nodes}/{nodes}")),
        nodes => Cell::new(format!("{on_nodes}/{nodes}")).color(Color::Yellow),
    };
    let host = match &owner.host {
        Some(host) => Cell::new(host),
        // A value that is none of ours: another client's, or no string at all.
        None => Cell::new("(another client)").color(Color::Dim),
    };
    let since = owner.since.and_then(age).map(duration::spoken);
    vec![
        Cell::new(name),
        host,
        or_empty(owner.pid.map(|pid| pid.to_string())),
        or_empty(owner.user),
        or_empty(owner.program),
        or_empty(since.map(|since| format!("{since} ago"))),
        left,
        or_empty(inspection.fence().map(|fence| fence.to_string())),
        nodes,
        or_empty(owner.note),
    ]
}

/// The same for programs.
pub(super) fn as_json(name: &str, inspection: &Inspection) -> Value {
    let mut object = describe(&inspection.holder);
    object["name"] = json!(name);
    object["fence"] = json!(inspection.fence());
    object["on_nodes"] = json!(inspection.on_nodes);
    object["nodes"] = json!(inspection.nodes);
    object["quorum"] = json!(inspection.has_quorum());
    object
}
