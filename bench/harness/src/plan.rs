//! The workloads, as data.

use crate::contenders::{self, Contender, FLOOR, REDIS_BENCHMARK, TURNS};
use crate::settings::Scope;

/// One row of figures: the same thing done by each contender.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Which of the nine workloads it belongs to.
    pub(crate) workload: u8,
    /// Names it in the results.
    pub(crate) id: String,
    /// Says what it is.
    pub(crate) label: String,
    pub(crate) nodes: usize,
    pub(crate) condition: Condition,
    pub(crate) action: Action,
    pub(crate) who: Who,
    /// Whether peers take part too; else only redlatch and the floor.
    pub(crate) peers: bool,
    pub(crate) rounds: usize,
    /// It has so many times as many rounds as others, each so many times shorter.
    pub(crate) split: usize,
    /// Redlatch and the floor have so many times as many rounds as the peers:
    /// more than one where redlatch is to come closer to the floor than one
    /// round comes to the next.
    pub(crate) closely: usize,
}

/// What is special about the machine or the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Nothing.
    Usual,
    /// Cores are kept awake by spinning processes of the lowest priority.
    Awake,
    /// The same, and client and server share one of them.
    OneCore,
    /// One node is behind a proxy that passes everything on.
    Proxied,
    /// The node behind the proxy is stopped.
    Frozen,
    /// The node behind the proxy answers 20 ms later.
    Slow,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Acquire, hold, release, pause, again and again.
    Cycles(Cycles),
    /// Tasks that wait for a lock that is held all the time.
    Idle { waiters: usize, seconds: f64 },
    /// The holder is killed while another process waits.
    Crash { ttl_ms: u64 },
    /// What the client allocates for a cycle is counted.
    Allocations,
    /// Leases that are held and renewed. Contenders may be asked for fewer.
    Leases { count: usize, ttl_ms: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Cycles {
    pub(crate) processes: usize,
    pub(crate) tasks: usize,
    /// Names for each task; 0: one hot name for all.
    pub(crate) distinct: usize,
    pub(crate) hold_us: u64,
    pub(crate) pause_us: u64,
    pub(crate) seconds: f64,
    /// Ends earlier, after so many cycles.
    pub(crate) cycles: Option<usize>,
    pub(crate) samples: bool,
}

/// Who takes part in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    All,
    /// All but what comes with Redis, which can't wait or hold.
    Locks,
    SeveralNodes,
    Renewing,
    /// redlatch as it comes, and the floor.
    Ours,
    /// redlatch in every form, and the floor.
    AllOurs,
}

impl Case {
    pub(crate) fn admits(&self, contender: &Contender) -> bool {
        if contender.name == TURNS {
            return self.is_between_single_tasks();
        }
        let benchmark = contender.name == REDIS_BENCHMARK;
        let admitted = match self.who {
            Who::All => true,
            Who::Locks => !benchmark,
            Who::SeveralNodes => contender.several_nodes,
            Who::Renewing => contender.leases > 0,
            Who::AllOurs => contender.is_ours(),
            Who::Ours => [FLOOR, "redlatch-fenced"].contains(&contender.name),
        };
        let admitted = admitted && (self.peers || contender.is_ours());
        admitted && self.processes(contender) <= MOST_PROCESSES
    }

    /// Whether one name goes round between processes of one task.
    fn is_between_single_tasks(&self) -> bool {
        let is_hot = |cycles: &Cycles| cycles.distinct == 0 && cycles.processes > 1;
        matches!(&self.action, Action::Cycles(cycles) if is_hot(cycles) && cycles.tasks == 1)
    }

    /// How often a contender is measured.
    pub(crate) fn rounds_of(&self, contender: &Contender) -> usize {
        match self.action {
            // A quarter of a minute each, and we only compare ourselves to the floor.
            Action::Leases { .. } if !contender.is_ours() => 1,
            _ if contender.is_ours() => self.rounds * self.closely,
            _ => self.rounds,
        }
    }

