//! A client process: this program, started again.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use redlatch::{Guard, Mutex, Redlatch};
use redlatch_testkit::{Dice, Worker};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt;
use tokio::sync::watch;

use crate::MAX_TTL;
use crate::arena::Plan;
use crate::history::{Hold, clock};
use crate::resource::{Manner, RESOURCES};
use crate::tenure::Tenure;

/// So that leases are also handed over inside a process.
const TASKS_PER_LOCK: u64 = 2;

/// Settings of a worker that client and administrator must agree on.
pub(crate) fn builder(urls: &[String], restart_guard: bool) -> redlatch::Builder {
    // Five servers, four clients and the proxies share the cores of one machine. One server answers
    // sooner, and has to: requests of a ttl of less than eight node timeouts are not parked.
    let node_timeout = Duration::from_millis(if urls.len() > 1 { 150 } else { 100 });
    Redlatch::builder()
        .nodes(urls)
        .restart_guard(restart_guard)
        .ttl(Duration::from_secs(1))
        .max_ttl(MAX_TTL)
        .node_timeout(node_timeout)
        .connect_timeout(Duration::from_millis(500))
}

/// Starts a worker; what it has to tell goes to `told`.
pub(crate) fn start(
    number: usize,
    Plan { seed, guard, .. }: Plan,
    resources: SocketAddr,
    urls: &[String],
    told: Sender<Value>,
) -> Worker {
    let plan = json!([number, seed, resources.to_string(), urls, guard]).to_string();
    Worker::start(&plan, move |line| {
        let value = serde_json::from_str(&line).expect("written by us");
        told.send(value).is_ok()
    })
}

/// Waits until every worker has had a lock.
pub(crate) fn await_first_holds(workers: usize, told: &Receiver<Value>, kept: &mut Vec<Value>) {
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < workers {
        let value = told
            .recv_timeout(Duration::from_secs(60))
            .expect("every worker gets a lock while there are no faults");
        seen.extend(Hold::from_json(&value).map(|hold| hold.worker));
        kept.push(value);
    }
}

/// Is a worker, until its standard input ends.
pub(crate) fn run(plan: &str) {
    Worker::end_with_parent();
    let plan: Value = serde_json::from_str(plan).expect("written by the parent");
    let number = plan[0].as_u64().expect("a number");
    let seed = plan[1].as_u64().expect("a number");
    let address = plan[2].as_str().expect("an address").to_owned();
    let urls = plan[3].as_array().expect("a list").iter();
    let urls: Vec<String> = urls
        .filter_map(|url| Some(url.as_str()?.to_owned()))
        .collect();
    let guard = plan[4] == true;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let latch = builder(&urls, guard)
            .build()
            .await
            .expect("all nodes are there");
        let (stop, stopped) = watch::channel(false);
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            let _ = stop.send(true);
        });
        let mut tasks = Vec::new();
        for (at, (name, manner)) in RESOURCES.into_iter().enumerate() {
            for task in 0..TASKS_PER_LOCK {
                let contender = Contender {
                    worker: number,
                    lock: latch.mutex(name),
                    resource: at,
                    manner,
                    dice: Dice::new(seed ^ (number << 32 | (at as u64) << 16 | task)),
                    line: Line::connect(&address).await,
                };
                tasks.push(tokio::spawn(contender.contend(stopped.clone())));
            }
        }
        for task in tasks {
            task.await.expect("no task panics");
        }
        latch.close().await;
    });
}

/// A task that takes one lock again and again.
struct Contender {
    worker: u64,
    lock: Mutex,
    resource: usize,
    manner: Manner,
    dice: Dice,
    line: Line,
}

impl Contender {
    async fn contend(mut self, stopped: watch::Receiver<bool>) {
        while !*stopped.borrow() {
            let asked = clock();
            match self.take().await {
                Ok(Some(guard)) => self.work(asked, guard).await,
                Ok(None) => {}
                // Part of the game; kept for the history.
                Err(error) => println!("{}", self.failure("lock", asked, &error)),
            }
            tokio::time::sleep(self.dice.millis(0, 25)).await;
        }
    }

    /// Waits for its turn, or tries once: a try begins late, so its fence says more.
    async fn take(&mut self) -> redlatch::Result<Option<Guard>> {
        let lock = self.lock.clone().ttl(self.dice.millis(800, 2000));
        match self.dice.below(2) {
            0 => lock.try_lock().await,
            _ => lock.lock_timeout(Duration::from_secs(3)).await.map(Some),
        }
    }

    /// Read, sleep, write.
    async fn work(&mut self, asked: u64, guard: Guard) {
        let mut tenure = Tenure::begin(guard.lease());
        let fence = guard.fence();
        let shown = (self.manner == Manner::Fenced).then_some(fence);
        if let Some(read) = self.line.ask(json!([self.resource, shown])).await {
            // Now and then so long that the lease has to be renewed.
            let length = match self.dice.below(12) {
                0 => self.dice.millis(400, 1800),
                _ => self.dice.millis(1, 20),
            };
            tenure.watch(length).await;
            if self.manner != Manner::Asked || guard.ensure_held().is_ok() {
                let write = json!([self.resource, shown, read]);
                self.line.ask(write).await;
            }
        }
        let (acquired, seen, ended, end) = tenure.end();
        let hold = Hold {
            lock: self.lock.name().to_owned(),
            worker: self.worker,
            asked,
            acquired,
            ended,
            seen,
            fence: redlatch_core::Fence::new(fence),
            token: guard.token().short().to_owned(),
            end,
        };
        if let Err(error) = guard.release().await {
            println!("{}", self.failure("release", hold.seen, &error));
        }
        println!("{}", hold.to_json());
    }

    fn failure(&self, what: &str, began: u64, error: &redlatch::Error) -> Value {
        json!({
            "failed": what, "lock": self.lock.name(), "worker": self.worker,
            "began": began, "ended": clock(), "why": error.to_string(),
        })
    }
}

/// A task's own connection to the resources.
struct Line(tokio::io::BufStream<tokio::net::TcpStream>);

impl Line {
    async fn connect(address: &str) -> Self {
        let stream = tokio::net::TcpStream::connect(address).await;
        let stream = stream.expect("the parent serves the resources");
        stream.set_nodelay(true).expect("a socket");
        Self(tokio::io::BufStream::new(stream))
    }

    /// Sends a request; nothing when it was refused.
    async fn ask(&mut self, request: Value) -> Option<u64> {
        use tokio::io::AsyncWriteExt;
        let request = format!("{request}\n");
        let mut answer = String::new();
        self.0
            .write_all(request.as_bytes())
            .await
            .expect("the parent lives");
        self.0.flush().await.expect("the parent lives");
        self.0
            .read_line(&mut answer)
            .await
            .expect("the parent lives");
        serde_json::from_str::<Value>(&answer)
            .expect("written by us")
            .as_u64()
    }
}
