//! What a process can be told to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_timer::Delay;
use serde_json::json;
use tokio::task::JoinSet;

use crate::Error;
use crate::job::{Job, Orders, say};
use crate::lock::{Held, Locks};

/// Cycles before anything is measured: connections and caches are warm then.
const WARM_UP: usize = 50;

/// How many leases are asked for at once.
const ACQUIRING: usize = 64;

pub(crate) async fn run(job: Job, mut orders: Orders) -> Result<(), Error> {
    let locks = Locks::connect(&job).await?;
    let job = Arc::new(job);
    match &*job.mode {
        "cycles" => {
            let name = format!("warm-up-{}", std::process::id());
            for number in 0..WARM_UP {
                let held = acquire(&locks, &format!("{name}:{number}")).await;
                locks
                    .release(held)
                    .await
                    .unwrap_or_else(|error| complain(&error));
            }
            FAILED.store(0, Ordering::Relaxed);
            go(&mut orders).await;
            cycles(&locks, &job).await?;
            orders.end().await;
        }
        "hold" => {
            let keeper = keep(&locks);
            go(&mut orders).await;
            let held = acquire(&locks, &job.name).await;
            watch(&locks, &held);
            say(&json!({ "event": "held" }));
            // Killed while it holds the lock, more often than not.
            tokio::select! {
                () = orders.end() => {}
                Some(error) = keeper => return Err(error),
            }
            locks.release(held).await?;
        }
        "wait" => {
            go(&mut orders).await;
            tokio::select! {
                () = orders.end() => {}
                result = wait(&locks, &job) => {
                    result?;
                    orders.end().await;
                }
            }
        }
        "leases" if locks.renews() => {
            let keeper = keep(&locks);
            go(&mut orders).await;
            let leases = leases(&locks, &job).await?;
            say(&json!({ "event": "held" }));
            tokio::select! {
                () = orders.end() => {}
                Some(error) = keeper => return Err(error),
            }
            // What is left is left to its ttl: giving it back is not measured.
            std::mem::forget(leases);
        }
        other => return Err(format!("{} has no mode {other:?}", job.lock).into()),
    }
    Ok(())
}

async fn go(orders: &mut Orders) {
    say(&json!({ "event": "ready" }));
    orders.next().await;
}

/// Asks until it has it: a failed attempt is part of the wait.
async fn acquire(locks: &Locks, name: &str) -> Held {
    loop {
        match locks.acquire(name).await {
            Ok(held) => return held,
            Err(error) => complain(&error),
        }
    }
}

/// How often something failed in this process.
static FAILED: AtomicUsize = AtomicUsize::new(0);

/// Counts a failure. Where there are many, the first will tell what it is about.
fn complain(error: &Error) {
    if FAILED.fetch_add(1, Ordering::Relaxed) == 0 {
        eprintln!("{error}");
    }
}

/// What the tasks of a process found out.
#[derive(Default)]
struct Tally {
    cycles: usize,
    /// Those that came too late to count, too.
    completed: usize,
    held: Duration,
    waits: Vec<u64>,
    whole: Vec<u64>,
    /// When the last of its cycles was complete.
    end: Option<Instant>,
}

async fn cycles(locks: &Locks, job: &Arc<Job>) -> Result<(), Error> {
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..job.tasks {
        let (locks, job) = (locks.clone(), job.clone());
        tasks.spawn(async move { (task, cycle(&locks, &job, task, begin).await) });
    }
    let mut tallies: Vec<Tally> = (0..job.tasks).map(|_| Tally::default()).collect();
    while let Some(result) = tasks.join_next().await {
        let (task, tally) = result?;
        tallies[task] = tally;
    }
    let last = tallies.iter().filter_map(|tally| tally.end).max();
    let elapsed = last.map_or(job.length, |last| last - begin);
    let elapsed = match job.cycles {
        None => elapsed.max(job.length),
        Some(_) => elapsed,
    };
    let mut line = json!({
        "event": "done",
        "cycles": tallies.iter().map(|tally| tally.cycles).sum::<usize>(),
        "completed": tallies.iter().map(|tally| tally.completed).sum::<usize>(),
        "elapsed_us": micros(elapsed),
        "held_us": micros(tallies.iter().map(|tally| tally.held).sum()),
        "failed": FAILED.load(Ordering::Relaxed),
        "tasks": tallies.iter().map(|tally| tally.cycles).collect::<Vec<_>>(),
    });
    if job.samples {
        line["waits_us"] = tallies
            .iter()
            .flat_map(|tally| tally.waits.clone())
            .collect();
        if job.distinct > 0 {
            line["cycles_us"] = tallies
                .iter()
                .flat_map(|tally| tally.whole.clone())
                .collect();
        }
    }
    say(&line);
    Ok(())
}

