//! One table for each workload.

use super::column::{MILLISECONDS, in_milliseconds, median_of, named, ratio_of, spread_of, table};
use super::number::{number, spread, whole};
use crate::contenders::{self, FLOOR};
use crate::measure::figure;
use crate::results::Results;

/// The sections of all workloads that were measured.
pub(super) fn sections(results: &Results) -> Vec<String> {
    let sections = [
        latency(results),
        one_core(results),
        allocations(results),
        throughput(
            results,
            2,
            "### 2. Many tasks, distinct names",
            "throughput",
            TWO,
        ),
        throughput(results, 3, "### 3. Many tasks, 5 nodes", "nodes", THREE),
        contention(results),
        idle(results),
        crash(results),
        leases(results),
        bad_nodes(results),
        growth(results),
    ];
    sections.into_iter().flatten().collect()
}

const TWO: &str = "64 and 1,024 tasks of one process, each with names that nobody else wants. CPU \
                   is processor time of a cycle, of the client's process and of redis-server, by \
                   /proc. Commands are what redis-server carried out for a cycle, those that \
                   scripts call included (`total_commands_processed`). Of redis-benchmark, see \
                   above; it counts requests over as many connections. Where each task is a \
                   process (PHP), there are no 1,024 of them.";
const THREE: &str = "The same over 5 nodes, for those that can. The floor sends its commands to \
                     all nodes at once and waits for 3 answers. Redis CPU and commands are of all \
                     5 nodes together.";

fn latency(results: &Results) -> Option<String> {
    let mut columns = Vec::new();
    for (id, heading) in [("1/as-is", "as it is"), ("1/awake", "awake")] {
        columns.push(spread_of(
            &format!("{heading}: p50 µs"),
            id,
            figure::CYCLE_P50,
        ));
        columns.push(spread_of("p99 µs", id, figure::CYCLE_P99));
        columns.push(ratio_of("p50 / raw", id, figure::CYCLE_P50));
    }
    let rounds = results.rounds("1/as-is").max(results.rounds("1/awake"));
    let text = format!(
        "One task acquires and releases, names it has to itself: the time from asking for the lock \
         until its release is confirmed. An idle core of a virtual machine takes about as long to \
         wake as Redis to answer, which buries what the libraries do. So it is measured as it is, \
         and with one spinning process of the lowest priority on each core, which keeps it awake. \
         It also depends on whether the scheduler puts client and redis-server on one core or on \
         two, which differs from round to round: so there are up to {rounds} of them, \
         shorter than those of other workloads, each with a process and a server of its own. redis-benchmark \
         can't do two commands in turn: its figure is the sum of the two measured alone."
    );
    section(
        "### 1. One task, acquire and release",
        &text,
        Some("latency"),
        table(results, &columns),
    )
}

fn one_core(results: &Results) -> Option<String> {
    let id = "1/one-core";
    let columns = [
        spread_of("p50 µs", id, figure::CYCLE_P50),
        spread_of("p99 µs", id, figure::CYCLE_P99),
        ratio_of("p50 / raw", id, figure::CYCLE_P50),
    ];
    let text = "The same with the cores awake, and client and redis-server on one of them: what \
                either does is in the time of a cycle then, and where they run is not left to the \
                scheduler. (The client's runtime has one thread less.)";
    let table = table(results, &columns);
    section("### 1. One task, on one core", text, None, table)
}

fn allocations(results: &Results) -> Option<String> {
    let id = "1/allocations";
    let columns = [
        spread_of("allocations", id, figure::ALLOCATIONS),
        ratio_of("/ raw", id, figure::ALLOCATIONS),
        spread_of("bytes", id, figure::ALLOCATED),
        ratio_of("/ raw", id, figure::ALLOCATED),
    ];
    let text = "What the client allocates for such a cycle, all threads together, reallocations \
                included: counted by `bench/cost` in a program of its own. Raw is the `redis` \
                crate with the same commands.";
    section("### 1. Allocations", text, None, table(results, &columns))
}

fn throughput(
    results: &Results,
    workload: u8,
    title: &str,
    plot: &str,
    text: &str,
) -> Option<String> {
    let mut tables = String::new();
    for (tasks, heading) in [(64, "64 tasks"), (1024, "1,024 tasks")] {
        let id = format!("{workload}/{tasks}");
        let columns = [
            spread_of(&format!("{heading}: cycles/s"), &id, figure::RATE),
            ratio_of("/ raw", &id, figure::RATE),
            spread_of("client CPU µs", &id, figure::CLIENT_CPU),
            ratio_of("/ raw", &id, figure::CLIENT_CPU),
            spread_of("Redis CPU µs", &id, figure::SERVER_CPU),
            ratio_of("/ raw", &id, figure::SERVER_CPU),
            median_of("commands", &id, figure::COMMANDS),
        ];
        tables += &table(results, &columns).unwrap_or_default();
    }
    section(title, text, Some(plot), Some(tables))
}

