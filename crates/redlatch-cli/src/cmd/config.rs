//! `redlatch config`: shows the settings, and where each comes from.

use serde_json::{Value, json};

use crate::duration;
use crate::exit_code::{ExitCode, Failure};
use crate::output::{Output, print};
use crate::settings::{Settings, Sourced};

pub(super) fn run(settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    print(shown(settings, output.json).as_bytes())?;
    Ok(ExitCode::Success)
}

/// The settings, for people or for programs.
pub(crate) fn shown(settings: &Settings, json: bool) -> String {
    let rows = rows(settings);
    match json {
        true => as_json(&rows),
        false => as_table(&rows),
    }
}

/// A setting: its name, its values, where they come from.
type Row = (&'static str, Vec<String>, String);

fn rows(settings: &Settings) -> Vec<Row> {
    let Settings {
        nodes,
        prefix,
        ttl,
        node_timeout,
        connect_timeout,
        deployment,
        max_ttl,
        restart_guard,
        root_certificate,
        client_certificate,
        client_key,
    } = settings;
    fn row<T>(name: &'static str, setting: &Sourced<T>, text: impl Fn(&T) -> String) -> Row {
        let values = vec![text(&setting.value)];
        (name, values, setting.origin.to_string())
    }
    let length = |length: &std::time::Duration| duration::format(*length);
    let path = |path: &Option<std::path::PathBuf>| match path {
        Some(path) => path.display().to_string(),
        None => "none".into(),
    };
    let urls = nodes.value.iter().map(ToString::to_string).collect();
    let guarded = |_: &Option<bool>| match settings.is_guarded() {
        true => "on".to_owned(),
        false => "off".to_owned(),
    };
    vec![
        ("nodes", urls, nodes.origin.to_string()),
        row("prefix", prefix, String::clone),
        row("ttl", ttl, length),
        row("node_timeout", node_timeout, length),
        row("connect_timeout", connect_timeout, length),
        row("deployment", deployment, String::clone),
        row("max_ttl", max_ttl, length),
        row("restart_guard", restart_guard, guarded),
        row("root_certificate", root_certificate, path),
        row("client_certificate", client_certificate, path),
        row("client_key", client_key, path),
    ]
}

fn as_table(rows: &[Row]) -> String {
    let values = || rows.iter().flat_map(|(_, values, _)| values);
    let width = values().map(|value| value.chars().count()).max();
    let width = width.unwrap_or(0).min(60);
    let mut text = String::new();
    for (name, values, origin) in rows {
        for (at, value) in values.iter().enumerate() {
            let name = if at == 0 { name } else { "" };
            text.push_str(&format!("{name:<18}  {value:<width$}  {origin}\n"));
        }
    }
    text
}

/// One object a line, as everywhere.
fn as_json(rows: &[Row]) -> String {
    let line = |(name, values, origin): &Row| {
        let value = match *name {
            "nodes" => json!(values),
            _ => values.first().map_or(Value::Null, |value| json!(value)),
        };
        let row = json!({"setting": name, "value": value, "from": origin});
        format!("{row}\n")
    };
    rows.iter().map(line).collect()
}
