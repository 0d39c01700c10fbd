//! A run: servers, proxies and workers are started, hit by the schedule, and ended.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use redlatch_testkit::{RedisServer, Worker};
use serde_json::Value;

use crate::fault::{self, Kind, Site};
use crate::history::{Episode, Hold, clock};
use crate::pulse::Pulse;
use crate::resource::{self, RESOURCES, Updates};
use crate::schedule::{self, Step};
use crate::worker;
use crate::{GRACE, MAX_TTL, WORKERS};
use redlatch_testkit::Dice;

/// How long it may take after the last fault until each lock is had again: a quarantine, what
/// dead leases have left, and a slow machine.
const PROGRESS: Duration = Duration::from_secs(20);

/// What came of a run.
pub(crate) struct Outcome {
    pub(crate) holds: Vec<Hold>,
    pub(crate) episodes: Vec<Episode>,
    pub(crate) updates: [Updates; RESOURCES.len()],
    /// Whether the clock of a node could be moved.
    pub(crate) clock: bool,
    /// Locks that nobody got after the faults had ended.
    pub(crate) stuck: Vec<&'static str>,
    /// Keys of locks that were still there when everybody had gone.
    pub(crate) left_over: Vec<String>,
    /// Locks and releases that failed, as the workers told.
    pub(crate) failures: Vec<Value>,
    /// When nothing ran on this machine, from and to.
    pub(crate) stalls: Vec<(u64, u64)>,
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) length: Duration,
    /// Without the restart guard, nodes that forget break promise 1: to see that it is found.
    pub(crate) guard: bool,
}

/// Runs the schedule of a seed.
pub(crate) fn run(plan: Plan) -> Outcome {
    let pulse = Pulse::start();
    let sites = start_nodes(plan.nodes);
    let clock_moves = sites[plan.nodes - 1].server.shift_clock(0);
    let resources = resource::Server::start();
    let urls: Vec<String> = sites.iter().map(|site| site.proxy.url()).collect();
    if plan.guard {
        arm(&urls);
    }
    let (tell, told) = mpsc::channel();
    let workers: Vec<Worker> = (0..WORKERS)
        .map(|number| worker::start(number, plan, resources.address(), &urls, tell.clone()))
        .collect();
    // When the last worker has gone, so has the last sender.
    drop(tell);
    let mut said = Vec::new();
    worker::await_first_holds(WORKERS, &told, &mut said);

    let mut dice = Dice::new(!plan.seed);
    let mut episodes = Vec::new();
    let steps = match plan.guard {
        true => schedule::plan(plan.seed, plan.nodes, plan.length, clock_moves),
        false => schedule::plan_amnesia(plan.seed, plan.nodes, plan.length),
    };
    for step in steps {
        episodes.push(strike(&sites, &workers, &step, &mut dice));
        said.extend(told.try_iter());
    }
    let stuck = await_progress(&told, &mut said);
    workers.into_iter().for_each(Worker::finish);
    said.extend(told.iter());
    let left_over = await_nothing_left(&sites);
    let holds = said.iter().filter_map(Hold::from_json).collect();
    said.retain(|value| value["failed"].is_string());
    Outcome {
        holds,
        episodes,
        updates: resources.updates(),
        clock: clock_moves,
        stuck,
        left_over,
        failures: said,
        stalls: pulse.stalls(),
    }
}

fn start_nodes(nodes: usize) -> Vec<Site> {
    let start = |node| {
        // What a killed process has written, the kernel keeps: there is no need to sync.
        let args = ["--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"];
        let mut builder = RedisServer::builder().append_only().args(args);
        if node == nodes - 1 {
            builder = builder.movable_clock();
        }
        let server = builder.start();
        let proxy = server.proxy();
        Site { server, proxy }
    };
    (0..nodes).map(start).collect()
}

/// The servers are new: there is no need to wait out a quarantine.
fn arm(urls: &[String]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let admin = worker::builder(urls, true)
            .admin()
            .await
            .expect("the nodes are there");
        for status in admin.assume_fresh().await {
            assert!(status.is_armed(), "{status}");
        }
    });
}

fn strike(sites: &[Site], workers: &[Worker], step: &Step, dice: &mut Dice) -> Episode {
    let began = clock();
    match step.kind {
        Kind::FrozenClient => {
            let victims: Vec<&Worker> = step.victims.iter().map(|&at| &workers[at]).collect();
            fault::freeze_workers(&victims, step.length);
        }
        kind => {
            let victims: Vec<&Site> = step.victims.iter().map(|&at| &sites[at]).collect();
            fault::strike_nodes(&victims, kind, step.length, dice);
        }
    }
    let ended = clock();
    std::thread::sleep(step.rest);
    Episode {
        kind: step.kind,
        reach: step.reach,
        victims: step.victims.clone(),
        began,
        ended,
    }
}

/// Waits until each lock was asked for and had again; names those that were not.
fn await_progress(told: &Receiver<Value>, said: &mut Vec<Value>) -> Vec<&'static str> {
    let (since, end) = (clock(), Instant::now() + PROGRESS);
    let mut waiting: Vec<&str> = RESOURCES.iter().map(|(name, _)| *name).collect();
    while !waiting.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        match told.recv_timeout(left) {
            Ok(value) => {
                let hold = Hold::from_json(&value).filter(|hold| hold.acquired > since);
                waiting.retain(|name| hold.as_ref().is_none_or(|hold| hold.lock != *name));
                said.push(value);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    waiting
}

/// What a stopped holder could not give back goes at its ttl, later on a clock that was ahead.
fn await_nothing_left(sites: &[Site]) -> Vec<String> {
    let end = Instant::now() + GRACE + MAX_TTL;
    loop {
        let mut left = Vec::new();
        for (node, site) in sites.iter().enumerate() {
            for (name, _) in RESOURCES {
                if site.server.get(&format!("redlatch:{name}")).is_some() {
                    left.push(format!("`{name}` on node {node}"));
                }
            }
        }
        if left.is_empty() || Instant::now() > end {
            return left;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
