//! What was measured, for people and for programs.

use std::time::Duration;

use redlatch::Verdict;
use serde_json::{Value, json};

use super::times::Times;
use super::verdict::Advice;
use super::workload::{LockFigures, NodeFigures, Workload};
use crate::duration;
use crate::table::{Cell, Color, Table, clean};

/// All that is said in the end.
pub(super) struct Report {
    pub(super) nodes: Vec<NodeFigures>,
    pub(super) locks: Vec<LockFigures>,
    /// The longest pause of this machine.
    pub(super) pause: Duration,
    pub(super) advice: Vec<Advice>,
    pub(super) warnings: Vec<String>,
}

impl Report {
    pub(super) fn as_text(&self, paint: bool) -> String {
        let mut nodes = Table::new(["NODE", "ANSWERS", "P50", "P99", "LONGEST", "CLOCK"], paint);
        for figures in &self.nodes {
            nodes.row(node_row(figures));
        }
        let headline = [
            "WORKLOAD",
            "LOCK",
            "PER SECOND",
            "P50",
            "P99",
            "LONGEST",
            "FAILED",
        ];
        let mut locks = Table::new(headline, paint);
        for figures in &self.locks {
            locks.row(lock_row(figures));
        }
        let mut advice = Table::new(["SETTING", "NOW", "AT LEAST", "VERDICT"], paint);
        for said in &self.advice {
            advice.row(advice_row(said));
        }
        let tables = [nodes, locks, advice].map(|table| table.text());
        let mut text = tables.join("\n");
        text.push('\n');
        for said in &self.advice {
            text.push_str(&format!("{}: {}\n", said.setting, clean(&said.reason)));
        }
        for warning in &self.warnings {
            text.push_str(&format!("warning: {}\n", clean(warning)));
        }
        text
    }

    pub(super) fn as_json(&self) -> String {
        let nodes = self.nodes.iter().map(node_json);
        let locks = self.locks.iter().map(lock_json);
        let pause = json!({"kind": "pause", "longest_us": micros(self.pause)});
        let advice = self.advice.iter().map(advice_json);
        let warnings = self.warnings.iter();
        let warnings = warnings.map(|warning| json!({"kind": "warning", "message": warning}));
        let objects = nodes.chain(locks).chain([pause]);
        let objects = objects.chain(advice).chain(warnings);
        objects.map(|object| format!("{object}\n")).collect()
    }
}

fn node_row(figures: &NodeFigures) -> Vec<Cell> {
    let count = figures.answers.count();
    let answers = Cell::new(count.to_string());
    let answers = match count {
        0 => answers.color(Color::Red),
        _ if figures.failures > 0 => answers.color(Color::Yellow),
        _ => answers,
    };
    let clock = figures.clock_ahead.map(|ahead| format!("{ahead:+} ms"));
    let [median, tail, most] = percentiles(&figures.answers);
    let clock = Cell::new(clock.unwrap_or_default());
    vec![Cell::new(&figures.node), answers, median, tail, most, clock]
}

fn lock_row(figures: &LockFigures) -> Vec<Cell> {
    let tasks = figures.tasks;
    let workload = match figures.workload {
        Workload::Single => "acquire and release, one at a time".to_owned(),
        Workload::Parallel => format!("acquire and release, {tasks} tasks, a lock each"),
        Workload::HandOff => "from a release to the next client".to_owned(),
    };
    let lock = if figures.fenced { "fenced" } else { "plain" };
    let failed = match figures.failures {
        0 => Cell::new(""),
        failures => Cell::new(failures.to_string()).color(Color::Yellow),
    };
    // The clients hold the lock for a while: how often it is passed says nothing.
    let per_second = match figures.workload {
        Workload::HandOff => String::new(),
        _ => format!("{:.0}", figures.per_second()),
    };
    let [median, tail, most] = percentiles(&figures.cycles);
    let per_second = Cell::new(per_second);
    vec![
        Cell::new(workload),
        Cell::new(lock),
        per_second,
        median,
        tail,
        most,
        failed,
    ]
}

fn advice_row(advice: &Advice) -> Vec<Cell> {
    let color = match advice.verdict {
        Verdict::Good => Color::Green,
        Verdict::Bad => Color::Red,
        _ => Color::Yellow,
    };
    vec![
        Cell::new(advice.setting),
        Cell::new(duration::format(advice.now)),
        Cell::new(duration::format(advice.at_least)),
        Cell::new(advice.verdict.to_string()).color(color),
    ]
}

fn percentiles(times: &Times) -> [Cell; 3] {
    match times.count() {
        0 => ["", "", ""].map(Cell::new),
        _ => {
            [times.median(), times.percentile(99), times.most()].map(|time| Cell::new(short(time)))
        }
    }
}

/// A length of time with as many digits as are worth reading.
pub(super) fn short(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1000.0;
    match () {
        () if millis < 1.0 => format!("{millis:.3} ms"),
        () if millis < 10.0 => format!("{millis:.2} ms"),
        () if millis < 1000.0 => format!("{millis:.1} ms"),
        () => format!("{:.2} s", millis / 1000.0),
    }
}

fn node_json(figures: &NodeFigures) -> Value {
    json!({
        "kind": "node",
        "node": figures.node,
        "round_trip": times_json(&figures.answers),
        "failures": figures.failures,
        "error": figures.error,
        "clock_ahead_ms": figures.clock_ahead,
    })
}

fn lock_json(figures: &LockFigures) -> Value {
    let mut object = json!({
        "kind": "locks",
        "workload": figures.workload.name(),
        "lock": if figures.fenced { "fenced" } else { "plain" },
        "tasks": figures.tasks,
        "failures": figures.failures,
        "error": figures.error.as_ref().map(ToString::to_string),
    });
    match figures.workload {
        Workload::HandOff => object["hand_off"] = times_json(&figures.cycles),
        Workload::Single | Workload::Parallel => {
            object["per_second"] = json!(figures.per_second().round());
            object["cycle"] = times_json(&figures.cycles);
            object["acquire"] = times_json(&figures.acquires);
            object["release"] = times_json(&figures.releases);
        }
    }
    object
}

fn times_json(times: &Times) -> Value {
    match times.count() {
        0 => json!({"count": 0}),
        count => json!({
            "count": count,
            "p50_us": micros(times.median()),
            "p90_us": micros(times.percentile(90)),
            "p99_us": micros(times.percentile(99)),
            "longest_us": micros(times.most()),
        }),
    }
}

fn advice_json(advice: &Advice) -> Value {
    json!({
        "kind": "setting",
        "setting": advice.setting,
        "verdict": advice.verdict.to_string(),
        "now_ms": advice.now.as_millis() as u64,
        "at_least_ms": advice.at_least.as_millis() as u64,
        "reason": advice.reason,
    })
}

fn micros(time: Duration) -> u64 {
    // Not even the shortest took no time at all.
    time.as_nanos().div_ceil(1000) as u64
}
