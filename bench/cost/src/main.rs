//! What a fence and the restart guard cost, beside the bare `SET key token NX PX ttl`:
//! time of the server, allocations of the client, and latency.
//!
//! ```sh
//! cargo run --release -p redlatch-bench-cost            # about a minute
//! cargo run --release -p redlatch-bench-cost -- --quick # a few seconds
//! cargo run --release -p redlatch-bench-cost -- --allocations redlatch-plain # only those, in JSON
//! ```
//!
//! Ratios within one run are what counts: the contenders take turns, round by
//! round, on the same server, and the medians are compared. Latency is measured
//! with the cores kept awake by spinning processes of the lowest priority,
//! because a virtual machine's core takes longer to wake than Redis to answer.

use std::alloc::System;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redlatch::{Builder, Mutex, Redlatch};
use redlatch_testkit::{Awake, RedisServer};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Counts what is allocated, by all threads of this process.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let (rounds, size) = if quick { (3, 2_000) } else { (9, 20_000) };
    let server = RedisServer::start();
    let contenders = Contender::all(&server).await;
    if let [option, id] = &*arguments
        && option == "--allocations"
    {
        let contender = contenders.iter().find(|contender| contender.id == id);
        let contender = contender.expect("one of raw, redlatch-plain, redlatch-fenced");
        let (count, bytes) = contender.allocations(&server, 0, size / 10).await;
        println!(r#"{{"allocations":{count},"bytes":{bytes}}}"#);
        return;
    }
    println!("medians of {rounds} rounds, in which the contenders take turns\n");

    // Alone a request pays for its own system calls; many at once share them.
    for (tasks, size) in [(1, size / 4), (64, size)] {
        println!("Redis CPU in µs for each of {size} acquires by {tasks} task(s)");
        let cpu = interleave(rounds, &contenders, async |contender, round| {
            server.command(&["FLUSHALL"]);
            contender.arm().await;
            let before = redis_cpu(&server);
            contender.acquire_all(tasks, round, size).await;
            (redis_cpu(&server) - before) / size as f64
        })
        .await;
        print_table(&contenders, &cpu);
    }

    println!("allocations for each acquire and release by one task");
    let counts = interleave(rounds, &contenders, async |contender, round| {
        contender.allocations(&server, round, size / 10).await.0
    })
    .await;
    print_table(&contenders, &counts);

    println!("client latency in µs of acquire and release by one task, p50");
    let _awake = Awake::start();
    let latency = interleave(rounds, &contenders, async |contender, round| {
        server.command(&["FLUSHALL"]);
        contender.arm().await;
        contender.cycle_latency(round, size / 10).await
    })
    .await;
    print_table(&contenders, &latency);
}

/// One way to take a lock.
struct Contender {
    /// What it is called in `bench/run`.
    id: &'static str,
    name: &'static str,
    way: Way,
}

enum Way {
    Raw(MultiplexedConnection),
    Redlatch {
        latch: Redlatch,
        url: String,
        fencing: bool,
    },
}

impl Contender {
    async fn all(server: &RedisServer) -> Vec<Self> {
        let client = redis::Client::open(server.url()).expect("its own URL");
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let raw = client.get_multiplexed_async_connection_with_config(&config);
        let raw = Way::Raw(raw.await.expect("the server is there"));
        let way = async |guard: bool, fencing: bool| {
            let url = server.url();
            let builder = builder(&url).restart_guard(guard);
            let latch = builder.build().await.expect("the server is there");
            Way::Redlatch {
                latch,
                url,
                fencing,
            }
        };
        let entry = |id, name, way| Self { id, name, way };
        vec![
            entry("raw", "bare SET NX PX by the redis crate", raw),
            entry("redlatch-plain", "redlatch, plain", way(false, false).await),
            entry(
                "redlatch-fenced",
                "redlatch, fenced",
                way(false, true).await,
            ),
            entry(
                "redlatch-guarded",
                "redlatch, fenced and guarded",
                way(true, true).await,
            ),
        ]
    }

    /// Lets the server grant at once, after it was emptied.
    async fn arm(&self) {
        if let Way::Redlatch { url, .. } = &self.way {
            let admin = builder(url).restart_guard(true).admin().await;
            admin
                .expect("settings that make sense")
                .assume_fresh()
                .await;
        }
    }

    /// Acquires so many locks and keeps them.
    async fn acquire_all(&self, tasks: usize, round: usize, size: usize) {
        let work = (0..tasks).map(|task| async move {
            for number in (task..size).step_by(tasks) {
                let name = format!("{round}-{number}");
                match &self.way {
                    Way::Raw(connection) => set(&mut connection.clone(), &name).await,
                    Way::Redlatch { latch, fencing, .. } => {
                        let guard = mutex(latch, &name, *fencing).lock().await;
                        let _ = guard.expect("nobody else has it").detach();
                    }
                }
            }
        });
        join_all(work).await;
    }

