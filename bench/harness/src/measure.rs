//! One run of one contender in one case: figures out, or what went wrong.

mod allocations;
mod cycles;
mod redis_benchmark;
mod standing;

use std::collections::BTreeMap;
use std::time::Duration;

use redlatch_testkit::Awake;

use crate::contenders::{Contender, REDIS_BENCHMARK};
use crate::one_core::OneCore;
use crate::plan::{Action, Case, Condition};
use crate::process::Process;
use crate::servers::Servers;
use crate::usage;

/// Figures by name.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

/// The names of figures, each with its unit.
pub(crate) mod figure {
    /// Cycles a second, of all tasks together.
    pub(crate) const RATE: &str = "cycles_per_s";
    /// From asking until the release was confirmed.
    pub(crate) const CYCLE_P50: &str = "cycle_p50_us";
    pub(crate) const CYCLE_P99: &str = "cycle_p99_us";
    /// From asking to having.
    pub(crate) const WAIT_P50: &str = "wait_p50_us";
    pub(crate) const WAIT_P99: &str = "wait_p99_us";
    /// The part of the time that the lock was held.
    pub(crate) const HELD: &str = "held";
    /// Of the unluckiest and the luckiest task; 1 is fair.
    pub(crate) const SHARE_LEAST: &str = "share_least";
    pub(crate) const SHARE_MOST: &str = "share_most";
    /// Processor time of a cycle.
    pub(crate) const CLIENT_CPU: &str = "client_cpu_us_per_cycle";
    pub(crate) const SERVER_CPU: &str = "server_cpu_us_per_cycle";
    /// Commands that the servers carried out for a cycle.
    pub(crate) const COMMANDS: &str = "commands_per_cycle";
    /// How often the servers read from a connection for a cycle.
    pub(crate) const READS: &str = "reads_per_cycle";
    /// Attempts that failed, and were made again.
    pub(crate) const FAILED: &str = "failed";
    /// Memory of the client processes, and what the server says it uses.
    pub(crate) const CLIENT_MEMORY: &str = "client_memory_bytes";
    pub(crate) const SERVER_MEMORY: &str = "server_memory_bytes";

    /// Of a workload in which there are no cycles, a second.
    pub(crate) const COMMANDS_RATE: &str = "commands_per_s";
    pub(crate) const CLIENT_LOAD: &str = "client_cpu_ms_per_s";
    pub(crate) const SERVER_LOAD: &str = "server_cpu_ms_per_s";

    /// From the holder's death to the next one.
    pub(crate) const TAKEOVER: &str = "takeover_ms";
    /// How much of that was left of the lock's ttl.
    pub(crate) const LEFT: &str = "left_ms";

    pub(crate) const LEASES: &str = "leases";
    pub(crate) const LEASE_MEMORY: &str = "client_memory_bytes_per_lease";
    /// What it costs to keep so many alive for a second.
    pub(crate) const MANY: f64 = 100_000.0;
    pub(crate) const CLIENT_KEEPING: &str = "client_cpu_ms_per_s_100000_leases";
    pub(crate) const SERVER_KEEPING: &str = "server_cpu_ms_per_s_100000_leases";
    /// Expiries set: by that a lease is renewed.
    pub(crate) const RENEWALS: &str = "renewals_per_s";
    pub(crate) const CLIENT_RENEWAL: &str = "client_cpu_us_per_renewal";
    pub(crate) const SERVER_RENEWAL: &str = "server_cpu_us_per_renewal";

    /// Of an uncontended cycle, by the client.
    pub(crate) const ALLOCATIONS: &str = "allocations_per_cycle";
    pub(crate) const ALLOCATED: &str = "allocated_bytes_per_cycle";

    /// Until all was started and ready, in seconds: nothing that is compared.
    pub(crate) const STARTING: &str = "starting_s";

    /// All of them, for reading what was written.
    pub(crate) const ALL: &[&str] = &[
        RATE,
        CYCLE_P50,
        CYCLE_P99,
        WAIT_P50,
        WAIT_P99,
        HELD,
        SHARE_LEAST,
        SHARE_MOST,
        CLIENT_CPU,
        SERVER_CPU,
        COMMANDS,
        READS,
        FAILED,
        CLIENT_MEMORY,
        SERVER_MEMORY,
        COMMANDS_RATE,
        CLIENT_LOAD,
        SERVER_LOAD,
        TAKEOVER,
        LEFT,
        LEASES,
        LEASE_MEMORY,
        CLIENT_KEEPING,
        SERVER_KEEPING,
        RENEWALS,
        CLIENT_RENEWAL,
        SERVER_RENEWAL,
        ALLOCATIONS,
        ALLOCATED,
        STARTING,
    ];
}

