//! A process that takes a lock again and again, or waits for it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use redlatch::Redlatch;
use serde_json::{Value, json};

/// What a worker is to do, in one line of JSON.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// How many tasks take turns; 0 to wait on command.
    pub(crate) tasks: usize,
    pub(crate) hold: Duration,
    pub(crate) pause: Duration,
    pub(crate) length: Duration,
    pub(crate) fencing: bool,
    pub(crate) handovers: bool,
}

impl Plan {
    /// Does nothing until it is told to.
    pub(crate) const ON_COMMAND: Self = Self {
        tasks: 0,
        hold: Duration::ZERO,
        pause: Duration::ZERO,
        length: Duration::ZERO,
        fencing: true,
        handovers: true,
    };

    fn text(&self) -> String {
        let micros = |duration: Duration| duration.as_micros() as u64;
        json!([
            self.tasks,
            micros(self.hold),
            micros(self.pause),
            micros(self.length),
            self.fencing,
            self.handovers
        ])
        .to_string()
    }

    fn parse(text: &str) -> Self {
        let plan: Value = serde_json::from_str(text).expect("written by us");
        let number = |at: usize| plan[at].as_u64().expect("a number");
        let micros = |at| Duration::from_micros(number(at));
        Self {
            tasks: number(0) as usize,
            hold: micros(1),
            pause: micros(2),
            length: micros(3),
            fencing: plan[4] == true,
            handovers: plan[5] == true,
        }
    }
}

/// A worker that was started, and is ended when this is dropped.
pub(crate) struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker, and waits until it is connected.
    pub(crate) fn start(url: &str, plan: &Plan) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["worker", url, &plan.text()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program, again");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut worker = Self {
            child,
            stdin,
            stdout,
        };
        assert_eq!(worker.hear(), "ready");
        worker
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the worker is there");
    }

    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.stdout
            .read_line(&mut line)
            .expect("the worker is there");
        line.trim_end().to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What all processes on this machine read the same, in nanoseconds.
pub(crate) fn clock() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Is a worker: takes its orders from stdin.
pub(crate) async fn run(url: &str, plan: &str) {
    let plan = Plan::parse(plan);
    let mut builder = Redlatch::builder()
        .nodes([url])
        .node_timeout(Duration::from_secs(1));
    if !plan.handovers {
        builder = builder.handovers(0, Duration::ZERO);
    }
    let latch = builder.build().await.expect("the server is there");
    println!("ready");
    let (orders, mut received) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = orders.send(line);
        }
    });
    match plan.tasks {
        0 => {
            while let Some(order) = received.recv().await {
                obey(&latch, &plan, &order).await;
            }
        }
        _ => {
            received.recv().await;
            contend(&latch, &plan).await;
        }
    }
}

/// Locks, says when, and gives the lock back when told to, and says when.
async fn obey(latch: &Redlatch, plan: &Plan, order: &str) {
    let lock = latch.mutex("hot").fencing(plan.fencing);
    match order.split_once(' ') {
        // Many tasks wait, and none ever gets it.
        Some(("wait", tasks)) => {
            for _ in 0..tasks.parse::<usize>().expect("a number") {
                let lock = lock.clone();
                tokio::spawn(async move { lock.lock().await.map(drop) });
            }
            println!("waiting");
        }
        // Waits, and gives it back at once, unless it is to keep it.
        _ => {
            let guard = lock.lock().await.expect("the server is there");
            println!("{}", clock());
            if order == "keep" {
                std::future::pending::<()>().await;
            }
            guard.release().await.expect("it is held");
        }
    }
}

/// Takes the lock again and again, and says how often and after which waits.
async fn contend(latch: &Redlatch, plan: &Plan) {
    let plan = *plan;
    let end = tokio::time::Instant::now() + plan.length;
    let tasks: Vec<_> = (0..plan.tasks)
        .map(|_| {
            let lock = latch.mutex("hot").fencing(plan.fencing);
            tokio::spawn(async move {
                let (mut waits, mut held) = (Vec::new(), 0);
                while tokio::time::Instant::now() < end {
                    let begin = clock();
                    let guard = lock.lock().await.expect("the server is there");
                    let got = clock();
                    waits.push((got - begin) / 1000);
                    sleep(plan.hold).await;
                    held += clock() - got;
                    guard.release().await.expect("it is held");
                    sleep(plan.pause).await;
                }
                json!({ "waits": waits, "held": held / 1000 })
            })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.expect("no task panics"));
    }
    println!("{}", Value::from(results));
}

/// The runtime's timer, which counts in milliseconds, would make more of nothing.
async fn sleep(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
