//! `redlatch bench`: how fast the nodes are, seen from this machine, and which
//! settings suit them.
//!
//! - `workload.rs`: what is measured; `times.rs`: percentiles; `pauses.rs`: this machine
//! - `verdict.rs`: which settings suit that
//! - `report.rs`, `progress.rs`: how it is shown

mod pauses;
mod progress;
mod report;
mod times;
mod verdict;
mod workload;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use redlatch::{Mutex, Redlatch};
use rustix::process::Signal;

use self::pauses::Pauses;
use self::progress::Progress;
use self::report::Report;
use crate::args::BenchArgs;
use crate::child::Signals;
use crate::connect::{builder, connect};
use crate::exit_code::{ExitCode, Failure};
use crate::output::{Output, print};
use crate::settings::Settings;

/// A node that is silent for longer is not a slow one.
const SILENCE: Duration = Duration::from_secs(1);

/// What a kill leaves behind is gone after this time.
const TTL: Duration = Duration::from_secs(5);

/// How long the nodes may take to let go of everything in the end.
const LEAVE: Duration = Duration::from_secs(1);

pub(super) async fn run(
    args: BenchArgs,
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    check(&args)?;
    let mut signals = Signals::catch_all([Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT])?;
    // Nodes that can't be reached are in the report, or in the error.
    Output::mute(true);
    let clients = async {
        // To pass a lock on takes two; what is said at the first is said once.
        let second = builder(settings)?.build();
        let second = async { Ok(second.await?) };
        let (first, second) = tokio::try_join!(connect(settings, None, output), second)?;
        Ok::<_, Failure>([first, second])
    };
    let clients = tokio::select! {
        biased;
        signal = signals.recv() => return Ok(ExitCode::DieOf(signal)),
        clients = clients => clients?,
    };
    let bench = Bench {
        settings,
        clients: &clients,
        names: format!("__bench:{:016x}", RandomState::new().hash_one(0)),
        args: &args,
        output,
    };
    let measured = tokio::select! {
        biased;
        signal = signals.recv() => Err(ExitCode::DieOf(signal)),
        report = bench.measure() => Ok(report),
    };
    // Whatever was held is given back, also after an error or a signal; but a
    // node that is away must not keep us.
    let closed = async { tokio::join!(clients[0].close(), clients[1].close()) };
    let _ = tokio::time::timeout(LEAVE.max(settings.node_timeout.value), closed).await;
    let report = match measured {
        Ok(report) => report?,
        Err(death) => return Ok(death),
    };
    let text = match output.json {
        true => report.as_json(),
        false => report.as_text(output.paint),
    };
    print(text.as_bytes())?;
    Ok(ExitCode::Success)
}

pub(super) fn check(args: &BenchArgs) -> Result<(), Failure> {
    if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&args.seconds) {
        return Err(Failure::usage("--seconds must be from 1 to 3600"));
    }
    if !(1..=1024).contains(&args.tasks) {
        return Err(Failure::usage("--tasks must be from 1 to 1024"));
    }
    Ok(())
}

/// All that is measured, and where.
struct Bench<'a> {
    settings: &'a Settings,
    clients: &'a [Redlatch; 2],
    /// What all names of its locks begin with: nobody else's do.
    names: String,
    args: &'a BenchArgs,
    output: &'a Output,
}