/// Runs a case once.
pub(crate) fn run(case: &Case, contender: &Contender) -> Result<Figures, String> {
    if let Action::Allocations = case.action {
        return allocations::run(contender);
    }
    let is_awake = matches!(case.condition, Condition::Awake | Condition::OneCore);
    let _awake = is_awake.then(Awake::start);
    // All cores are kept awake, but only one is used.
    let one_core = (case.condition == Condition::OneCore).then(OneCore::take);
    let _one_core = one_core.transpose()?;
    let servers = Servers::start(case.nodes, case.condition)?;
    match &case.action {
        Action::Cycles(cycles) if contender.name == REDIS_BENCHMARK => {
            redis_benchmark::run(cycles, &servers)
        }
        Action::Cycles(cycles) => cycles::run(case, cycles, contender, &servers),
        Action::Idle { waiters, seconds } => {
            let length = Duration::from_secs_f64(*seconds);
            standing::idle(contender, *waiters, length, &servers)
        }
        Action::Crash { ttl_ms } => standing::crash(contender, *ttl_ms, &servers),
        Action::Allocations => unreachable!("it has servers of its own"),
        Action::Leases { count, ttl_ms } => standing::leases(contender, *count, *ttl_ms, &servers),
    }
}

/// The processor time that processes have used.
fn cpu(processes: &[Process]) -> Duration {
    let cpu = |process: &Process| usage::cpu(process.pid()).unwrap_or_default();
    processes.iter().map(cpu).sum()
}

/// The memory that processes have, in bytes.
fn memory(processes: &[Process]) -> u64 {
    let memory = |process: &Process| usage::memory(process.pid()).unwrap_or_default();
    processes.iter().map(memory).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders;
    use crate::plan;
    use crate::settings::Settings;

    /// Every workload once, by programs as they are and on real servers: that
    /// figures are there and make sense, not how good they are.
    #[test]
    fn every_workload_gives_its_figures() {
        let line = "--quick --seconds 0.2".split(' ').map(str::to_owned);
        let settings = Settings::parse(line).expect("it is right");
        let mut seen = Vec::new();
        for mut case in plan::cases(&settings.scope) {
            // Ends by what was done, not by the time it took.
            if let Action::Cycles(cycles) = &mut case.action {
                cycles.cycles = Some(200);
                cycles.seconds = 60.0;
            }
            for name in ["redlatch-plain", "raw"] {
                let contender = contenders::find(name).expect("it is in the table");
                if seen.is_empty() {
                    contenders::prepare(contender).expect("it can be built");
                }
                // Of growth, one of each kind will do.
                if !case.admits(contender) || case.id.ends_with("000") {
                    continue;
                }
                let figures = run(&case, contender);
                let figures =
                    figures.unwrap_or_else(|error| panic!("{name} in {}: {error}", case.id));
                let sane = |value: &f64| value.is_finite() && *value >= 0.0;
                assert!(figures.values().all(sane), "{}: {figures:?}", case.id);
                let expected: &[_] = match case.workload {
                    1 if matches!(case.action, Action::Allocations) => &[figure::ALLOCATIONS],
                    1 | 8 => &[figure::CYCLE_P50, figure::CYCLE_P99],
                    2 | 3 => &[figure::RATE, figure::CLIENT_CPU, figure::SERVER_CPU],
                    4 => &[figure::RATE, figure::WAIT_P99, figure::SHARE_MOST],
                    6 => &[figure::TAKEOVER, figure::LEFT],
                    7 => &[figure::RENEWALS],
                    9 => &[figure::RATE, figure::CLIENT_MEMORY],
                    _ => &[],
                };
                for figure in expected {
                    let value = figures.get(figure).copied().unwrap_or(0.0);
                    assert!(value > 0.0, "{} has no {figure}: {figures:?}", case.id);
                }
                if case.workload == 4 {
                    assert!(figures[figure::HELD] <= 1.0, "{}: two held it", case.id);
                }
                seen.push(case.workload);
            }
        }
        seen.dedup();
        assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn what_a_contender_complains_of_is_told() {
        let line = ["--quick".to_owned()];
        let settings = Settings::parse(line).expect("it is right");
        let case = plan::cases(&settings.scope).swap_remove(0);
        let raw = contenders::find("raw").expect("it is in the table");
        contenders::prepare(raw).expect("it can be built");
        let nobody = Contender {
            name: "nobody",
            language: "rust",
            ..*raw
        };
        let error = run(&case, &nobody).expect_err("there is no such lock");
        assert_eq!(error, "no lock is named \"nobody\" here");
    }
}
