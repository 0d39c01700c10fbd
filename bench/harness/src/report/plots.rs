//! Which plots there are.

use super::charts::{Bar, Bars, Lines, Panel, Series};
use super::svg::Tone;
use crate::contenders::{self, FLOOR};
use crate::measure::figure;
use crate::results::Results;
use crate::stats::Summary;

/// A plot, and where it is written.
pub(super) struct Plot {
    pub(super) file: &'static str,
    pub(super) text: String,
}

/// The plots of what was measured.
pub(super) fn all(results: &Results) -> Vec<Plot> {
    let bars = |file, title: &str, unit: &str, logarithmic, figure, panels: &[(&str, &str)]| {
        let panels: Vec<_> = panels
            .iter()
            .map(|(title, case)| ((*title).to_owned(), bars_of(results, case, figure)))
            .filter(|(_, bars)| !bars.is_empty())
            .collect();
        let (title, unit) = (title.to_owned(), unit.to_owned());
        let drawing = Bars {
            title,
            unit,
            logarithmic,
            panels,
        };
        (!drawing.panels.is_empty()).then(|| Plot {
            file,
            text: drawing.draw(),
        })
    };
    let plots = [
        bars(
            "performance-latency.svg",
            "Acquire and release by one task",
            "µs at the median, less is better, logarithmic; a thin line spans the rounds",
            true,
            figure::CYCLE_P50,
            &[("cores kept awake", "1/awake"), ("as it is", "1/as-is")],
        ),
        bars(
            "performance-throughput.svg",
            "Many tasks of one process, distinct names",
            "cycles a second, more is better; a thin line spans the rounds",
            false,
            figure::RATE,
            &[("64 tasks", "2/64"), ("1,024 tasks", "2/1024")],
        ),
        bars(
            "performance-nodes.svg",
            "Many tasks of one process, distinct names, 5 nodes",
            "cycles a second, more is better; a thin line spans the rounds",
            false,
            figure::RATE,
            &[("64 tasks", "3/64"), ("1,024 tasks", "3/1024")],
        ),
        bars(
            "performance-contention.svg",
            "One hot name, hold 0",
            "cycles a second, more is better, logarithmic; a thin line spans the rounds",
            true,
            figure::RATE,
            &[
                ("16 tasks in one process", "4/1x16-hold0"),
                ("4 processes of 4 tasks", "4/4x4-hold0"),
                ("16 processes of one task", "4/16x1-hold0"),
            ],
        ),
        bars(
            "performance-held.svg",
            "One hot name, hold 1 ms, pause 5 ms",
            "part of the time that the lock is held, more is better; a thin line spans the rounds",
            false,
            figure::HELD,
            &[
                ("16 tasks in one process", "4/1x16-hold1"),
                ("4 processes of 4 tasks", "4/4x4-hold1"),
                ("16 processes of one task", "4/16x1-hold1"),
            ],
        ),
        growth(results),
    ];
    plots.into_iter().flatten().collect()
}

fn bars_of(results: &Results, case: &str, figure: &str) -> Vec<Bar> {
    let bar = |contender: &contenders::Contender| {
        let value = results.summary(case, contender.name, figure)?;
        let tone = match contender.name {
            FLOOR | contenders::TURNS | contenders::REDIS_BENCHMARK => Tone::Floor,
            _ if contender.is_redlatch() => Tone::Ours,
            _ => Tone::Other,
        };
        let name = contender.name.to_owned();
        Some(Bar { name, value, tone })
    };
    contenders::ALL.iter().filter_map(bar).collect()
}

fn growth(results: &Results) -> Option<Plot> {
    let panel = |title: &str, x_label: &str, ids: &str, points: &[u32], figure: &'static str| {
        let series = [("redlatch-fenced", Tone::Ours), (FLOOR, Tone::Floor)];
        let series = series.into_iter().map(|(name, tone)| {
            let point = |x: &u32| -> Option<(f64, Summary)> {
                let value = results.summary(&format!("9/{ids}-{x}"), name, figure)?;
                Some((f64::from(*x), value))
            };
            Series {
                name: name.to_owned(),
                tone,
                points: points.iter().filter_map(point).collect(),
            }
        });
        Panel {
            title: title.to_owned(),
            x_label: x_label.to_owned(),
            logarithmic: ids != "nodes",
            series: series.collect(),
        }
    };
    let panels = vec![
        panel(
            "cycles/s",
            "distinct names",
            "names",
            &[1, 64, 1_000, 10_000, 100_000, 1_000_000],
            figure::RATE,
        ),
        panel(
            "cycles/s",
            "tasks for one name",
            "waiters",
            &[1, 10, 100, 1_000],
            figure::RATE,
        ),
        panel(
            "µs a cycle, p50",
            "nodes",
            "nodes",
            &[1, 3, 5, 7, 9],
            figure::CYCLE_P50,
        ),
    ];
    let empty = |panel: &Panel| panel.series.iter().all(|series| series.points.is_empty());
    if panels.iter().all(empty) {
        return None;
    }
    let title = "Growth".to_owned();
    let text = Lines { title, panels }.draw();
    Some(Plot {
        file: "performance-growth.svg",
        text,
    })
}