fn contention(results: &Results) -> Option<String> {
    let mut tables = String::new();
    for (hold, words) in [
        (0, "Hold 0, no pause"),
        (1, "Hold 1 ms, then a pause of 5 ms"),
    ] {
        for (shape, heading) in [
            ("1x16", "16 tasks in one process"),
            ("4x4", "4 processes of 4 tasks"),
            ("16x1", "16 processes of one task"),
        ] {
            let id = format!("4/{shape}-hold{hold}");
            let mut columns = vec![spread_of("cycles/s", &id, figure::RATE)];
            if hold > 0 {
                columns.push(spread_of("held", &id, figure::HELD));
            }
            columns.extend([
                in_milliseconds("wait p50 ms", &id, figure::WAIT_P50),
                in_milliseconds("wait p99 ms", &id, figure::WAIT_P99),
                median_of("unluckiest", &id, figure::SHARE_LEAST),
                median_of("luckiest", &id, figure::SHARE_MOST),
                median_of("commands", &id, figure::COMMANDS),
                median_of("reads", &id, figure::READS),
            ]);
            if let Some(table) = table(results, &columns) {
                tables += &format!("{words}, {heading}:\n\n{table}");
            }
        }
    }
    let text = "All tasks want the same name. Held is the part of the time that somebody has the \
                lock; the unluckiest and the luckiest task are given as shares of what would be \
                fair; commands are what redis-server carried out for a cycle, those that scripts \
                call included, and reads how often it read from a connection for it, which is \
                about how many requests it was sent. A wait that had not ended when the time was \
                up is not among the waits: where the unluckiest task has 0, it waited all the \
                time. The floor tries again after a millisecond. With processes of one task there is \
                raw-turns too, the barest way to take turns: `BLPOP` and `RPUSH` of a list with one \
                element, which has no token, no ttl and no script, and is lost with its holder. \
                Without a pause, cycles a second \
                mostly count how often a client takes back its own lock; with one they can't be \
                more than the time that the lock is held allows, and it is the time held that \
                tells.\n\n![Cycles a second for one hot name, hold 0](images/performance-contention.svg)";
    section("### 4. One hot name", text, Some("held"), Some(tables))
}

fn idle(results: &Results) -> Option<String> {
    let columns = [
        spread_of("commands/s", "5/idle", figure::COMMANDS_RATE),
        spread_of("client CPU ms/s", "5/idle", figure::CLIENT_LOAD),
        spread_of("Redis CPU ms/s", "5/idle", figure::SERVER_LOAD),
    ];
    let text = "200 tasks of one process wait for a lock that another process holds all the time \
                for 10 s, or for 2 s where that was enough for 1,000 commands (in a quick run 50 \
                tasks, 1 s; of PHP each is a process). The holder's own commands are few and not \
                told apart.";
    section("### 5. Idle waiters", text, None, table(results, &columns))
}

fn crash(results: &Results) -> Option<String> {
    let mut text = String::from(
        "| | ms until the next one has it | ms left of the ttl | late by ms |\n| --- | --- | --- | --- |\n",
    );
    let mut rows = 0;
    for contender in contenders::ALL {
        let of = |figure| results.summary("6/crash", contender.name, figure);
        if let (Some(takeover), Some(left)) = (of(figure::TAKEOVER), of(figure::LEFT)) {
            let late = number(takeover.median - left.median);
            let takeover = spread(takeover, 1.0);
            let left = number(left.median);
            text += &format!(
                "| {} | {takeover} | {left} | {late} |\n",
                named(contender.name)
            );
            rows += 1;
        }
    }
    text.push('\n');
    let words = "The holder is killed while another process waits; the ttl is 2 s. Nobody can have \
                 the lock before what is left of the ttl has passed, so it is the lateness that \
                 tells. Those that renew had renewed before, or not, and have more or less left.";
    section(
        "### 6. The holder crashes",
        words,
        None,
        (rows > 0).then_some(text),
    )
}

