//! What an uncontended cycle allocates, by redlatch and by the client library alone.
//!
//! `bench/cost` counts it, in a program of its own: counting makes everything slower.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{Figures, figure};
use crate::contenders::Contender;
use crate::limited;

/// How long it may take to count.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn run(contender: &Contender) -> Result<Figures, String> {
    let mut count = Command::new(contender.directory().join(".built/cost"));
    count.args(["--allocations", contender.name]);
    let output = limited::output(&mut count, LIMIT)?;
    parse(&output.stdout).ok_or_else(|| {
        let words = output.stderr.lines().next().unwrap_or("nothing");
        format!("allocations could not be counted: {words}")
    })
}

fn parse(line: &str) -> Option<Figures> {
    let line: Value = serde_json::from_str(line).ok()?;
    Some(Figures::from([
        (figure::ALLOCATIONS, line["allocations"].as_f64()?),
        (figure::ALLOCATED, line["bytes"].as_f64()?),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_and_nothing_else() {
        let figures = parse("{\"allocations\":28.5,\"bytes\":4096}\n").expect("it is complete");
        assert_eq!(figures[figure::ALLOCATIONS], 28.5);
        assert_eq!(figures[figure::ALLOCATED], 4096.0);
        assert_eq!(parse(""), None);
        assert_eq!(parse("{\"allocations\":28.5}"), None);
    }
}