    /// How many processes of this contender take part.
    pub(crate) fn processes(&self, contender: &Contender) -> usize {
        match &self.action {
            Action::Cycles(cycles) if contender.tasks => cycles.processes,
            Action::Cycles(cycles) => cycles.processes * cycles.tasks,
            Action::Idle { waiters, .. } if !contender.tasks => *waiters,
            _ => 1,
        }
    }

    /// How long one run will take, about.
    pub(crate) fn estimate(&self, contender: &Contender) -> f64 {
        // The first one, warm-up and all, and each of the others.
        let (first, others) = match (contender.language, &self.action) {
            ("java", Action::Cycles(_)) => (3.0, 0.7),
            ("java", _) => (0.8, 0.6),
            ("python" | "node", _) => (0.3, 0.15),
            _ => (0.05, 0.03),
        };
        let work = match &self.action {
            Action::Cycles(cycles) => match cycles.cycles {
                Some(count) => (count as f64 / 30_000.0).min(cycles.seconds),
                None => cycles.seconds,
            },
            // Half of them are busy enough to tell after a fifth of it.
            Action::Idle { seconds, .. } => seconds * 0.6 + 1.5,
            Action::Crash { ttl_ms } => *ttl_ms as f64 / 1000.0 + 1.0,
            Action::Allocations => 0.5,
            Action::Leases { count, ttl_ms } => {
                (*count).min(contender.leases) as f64 / 20_000.0 + *ttl_ms as f64 / 1000.0 + 1.0
            }
        };
        work + 0.2 + first + others * (self.processes(contender) - 1) as f64
    }
}

/// Where each task is a process, more than this many are not started.
const MOST_PROCESSES: usize = 200;

/// What one task takes for a cycle differs more from process to process than in the
/// course of one: many short rounds tell more than few long ones.
const SPLIT: usize = 3;

/// How many times as many rounds those have who are compared closely.
const CLOSELY: usize = 3;

/// The contenders that were chosen, in the order of the tables.
pub(crate) fn chosen(scope: &Scope) -> Vec<&'static Contender> {
    let chosen = |contender: &&Contender| match &scope.contenders {
        None => true,
        Some(names) => names.iter().any(|name| name == contender.name),
    };
    contenders::ALL.iter().filter(chosen).collect()
}

