//! What we want to reach, beside what was measured.

use super::number::{number, whole};
use crate::contenders::{self, Contender, FLOOR, TURNS};
use crate::measure::figure;
use crate::results::Results;

const FENCED: &str = "redlatch-fenced";
const PLAIN: &str = "redlatch-plain";

/// The table of aims, as far as there are figures for them.
pub(super) fn section(results: &Results) -> String {
    let rows: Vec<String> = aims(results).iter().map(Aim::row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let rows = rows.concat();
    format!(
        "### Where redlatch stands\n\n| | measured | aim | |\n| --- | --- | --- | --- |\n{rows}\n{NOTES}\n\n"
    )
}

const NOTES: &str = "The number before each is of the workload below. With a hold of 1 ms the lock \
                     can't be held more than all the time, so there the aim is to be the first, not \
                     to be ten times or twice as fast. Allocations are to be near those of the client \
                     library; 1.20 is what near is taken for.";

struct Aim {
    what: String,
    measured: f64,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    /// None: it stands there to compare the one before it with.
    Beside,
    Most(f64),
    Least(f64),
}

impl Aim {
    fn met(&self) -> bool {
        match self.bound {
            Bound::Beside => true,
            Bound::Most(most) => self.measured <= most,
            Bound::Least(least) => self.measured >= least,
        }
    }

    fn row(&self) -> String {
        let aim = match self.bound {
            Bound::Beside => String::new(),
            Bound::Most(most) => format!("at most {}", number(most)),
            Bound::Least(least) => format!("at least {}", number(least)),
        };
        let verdict = match self.bound {
            Bound::Beside => "",
            _ if self.met() => "met",
            _ => "**not met**",
        };
        format!(
            "| {} | {} | {aim} | {verdict} |\n",
            self.what,
            number(self.measured)
        )
    }
}

fn aims(results: &Results) -> Vec<Aim> {
    let mut aims = Vec::new();
    let mut add = |what: &str, measured: Option<f64>, bound| {
        aims.extend(measured.map(|measured| Aim {
            what: what.to_owned(),
            measured,
            bound,
        }));
    };
    let ratio = |case: &str, one: &str, other: &str, figure| {
        Some(results.median(case, one, figure)? / results.median(case, other, figure)?)
    };
    let p50 = figure::CYCLE_P50;
    for (what, one, other, most) in [
        ("p50 of plain, to raw", PLAIN, FLOOR, 1.10),
        ("p50 of fenced, to plain", FENCED, PLAIN, 1.25),
    ] {
        add(
            &format!("1: {what}, cores awake"),
            ratio("1/awake", one, other, p50),
            Bound::Most(most),
        );
        add(
            "1: the same, client and server on one core",
            ratio("1/one-core", one, other, p50),
            Bound::Beside,
        );
    }
    for lock in [PLAIN, FENCED] {
        add(
            &format!("1: allocations of an uncontended cycle of {lock}, to raw"),
            ratio("1/allocations", lock, FLOOR, figure::ALLOCATIONS),
            Bound::Most(1.2),
        );
    }
    add(
        "2: cycles/s of plain, 1,024 tasks, to raw",
        ratio("2/1024", PLAIN, FLOOR, figure::RATE),
        Bound::Least(0.9),
    );
    let both = |lock: &str| {
        let of = |figure| results.median("2/1024", lock, figure);
        Some(of(figure::CLIENT_CPU)? + of(figure::SERVER_CPU)?)
    };
    add(
        "2: CPU of a cycle of plain, 1,024 tasks, client and Redis, to raw",
        both(PLAIN)
            .zip(both(FLOOR))
            .map(|(plain, floor)| plain / floor),
        Bound::Most(1.2),
    );
    add(
        "2: client CPU of a cycle of plain, 1,024 tasks, to raw",
        ratio("2/1024", PLAIN, FLOOR, figure::CLIENT_CPU),
        Bound::Most(1.2),
    );
    add(
        "2: Redis CPU of a cycle of plain, 1,024 tasks, to raw",
        ratio("2/1024", PLAIN, FLOOR, figure::SERVER_CPU),
        Bound::Most(1.2),
    );
    for tasks in [64, 1024] {
        add(
            &format!(
                "3: time of a cycle of plain over 5 nodes, {} tasks, to raw",
                whole(tasks)
            ),
            ratio(&format!("3/{tasks}"), FLOOR, PLAIN, figure::RATE),
            Bound::Most(1.15),
        );
    }
    for (shape, least) in [("1x16", 10.0), ("4x4", 2.0), ("16x1", 2.0)] {
        let case = format!("4/{shape}-hold0");
        add(
            &format!(
                "4: cycles/s of fenced, {}, hold 0, to the best peer",
                shape.replace('x', "×")
            ),
            to_best_peer(results, &case, FENCED, figure::RATE),
            Bound::Least(least),
        );
        add(
            "4: the same of raw-turns, the least that it takes to take turns",
            to_best_peer(results, &case, TURNS, figure::RATE),
            Bound::Beside,
        );
        let case = format!("4/{shape}-hold1");
        add(
            &format!(
                "4: time held with fenced, {}, hold 1 ms, to the best peer",
                shape.replace('x', "×")
            ),
            to_best_peer(results, &case, FENCED, figure::HELD),
            Bound::Least(1.0),
        );
    }
    for lock in [FENCED, PLAIN] {
        add(
            &format!("7: client memory a lease of {lock}, bytes"),
            results.median("7/leases", lock, figure::LEASE_MEMORY),
            Bound::Most(600.0),
        );
        add(
            &format!("7: client CPU of a renewal of {lock}, to raw"),
            ratio("7/leases", lock, FLOOR, figure::CLIENT_RENEWAL),
            Bound::Most(1.3),
        );
        add(
            &format!("7: Redis CPU of a renewal of {lock}, to raw"),
            ratio("7/leases", lock, FLOOR, figure::SERVER_RENEWAL),
            Bound::Most(1.3),
        );
    }
    aims
}

/// How many times the figure of the best of the others that of one of ours is.
fn to_best_peer(results: &Results, case: &str, ours: &str, figure: &str) -> Option<f64> {
    let is_peer = |contender: &&Contender| !contender.is_ours();
    let peers = contenders::ALL.iter().filter(is_peer);
    let best = peers
        .filter_map(|peer| results.median(case, peer.name, figure))
        .max_by(f64::total_cmp)?;
    Some(results.median(case, ours, figure)? / best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Figures;
    use crate::results::Sample;

    #[test]
    fn aims_are_judged_against_the_floor_and_the_best_peer() {
        let sample = |case: &str, contender: &str, figure, value| Sample {
            case: case.to_owned(),
            contender: contender.to_owned(),
            figures: Figures::from([(figure, value)]),
            ..Sample::default()
        };
        let results = Results {
            samples: vec![
                sample("1/awake", PLAIN, figure::CYCLE_P50, 108.0),
                sample("1/awake", FLOOR, figure::CYCLE_P50, 100.0),
                sample("1/awake", FENCED, figure::CYCLE_P50, 150.0),
                sample("2/1024", PLAIN, figure::CLIENT_CPU, 8.0),
                sample("2/1024", PLAIN, figure::SERVER_CPU, 6.5),
                sample("2/1024", FLOOR, figure::CLIENT_CPU, 10.0),
                sample("2/1024", FLOOR, figure::SERVER_CPU, 5.0),
                sample("4/1x16-hold0", FENCED, figure::RATE, 90.0),
                sample("4/1x16-hold0", "rslock", figure::RATE, 8.0),
                sample("4/1x16-hold0", "redsync", figure::RATE, 10.0),
                // Neither the floor nor we ourselves are peers.
                sample("4/1x16-hold0", FLOOR, figure::RATE, 80.0),
                sample("4/1x16-hold0", PLAIN, figure::RATE, 95.0),
                sample("4/16x1-hold0", FENCED, figure::RATE, 12.0),
                sample("4/16x1-hold0", "rslock", figure::RATE, 10.0),
                sample("4/16x1-hold0", TURNS, figure::RATE, 15.0),
            ],
            ..Results::default()
        };
        let judged: Vec<_> = aims(&results)
            .iter()
            .map(|aim| (number(aim.measured), aim.met()))
            .collect();
        let expected = [
            ("1.08", true),
            ("1.39", false),
            ("0.97", true),
            ("0.80", true),
            ("1.30", false),
            ("9.00", false),
            ("1.20", false),
            ("1.50", true),
        ];
        assert_eq!(judged, expected.map(|(text, met)| (text.to_owned(), met)));
        assert_eq!(section(&Results::default()), "");
    }
}
