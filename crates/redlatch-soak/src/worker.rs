//! A client process: this program, started again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redlatch::Redlatch;
use redlatch_testkit::{Dice, Worker};
use serde_json::{Value, json};

use crate::gauge::Process;
use crate::threads;
use crate::uses::User;

/// Tasks of one process that use locks.
const TASKS: u64 = 24;

/// How often a worker tells how far it is.
const WORD: Duration = Duration::from_millis(200);

/// How long the tasks and connections of a client may take to end after it.
const END: Duration = Duration::from_secs(5);

/// The longest lease in the run.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(4);

/// Settings that clients and the administrator must agree on.
pub(crate) fn builder(urls: &[String]) -> redlatch::Builder {
    Redlatch::builder()
        .nodes(urls)
        .ttl(Duration::from_secs(2))
        .max_ttl(MAX_TTL)
        // Servers and clients share the cores of one machine.
        .node_timeout(Duration::from_millis(250))
}

/// What a worker is told.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) number: usize,
    pub(crate) seed: u64,
    /// Acquisitions in 1000 seconds.
    pub(crate) rate: u64,
    pub(crate) long: Duration,
    pub(crate) leak: String,
    pub(crate) urls: Vec<String>,
}

impl Task {
    fn to_json(&self) -> Value {
        let long = self.long.as_millis() as u64;
        json!([
            self.number,
            self.seed,
            self.rate,
            long,
            self.leak,
            self.urls
        ])
    }

    fn from_json(value: &Value) -> Option<Self> {
        let urls = value[5].as_array()?.iter();
        Some(Self {
            number: value[0].as_u64()? as usize,
            seed: value[1].as_u64()?,
            rate: value[2].as_u64()?,
            long: Duration::from_millis(value[3].as_u64()?),
            leak: value[4].as_str()?.to_owned(),
            urls: urls
                .filter_map(|url| Some(url.as_str()?.to_owned()))
                .collect(),
        })
    }
}

/// Starts a worker; what it has to tell goes to `told`, with its number.
pub(crate) fn start(task: &Task, told: Sender<(usize, Value)>) -> Worker {
    let number = task.number;
    Worker::start(&task.to_json().to_string(), move |line| {
        // Of one that was killed, half a line may be left.
        let value = serde_json::from_str(&line);
        value.is_ok_and(|value| told.send((number, value)).is_ok())
    })
}

/// How often what happened, for all tasks of a process.
#[derive(Default)]
pub(crate) struct Tally {
    /// Acquisitions, and those that are under way.
    claimed: AtomicU64,
    acquired: AtomicU64,
    stopped: AtomicBool,
    /// By what was done, and how it failed.
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Tally {
    pub(crate) fn note(&self, what: impl Into<String>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(what.into()).or_default() += 1;
    }

    /// So many acquisitions where one was expected.
    pub(crate) fn settle(&self, acquired: u64) {
        self.acquired.fetch_add(acquired, Ordering::Relaxed);
        self.claimed
            .fetch_add(acquired.wrapping_sub(1), Ordering::Relaxed);
    }

    /// Claims the next acquisition: how long after the start it is due.
    pub(crate) fn claim(&self, rate: u64) -> Duration {
        let number = self.claimed.fetch_add(1, Ordering::Relaxed);
        Duration::from_secs_f64(number as f64 * 1000.0 / rate as f64)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn to_json(&self, tasks: usize) -> Value {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        json!({
            "acquired": self.acquired.load(Ordering::Relaxed),
            "tasks": tasks,
            "counts": *counts,
        })
    }
}

/// Is a worker, until its standard input ends.
pub(crate) fn run(plan: &str) {
    Worker::end_with_parent();
    let value = serde_json::from_str(plan).expect("written by the parent");
    let task = Task::from_json(&value).expect("written by the parent");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let handles = Process::of(std::process::id())
        .expect("this process")
        .handles;
    let tally = Arc::new(Tally::default());
    let stopper = tally.clone();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stopper.stopped.store(true, Ordering::Relaxed);
    });
    runtime.block_on(work(&task, &tally));
    // All clients are gone: so must be what served them.
    let left = runtime.block_on(ended(handles));
    println!("{}", json!({ "left": left }));
}

async fn work(task: &Task, tally: &Arc<Tally>) {
    let build = || async { builder(&task.urls).build().await };
    let there = "a quorum of nodes is there";
    let latches = [build().await.expect(there), build().await.expect(there)];
    let threads = threads::start(task, tally);
    let began = Instant::now();
    let users = (0..TASKS).map(|number| {
        let dice = Dice::new(task.seed ^ (task.number as u64) << 32 ^ number << 16);
        let mut user = User::new(task.clone(), latches.clone(), dice, tally.clone());
        tokio::spawn(async move {
            while !user.tally().is_stopped() {
                let due = user.tally().claim(user.rate());
                tokio::time::sleep_until((began + due).into()).await;
                user.act().await;
            }
        })
    });
    let users: Vec<_> = users.collect();
    let metrics = tokio::runtime::Handle::current().metrics();
    while !tally.is_stopped() {
        tokio::time::sleep(WORD).await;
        println!("{}", tally.to_json(metrics.num_alive_tasks()));
    }
    // Their claims may lie far ahead.
    let _ = tokio::time::timeout(END, async {
        for user in users {
            user.await.expect("no task panics");
        }
    })
    .await;
    println!("{}", tally.to_json(metrics.num_alive_tasks()));
    for latch in latches {
        latch.close().await;
    }
    tokio::task::spawn_blocking(|| threads.join().expect("no thread panics"))
        .await
        .expect("no thread panics");
}

/// What is still there when everything has had time to end.
async fn ended(handles_before: u64) -> Value {
    let metrics = tokio::runtime::Handle::current().metrics();
    let end = Instant::now() + END;
    loop {
        let tasks = metrics.num_alive_tasks();
        let handles = Process::of(std::process::id())
            .expect("this process")
            .handles;
        let handles = handles.saturating_sub(handles_before);
        if tasks == 0 && handles == 0 || Instant::now() > end {
            return json!([tasks, handles]);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