/// All that is to be measured.
pub(crate) fn cases(scope: &Scope) -> Vec<Case> {
    let mut cases = Vec::new();
    let long = scope.seconds;
    let short = scope.seconds / 2.0;

    let (split, closely) = (scope.size(SPLIT, 1), scope.size(CLOSELY, 1));
    for (id, label, condition, who) in [
        ("as-is", "as it is", Condition::Usual, Who::All),
        ("awake", "cores kept awake", Condition::Awake, Who::All),
        ("one-core", "on one core", Condition::OneCore, Who::AllOurs),
    ] {
        let cycles = Cycles {
            samples: true,
            ..distinct(1, short / split as f64)
        };
        cases.push(Case {
            condition,
            split,
            closely,
            who,
            ..case(1, id, label, Action::Cycles(cycles))
        });
    }

    cases.push(Case {
        who: Who::AllOurs,
        ..case(1, "allocations", "allocations", Action::Allocations)
    });

    for (workload, nodes) in [(2, 1), (3, 5)] {
        for tasks in [64, 1024] {
            let id = format!("{tasks}");
            let label = format!("{tasks} tasks, {nodes} nodes");
            // Long enough for the slowest to go round.
            let seconds = if tasks > 64 { short.max(0.5) } else { short };
            let action = Action::Cycles(distinct(tasks, seconds));
            cases.push(Case {
                nodes,
                closely,
                who: if nodes == 1 {
                    Who::All
                } else {
                    Who::SeveralNodes
                },
                ..case(workload, &id, &label, action)
            });
        }
    }

    for (hold_us, pause_us, seconds) in [(0, 0, short), (1000, 5000, long)] {
        for (processes, tasks) in [(1, 16), (4, 4), (16, 1)] {
            let label = match (processes, tasks) {
                (1, _) => format!("{tasks} tasks in one process"),
                (_, 1) => format!("{processes} processes"),
                _ => format!("{processes} processes of {tasks} tasks"),
            };
            let cycles = Cycles {
                processes,
                tasks,
                distinct: 0,
                hold_us,
                pause_us,
                seconds,
                cycles: None,
                samples: true,
            };
            let id = format!("{processes}x{tasks}-hold{}", hold_us / 1000);
            let label = format!("{label}, hold {} ms", hold_us / 1000);
            let case = case(4, &id, &label, Action::Cycles(cycles));
            cases.push(Case {
                who: Who::Locks,
                ..case
            });
        }
    }

    let idle = Action::Idle {
        waiters: scope.size(200, 50),
        seconds: if scope.quick { long * 2.0 } else { 10.0 },
    };
    let crash = Action::Crash { ttl_ms: 2000 };
    let leases = Action::Leases {
        count: scope.size(100_000, 2_000),
        ttl_ms: scope.size(10_000, 3_000) as u64,
    };
    for (workload, id, who, action) in [
        (5, "idle", Who::Locks, idle),
        (6, "crash", Who::Locks, crash),
        (7, "leases", Who::Renewing, leases),
    ] {
        cases.push(Case {
            who,
            ..case(workload, id, id, action)
        });
    }

    for (id, label, condition) in [
        ("healthy", "all nodes well", Condition::Proxied),
        ("frozen", "one frozen", Condition::Frozen),
        ("slow", "one 20 ms slower", Condition::Slow),
    ] {
        let cycles = Cycles {
            samples: true,
            ..distinct(1, short)
        };
        cases.push(Case {
            condition,
            nodes: 5,
            who: Who::SeveralNodes,
            ..case(8, id, label, Action::Cycles(cycles))
        });
    }

    growth(scope, short, &mut cases);
    for case in &mut cases {
        case.rounds = case.rounds.min(scope.rounds) * case.split;
    }
    cases.retain(|case| scope.wants(case.workload));
    if scope.quick && scope.contenders.is_none() {
        // That a peer works is seen in one case of each workload. It is the starting of
        // virtual machines, in some cases 16 of them, that would take most of the time.
        for index in 1..cases.len() {
            cases[index].peers = cases[index].workload != cases[index - 1].workload;
        }
    }
    cases
}

/// How things grow with names, waiters and nodes.
fn growth(scope: &Scope, short: f64, cases: &mut Vec<Case>) {
    let most = scope.size(1_000_000, 10_000);
    for names in [1, 64, 1_000, 10_000, 100_000, 1_000_000] {
        if names > most {
            break;
        }
        let tasks = names.min(64);
        let cycles = Cycles {
            distinct: names.div_ceil(tasks),
            // So that every name is used.
            cycles: (names >= 10_000).then_some(names),
            seconds: if names >= 10_000 { 300.0 } else { short },
            ..distinct(tasks, short)
        };
        let label = format!("{names} distinct names");
        cases.push(Case {
            who: Who::Ours,
            // Half a minute each.
            rounds: if names == 1_000_000 { 1 } else { usize::MAX },
            ..case(9, &format!("names-{names}"), &label, Action::Cycles(cycles))
        });
    }
    for tasks in [1, 10, 100, 1_000] {
        let cycles = Cycles {
            distinct: 0,
            samples: true,
            ..distinct(tasks, short)
        };
        let id = format!("waiters-{tasks}");
        cases.push(Case {
            who: Who::Ours,
            ..case(
                9,
                &id,
                &format!("{tasks} tasks for one name"),
                Action::Cycles(cycles),
            )
        });
    }
    for nodes in [1, 3, 5, 7, 9] {
        let cycles = Cycles {
            samples: true,
            ..distinct(1, short)
        };
        let id = format!("nodes-{nodes}");
        cases.push(Case {
            nodes,
            condition: Condition::Awake,
            who: Who::Ours,
            ..case(9, &id, &format!("{nodes} nodes"), Action::Cycles(cycles))
        });
    }
}

