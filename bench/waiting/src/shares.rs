//! Who gets a lock that many want: shares, waits, and how well it is used.

use std::time::Duration;

use redlatch_testkit::RedisServer;
use serde_json::Value;

use crate::worker::{Plan, Worker};

pub(crate) async fn run(length: Duration) {
    println!(
        "One lock that everybody wants. Shares are of what would be fair. Rows with work are \
         measured for {length:?}, the others for {:?}.\n",
        length.min(BRIEF)
    );
    println!(
        "| processes × tasks | lock | hold, pause | cycles/s | held | shares of processes \
         | shares of tasks | wait p50, p99, longest | commands a cycle |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let work = (Duration::from_millis(1), Duration::from_millis(5));
    let none = (Duration::ZERO, Duration::ZERO);
    for (fencing, (hold, pause)) in [(true, work), (true, none), (false, work), (false, none)] {
        for (processes, tasks) in [(4, 1), (16, 1), (4, 4)] {
            let in_full = fencing && !hold.is_zero();
            let plan = Plan {
                tasks,
                hold,
                pause,
                length: if in_full { length } else { length.min(BRIEF) },
                fencing,
                handovers: true,
            };
            contest(processes, &plan);
        }
    }
    println!();
    in_one_process(length.min(BRIEF));
}

/// For what is measured to be complete.
const BRIEF: Duration = Duration::from_secs(5);

/// What came of one contest.
struct Outcome {
    cycles: usize,
    /// Cycles of each process, and of each task.
    processes: Vec<usize>,
    tasks: Vec<usize>,
    /// Waits in microseconds, sorted.
    waits: Vec<u64>,
    held: Duration,
    commands: u64,
}

fn compete(processes: usize, plan: &Plan) -> Outcome {
    let server = RedisServer::start();
    let mut workers: Vec<Worker> = (0..processes)
        .map(|_| Worker::start(&server.url(), plan))
        .collect();
    let before = sent(&server);
    for worker in &mut workers {
        worker.tell("go");
    }
    let (mut shares, mut tasks, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    let mut held = 0;
    for worker in &mut workers {
        let results: Value = serde_json::from_str(&worker.hear()).expect("written by us");
        let mut cycles = 0;
        for task in results.as_array().expect("an array") {
            let task_waits = task["waits"].as_array().expect("an array").iter();
            let task_waits: Vec<u64> = task_waits.filter_map(Value::as_u64).collect();
            cycles += task_waits.len();
            tasks.push(task_waits.len());
            waits.extend(task_waits);
            held += task["held"].as_u64().expect("a number");
        }
        shares.push(cycles);
    }
    waits.sort_unstable();
    Outcome {
        cycles: waits.len(),
        processes: shares,
        tasks,
        waits,
        held: Duration::from_micros(held),
        commands: sent(&server) - before,
    }
}

pub(crate) fn contest(processes: usize, plan: &Plan) {
    let outcome = compete(processes, plan);
    let share = |counts: &[usize]| {
        let fair = outcome.cycles as f64 / counts.len() as f64;
        let least = counts.iter().min().copied().unwrap_or(0) as f64 / fair;
        let most = counts.iter().max().copied().unwrap_or(0) as f64 / fair;
        format!("{least:.2} to {most:.2}")
    };
    println!(
        "| {processes} × {} | {} | {:?}, {:?} | {:.0} | {:.2} | {} | {} | {:.1}, {:.1}, {:.1} ms | {:.1} |",
        plan.tasks,
        if plan.fencing { "fenced" } else { "plain" },
        plan.hold,
        plan.pause,
        outcome.cycles as f64 / plan.length.as_secs_f64(),
        outcome.held.as_secs_f64() / plan.length.as_secs_f64(),
        share(&outcome.processes),
        share(&outcome.tasks),
        outcome.percentile(50) as f64 / 1000.0,
        outcome.percentile(99) as f64 / 1000.0,
        outcome.percentile(100) as f64 / 1000.0,
        outcome.commands as f64 / outcome.cycles as f64,
    );
}

impl Outcome {
    fn percentile(&self, percent: usize) -> u64 {
        let at = (self.waits.len() * percent / 100).min(self.waits.len().max(1) - 1);
        self.waits.get(at).copied().unwrap_or(0)
    }
}

/// Hand-over inside a process, beside the way over the node: both in turn, since
/// how fast a machine is depends on when one asks.
pub(crate) fn in_one_process(length: Duration) {
    let rate = |handovers| {
        let plan = Plan {
            tasks: 16,
            hold: Duration::ZERO,
            pause: Duration::ZERO,
            length: length / ROUNDS as u32,
            fencing: true,
            handovers,
        };
        let outcome = compete(1, &plan);
        outcome.cycles as f64 / plan.length.as_secs_f64()
    };
    let rounds = [(); ROUNDS].map(|()| (rate(true), rate(false)));
    let sorted = |of: fn((f64, f64)) -> f64| {
        let mut sorted = rounds.map(of);
        sorted.sort_by(f64::total_cmp);
        sorted
    };
    let ratios = sorted(|(by_hand_over, by_node)| by_hand_over / by_node);
    println!(
        "16 tasks of one process: {:.0} cycles/s; {:.0} when each goes by way of the node; \
         ratio {:.1} ({:.1} to {:.1} in {ROUNDS} rounds)\n",
        sorted(|round| round.0)[ROUNDS / 2],
        sorted(|round| round.1)[ROUNDS / 2],
        ratios[ROUNDS / 2],
        ratios[0],
        ratios[ROUNDS - 1],
    );
}

/// How often both ways are measured.
const ROUNDS: usize = 5;

/// How many commands clients have sent. Those that scripts run are not sent.
pub(crate) fn sent(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    // What scripts call is counted by the same names, so only what is never
    // called by one, and what clients call outside of scripts, is added up.
    let calls = |name: &str| {
        let line = stats.as_text().lines().find_map(|line| {
            let line = line.strip_prefix("cmdstat_")?.strip_prefix(name)?;
            line.strip_prefix(":calls=")
        });
        let number = line.and_then(|line| line.split(',').next()?.parse::<u64>().ok());
        number.unwrap_or(0)
    };
    // A waiter looks by CLIENT CACHING and one GET.
    calls("evalsha") + calls("eval") + 2 * calls("client|caching")
}