/// A cycle counts when its lock was had before the time was up. A wait that lasts
/// longer is waited for and given back, but not counted: else the end of a run
/// would be a race of ever fewer tasks.
async fn cycle(locks: &Locks, job: &Job, task: usize, begin: Instant) -> Tally {
    let mut tally = Tally::default();
    let limit = job.cycles.map_or(usize::MAX, |all| all.div_ceil(job.tasks));
    let deadline = begin + job.length;
    while Instant::now() < deadline && tally.cycles < limit {
        let name = match tally.cycles.checked_rem(job.distinct) {
            Some(number) => format!("{}:{task}:{number}", job.name),
            None => job.name.clone(),
        };
        let asked = Instant::now();
        let held = acquire(locks, &name).await;
        let got = Instant::now();
        sleep(job.hold).await;
        let done = Instant::now();
        let released = locks.release(held).await;
        released.unwrap_or_else(|error| complain(&error));
        let end = Instant::now();
        tally.completed += 1;
        if got < deadline {
            if job.samples {
                tally.waits.push(micros(got - asked));
                if job.distinct > 0 {
                    tally.whole.push(micros(end - asked));
                }
            }
            tally.held += done - got;
            tally.cycles += 1;
            tally.end = Some(end);
        }
        sleep(job.pause).await;
    }
    tally
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

async fn wait(locks: &Locks, job: &Arc<Job>) -> Result<(), Error> {
    let mut tasks = JoinSet::new();
    for _ in 0..job.tasks {
        let (locks, job) = (locks.clone(), job.clone());
        tasks.spawn(async move {
            let held = acquire(&locks, &job.name).await;
            say(&json!({ "event": "got" }));
            locks.release(held).await
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}

async fn leases(locks: &Locks, job: &Arc<Job>) -> Result<Vec<Vec<Held>>, Error> {
    let mut tasks = JoinSet::new();
    for task in 0..ACQUIRING.min(job.tasks) {
        let (locks, job) = (locks.clone(), job.clone());
        tasks.spawn(async move {
            let numbers = (task..job.tasks).step_by(ACQUIRING);
            // What a list leaves behind as it grows is no memory of leases.
            let mut leases = Vec::with_capacity(numbers.len());
            for number in numbers {
                let held = acquire(&locks, &format!("{}:{number}", job.name)).await;
                watch(&locks, &held);
                leases.push(held);
            }
            leases
        });
    }
    let mut leases = Vec::new();
    while let Some(result) = tasks.join_next().await {
        leases.push(result?);
    }
    Ok(leases)
}

/// Renews what `watch` is told of, for locks that don't do it by themselves.
/// Resolves when that fails.
fn keep(locks: &Locks) -> impl Future<Output = Option<Error>> + use<> {
    let keeper = match locks {
        Locks::Raw(raw) => {
            let raw = raw.clone();
            Some(tokio::spawn(async move { raw.keep().await }))
        }
        _ => None,
    };
    async move {
        match keeper?.await {
            Ok(result) => result.err(),
            Err(error) => Some(error.into()),
        }
    }
}

fn watch(locks: &Locks, held: &Held) {
    if let (Locks::Raw(raw), Held::Raw(lease)) = (locks, held) {
        raw.watch(lease);
    }
}

/// The runtime's own timer counts in milliseconds, and makes two of one.
async fn sleep(time: Duration) {
    if !time.is_zero() {
        Delay::new(time).await;
    }
}
