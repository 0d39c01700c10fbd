//! What the fuzzer runs for hours, for a short time.

use redlatch_cli::fuzzing::TARGETS;
use redlatch_testkit::fuzz;

/// How many inputs a target gets: a few seconds for all of them.
const INPUTS: usize = 20_000;

/// To read a command line takes a thousand times as long as the rest.
const COMMAND_LINES: usize = 1_000;

#[test]
fn whatever_is_parsed_never_panics() {
    for (name, target) in TARGETS {
        let inputs = match *name {
            "cli_arguments" => COMMAND_LINES,
            _ => INPUTS,
        };
        fuzz(name, *target, inputs);
    }
}
