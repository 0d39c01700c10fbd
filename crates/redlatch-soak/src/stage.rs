//! A run: servers and workers are started, disturbed, measured, and ended.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use redlatch_testkit::{Dice, Fleet, RedisServer, Worker};
use serde_json::{Value, json};

use crate::gauge::{Process, Server};
use crate::uses::UNEXPECTED;
use crate::verdict::{self, MEASURES, Sample};
use crate::worker::{self, MAX_TTL, Task};
use crate::{NODES, Plan, WORKERS};

/// The number of every worker that does not stay.
const VISITOR: usize = WORKERS;

/// For how long a node remembers who waits for a lock that nobody uses any more: what was killed
/// while it waited stays for so long, and no lock is the worse for it.
const LAST_TICKET: Duration = Duration::from_secs(61);

/// Runs it, and says what is not as it should be.
pub(crate) fn run(plan: Plan) -> Result<(), Vec<String>> {
    println!(
        "redlatch-soak --seconds {} --acquisitions-per-second {} --seed {}\n",
        plan.length.as_secs(),
        plan.rate,
        plan.seed
    );
    let fleet = Fleet::start(NODES);
    fleet.iter().for_each(fill_fences);
    arm(&fleet.urls());
    let (tell, told) = mpsc::channel();
    let mut stage = Stage {
        dice: Dice::new(plan.seed),
        workers: Vec::new(),
        visitor: None,
        leaving: None,
        log: plan.log.as_deref().map(open),
        said: vec![Value::Null; WORKERS],
        visits: 0,
        killed: 0,
        kills: 0,
        samples: Vec::new(),
        fleet,
        tell,
        told,
        plan,
    };
    stage.workers = (0..WORKERS).map(|number| stage.start(number)).collect();
    stage.await_first_words();
    stage.watch();
    stage.end()
}

struct Stage {
    plan: Plan,
    dice: Dice,
    fleet: Fleet,
    workers: Vec<Worker>,
    visitor: Option<(Worker, Instant)>,
    leaving: Option<Worker>,
    tell: Sender<(usize, Value)>,
    told: Receiver<(usize, Value)>,
    /// What each worker said last.
    said: Vec<Value>,
    /// Processes that came and went; their acquisitions are not counted.
    visits: u64,
    killed: u64,
    kills: u64,
    samples: Vec<Sample>,
    log: Option<BufWriter<File>>,
}

impl Stage {
    fn start(&mut self, number: usize) -> Worker {
        let task = Task {
            number,
            seed: self.dice.number() >> 8,
            rate: self.plan.rate * 1000 / WORKERS as u64,
            long: self.plan.long(),
            leak: match number {
                VISITOR => String::new(),
                _ => self.plan.leak.clone(),
            },
            urls: self.fleet.urls(),
        };
        worker::start(&task, self.tell.clone())
    }

    fn await_first_words(&mut self) {
        while self
            .said
            .iter()
            .any(|said| said["acquired"].as_u64().unwrap_or(0) == 0)
        {
            let word = self.told.recv_timeout(Duration::from_secs(60));
            let (number, value) = word.expect("every worker gets a lock");
            self.said[number] = value;
        }
    }

    /// Measures and disturbs until the time is over.
    fn watch(&mut self) {
        let (least, most) = (Duration::from_millis(250), Duration::from_secs(5));
        let pace = (self.plan.length / 720).clamp(least, most);
        let (began, long) = (Instant::now(), self.plan.long());
        let word = (self.plan.length / 30).max(Duration::from_secs(5));
        let (mut next_word, mut next_kill, mut next_visit) = (word, long, 2 * long);
        let mut acquired = self.acquired();
        let mut last = began;
        while last - began < self.plan.length {
            thread::sleep((last + pace).saturating_duration_since(Instant::now()));
            let elapsed = last.elapsed();
            last += elapsed;
            self.listen();
            let now = self.acquired();
            let speed = (now - acquired) as f64 / elapsed.as_secs_f64();
            acquired = now;
            let sample = self.sample(speed);
            self.note(last - began, &sample);
            let time = last - began;
            if time >= next_word {
                next_word += word;
                self.tell_progress(time);
            }
            if time >= next_kill {
                next_kill = time + self.dice.time(long / 2, 2 * long);
                self.kill_connections();
            }
            if time >= next_visit {
                next_visit = time + self.dice.time(3 * long, 5 * long);
                self.visitor = Some((self.start(VISITOR), Instant::now() + long));
            }
            self.end_visit(time + LAST_TICKET < self.plan.length);
        }
    }

