//! What a process is told to do, and how it answers.

use std::io::Write;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::Error;

/// A job, as the harness writes it.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) lock: String,
    pub(crate) mode: String,
    pub(crate) nodes: Vec<String>,
    pub(crate) tasks: usize,
    pub(crate) name: String,
    /// How many names each task goes through; 0: all tasks want the same one.
    pub(crate) distinct: usize,
    pub(crate) hold: Duration,
    pub(crate) pause: Duration,
    pub(crate) length: Duration,
    /// Ends earlier, after so many cycles of all tasks together.
    pub(crate) cycles: Option<usize>,
    pub(crate) ttl: Duration,
    pub(crate) samples: bool,
}

impl Job {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let job: Value = serde_json::from_str(text)?;
        let text = |field: &str| match job[field].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("the job has no text {field:?}")),
        };
        let number = |field: &str| job[field].as_u64().unwrap_or(0);
        let nodes = job["nodes"].as_array().ok_or("the job has no nodes")?;
        let nodes: Vec<_> = nodes.iter().filter_map(Value::as_str).collect();
        Ok(Self {
            lock: text("lock")?,
            mode: text("mode")?,
            nodes: nodes.into_iter().map(str::to_owned).collect(),
            tasks: number("tasks").max(1) as usize,
            name: text("name")?,
            distinct: number("distinct") as usize,
            hold: Duration::from_micros(number("hold_us")),
            pause: Duration::from_micros(number("pause_us")),
            length: Duration::try_from_secs_f64(job["seconds"].as_f64().unwrap_or(0.0))?,
            cycles: job["cycles"].as_u64().map(|cycles| cycles as usize),
            ttl: Duration::from_millis(number("ttl_ms")),
            samples: job["samples"] == true,
        })
    }
}

/// Says one line to the harness.
pub(crate) fn say(line: &Value) {
    let mut out = std::io::stdout().lock();
    // If nobody listens any more, stdin has ended too, and so will this process.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The lines that the harness says.
pub(crate) struct Orders(mpsc::UnboundedReceiver<String>);

impl Orders {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        // A thread, since stdin can't be waited for by a task that may be dropped.
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self(receiver)
    }

    /// The next line; `None` when there will be no more.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }

    /// Waits until this process is to end.
    pub(crate) async fn end(&mut self) {
        while self.next().await.is_some_and(|line| line != "end") {}
    }
}
