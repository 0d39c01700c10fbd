//! What came of a run, as a page of markdown.

use std::collections::BTreeMap;

use crate::arena::Outcome;
use crate::check::Findings;
use crate::fault::{Kind, Reach};
use crate::history::{End, Hold};
use crate::resource::RESOURCES;

pub(crate) fn print(outcome: &Outcome, findings: &Findings) {
    summary(outcome, findings);
    updates(outcome);
    faults(outcome, findings);
    broken(outcome, findings);
}

fn summary(outcome: &Outcome, findings: &Findings) {
    let lost = outcome.holds.iter().filter(|hold| hold.end == End::Lost);
    println!("| | |");
    println!("| --- | --- |");
    println!("| acquisitions | {} |", outcome.holds.len());
    println!(
        "| leases that were lost, and their holders told | {} |",
        lost.count()
    );
    println!(
        "| overlaps of validity, faults inside promise 1 | {} |",
        findings.overlaps.len()
    );
    println!(
        "| overlaps of validity, faults outside promise 1 | {} |",
        findings.excused
    );
    println!("| fence inversions | {} |", findings.inversions.len());
    let shared = findings.shared_fences.len() + findings.shared_tokens.len();
    println!("| fences or tokens with two holders | {shared} |");
    let stalled: u64 = outcome.stalls.iter().map(|(from, to)| to - from).sum();
    println!(
        "| seconds in which the machine itself stood still | {:.1} |",
        stalled as f64 / 1e9
    );
    println!(
        "| locks that nobody got after the faults | {} |",
        outcome.stuck.len()
    );
    println!(
        "| keys of locks left on the nodes | {} |",
        outcome.left_over.len()
    );
    println!();
}

fn updates(outcome: &Outcome) {
    println!("| read, sleep, write under the lock | acknowledged | lost | refused |");
    println!("| --- | --- | --- | --- |");
    let manners = [
        "the resource checks fences",
        "no fences; the holder asks `ensure_held` before it writes",
        "no fences; the holder does not look",
    ];
    for (manner, updates) in manners.iter().zip(outcome.updates) {
        let (acknowledged, lost) = (updates.acknowledged, updates.lost);
        println!(
            "| {manner} | {acknowledged} | {lost} | {} |",
            updates.refused
        );
    }
    println!();
}

fn faults(outcome: &Outcome, findings: &Findings) {
    let mut counts: BTreeMap<(Reach, Kind), (usize, usize)> = BTreeMap::new();
    for episode in &outcome.episodes {
        let count = counts.entry((episode.reach, episode.kind)).or_default();
        count.0 += 1;
        count.1 += episode.victims.len();
    }
    println!("| fault | reach | times | hit in all | longest time without a lock |");
    println!("| --- | --- | --- | --- | --- |");
    for ((reach, kind), (times, hit)) in counts {
        let longest = findings.unavailable.get(&(reach, kind));
        let longest = longest.map_or_else(|| "–".to_owned(), |it| format!("{} ms", it.as_millis()));
        let reach = match kind {
            Kind::FrozenClient => "1 to 3 clients",
            Kind::Calm => "",
            _ => reach.name(),
        };
        println!(
            "| {} | {reach} | {times} | {hit} | {longest} |",
            kind.name()
        );
    }
    println!();
    if !outcome.clock {
        println!("No clock was stepped: there is no C compiler for the library that does it.\n");
    }
}

/// What must not be, in full.
fn broken(outcome: &Outcome, findings: &Findings) {
    let pairs = [
        ("overlap", &findings.overlaps),
        ("fence inversion", &findings.inversions),
        ("fence of two", &findings.shared_fences),
        ("token of two", &findings.shared_tokens),
    ];
    for (what, pairs) in pairs {
        for (first, second) in pairs.iter().take(5) {
            println!("{what}: {}\n    and {}", shown(first), shown(second));
        }
    }
    for (at, (name, _)) in RESOURCES.iter().enumerate().take(1) {
        if outcome.updates[at].lost > 0 {
            println!(
                "updates lost with fences: {} of `{name}`",
                outcome.updates[at].lost
            );
        }
    }
    for name in &outcome.stuck {
        println!("nobody got `{name}` after the faults");
    }
    for left in &outcome.left_over {
        println!("left over: {left}");
    }
}

fn shown(hold: &Hold) -> String {
    hold.to_json().to_string()
}
