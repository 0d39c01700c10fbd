//! What the fuzzer runs for hours, for a short time.

use redlatch::fuzzing::TARGETS;
use redlatch_testkit::fuzz;

/// How many inputs a target gets: a few seconds for all of them.
const INPUTS: usize = 50_000;

#[test]
fn whatever_is_parsed_never_panics() {
    for (name, target) in TARGETS {
        fuzz(name, *target, INPUTS);
    }
}
