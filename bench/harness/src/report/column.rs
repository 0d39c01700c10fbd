//! Tables with a row for each contender.

use super::number::{number, spread};
use crate::contenders::{self, FLOOR};
use crate::results::Results;

/// A column of a table: a figure in a case.
pub(super) struct Column {
    heading: String,
    case: String,
    figure: &'static str,
    scale: f64,
    kind: Kind,
}

enum Kind {
    /// The median, and the spread of the rounds.
    Spread,
    /// The median alone.
    Median,
    /// How many times the floor's.
    Ratio,
}

/// From microseconds.
pub(super) const MILLISECONDS: f64 = 0.001;

/// A row for each contender that has a figure; `None` when there is none.
pub(super) fn table(results: &Results, columns: &[Column]) -> Option<String> {
    let mut text = String::from("| |");
    for column in columns {
        text += &format!(" {} |", column.heading);
    }
    text += &format!("\n| --- |{}\n", " --- |".repeat(columns.len()));
    let mut rows = 0;
    for contender in contenders::ALL {
        let cells: Vec<_> = columns
            .iter()
            .map(|column| column.cell(results, contender.name))
            .collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        text += &format!("| {} |", named(contender.name));
        for cell in cells {
            text += &format!(" {} |", cell.as_deref().unwrap_or("–"));
        }
        text.push('\n');
        rows += 1;
    }
    text.push('\n');
    (rows > 0).then_some(text)
}

/// Ours stand out.
pub(super) fn named(contender: &str) -> String {
    match contender.starts_with("redlatch") {
        true => format!("**{contender}**"),
        false => contender.to_owned(),
    }
}

impl Column {
    fn cell(&self, results: &Results, contender: &str) -> Option<String> {
        let summary = results.summary(&self.case, contender, self.figure)?;
        Some(match self.kind {
            Kind::Spread => spread(summary, self.scale),
            Kind::Median => number(summary.median * self.scale),
            Kind::Ratio => {
                let floor = results.median(&self.case, FLOOR, self.figure)?;
                number(summary.median / floor)
            }
        })
    }
}

pub(super) fn spread_of(heading: &str, case: &str, figure: &'static str) -> Column {
    Column {
        heading: heading.to_owned(),
        case: case.to_owned(),
        figure,
        scale: 1.0,
        kind: Kind::Spread,
    }
}

pub(super) fn median_of(heading: &str, case: &str, figure: &'static str) -> Column {
    Column {
        kind: Kind::Median,
        ..spread_of(heading, case, figure)
    }
}

pub(super) fn ratio_of(heading: &str, case: &str, figure: &'static str) -> Column {
    Column {
        kind: Kind::Ratio,
        ..spread_of(heading, case, figure)
    }
}

pub(super) fn in_milliseconds(heading: &str, case: &str, figure: &'static str) -> Column {
    Column {
        scale: MILLISECONDS,
        ..spread_of(heading, case, figure)
    }
}