    fn listen(&mut self) {
        for (number, value) in self.told.try_iter() {
            if let Some(said) = self.said.get_mut(number) {
                *said = value;
            }
        }
    }

    fn acquired(&self) -> u64 {
        let said = self.said.iter();
        said.filter_map(|said| said["acquired"].as_u64()).sum()
    }

    fn sample(&mut self, speed: f64) -> Sample {
        let said = self.said.iter();
        let tasks: u64 = said.filter_map(|said| said["tasks"].as_u64()).sum();
        let usage: Vec<_> = self.workers.iter().map(usage).collect();
        let nodes = Server::all(&self.fleet);
        let sample = [
            speed,
            usage.iter().map(|usage| usage.resident_kib).sum::<u64>() as f64,
            tasks as f64,
            usage.iter().map(|usage| usage.handles).sum::<u64>() as f64,
            usage.iter().map(|usage| usage.threads).sum::<u64>() as f64,
            nodes.keys as f64,
            nodes.tracked as f64,
            nodes.memory_kib as f64,
            nodes.channels as f64,
            nodes.connections as f64,
            nodes.trackers as f64,
            nodes.scripts as f64,
        ];
        self.samples.push(sample);
        sample
    }

    fn note(&mut self, time: Duration, sample: &Sample) {
        let Some(log) = &mut self.log else { return };
        let mut line = json!({ "seconds": time.as_secs_f64() });
        for (measure, value) in MEASURES.iter().zip(sample) {
            line[measure.name] = json!(value);
        }
        // A log that can't be written must not end an hour's run.
        if let Err(error) = writeln!(log, "{line}").and_then(|()| log.flush()) {
            eprintln!("redlatch-soak: the log: {error}");
            self.log = None;
        }
    }

    fn tell_progress(&self, time: Duration) {
        let Some(sample) = self.samples.last() else {
            return;
        };
        println!(
            "{:5} s  {:8} acquisitions  {:6.0} KiB  {:3.0} tasks  {:3.0} handles  {:4.0} keys",
            time.as_secs(),
            self.acquired(),
            sample[1],
            sample[2],
            sample[3],
            sample[5],
        );
    }

    /// Ends every connection to one node, but our own.
    fn kill_connections(&mut self) {
        let node = self.dice.below(NODES as u64) as usize;
        for kind in ["normal", "pubsub"] {
            self.fleet[node].command(&["CLIENT", "KILL", "TYPE", kind]);
        }
        self.kills += 1;
    }

    /// Every second visitor is killed, if any may be, and what it holds is left to its ttl.
    fn end_visit(&mut self, may_kill: bool) {
        if let Some((visitor, _)) = self.visitor.take_if(|(_, end)| Instant::now() >= *end) {
            self.visits += 1;
            match may_kill && self.visits % 2 == 1 {
                true => {
                    self.killed += 1;
                    drop(visitor);
                }
                false => self.leave(visitor),
            }
        }
    }

    /// It may take its time: the measuring goes on.
    fn leave(&mut self, mut visitor: Worker) {
        visitor.dismiss();
        if let Some(earlier) = self.leaving.replace(visitor) {
            earlier.finish();
        }
    }

    /// Lets everybody go, looks at what is left, and tells how it was.
    fn end(mut self) -> Result<(), Vec<String>> {
        if let Some((visitor, _)) = self.visitor.take() {
            self.leave(visitor);
        }
        if let Some(leaving) = self.leaving.take() {
            leaving.finish();
        }
        let mut workers = std::mem::take(&mut self.workers);
        workers.iter_mut().for_each(Worker::dismiss);
        let said = self.said.clone();
        workers.into_iter().for_each(Worker::finish);
        drop(std::mem::replace(&mut self.tell, mpsc::channel().0));
        let mut faults = Vec::new();
        let mut last_words = said;
        let mut goodbyes = 0;
        for (number, value) in self.told.iter().filter(|(number, _)| *number < WORKERS) {
            if value["left"].is_null() {
                last_words[number] = value;
                continue;
            }
            goodbyes += 1;
            if value["left"] != json!([0, 0]) {
                let left = &value["left"];
                let [tasks, handles] = [&left[0], &left[1]];
                faults.push(format!(
                    "worker {number}, after its last client: {tasks} tasks, {handles} file handles"
                ));
            }
        }
        assert_eq!(goodbyes, WORKERS, "every worker says what is left");
        self.said = last_words;
        faults.extend(await_nothing_left(&self.fleet));
        self.print(&mut faults);
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }

