//! A contender's process: started, told what to do, listened to.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::contenders::Contender;

/// How long a process may take to start: a virtual machine of its own, and more
/// of them than cores.
const START_LIMIT: Duration = Duration::from_secs(120);

/// How long all of a run may take to end by themselves.
const END_LIMIT: Duration = Duration::from_secs(5);

/// What a process is to do. `bench/README.md` says what the fields mean.
#[derive(Clone, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) mode: &'a str,
    pub(crate) nodes: &'a [String],
    pub(crate) tasks: usize,
    pub(crate) name: &'a str,
    pub(crate) distinct: usize,
    pub(crate) hold_us: u64,
    pub(crate) pause_us: u64,
    pub(crate) seconds: f64,
    pub(crate) cycles: Option<usize>,
    pub(crate) ttl_ms: u64,
    pub(crate) samples: bool,
}

impl<'a> Job<'a> {
    /// One task that has to do with the lock `hot`.
    pub(crate) fn new(mode: &'a str, nodes: &'a [String]) -> Self {
        Self {
            mode,
            nodes,
            tasks: 1,
            name: "hot",
            distinct: 0,
            hold_us: 0,
            pause_us: 0,
            seconds: 0.0,
            cycles: None,
            ttl_ms: 10_000,
            samples: false,
        }
    }

    fn text(&self, contender: &Contender) -> String {
        let mut job = json!({
            "lock": contender.name,
            "mode": self.mode,
            "nodes": self.nodes,
            "tasks": self.tasks,
            "name": self.name,
            "distinct": self.distinct,
            "hold_us": self.hold_us,
            "pause_us": self.pause_us,
            "seconds": self.seconds,
            "ttl_ms": self.ttl_ms,
            "samples": self.samples,
        });
        if let Some(cycles) = self.cycles {
            job["cycles"] = cycles.into();
        }
        job.to_string()
    }
}

/// A process that was started. It is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    /// `None` once it was told to end.
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<Value>,
    /// What it said on stderr.
    words: Arc<Mutex<String>>,
}

impl Process {
    /// Starts a contender. It is not ready before [`Process::hear`] says so.
    pub(crate) fn start(contender: &Contender, job: &Job<'_>) -> Result<Self, String> {
        let mut child = Command::new(contender.program())
            .arg(job.text(contender))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", contender.program().display()))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("no stdout")?;
        let mut stderr = child.stderr.take().ok_or("no stderr")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // What is not an event is chatter, as libraries like to have it.
                if let Ok(event) = serde_json::from_str::<Value>(&line)
                    && sender.send(event).is_err()
                {
                    break;
                }
            }
        });
        let words = Arc::new(Mutex::new(String::new()));
        let kept = words.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                let mut kept = kept.lock().expect("nobody panics");
                // The first words tell more than the last.
                if kept.len() < 4096 {
                    kept.push_str(&String::from_utf8_lossy(&buffer[..length]));
                }
            }
        });
        Ok(Self {
            child,
            stdin,
            lines,
            words,
        })
    }

    /// Returns when all of them are ready.
    pub(crate) fn all_ready<'a>(
        processes: impl IntoIterator<Item = &'a Self>,
    ) -> Result<(), String> {
        Self::hear_all(processes, "ready", START_LIMIT).map(drop)
    }

    /// Waits for an event of each of them; the limit is for all together.
    pub(crate) fn hear_all<'a>(
        processes: impl IntoIterator<Item = &'a Self>,
        event: &str,
        limit: Duration,
    ) -> Result<Vec<Value>, String> {
        let deadline = Instant::now() + limit;
        let hear = |process: &Self| process.hear_until(event, limit, deadline);
        processes.into_iter().map(hear).collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it begin. If it is gone, [`Process::hear`] will say why.
    pub(crate) fn go(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "go").and_then(|()| stdin.flush());
        }
    }

    /// Waits for an event. The error says what came instead.
    pub(crate) fn hear(&self, event: &str, limit: Duration) -> Result<Value, String> {
        self.hear_until(event, limit, Instant::now() + limit)
    }

    fn hear_until(&self, event: &str, limit: Duration, deadline: Instant) -> Result<Value, String> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line["event"] == event => return Ok(line),
                Ok(line) if line["event"] == "error" => {
                    let message = line["message"].as_str().unwrap_or("an error without words");
                    return Err(message.to_owned());
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("no {event:?} within {limit:?}{}", self.said()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("it ended before {event:?}{}", self.said()));
                }
            }
        }
    }

    /// Whether it goes on without complaint.
    pub(crate) fn is_well(&self) -> Result<(), String> {
        match self.lines.try_recv() {
            Ok(line) => Err(format!("it said {line}")),
            Err(TryRecvError::Disconnected) => Err(format!("it ended{}", self.said())),
            Err(TryRecvError::Empty) => Ok(()),
        }
    }

    /// What it said on stderr, to go after other words.
    fn said(&self) -> String {
        let words = self.words.lock().expect("nobody panics");
        match words.trim() {
            "" => String::new(),
            words => format!(": {}", words.lines().next().unwrap_or_default()),
        }
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        let _ = self.child.kill();
    }

    /// Lets them end by themselves, so that they give back what they have.
    pub(crate) fn end_all(mut processes: Vec<Self>) {
        for process in &mut processes {
            process.stdin = None;
        }
        let deadline = Instant::now() + END_LIMIT;
        for process in &mut processes {
            while matches!(process.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
