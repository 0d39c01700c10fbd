//! One look at nodes and locks, for files, pipes and programs.

use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;

use super::poll::{Plan, connect};
use super::state::{Condition, Lock, Node};
use super::view::spoken;
use crate::args::TopArgs;
use crate::exit_code::{ExitCode, Failure};
use crate::output::{Output, age, describe_owner, print};
use crate::settings::Settings;
use crate::table::{Cell, Color, Table};

pub(super) async fn run(
    args: TopArgs,
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    // Nodes that can't be reached are in the table.
    Output::mute(true);
    let (nodes, locks, trouble) = match connect(settings).await? {
        Err((nodes, trouble)) => (nodes, Vec::new(), Some(trouble)),
        Ok(latch) => {
            // Nobody listens for how far it has come.
            let (sender, _) = unbounded_channel();
            let plan = Plan {
                settings: settings.clone(),
                glob: args.glob,
                interval: args.interval,
                sender,
            };
            let poller = plan.poller(latch);
            let (nodes, (locks, trouble)) = tokio::join!(poller.nodes(), poller.locks());
            (nodes, locks, trouble)
        }
    };
    let text = match output.json {
        true => as_json(&nodes, &locks),
        false => as_text(&nodes, &locks, output.paint),
    };
    print(text.as_bytes())?;
    match trouble {
        None => Ok(ExitCode::Success),
        Some(trouble) => Err(Failure::new(ExitCode::Unavailable, trouble)
            .hint("see what is wrong with the nodes: `redlatch doctor`")),
    }
}

fn as_json(nodes: &[Node], locks: &[Lock]) -> String {
    let nodes = nodes.iter().map(|node| {
        let (state, error) = state_of(&node.condition);
        let is_up = error.is_none() && state != "unknown";
        let quarantine = match node.condition {
            Condition::Quarantine(left) => Some(left.as_millis() as u64),
            _ => None,
        };
        json!({
            "kind": "node",
            "node": node.name,
            "up": is_up,
            "latency_ms": is_up.then_some(node.took.as_secs_f64() * 1000.0),
            "guard": is_up.then_some(state),
            "quarantine_ms": quarantine,
            "error": error,
        })
    });
    let locks = locks.iter().map(|lock| {
        let mut object = describe_owner(&lock.owner, lock.remaining);
        object["kind"] = "lock".into();
        object["name"] = json!(lock.name);
        object["fence"] = json!(lock.fence);
        object["on_nodes"] = json!(lock.on_nodes);
        object["nodes"] = json!(lock.nodes);
        object["quorum"] = json!(lock.has_quorum);
        object
    });
    let objects = nodes.chain(locks);
    objects.map(|object: Value| format!("{object}\n")).collect()
}

/// A word, and what went wrong.
fn state_of(condition: &Condition) -> (&'static str, Option<&str>) {
    match condition {
        Condition::Armed => ("armed", None),
        Condition::Unguarded => ("off", None),
        Condition::New => ("new", None),
        Condition::Quarantine(_) => ("quarantine", None),
        Condition::Down(error) => ("down", Some(error)),
        Condition::Unknown => ("unknown", None),
    }
}

fn as_text(nodes: &[Node], locks: &[Lock], paint: bool) -> String {
    let mut table = Table::new(["NODE", "UP", "LATENCY", "GUARD"], paint);
    for node in nodes {
        let (state, error) = state_of(&node.condition);
        let (up, latency, guard) = match (&node.condition, error) {
            (Condition::Unknown, _) => (Cell::new("?"), String::new(), String::new()),
            (_, Some(error)) => (
                Cell::new("down").color(Color::Red),
                String::new(),
                error.to_owned(),
            ),
            (Condition::Quarantine(left), None) => (
                Cell::new("up").color(Color::Yellow),
                latency(node),
                format!("in quarantine for {}", spoken(*left)),
            ),
            (_, None) => (
                Cell::new("up").color(Color::Green),
                latency(node),
                state.to_owned(),
            ),
        };
        table.row(vec![
            Cell::new(&node.name),
            up,
            Cell::new(latency),
            Cell::new(guard),
        ]);
    }
    let mut text = table.text();
    if locks.is_empty() {
        return text;
    }
    let headline = [
        "NAME", "HOST", "PID", "USER", "PROGRAM", "AGE", "LEFT", "FENCE", "NODES",
    ];
    let mut table = Table::new(headline, paint);
    for lock in locks {
        let owner = &lock.owner;
        let or_empty = |text: Option<String>| Cell::new(text.unwrap_or_default());
        table.row(vec![
            Cell::new(&lock.name),
            Cell::new(owner.host.as_deref().unwrap_or("(another client)")),
            or_empty(owner.pid.map(|pid| pid.to_string())),
            or_empty(owner.user.clone()),
            or_empty(owner.program.clone()),
            or_empty(owner.since.and_then(age).map(spoken)),
            match lock.remaining {
                Some(left) => Cell::new(spoken(left)),
                None => Cell::new("for ever").color(Color::Red),
            },
            or_empty(lock.fence.map(|fence| fence.to_string())),
            Cell::new(format!("{}/{}", lock.on_nodes, lock.nodes)),
        ]);
    }
    text.push('\n');
    text.push_str(&table.text());
    text
}

fn latency(node: &Node) -> String {
    format!("{:.1} ms", node.took.as_secs_f64() * 1000.0)
}