impl Bench<'_> {
    async fn measure(&self) -> Result<Report, Failure> {
        self.see_that_nodes_are_armed().await?;
        let progress = Progress::new(self.args.seconds, *self.output);
        tokio::select! {
            biased;
            report = self.all_parts(&progress) => report,
            () = progress.show() => Err(Failure::own("the progress ended before the work")),
        }
    }

    /// The first lock on a new node begins its quarantine, and then it can't be
    /// armed without more ado: that must not be this one's.
    async fn see_that_nodes_are_armed(&self) -> Result<(), Failure> {
        if !self.settings.is_guarded() {
            return Ok(());
        }
        let statuses = self.clients[0].status(self.patience()).await;
        let armed = statuses.iter().filter(|status| status.is_armed()).count();
        if armed > statuses.len() / 2 {
            return Ok(());
        }
        let lines = statuses.iter().map(ToString::to_string);
        let lines: Vec<String> = lines.collect();
        let problem = format!("too few nodes can grant a lock: {}", lines.join("; "));
        let hint = "arm new ones by `redlatch init`; a quarantine ends by itself";
        Err(Failure::new(ExitCode::Unavailable, problem).hint(hint))
    }

    /// How long a node may be silent.
    fn patience(&self) -> Duration {
        SILENCE.max(self.settings.node_timeout.value)
    }

    async fn all_parts(&self, progress: &Progress) -> Result<Report, Failure> {
        let length = |hundredths: u32| self.args.seconds * hundredths / 100;
        let pauses = Pauses::watch();
        progress.enter("asking each node");
        let nodes = self.clients[0].nodes();
        let nodes = workload::ask_nodes(&nodes, length(25), self.patience()).await;

        let tasks = self.args.tasks;
        let mutexes = |fenced| (0..tasks).map(move |number| self.mutex(0, number, fenced));
        let fenced: Vec<Mutex> = mutexes(true).collect();
        let plain: Vec<Mutex> = mutexes(false).collect();
        progress.enter("one lock at a time");
        let single = workload::one_at_a_time([&fenced[0], &plain[0]], length(25));
        let single = single.await.map_err(explain)?;
        // From here on this program keeps the machine busy itself.
        let pause = pauses.longest();
        let mut locks = Vec::from(single);

        for (mutexes, is_fenced, word) in [(&fenced, true, "fenced"), (&plain, false, "plain")] {
            progress.enter(format!("{tasks} tasks, a lock each, {word}"));
            let parallel = workload::in_parallel(mutexes, is_fenced, length(15)).await;
            locks.push(parallel.map_err(explain)?);
        }
        progress.enter("one lock to and fro between two clients");
        let medians = nodes.iter().map(|node| node.answers.median());
        let slowest = medians.max().unwrap_or_default();
        // The other one needs about two round trips to come to the queue.
        let hold = (slowest * 4).clamp(Duration::from_millis(5), SILENCE);
        let hot = [0, 1].map(|client| self.mutex(client, tasks, true));
        let passed = workload::hand_off([&hot[0], &hot[1]], hold, length(20)).await;
        locks.push(passed.map_err(explain)?);

        let node_timeout = verdict::node_timeout(self.settings, &nodes);
        let suggested = node_timeout.as_ref().map(|advice| advice.at_least);
        let suggested = suggested.unwrap_or(self.settings.node_timeout.value);
        let ttl = verdict::ttl(self.settings, suggested, pause);
        Ok(Report {
            warnings: verdict::warnings(&nodes, &locks),
            advice: node_timeout.into_iter().chain([ttl]).collect(),
            nodes,
            locks,
            pause,
        })
    }

    /// One of its own locks. Few of them: each leaves a number in the fences of a node.
    fn mutex(&self, client: usize, number: usize, fenced: bool) -> Mutex {
        let shortest = self.settings.node_timeout.value * 3;
        let kind = if fenced { "fenced" } else { "plain" };
        let name = format!("{}:{kind}:{number}", self.names);
        let mutex = self.clients[client].mutex(name);
        mutex
            .ttl(self.settings.ttl.value.min(TTL.max(shortest)))
            .note("redlatch bench")
            .fencing(fenced)
    }
}

/// The hint of a lock's error is about `redlatch run`.
fn explain(error: redlatch::Error) -> Failure {
    let is_quarantined = error.is_quarantined();
    let failure = Failure::from(error);
    match is_quarantined {
        true => {
            failure.hint("wait for it to end; new servers are armed at once by `redlatch init`")
        }
        false => failure,
    }
}
