//! Locks that are held for a while: by a holder, by one that dies, by thousands.

use std::thread;
use std::time::{Duration, Instant};

use super::{Figures, cpu, figure, memory};
use crate::contenders::Contender;
use crate::process::{Job, Process};
use crate::servers::Servers;

/// How long a process may take to do what it was told.
const LIMIT: Duration = Duration::from_secs(60);

/// After this time those who were told to wait do so.
const SETTLED: Duration = Duration::from_millis(800);

/// So many commands tell how many come in a second; of fewer, more must be waited for.
const MANY_COMMANDS: u64 = 1_000;

/// What it costs that tasks wait for a lock that is held all the time.
pub(super) fn idle(
    contender: &Contender,
    waiters: usize,
    length: Duration,
    servers: &Servers,
) -> Result<Figures, String> {
    let urls = servers.urls();
    // So long that nothing is renewed meanwhile: that is not the cost of waiting.
    let ttl_ms = 60_000;
    let mut holder = holder(contender, &urls, ttl_ms)?;
    let (count, tasks) = if contender.tasks {
        (1, waiters)
    } else {
        (waiters, 1)
    };
    let mut waiting = Vec::new();
    for _ in 0..count {
        let job = Job {
            tasks,
            ttl_ms,
            ..Job::new("wait", &urls)
        };
        waiting.push(Process::start(contender, &job)?);
    }
    Process::all_ready(waiting.iter().chain([&holder]))?;
    hold(&mut holder)?;
    let starting = servers.age();
    waiting.iter_mut().for_each(Process::go);
    thread::sleep(SETTLED);
    let mut figures = rates(&waiting, servers, length, MANY_COMMANDS);
    figures.insert(figure::STARTING, starting);
    waiting.iter().try_for_each(Process::is_well)?;
    // Killed, so that they need not all get it.
    waiting.into_iter().for_each(Process::kill);
    holder.kill();
    Ok(figures)
}

/// How long it takes until another one has the lock of a process that was killed.
pub(super) fn crash(
    contender: &Contender,
    ttl_ms: u64,
    servers: &Servers,
) -> Result<Figures, String> {
    let urls = servers.urls();
    let job = Job {
        ttl_ms,
        ..Job::new("wait", &urls)
    };
    // Ready before the lock is taken: some take longer to start than it lives.
    let mut waiter = Process::start(contender, &job)?;
    let mut holder = holder(contender, &urls, ttl_ms)?;
    Process::all_ready([&waiter, &holder])?;
    let starting = servers.age();
    hold(&mut holder)?;
    waiter.go();
    thread::sleep(SETTLED);
    let left = servers.left("hot").ok_or("the lock is not held")?;
    let killed = Instant::now();
    holder.kill();
    waiter.hear("got", LIMIT)?;
    let takeover = killed.elapsed();
    Process::end_all(vec![waiter]);
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    Ok(Figures::from([
        (figure::TAKEOVER, millis(takeover)),
        (figure::LEFT, millis(left)),
        (figure::STARTING, starting),
    ]))
}

/// What it costs to keep many leases alive.
pub(super) fn leases(
    contender: &Contender,
    count: usize,
    ttl_ms: u64,
    servers: &Servers,
) -> Result<Figures, String> {
    let urls = servers.urls();
    let count = count.min(contender.leases);
    let job = Job {
        tasks: count,
        name: "lease",
        ttl_ms,
        ..Job::new("leases", &urls)
    };
    let mut process = [Process::start(contender, &job)?];
    Process::all_ready(&process)?;
    let empty = memory(&process);
    process[0].go();
    process[0].hear("held", LIMIT * 2)?;
    let starting = servers.age();
    // Few leases are all renewed at once, after each third of the ttl: what is
    // measured begins and ends between two such moments.
    thread::sleep(Duration::from_millis(ttl_ms / 2));
    let mut figures = rates(
        &process,
        servers,
        Duration::from_millis(ttl_ms * 2 / 3),
        u64::MAX,
    );
    let full = memory(&process).saturating_sub(empty);
    figures.insert(figure::STARTING, starting);
    figures.insert(figure::LEASES, count as f64);
    figures.insert(figure::LEASE_MEMORY, full as f64 / count as f64);
    for (load, keeping) in [
        (figure::CLIENT_LOAD, figure::CLIENT_KEEPING),
        (figure::SERVER_LOAD, figure::SERVER_KEEPING),
    ] {
        figures.insert(keeping, figures[load] * figure::MANY / count as f64);
    }
    let [process] = process;
    process.is_well()?;
    // Lost leases cost nothing: a contender that loses them must not look good.
    let left = servers.keys();
    if left < count {
        return Err(format!("{} of {count} leases were lost", count - left));
    }
    process.kill();
    Ok(figures)
}

/// A process that is to hold the lock `hot`, and to renew it if it can.
fn holder(contender: &Contender, urls: &[String], ttl_ms: u64) -> Result<Process, String> {
    let job = Job {
        ttl_ms,
        ..Job::new("hold", urls)
    };
    Process::start(contender, &job)
}

/// Lets it take the lock.
fn hold(holder: &mut Process) -> Result<(), String> {
    holder.go();
    holder.hear("held", LIMIT).map(drop)
}

/// What processes and servers do in a while, for each second of it. After a fifth
/// of it enough may have been done to tell.
fn rates(processes: &[Process], servers: &Servers, length: Duration, enough: u64) -> Figures {
    let (cpu_before, before) = (cpu(processes), servers.work());
    let begin = Instant::now();
    thread::sleep(length / 5);
    if servers.work().since(before).commands < enough {
        thread::sleep(length.saturating_sub(begin.elapsed()));
    }
    let (cpu, work) = (cpu(processes), servers.work().since(before));
    let seconds = begin.elapsed().as_secs_f64();
    let client = cpu.saturating_sub(cpu_before).as_secs_f64();
    let server = work.cpu.as_secs_f64();
    let renewals = work.renewals as f64;
    let mut figures = Figures::from([
        (figure::COMMANDS_RATE, work.commands as f64 / seconds),
        (figure::CLIENT_LOAD, client * 1000.0 / seconds),
        (figure::SERVER_LOAD, server * 1000.0 / seconds),
    ]);
    if renewals > 0.0 {
        figures.extend([
            (figure::RENEWALS, renewals / seconds),
            (figure::CLIENT_RENEWAL, client * 1e6 / renewals),
            (figure::SERVER_RENEWAL, server * 1e6 / renewals),
        ]);
    }
    figures
}
