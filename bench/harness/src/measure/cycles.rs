//! Acquire and release, again and again.

use std::time::Duration;

use serde_json::Value;

use super::{Figures, cpu, figure, memory};
use crate::contenders::Contender;
use crate::plan::{Case, Cycles};
use crate::process::{Job, Process};
use crate::servers::Servers;
use crate::stats::{percentile, shares};

/// How much later than it should a contender may be done.
const GRACE: Duration = Duration::from_secs(30);

pub(super) fn run(
    case: &Case,
    cycles: &Cycles,
    contender: &Contender,
    servers: &Servers,
) -> Result<Figures, String> {
    let urls = servers.urls();
    let mut processes = Vec::new();
    for number in 0..case.processes(contender) {
        // Each process counts its tasks from 0.
        let distinct = format!("b{number}");
        let job = Job {
            tasks: if contender.tasks { cycles.tasks } else { 1 },
            name: if cycles.distinct == 0 {
                "hot"
            } else {
                &distinct
            },
            distinct: cycles.distinct,
            hold_us: cycles.hold_us,
            pause_us: cycles.pause_us,
            seconds: cycles.seconds,
            cycles: cycles.cycles,
            samples: cycles.samples,
            ..Job::new("cycles", &urls)
        };
        processes.push(Process::start(contender, &job)?);
    }
    Process::all_ready(&processes)?;
    let starting = servers.age();

    let (cpu_before, before) = (cpu(&processes), servers.work());
    servers.spoil(case.condition);
    for process in &mut processes {
        process.go();
    }
    let limit = Duration::from_secs_f64(cycles.seconds) + GRACE;
    let done = Process::hear_all(&processes, "done", limit);
    // Also after a failure, so that what is frozen can end.
    servers.mend(case.condition);
    let tally = Tally::of(&done?)?;
    let (cpu, work) = (cpu(&processes), servers.work().since(before));

    let mut figures = tally.figures();
    figures.insert(figure::STARTING, starting);
    if tally.completed == 0 {
        // Too slow for the time it had: that is a figure, and the only one.
        return Ok(figures);
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / tally.completed as f64;
    figures.extend([
        (figure::CLIENT_CPU, each(cpu.saturating_sub(cpu_before))),
        (figure::SERVER_CPU, each(work.cpu)),
        (
            figure::COMMANDS,
            work.commands as f64 / tally.completed as f64,
        ),
        (figure::READS, work.reads as f64 / tally.completed as f64),
        (figure::CLIENT_MEMORY, memory(&processes) as f64),
        (figure::SERVER_MEMORY, servers.memory() as f64),
    ]);
    Process::end_all(processes);
    Ok(figures)
}

/// What the processes of a contender counted, all together.
#[derive(Debug, Default)]
struct Tally {
    cycles: u64,
    /// Those that came too late to count, too: they cost as much as others.
    completed: u64,
    failed: u64,
    /// Of the process that took longest.
    elapsed_us: u64,
    held_us: u64,
    tasks: Vec<u64>,
    waits: Vec<u64>,
    whole: Vec<u64>,
}

impl Tally {
    fn of(done: &[Value]) -> Result<Self, String> {
        let mut tally = Self::default();
        for line in done {
            let number = |field: &str| line[field].as_u64();
            let needed = |field: &str| number(field).ok_or(format!("no {field} in {line}"));
            let list = |field: &str| {
                let list = line[field].as_array().map(Vec::as_slice);
                list.unwrap_or_default().iter().filter_map(Value::as_u64)
            };
            tally.cycles += needed("cycles")?;
            tally.completed += number("completed").unwrap_or(needed("cycles")?);
            tally.elapsed_us = tally.elapsed_us.max(needed("elapsed_us")?);
            tally.held_us += number("held_us").unwrap_or(0);
            tally.failed += number("failed").unwrap_or(0);
            tally.tasks.extend(list("tasks"));
            tally.waits.extend(list("waits_us"));
            tally.whole.extend(list("cycles_us"));
        }
        tally.waits.sort_unstable();
        tally.whole.sort_unstable();
        Ok(tally)
    }

    fn figures(&self) -> Figures {
        let mut figures = Figures::new();
        let seconds = self.elapsed_us as f64 / 1e6;
        figures.insert(figure::RATE, self.cycles as f64 / seconds);
        figures.insert(figure::HELD, self.held_us as f64 / self.elapsed_us as f64);
        figures.insert(figure::FAILED, self.failed as f64);
        if let Some((least, most)) = shares(&self.tasks) {
            figures.insert(figure::SHARE_LEAST, least);
            figures.insert(figure::SHARE_MOST, most);
        }
        for (name, sorted, percent) in [
            (figure::WAIT_P50, &self.waits, 50.0),
            (figure::WAIT_P99, &self.waits, 99.0),
            (figure::CYCLE_P50, &self.whole, 50.0),
            (figure::CYCLE_P99, &self.whole, 99.0),
        ] {
            figures.extend(percentile(sorted, percent).map(|value| (name, value as f64)));
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn processes_are_added_up() {
        let done = [
            json!({ "cycles": 30, "elapsed_us": 1_000_000, "held_us": 200_000,
                    "tasks": [10, 20], "waits_us": [5, 1], "cycles_us": [9] }),
            json!({ "cycles": 10, "elapsed_us": 2_000_000, "held_us": 200_000,
                    "tasks": [10], "waits_us": [3], "failed": 2, "completed": 11 }),
        ];
        let tally = Tally::of(&done).expect("it is complete");
        assert_eq!((tally.cycles, tally.completed), (40, 41));
        let figures = tally.figures();
        assert_eq!(figures[figure::RATE], 20.0);
        assert_eq!(figures[figure::HELD], 0.2);
        assert_eq!(figures[figure::WAIT_P50], 3.0);
        assert_eq!(figures[figure::CYCLE_P99], 9.0);
        assert_eq!(figures[figure::FAILED], 2.0);
        let fair = 40.0 / 3.0;
        assert_eq!(figures[figure::SHARE_LEAST], 10.0 / fair);
        assert_eq!(figures[figure::SHARE_MOST], 20.0 / fair);
    }

    #[test]
    fn nothing_done_is_a_figure_and_nothing_said_a_failure() {
        let nothing = json!({ "cycles": 0, "elapsed_us": 1, "tasks": [0], "waits_us": [] });
        let figures = Tally::of(&[nothing]).expect("it is complete").figures();
        assert_eq!(figures[figure::RATE], 0.0);
        assert!(!figures.contains_key(figure::WAIT_P50));
        assert!(!figures.contains_key(figure::SHARE_MOST));
        assert!(Tally::of(&[json!({ "event": "done" })]).is_err());
    }
}