    /// How often and how much is allocated for each acquire and release by one task.
    async fn allocations(&self, server: &RedisServer, round: usize, size: usize) -> (f64, f64) {
        server.command(&["FLUSHALL"]);
        self.arm().await;
        // What is done once is not counted.
        self.cycle_latency(round, 10).await;
        server.command(&["FLUSHALL"]);
        self.arm().await;
        let region = Region::new(ALLOCATOR);
        self.cycle_latency(round, size).await;
        let made = region.change();
        let count = (made.allocations + made.reallocations) as f64;
        // Reallocations have a net of bytes, which may be less than none.
        let bytes = made.bytes_allocated as f64;
        (count / size as f64, bytes / size as f64)
    }

    /// The median time of acquiring and releasing, in µs.
    async fn cycle_latency(&self, round: usize, size: usize) -> f64 {
        let mut times = Vec::with_capacity(size);
        for number in 0..size {
            let name = format!("{round}-{number}");
            let start = Instant::now();
            match &self.way {
                Way::Raw(connection) => {
                    let mut connection = connection.clone();
                    set(&mut connection, &name).await;
                    let mut unlock = redis::cmd("EVAL");
                    unlock
                        .arg(UNLOCK)
                        .arg(1)
                        .arg(format!("redlatch:{name}"))
                        .arg(TOKEN);
                    let gone: i64 = unlock
                        .query_async(&mut connection)
                        .await
                        .expect("an answer");
                    assert_eq!(gone, 1);
                }
                Way::Redlatch { latch, fencing, .. } => {
                    let guard = mutex(latch, &name, *fencing).lock().await;
                    let guard = guard.expect("nobody else has it");
                    guard.release().await.expect("it was ours");
                }
            }
            times.push(start.elapsed());
        }
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e6
    }
}

/// As long as one of redlatch's.
const TOKEN: &str = r#"AAAAAAAAAAAAAAAAAAAAAAAAAAA {"host":"machine","pid":12345}"#;

/// How everybody unlocks who does it right.
const UNLOCK: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                      return redis.call('del', KEYS[1]) else return 0 end";

async fn set(connection: &mut MultiplexedConnection, name: &str) {
    let mut set = redis::cmd("SET");
    set.arg(format!("redlatch:{name}"))
        .arg(TOKEN)
        .arg("NX")
        .arg("PX")
        .arg(30_000);
    set.exec_async(connection)
        .await
        .expect("nobody else has it");
}

fn builder(url: &str) -> Builder {
    let builder = Redlatch::builder().nodes([url]);
    builder
        .node_timeout(Duration::from_secs(5))
        .ttl(Duration::from_secs(30))
}

fn mutex(latch: &Redlatch, name: &str, fencing: bool) -> Mutex {
    latch.mutex(name).renewal(false).fencing(fencing)
}

/// Lets the contenders take turns, and gives each its median and spread.
async fn interleave(
    rounds: usize,
    contenders: &[Contender],
    mut measure: impl AsyncFnMut(&Contender, usize) -> f64,
) -> Vec<(f64, f64, f64)> {
    let mut figures = vec![Vec::new(); contenders.len()];
    for round in 0..rounds {
        for (contender, figures) in contenders.iter().zip(&mut figures) {
            figures.push(measure(contender, round).await);
        }
    }
    let median = |mut figures: Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        let last = figures.len() - 1;
        (figures[last / 2], figures[0], figures[last])
    };
    figures.into_iter().map(median).collect()
}

fn print_table(contenders: &[Contender], figures: &[(f64, f64, f64)]) {
    let floor = figures[0].0;
    println!(
        "  {:<36}{:>8}  {:>17}  {:>6}",
        "", "median", "lowest–highest", "ratio"
    );
    for (contender, (median, low, high)) in contenders.iter().zip(figures) {
        let spread = format!("{low:.2}–{high:.2}");
        let ratio = median / floor;
        println!(
            "  {:<36}{median:>8.2}  {spread:>17}  {ratio:>6.2}",
            contender.name
        );
    }
}

/// What the server has used of the processor, in µs.
fn redis_cpu(server: &RedisServer) -> f64 {
    let seconds = |field: &str| {
        server
            .info(field)
            .parse::<f64>()
            .expect("a number of seconds")
    };
    (seconds("used_cpu_user_main_thread") + seconds("used_cpu_sys_main_thread")) * 1e6
}
