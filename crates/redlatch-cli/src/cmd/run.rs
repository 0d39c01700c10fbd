//! `redlatch run`: runs a command while holding a lock.

use std::ffi::OsString;
use std::time::Duration;

use redlatch::{Once, Redlatch};
use tokio::time::Instant;

use super::lease::{Terms, program_name};
use crate::args::RunArgs;
use crate::child::{Ending, Orders, Signals, Verdict, supervise};
use crate::connect::connect;
use crate::duration;
use crate::exit_code::{ExitCode, Failure};
use crate::hold::{Hold, Patience, Wish};
use crate::output::Output;
use crate::settings::Settings;

pub(super) async fn run(
    args: RunArgs,
    settings: Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let terms = check(&args, &settings)?;
    let command = command(&args);
    let mut signals = Signals::catch()?;
    let program = command.first().and_then(|program| program_name(program));
    let latch = tokio::select! {
        biased;
        signal = signals.recv() => return Ok(ExitCode::DieOf(signal)),
        latch = connect(&settings, program, output) => latch?,
    };
    let mutex = terms.mutex(&latch, &args.name, &args.lease);
    let patience = match (args.nonblock, args.wait) {
        (true, _) => Patience::None,
        (false, Some(limit)) => Patience::UpTo(limit),
        (false, None) => Patience::ForEver,
    };
    let wish = Wish {
        latch: &latch,
        mutex: &mutex,
        patience,
        // Who skips without a word also waits without one.
        talk: args.conflict_exit_code != 0,
        output,
    };
    let acquired = wish.acquire(&mut signals).await;
    let hold = match acquired.map_err(|failure| busy(failure, &args))? {
        Ok(hold) => hold,
        Err(death) => return Ok(death),
    };
    let held_since = Instant::now();
    let job = Job {
        args: &args,
        terms,
        short_memory: short_memory(&args, &settings),
        command,
        output,
    };
    let verdict = job.run(&latch, &hold, &mut signals).await;
    if let (Some(least), Ok(Some(verdict))) = (args.min_hold, &verdict)
        && *verdict != Verdict::Lost
    {
        job.keep(&hold, held_since + least, &mut signals).await;
    }
    hold.release(output).await;
    latch.close().await;
    let Some(verdict) = verdict? else {
        return Ok(ExitCode::Success);
    };
    Ok(verdict.into_code())
}

/// What is wrong is said before any node is asked.
pub(super) fn check(args: &RunArgs, settings: &Settings) -> Result<Terms, Failure> {
    let terms = Terms::new(&args.lease, settings)?;
    if args.max_runtime == Some(Duration::ZERO) {
        return Err(Failure::usage("--max-runtime must be longer than nothing"));
    }
    check_memory(args, settings)?;
    Ok(terms)
}

/// A slot is remembered by a lease, which the nodes' guards limit.
fn check_memory(args: &RunArgs, settings: &Settings) -> Result<(), Failure> {
    let longest = settings.max_ttl.value;
    match args.once_for {
        Some(keep) if settings.is_guarded() && keep > longest => {
            let (keep, longest) = (duration::format(keep), duration::format(longest));
            let problem = format!("--once-for {keep} is longer than max_ttl, which is {longest}");
            Err(Failure::usage(problem).hint(
                "nodes that forget are kept out for that long only: raise max_ttl on the whole \
                 deployment (`redlatch init --reconfigure`), or remember the slot for less",
            ))
        }
        _ => Ok(()),
    }
}

/// How long a slot is remembered, where the nodes' guards make that shorter than
/// usual and nobody has said that it is to be.
fn short_memory(args: &RunArgs, settings: &Settings) -> Option<Duration> {
    let is_usual = args.once_for.is_some() || !settings.is_guarded();
    let memory = settings.max_ttl.value;
    (!is_usual && memory < Once::USUAL_MEMORY).then_some(memory)
}

/// What is run once the lock is held.
struct Job<'a> {
    args: &'a RunArgs,
    terms: Terms,
    /// How long a slot is remembered, where that is shorter than usual unasked.
    short_memory: Option<Duration>,
    command: Vec<OsString>,
    output: &'a Output,
}

impl Job<'_> {
    /// Nothing when the slot has been run before.
    async fn run(
        &self,
        latch: &Redlatch,
        hold: &Hold,
        signals: &mut Signals,
    ) -> Result<Option<Verdict>, Failure> {
        let slot = self.slot(latch);
        if let Some(slot) = &slot
            && slot.is_done().await?
        {
            let (slot, name) = (self.args.once.as_deref(), &self.args.name);
            let slot = slot.unwrap_or_default();
            self.output.info(&format!(
                "slot {slot:?} of {name:?} was run already: skipped"
            ));
            return Ok(None);
        }
        let orders = Orders {
            command: self.command.clone(),
            environment: hold.environment(),
            guard: &hold.guard,
            ttl: self.terms.ttl,
            kill_after: self.terms.kill_after,
            max_runtime: self.args.max_runtime,
            on_lost: self.args.lease.on_lost,
            output: *self.output,
        };
        let verdict = supervise(orders, signals).await?;
        // One that failed may be tried again, here or elsewhere.
        let succeeded = verdict == Verdict::Ended(Ending::Exited(0));
        if let Some(slot) = slot.filter(|_| succeeded) {
            match slot.record().await {
                Ok(()) => self.tell_of_a_short_memory(),
                Err(error) => {
                    let warning = "the slot could not be recorded, and may be run again";
                    self.output.warn(&format!("{error}; {warning}"));
                }
            }
        }
        Ok(Some(verdict))
    }

    /// Who gives a date for a slot expects to have it remembered for a day.
    fn tell_of_a_short_memory(&self) {
        if let Some(memory) = self.short_memory {
            self.output.aside(&format!(
                "this slot is remembered for {}, which is max_ttl here; --once-for says that it is \
                 meant so",
                duration::format(memory)
            ));
        }
    }

    fn slot(&self, latch: &Redlatch) -> Option<Once> {
        let slot = latch.once(&self.args.name, self.args.once.as_ref()?);
        Some(match self.args.once_for {
            Some(keep) => slot.keep(keep),
            None => slot,
        })
    }

    /// Holds the lock until then, unless it is lost or a signal comes.
    async fn keep(&self, hold: &Hold, until: Instant, signals: &mut Signals) {
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            _ = hold.guard.lost() => {}
            _ = signals.recv() => {}
        }
    }
}

/// The words to be run, with a shell in front of `-c`'s text.
fn command(args: &RunArgs) -> Vec<OsString> {
    let Some(text) = &args.shell else {
        return args.command.clone();
    };
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    vec![
        shell.unwrap_or_else(|| "/bin/sh".into()),
        "-c".into(),
        text.clone(),
    ]
}

/// A lock that is somebody else's ends with the code that the user wants.
fn busy(mut failure: Failure, args: &RunArgs) -> Failure {
    if matches!(failure.code, ExitCode::Busy(_)) {
        failure.code = ExitCode::Busy(args.conflict_exit_code);
        if args.nonblock {
            failure.hint = Some("leave out -n to wait for it, or give -w DUR".into());
        }
    }
    failure
}