fn leases(results: &Results) -> Option<String> {
    let id = "7/leases";
    let columns = [
        median_of("leases", id, figure::LEASES),
        spread_of("bytes a lease", id, figure::LEASE_MEMORY),
        median_of("renewals/s", id, figure::RENEWALS),
        spread_of("client CPU ms/s", id, figure::CLIENT_KEEPING),
        ratio_of("/ raw", id, figure::CLIENT_KEEPING),
        spread_of("Redis CPU ms/s", id, figure::SERVER_KEEPING),
        ratio_of("/ raw", id, figure::SERVER_KEEPING),
    ];
    let text = "Leases with a ttl of 10 s (3 s in a quick run), held and renewed, by those that \
                renew by themselves. Memory is what the process has more than before it had any. \
                The floor calls a script with PEXPIRE for each lease after a third of its ttl, 256 \
                to a pipeline. CPU is what 100,000 leases take in each second. Libraries that need a \
                thread or the like for each lease are asked for fewer, and their CPU is \
                multiplied; peers are measured once. Redlatch and Redisson renew many in one script.";
    section("### 7. Many leases", text, None, table(results, &columns))
}

fn bad_nodes(results: &Results) -> Option<String> {
    let mut columns = Vec::new();
    for (id, heading) in [
        ("8/healthy", "all well"),
        ("8/frozen", "one frozen"),
        ("8/slow", "one 20 ms slower"),
    ] {
        columns.push(spread_of(
            &format!("{heading}: p50 µs"),
            id,
            figure::CYCLE_P50,
        ));
        columns.push(spread_of("p99 µs", id, figure::CYCLE_P99));
    }
    let text = "One task, 5 nodes, the time of a cycle as in 1: with all nodes well, with one of \
                them stopped (SIGSTOP), and with one that answers 20 ms later. That node is behind \
                a proxy in all three.";
    section("### 8. A bad node", text, None, table(results, &columns))
}

fn growth(results: &Results) -> Option<String> {
    let mut tables = String::new();
    let mut add =
        |heading: &str, ids: &str, points: &[usize], figures: &[(&str, &'static str, f64)]| {
            let mut text = format!("| {heading} |");
            let sides = ["redlatch-fenced", FLOOR];
            for (name, _, _) in figures {
                for side in sides {
                    text += &format!(" {name}, {side} |");
                }
            }
            text += &format!("\n| --- |{}\n", " --- |".repeat(figures.len() * 2));
            let mut rows = 0;
            for point in points {
                let id = format!("9/{ids}-{point}");
                let cell = |figure, side, scale| {
                    results
                        .summary(&id, side, figure)
                        .map(|summary| spread(summary, scale))
                };
                if sides
                    .iter()
                    .all(|side| cell(figures[0].1, side, 1.0).is_none())
                {
                    continue;
                }
                text += &format!("| {} |", whole(*point));
                for (_, figure, scale) in figures {
                    for side in sides {
                        text += &format!(" {} |", cell(figure, side, *scale).unwrap_or("–".into()));
                    }
                }
                text.push('\n');
                rows += 1;
            }
            if rows > 0 {
                tables += &format!("{text}\n");
            }
        };
    let mebibyte = 1.0 / 1024.0 / 1024.0;
    add(
        "distinct names",
        "names",
        &[1, 64, 1_000, 10_000, 100_000, 1_000_000],
        &[
            ("cycles/s", figure::RATE, 1.0),
            ("client MiB", figure::CLIENT_MEMORY, mebibyte),
            ("Redis MiB", figure::SERVER_MEMORY, mebibyte),
        ],
    );
    add(
        "tasks for one name",
        "waiters",
        &[1, 10, 100, 1_000],
        &[
            ("cycles/s", figure::RATE, 1.0),
            ("wait p99 ms", figure::WAIT_P99, MILLISECONDS),
            ("commands", figure::COMMANDS, 1.0),
        ],
    );
    add(
        "nodes",
        "nodes",
        &[1, 3, 5, 7, 9],
        &[
            ("p50 µs", figure::CYCLE_P50, 1.0),
            ("p99 µs", figure::CYCLE_P99, 1.0),
        ],
    );
    let text = "Distinct names: up to 64 tasks go through so many names, each of them at least \
                once from 10,000 on; what is left in memory shows whether anything stays behind. \
                (A million is measured once. Redis keeps 5 MiB of fences for redlatch, however \
                many names there are.) Tasks for one name: of one process, hold 0. Nodes: one \
                task, cores kept awake.";
    section(
        "### 9. Growth",
        text,
        Some("growth"),
        (!tables.is_empty()).then_some(tables),
    )
}

fn section(title: &str, text: &str, plot: Option<&str>, tables: Option<String>) -> Option<String> {
    let tables = tables.filter(|tables| !tables.is_empty())?;
    let alt = title.trim_start_matches("### ");
    let plot = plot.map_or(String::new(), |plot| {
        format!("![{alt}](images/performance-{plot}.svg)\n\n")
    });
    Some(format!("{title}\n\n{text}\n\n{plot}{tables}"))
}
