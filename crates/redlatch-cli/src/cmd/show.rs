//! `redlatch show`: who holds a lock.

use redlatch::Inspection;
use serde_json::json;

use super::ls::as_json;
use crate::args::ShowArgs;
use crate::connect::connect;
use crate::duration;
use crate::exit_code::{ExitCode, Failure};
use crate::output::{Output, age, print};
use crate::settings::Settings;
use crate::table::{Cell, Table};

pub(super) async fn run(
    args: ShowArgs,
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let latch = connect(settings, None, output).await?;
    let name = &args.name;
    let text = match (latch.inspect(name).await?, output.json) {
        (None, true) => format!("{}\n", json!({"name": name, "held": false})),
        (None, false) => format!("{name} is free\n"),
        (Some(inspection), true) => {
            let mut object = as_json(name, &inspection);
            object["held"] = json!(true);
            format!("{object}\n")
        }
        (Some(inspection), false) => as_lines(name, &inspection),
    };
    print(text.as_bytes())?;
    Ok(ExitCode::Success)
}

fn as_lines(name: &str, inspection: &Inspection) -> String {
    let owner = inspection.owner();
    let since = owner.since.and_then(age).map(duration::spoken);
    let left = match inspection.remaining() {
        Some(left) => format!("{}, unless renewed", duration::spoken(left)),
        None => "for ever: its key never expires".into(),
    };
    let Inspection {
        on_nodes, nodes, ..
    } = inspection;
    let quorum = match inspection.has_quorum() {
        true => "",
        false => ", too few for a quorum",
    };
    // What a stranger wrote may be all of its secret.
    let token = inspection.holder.token().filter(|_| owner.host.is_some());
    let stranger = owner.host.is_none().then(|| "another client".to_owned());
    let rows = [
        ("name", Some(name.to_owned())),
        ("held by", stranger),
        ("host", owner.host),
        ("pid", owner.pid.map(|pid| pid.to_string())),
        ("user", owner.user),
        ("program", owner.program),
        ("note", owner.note),
        ("since", since.map(|since| format!("{since} ago"))),
        ("left", Some(left)),
        ("fence", inspection.fence().map(|fence| fence.to_string())),
        ("token", token.map(|token| format!("{}…", token.short()))),
        ("nodes", Some(format!("{on_nodes} of {nodes}{quorum}"))),
    ];
    let mut table = Table::new(["", ""], false);
    for (label, value) in rows {
        if let Some(value) = value {
            table.row(vec![Cell::new(label), Cell::new(value)]);
        }
    }
    // Without the headline, which is empty.
    table.text().trim_start_matches('\n').to_owned()
}
