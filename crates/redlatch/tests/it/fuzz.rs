//! What the fuzzer runs for hours, for a short time: on saved inputs, and on
//! what a seed makes of them.

use std::panic::catch_unwind;
use std::path::Path;

use redlatch::fuzzing::TARGETS;

/// How many inputs a target gets: a few seconds for all of them.
const INPUTS: usize = 50_000;

/// Kept short: what is long takes long, and finds little.
const LONGEST: usize = 4096;

#[test]
fn whatever_is_parsed_never_panics() {
    for (name, target) in TARGETS {
        let saved = saved(name);
        assert!(!saved.is_empty(), "no saved input for {name}");
        for input in &saved {
            run(name, *target, input);
        }
        let mut dice = Dice(0x7ed1_a7c4);
        for _ in 0..INPUTS {
            let mut input = saved[dice.below(saved.len())].clone();
            for _ in 0..=dice.below(4) {
                mutate(&mut input, &saved, &mut dice);
            }
            input.truncate(LONGEST);
            run(name, *target, &input);
        }
    }
}

fn saved(name: &str) -> Vec<Vec<u8>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = manifest.join("../../fuzz/corpus").join(name);
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    // The seed decides everything: the order must not be the file system's.
    files.sort();
    let read = |path| std::fs::read(path).unwrap();
    files.into_iter().map(read).collect()
}

#[track_caller]
fn run(name: &str, target: fn(&[u8]), input: &[u8]) {
    let ended = catch_unwind(|| target(input));
    assert!(ended.is_ok(), "{name}: \"{}\"", input.escape_ascii());
}

/// What fuzzers do: bits, numbers, pieces left out, doubled and mixed.
fn mutate(input: &mut Vec<u8>, saved: &[Vec<u8>], dice: &mut Dice) {
    const MARKS: &[u8] = b"*$:+-_>%~|!=(,#\r\n \x1b\0\xff{}[]\"\\";
    const NUMBERS: [&str; 8] = [
        "0",
        "-1",
        "1",
        "65536",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551616",
        "1e400",
    ];
    let at = dice.below(input.len() + 1);
    let end = at + dice.below(input.len() - at + 1);
    match dice.below(7) {
        0 if at < input.len() => input[at] ^= 1 << dice.below(8),
        1 if at < input.len() => input[at] = dice.below(256) as u8,
        2 => drop(input.drain(at..end)),
        3 => drop(input.splice(at..at, input[at..end].to_vec())),
        4 => {
            let number = NUMBERS[dice.below(NUMBERS.len())].bytes();
            drop(input.splice(at..at.max(end.min(at + 3)), number));
        }
        5 => {
            let other = &saved[dice.below(saved.len())];
            let from = dice.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => {
            input.insert(at, MARKS[dice.below(MARKS.len())]);
        }
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}
