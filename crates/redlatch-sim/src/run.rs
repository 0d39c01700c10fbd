//! One simulation, from its seed to what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redlatch::{Builder, Redlatch};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::check::{Checker, Violation, nothing_left};
use crate::faults::Site;
use crate::network::dial;
use crate::plan::{CALM, Faults, Kind, OVER, Plan, Planted, SETTLED, Scene, Setup};
use crate::random::Random;
use crate::server::Server;
use crate::workload::{Stage, Task};
use crate::world::{Gate, Ticker, World, rest};

/// For how long a free lock may be waited for, in microseconds. Less than the
/// reminder by which a waiter asks again that nobody calls.
const BOUND: u64 = 2_500_000;

/// How long after that everything must have come to an end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was broken.
    pub violations: Vec<Violation>,
    /// The hash of all that happened.
    pub hash: u64,
    /// All that happened, if it was asked for.
    pub trace: Vec<String>,
    /// How many locks were acquired.
    pub acquisitions: u64,
    /// How much time has passed in the simulation.
    pub time: Duration,
    /// How long a node was waited for.
    pub node_timeout: Duration,
    /// For how long a lock was free and waited for, at most, while there were faults.
    pub longest_idle: Duration,
    /// How often things went wrong.
    pub counts: BTreeMap<&'static str, u64>,
    /// What the seed stands for.
    pub plan: String,
}

/// Runs the simulation of this seed.
///
/// # Panics
///
/// When no runtime can be made.
pub fn simulate(setup: Setup) -> Outcome {
    redlatch::sim::seed(setup.seed);
    redlatch::sim::plant(setup.planted.and_then(Planted::bug));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime: Runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    let outcome = runtime.block_on(play(setup));
    drop(runtime);
    redlatch::sim::plant(None);
    outcome
}

async fn play(setup: Setup) -> Outcome {
    let Setup { seed, planted, .. } = setup;
    let plan = Plan::new(setup);
    let mut random = Random::new(seed, 3);
    let world = World::new(seed, plan.clients, plan.nodes, setup.keep_trace);
    world.note(|| format!("{plan:?}"));
    let server = |node| {
        let clock = Ticker::new(&world, &mut random, 200);
        Server::new(node, &world, clock, plan.kind, planted)
    };
    let servers: Vec<Arc<Server>> = (0..plan.nodes).map(server).collect();
    let beats = tokio::spawn(beat(servers.clone()));
    let stage = Stage::new(&world, &plan);
    if setup.scene != Scene::Trouble {
        // Nobody lets go of a lease for others to find.
        stage.calm.store(true, Ordering::Relaxed);
    }
    let mut site = Site {
        stage: stage.clone(),
        servers: servers.clone(),
        clocks: Vec::new(),
        gates: Vec::new(),
    };
    let mut latches = Vec::new();
    let mut tasks = Vec::new();
    for client in 0..plan.clients {
        let clock = Ticker::new(&world, &mut random, 5_000);
        if client == 0 && plan.guarded {
            let admin = builder(&plan, &world, client, &servers, &clock)
                .admin()
                .await;
            admin
                .unwrap_or_else(|error| panic!("{error}"))
                .assume_fresh()
                .await;
        }
        let latch = builder(&plan, &world, client, &servers, &clock)
            .build()
            .await;
        let latch = latch.unwrap_or_else(|error| panic!("{error}"));
        let gate = Arc::<Gate>::default();
        for task in 0..plan.tasks {
            tasks.push(tokio::spawn(
                Task {
                    stage: stage.clone(),
                    latch: latch.clone(),
                    gate: gate.clone(),
                    client,
                    random: Random::new(seed, 100 + (client * 10 + task) as u64),
                }
                .run(),
            ));
        }
        site.clocks.push(clock);
        site.gates.push(gate);
        latches.push(latch);
    }
    let begun = Instant::now() - Duration::from_micros(world.micros());
    let at = |millis: u64| sleep_until(begun + Duration::from_millis(millis));
    let (site, faults) = (Arc::new(site), Random::new(seed, 4));
    let trouble = match setup.scene {
        Scene::Trouble => tokio::spawn(site.trouble(faults, CALM)),
        Scene::Minority => tokio::spawn(site.minority(faults, CALM)),
        Scene::Stopped => tokio::spawn(site.stopped(faults, CALM)),
    };
    at(plan.end()).await;
    stage.over.store(true, Ordering::Relaxed);
    finish(tasks).await;
    let _ = trouble.await;
    // What was given back is still under way, and asked for again where a node
    // was away.
    rest(if plan.patient { 4_000 } else { 500 }).await;
    for latch in &latches {
        let _ = timeout(Duration::from_secs(5), latch.close()).await;
    }
    rest(100).await;
    let history = stage.history.take();
    let checker = Checker::new(&history);
    let mut violations = checker.fence_order();
    violations.extend(checker.names());
    violations.extend(checker.endings());
    if !plan.patient {
        violations.extend(checker.progress(SETTLED * 1000, OVER * 1000, BOUND));
        violations.extend(checker.keeping(SETTLED * 1000, OVER * 1000));
    }
    if setup.scene != Scene::Trouble {
        violations.extend(checker.progress(0, CALM * 1000, BOUND));
    }
    if plan.faults == Faults::Promised {
        violations.extend(checker.exclusion(!plan.forgets));
        violations.extend(checker.fences_grow());
    }
    violations.extend(nothing_left(&left(&plan, &servers, Moment::Given)));
    // The leases have run out by then, and the queues that nobody asks for.
    rest(QUEUES_KEPT + 2_000).await;
    violations.extend(nothing_left(&left(&plan, &servers, Moment::RunOut)));
    beats.abort();
    let (hash, trace) = world.trace();
    let counts = std::mem::take(
        &mut *stage
            .counts
            .lock()
            .unwrap_or_else(|error| error.into_inner()),
    );
    let idle = checker.idle_times(0, CALM * 1000).into_iter();
    Outcome {
        node_timeout: plan.node_timeout,
        longest_idle: Duration::from_micros(idle.map(|(.., idle)| idle).max().unwrap_or(0)),
        violations,
        hash,
        trace,
        acquisitions: checker.acquisitions() as u64,
        time: Duration::from_micros(world.micros()),
        counts,
        plan: describe(&plan),
    }
}

