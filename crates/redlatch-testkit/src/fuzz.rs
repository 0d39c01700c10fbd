//! What a fuzzer does for hours, for a short time and without one.

use std::panic::catch_unwind;
use std::path::Path;

use crate::Dice;

/// Kept short: what is long takes long, and finds little.
const LONGEST: usize = 4096;

/// Runs the target `name` on the inputs that are saved for it in
/// `fuzz/corpus`, and on as many as `inputs` that a seed makes of them.
///
/// # Panics
///
/// When the target does, with the input; and when no input is saved.
#[track_caller]
pub fn fuzz(name: &str, target: fn(&[u8]), inputs: usize) {
    let saved = saved(name);
    for input in &saved {
        run(name, target, input);
    }
    let mut dice = Dice::new(0x7ed1_a7c4);
    for _ in 0..inputs {
        let mut input = saved[below(&mut dice, saved.len())].clone();
        for _ in 0..=below(&mut dice, 4) {
            mutate(&mut input, &saved, &mut dice);
        }
        input.truncate(LONGEST);
        run(name, target, &input);
    }
}

#[track_caller]
fn saved(name: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let directory = corpus.join(name);
    let Ok(entries) = std::fs::read_dir(&directory) else {
        panic!("no input is saved in {}", directory.display());
    };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    // The seed decides everything: the order must not be the file system's.
    files.sort();
    let read = |path| std::fs::read(path).unwrap_or_default();
    let saved: Vec<Vec<u8>> = files.into_iter().map(read).collect();
    assert!(!saved.is_empty(), "no input is saved for {name}");
    saved
}

#[track_caller]
fn run(name: &str, target: fn(&[u8]), input: &[u8]) {
    let ended = catch_unwind(|| target(input));
    assert!(ended.is_ok(), "{name}: \"{}\"", input.escape_ascii());
}

/// What fuzzers do: bits, numbers, pieces left out, doubled and mixed.
fn mutate(input: &mut Vec<u8>, saved: &[Vec<u8>], dice: &mut Dice) {
    const MARKS: &[u8] = b"*$:+-_>%~|!=(,#\r\n \x1b\0\xff{}[]\"\\@/?.&;'";
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
    let at = below(dice, input.len() + 1);
    let end = at + below(dice, input.len() - at + 1);
    match below(dice, 7) {
        0 if at < input.len() => input[at] ^= 1 << below(dice, 8),
        1 if at < input.len() => input[at] = below(dice, 256) as u8,
        2 => drop(input.drain(at..end)),
        3 => drop(input.splice(at..at, input[at..end].to_vec())),
        4 => {
            let number = NUMBERS[below(dice, NUMBERS.len())].bytes();
            drop(input.splice(at..at.max(end.min(at + 3)), number));
        }
        5 => {
            let other = &saved[below(dice, saved.len())];
            let from = below(dice, other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => {
            input.insert(at, MARKS[below(dice, MARKS.len())]);
        }
    }
}

fn below(dice: &mut Dice, end: usize) -> usize {
    dice.below(end as u64) as usize
}