    fn print(&self, faults: &mut Vec<String>) {
        println!("\n| over the whole run | |\n| --- | --- |");
        println!("| acquisitions | {} |", self.acquired());
        println!(
            "| times the connections to a node were killed | {} |",
            self.kills
        );
        println!("| further client processes | {} |", self.visits);
        println!("| of which were killed | {} |", self.killed);
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for said in &self.said {
            for (what, count) in said["counts"].as_object().into_iter().flatten() {
                *counts.entry(what).or_default() += count.as_u64().unwrap_or(0);
            }
        }
        for (what, count) in counts {
            println!("| {what} | {count} |");
            if what == UNEXPECTED {
                faults.push(format!("{count} {what}"));
            }
        }
        println!("\n| | second tenth | last tenth | most | |\n| --- | --- | --- | --- | --- |");
        for row in verdict::judge(&self.samples) {
            let verdict = if row.flat { "flat" } else { "NOT FLAT" };
            let verdict::Row {
                name,
                early,
                late,
                most,
                ..
            } = row;
            println!("| {name} | {early:.0} | {late:.0} | {most:.0} | {verdict} |");
            if !row.flat {
                faults.push(format!("{name}: {early:.0}, at the end {late:.0}"));
            }
        }
        println!();
    }
}

/// The table of fences grows with the number of names, up to a limit. Here it is full from the
/// start, with fences of an hour ago, so that what else grows shows.
fn fill_fences(server: &RedisServer) {
    let script = "local ballot = (redis.call('TIME')[1] - 3600) * 1000 * 1024 \
                  local text = string.format('%.0f', ballot) \
                  for slot = ARGV[1], ARGV[1] + 1023 do \
                  redis.call('HSET', KEYS[1], slot, text, 'f' .. slot, text) end";
    // In small pieces: on a busy machine all of it could take longer than the kit waits.
    for begin in (0..65_536).step_by(1024) {
        let begin = begin.to_string();
        let filled = server.command(&["EVAL", script, "1", "redlatch:__fence", &begin]);
        assert!(!filled.is_error(), "{filled}");
    }
    let fields = server.command(&["HLEN", "redlatch:__fence"]).as_int();
    assert_eq!(fields, 2 * 65_536, "all slots, and the marks of force");
}

/// The servers are new: there is no need to wait out a quarantine.
fn arm(urls: &[String]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let admin = worker::builder(urls).admin().await;
        let admin = admin.expect("the nodes are there");
        for status in admin.assume_fresh().await {
            assert!(status.is_armed(), "{status}");
        }
    });
}

fn usage(worker: &Worker) -> Process {
    Process::of(worker.id()).expect("a worker stays until it is told to end")
}

fn open(path: &str) -> BufWriter<File> {
    let file = File::create(path);
    BufWriter::new(file.unwrap_or_else(|error| panic!("{path}: {error}")))
}

/// What is left when everybody has gone, and all leases have had time to run out.
fn await_nothing_left(servers: &[RedisServer]) -> Vec<String> {
    let end = Instant::now() + MAX_TTL + Duration::from_secs(6);
    loop {
        let mut left = Vec::new();
        for (node, server) in servers.iter().enumerate() {
            left.extend(
                server
                    .locks()
                    .iter()
                    .map(|key| format!("`{key}` on node {node}")),
            );
        }
        let Server {
            channels,
            connections,
            ..
        } = Server::all(servers);
        for (what, count) in [("channels", channels), ("connections", connections)] {
            if count > 0 {
                left.push(format!("{count} {what}"));
            }
        }
        if left.is_empty() || Instant::now() > end {
            left.iter_mut()
                .for_each(|left| left.insert_str(0, "left over: "));
            return left;
        }
        thread::sleep(Duration::from_millis(50));
    }
}
