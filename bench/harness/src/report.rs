//! The page: tables and plots of what was found.

mod ahead;
mod aims;
mod charts;
mod column;
mod number;
mod page;
mod plots;
mod svg;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use crate::measure::figure;
use crate::progress::minutes;
use crate::results::Results;

/// Writes the page and its plots into a directory, and leaves alone what was
/// written by hand.
pub(crate) fn write(results: &Results, docs: &Path) -> Result<PathBuf, String> {
    let images = docs.join("images");
    let named = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(&images).map_err(|error| named(&images, error))?;
    for plot in plots::all(results) {
        let path = images.join(plot.file);
        fs::write(&path, &plot.text).map_err(|error| named(&path, error))?;
    }
    let path = docs.join("performance.md");
    let old = match fs::read_to_string(&path) {
        Ok(old) => old,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => page::EMPTY.to_owned(),
        Err(error) => return Err(named(&path, error)),
    };
    let new = page::replace(&old, &generated(results))
        .ok_or_else(|| format!("{}: {}", path.display(), page::NO_MARKERS))?;
    fs::write(&path, new).map_err(|error| named(&path, error))?;
    Ok(path)
}

/// All that stands between the markers.
fn generated(results: &Results) -> String {
    let mut text = String::from(
        "`bench/run` made this part: every contender on the same workloads, in programs of their \
         own, on fresh Redis servers without persistence, on one machine. A figure is the median \
         of the rounds, in brackets the lowest and the highest.\n\n| | |\n| --- | --- |\n",
    );
    for (name, value) in &results.setting {
        text += &format!("| {name} | {value} |\n");
    }
    for (name, value) in method(results) {
        text += &format!("| {name} | {value} |\n");
    }
    for (name, why) in &results.left_out {
        text += &format!("| Left out | {name}: {why} |\n");
    }
    text.push('\n');
    text += &aims::section(results);
    text += &ahead::section(results);
    for section in tables::sections(results) {
        text += &section;
    }
    text += &failures(results);
    text
}

/// How it was measured; files from before it was kept say so themselves.
fn method(results: &Results) -> Vec<(&str, String)> {
    let Some(scope) = &results.scope else {
        return Vec::new();
    };
    let mut rows = vec![
        ("Measured in", minutes(results.took())),
        (
            "Method",
            format!(
                "{} round(s) in which contenders take turns; more of workload 1, and of 1 to 3 for \
                 redlatch and the floor; {} s for the longest measurements of cycles; what is written \
                 in Rust is built with thin LTO and one codegen unit",
                scope.rounds, scope.seconds
            ),
        ),
    ];
    if !results.complete {
        let part = "this run was cut off, and is not all here: `bench/run --continue`";
        rows.push(("**Not complete**", part.to_owned()));
    }
    rows
}

/// What could not be measured, and what went wrong on the way.
fn failures(results: &Results) -> String {
    let mut text = String::new();
    for failure in &results.failures {
        let message = failure.message.replace(['\n', '|', '<'], " ");
        text += &format!("- {} in {}: {message}\n", failure.contender, failure.case);
    }
    for sample in &results.samples {
        let (case, contender) = (&sample.case, &sample.contender);
        let failed = sample.figures.get(figure::FAILED).copied().unwrap_or(0.0);
        if failed > 0.0 {
            text += &format!("- {contender} in {case}: {failed} requests failed in one round\n");
        }
    }
    match text.is_empty() {
        true => text,
        false => format!("### What failed\n\n{text}\n"),
    }
}