fn case(workload: u8, id: &str, label: &str, action: Action) -> Case {
    Case {
        workload,
        id: format!("{workload}/{id}"),
        label: label.to_owned(),
        nodes: 1,
        condition: Condition::Usual,
        action,
        who: Who::All,
        peers: true,
        rounds: usize::MAX,
        split: 1,
        closely: 1,
    }
}

/// Tasks of one process that never want the same name.
fn distinct(tasks: usize, seconds: f64) -> Cycles {
    Cycles {
        processes: 1,
        tasks,
        distinct: 1000,
        hold_us: 0,
        pause_us: 0,
        seconds,
        cycles: None,
        samples: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn plan(line: &str) -> Vec<Case> {
        let words = line.split_whitespace().map(str::to_owned);
        cases(&Settings::parse(words).expect("it is right").scope)
    }

    fn seconds(case: &Case) -> f64 {
        match &case.action {
            Action::Cycles(cycles) => cycles.seconds,
            _ => 0.0,
        }
    }

    #[test]
    fn latency_is_measured_in_more_rounds_that_take_as_long_in_all() {
        for line in ["", "--rounds 2 --seconds 3"] {
            let cases = plan(line);
            let find = |id: &str| cases.iter().find(|case| case.id == id).expect(id);
            let usual = find("2/64");
            for id in ["1/as-is", "1/awake", "1/one-core"] {
                let latency = find(id);
                assert_eq!(latency.rounds, usual.rounds * SPLIT, "{line}: {id}");
                let whole = |case: &Case| seconds(case) * case.rounds as f64;
                assert!((whole(latency) - whole(usual)).abs() < 1e-9, "{line}: {id}");
            }
            assert_eq!(find("1/allocations").rounds, usual.rounds);
            assert_eq!(find("9/names-1000000").rounds, 1);
        }
        assert!(plan("--quick").iter().all(|case| case.rounds == 1));
    }

    #[test]
    fn what_is_compared_closely_is_measured_more_often() {
        let rounds = |line: &str, id: &str, contender: &str| {
            let cases = plan(line);
            let case = cases.iter().find(|case| case.id == id).expect(id);
            let contender = contenders::ALL.iter().find(|one| one.name == contender);
            case.rounds_of(contender.expect("it is in the table"))
        };
        for (id, peers, ours) in [("1/awake", 9, 27), ("2/1024", 3, 9), ("4/16x1-hold0", 3, 3)] {
            assert_eq!(rounds("", id, "redsync"), peers, "{id}");
            for contender in [FLOOR, "redlatch-plain", "redlatch-fenced"] {
                assert_eq!(rounds("", id, contender), ours, "{id}: {contender}");
                assert_eq!(rounds("--quick", id, contender), 1, "{id}: {contender}");
            }
        }
    }

    #[test]
    fn a_quick_run_has_every_contender_in_every_workload_but_not_in_every_case() {
        let taking_part = |line: &str| {
            let cases = plan(line);
            let pairs = cases.iter().flat_map(|case| {
                let admitted = contenders::ALL.iter().filter(|one| case.admits(one));
                admitted.map(|one| (case.workload, case.id.clone(), one.name))
            });
            pairs.collect::<Vec<_>>()
        };
        let (full, quick) = (taking_part(""), taking_part("--quick"));
        for (workload, _, name) in &full {
            let same = |(other, _, one): &&(u8, String, &str)| other == workload && one == name;
            let count = quick.iter().filter(same).count();
            let ours = contenders::find(name).is_some_and(Contender::is_ours);
            assert!(
                count == 1 || ours && count > 1,
                "{name} in {workload}: {count}"
            );
        }
        let chosen = plan("--quick --contenders redsync");
        assert!(chosen.iter().all(|case| case.peers), "who was asked for");
    }
}
