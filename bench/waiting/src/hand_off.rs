//! What passes between processes when a lock goes from one to the next.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use redlatch::Redlatch;
use redlatch_testkit::{Awake, RedisServer};

use crate::worker::{Plan, Worker, clock};

pub(crate) async fn run(times: usize) {
    commands().await;
    latency(times).await;
}

/// Counts who sends what while the lock goes from us to the first of five.
async fn commands() {
    let server = RedisServer::start();
    let latch = connect(&server).await;
    let guard = latch.mutex("hot").lock().await.expect("nobody has it");
    let mut workers: Vec<Worker> = (0..5)
        .map(|_| Worker::start(&server.url(), &Plan::ON_COMMAND))
        .collect();
    for (number, worker) in workers.iter_mut().enumerate() {
        // A worker that gets the lock keeps it: nothing else must happen.
        worker.tell("keep");
        while server.queue("hot").len() <= number {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let monitor = Monitor::start(&server);
    guard.release().await.expect("it is held");
    workers[0].hear();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut sent: Vec<(u64, Vec<String>)> = monitor.stop().into_values().collect();
    sent.sort_unstable_by_key(|(at, _)| *at);
    println!("Commands when the lock goes from one process to the first of five that wait:\n");
    // Who gets it says nothing when its request was parked.
    let names: &[&str] = match sent.len() {
        2 => &["who gives it back", "the new first in the queue"],
        _ => &[
            "who gives it back",
            "who gets it",
            "the new first in the queue",
        ],
    };
    for ((_, commands), name) in sent.iter().zip(names) {
        println!("- {name}: {} ({})", commands.len(), commands.join(", "));
    }
    println!("- all others: {}\n", sent.len().saturating_sub(names.len()));
}

/// How long it takes from the release to the next holder, in round trips.
async fn latency(times: usize) {
    let server = RedisServer::start();
    let latch = connect(&server).await;
    let lock = latch.mutex("hot");
    let mut worker = Worker::start(&server.url(), &Plan::ON_COMMAND);
    let raw = redis::Client::open(server.url()).expect("its own URL");
    let raw = raw.get_multiplexed_async_connection().await;
    let mut raw = raw.expect("the server is there");
    let other = latch.mutex("other");
    let (mut passes, mut trips, mut scripts) = (Vec::new(), Vec::new(), Vec::new());
    let _awake = Awake::start();
    for _ in 0..times {
        let guard = lock.lock().await.expect("it comes back");
        worker.tell("pass");
        while server.queue("hot").is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
        let begin = clock();
        let ping: Result<(), _> = redis::cmd("PING").query_async(&mut raw).await;
        trips.push(clock() - begin);
        ping.expect("it answers");
        tokio::time::sleep(Duration::from_millis(1)).await;
        // The same script as a request of ours, for a lock that nobody wants.
        let begin = clock();
        let other = other.try_lock().await.expect("the server is there");
        scripts.push(clock() - begin);
        drop(other);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let begin = clock();
        guard.release().await.expect("it is held");
        let got: u64 = worker.hear().parse().expect("a time");
        passes.push(got - begin);
    }
    let [pass, trip, script] = [&mut passes[..], &mut trips[..], &mut scripts[..]].map(median);
    println!(
        "From the release to the next holder in another process, median of {times}: {:.0} µs; \
         a bare round trip (PING): {:.0} µs, ratio {:.2}; one acquire of a free lock: {:.0} µs, \
         ratio {:.2}\n",
        pass as f64 / 1000.0,
        trip as f64 / 1000.0,
        pass as f64 / trip as f64,
        script as f64 / 1000.0,
        pass as f64 / script as f64,
    );
}

async fn connect(server: &RedisServer) -> Redlatch {
    let builder = Redlatch::builder().nodes([server.url()]);
    let builder = builder.node_timeout(Duration::from_secs(1));
    builder.build().await.expect("the server is there")
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// What each client sends, as the server sees it.
struct Monitor {
    lines: mpsc::Receiver<String>,
}

impl Monitor {
    fn start(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("it is there");
        stream.write_all(b"MONITOR\r\n").expect("it is there");
        let mut reader = BufReader::new(stream);
        let mut ok = String::new();
        reader.read_line(&mut ok).expect("it answers");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { lines }
    }

    /// The names of the commands of each client, and when the first came.
    fn stop(self) -> BTreeMap<String, (u64, Vec<String>)> {
        let mut sent = BTreeMap::new();
        for (at, line) in self.lines.try_iter().enumerate() {
            // +1700000000.123456 [0 127.0.0.1:1234] "GET" "key"
            let mut words = line.split(' ').skip(2);
            let client = words.next().unwrap_or_default().to_owned();
            let command = words
                .next()
                .unwrap_or_default()
                .trim_matches('"')
                .to_owned();
            if client != "lua]" {
                let entry = sent.entry(client).or_insert((at as u64, Vec::new()));
                entry.1.push(command);
            }
        }
        sent
    }
}