fn builder(
    plan: &Plan,
    world: &Arc<World>,
    client: usize,
    servers: &[Arc<Server>],
    clock: &Arc<Ticker>,
) -> Builder {
    let mut builder = Redlatch::builder()
        .clock(clock.clone())
        .ttl(plan.ttl)
        .node_timeout(plan.node_timeout)
        .max_ttl(plan.max_ttl())
        .restart_guard(plan.guarded)
        .handovers(plan.handovers.0, plan.handovers.1);
    for server in servers {
        let url = format!("redis://node{}", server.node);
        builder = builder.dialed(url, dial(world, client, server));
    }
    builder
}

/// What servers do by themselves: they drop what has run out, and save.
async fn beat(servers: Vec<Arc<Server>>) {
    for beat in 0_u64.. {
        rest(100).await;
        servers
            .iter()
            .for_each(|server| server.tick(beat % 10 == 0));
    }
}

/// Waits for the tasks. Who has not come to an end by then never will.
async fn finish(tasks: Vec<JoinHandle<()>>) {
    let end = Instant::now() + PATIENCE;
    for mut task in tasks {
        match tokio::time::timeout_at(end, &mut task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            Err(_) => task.abort(),
        }
    }
}

/// How many milliseconds a node keeps a queue after the last ticket came.
const QUEUES_KEPT: u64 = 60_000;

/// When the nodes are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Everything was given back.
    Given,
    /// What was not is over.
    RunOut,
}

fn left(plan: &Plan, servers: &[Arc<Server>], moment: Moment) -> Vec<(usize, String)> {
    let keys: Vec<_> = (0..plan.names())
        .map(|lock| format!("redlatch:{}", plan.lock(lock)))
        .collect();
    let left = |server: &Arc<Server>| {
        let node = server.node;
        let left = server.left(&keys).into_iter();
        left.map(move |key| (node, key)).collect::<Vec<_>>()
    };
    let all = servers.iter().flat_map(left);
    let plain = plan.lock(plan.locks);
    let counts = |key: &str| match (key.contains("queue"), key.ends_with(&plain)) {
        _ if moment == Moment::RunOut => true,
        // Who takes a plain lock without waiting for it does not go by the queue, so a place that
        // nobody wants any more stays there for longer.
        (true, true) => false,
        // A place that was given up comes back when a node is rolled back, or when what asked for
        // it comes late.
        (true, false) => !plan.overtakes && !plan.forgets,
        // A plain lock has no ballot that could keep out what comes late.
        (false, true) => !plan.overtakes,
        (false, false) => true,
    };
    all.filter(|(_, key)| counts(key)).collect()
}

fn describe(plan: &Plan) -> String {
    let kind = match plan.kind {
        Kind::Scripts => "scripts",
        Kind::Rules => "rules",
    };
    format!(
        "{} nodes running {kind}, {} clients of {} tasks, {} locks, ttl {:?}, {:?} faults",
        plan.nodes, plan.clients, plan.tasks, plan.locks, plan.ttl, plan.faults
    )
}
