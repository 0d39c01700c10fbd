//! What is done when, until the child has ended.

use std::ffi::OsString;
use std::time::Duration;

use redlatch::Guard;
use rustix::process::{
    Pid, Signal, kill_current_process_group, kill_process, kill_process_group,
    test_kill_process_group,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::minder::Minder;
use super::signals::Signals;
use super::start::{Child, Ending, Event, Start};
use super::terminal::{self, Terminal};
use crate::args::OnLost;
use crate::duration;
use crate::exit_code::{ExitCode, Failure};
use crate::output::Output;

/// What is to be run, and under what conditions.
pub(crate) struct Orders<'a> {
    pub(crate) command: Vec<OsString>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) guard: &'a Guard,
    pub(crate) ttl: Duration,
    pub(crate) kill_after: Duration,
    pub(crate) max_runtime: Option<Duration>,
    pub(crate) on_lost: OnLost,
    pub(crate) output: Output,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ended(Ending),
    /// The child died of Ctrl-C or Ctrl-\, which was meant for us as well.
    Interrupted(Signal),
    /// The lock was lost, and the child killed.
    Lost,
    /// The child ran for too long, and was ended.
    TimedOut,
}

impl Verdict {
    /// How this process ends.
    pub(crate) fn into_code(self) -> ExitCode {
        if let Self::Interrupted(signal) = self {
            // Typed at the terminal it was meant for the whole job, a script
            // around us included, but only the child was in the foreground.
            let _ = kill_current_process_group(signal);
        }
        match self {
            Self::Ended(Ending::Exited(code)) => ExitCode::Child(code),
            Self::Ended(Ending::Killed(signal)) => ExitCode::ChildKilled(signal),
            Self::Interrupted(signal) => ExitCode::DieOf(signal),
            Self::Lost => ExitCode::Lost,
            Self::TimedOut => ExitCode::TimedOut,
        }
    }
}

/// Runs the child, and returns when neither it nor, where it was ended, any of
/// its group is left.
pub(crate) async fn supervise(
    orders: Orders<'_>,
    signals: &mut Signals,
) -> Result<Verdict, Failure> {
    let mut jobs = Signals::catch_job_control()?;
    let terminal = Terminal::open();
    let start = Start {
        command: orders.command.clone(),
        environment: orders.environment.clone(),
        foreground: terminal.as_ref().is_some_and(Terminal::is_for_child),
    };
    let Child { group, mut events } = start.start().await?;
    let minder = Minder::start(group);
    if let Err(error) = &minder {
        let warning = "should redlatch be killed, what the command has started may go on";
        orders.output.warn(&format!("{warning}: {error}"));
    }
    let runtime = orders.max_runtime.map(|most| Instant::now() + most);
    let mut watch = Watch {
        orders: &orders,
        group,
        terminal,
        doom: None,
        kill_at: None,
        warned: false,
        told: None,
        asked_to_stop: false,
    };
    let ending = loop {
        let doomed = watch.doom.is_some();
        tokio::select! {
            biased;
            event = events.recv() => match event {
                Some(Event::Ended(ending)) => break ending,
                Some(Event::Stopped(signal)) => watch.stopped(signal, &mut jobs).await,
                None => return Err(Failure::own("the child can't be waited for any more")),
            },
            signal = signals.recv() => watch.pass_on(signal),
            signal = jobs.recv() => watch.pass_on(signal),
            () = watch.danger(), if !watch.warned => watch.lose(),
            () = until(runtime), if !doomed => watch.time_out(),
            () = until(watch.kill_at), if watch.kill_at.is_some() => watch.kill(),
        }
    };
    let verdict = watch.conclude(ending).await;
    if let Ok(minder) = minder {
        minder.dismiss();
    }
    Ok(verdict)
}

/// The child, while it runs.
struct Watch<'a> {
    orders: &'a Orders<'a>,
    group: Pid,
    terminal: Option<Terminal>,
    /// Why the child has to end.
    doom: Option<Doom>,
    kill_at: Option<Instant>,
    /// Whether the loss of the lock has been dealt with.
    warned: bool,
    /// By which signal the group was last told to end.
    told: Option<Signal>,
    /// Whether TSTP was passed on to it.
    asked_to_stop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doom {
    Lost,
    TimedOut,
}

impl Watch<'_> {
    fn send(&self, signal: Signal) {
        // A group that is gone needs no signal.
        let _ = kill_process_group(self.group, signal);
    }

    fn pass_on(&mut self, signal: Signal) {
        self.send(signal);
        self.asked_to_stop |= signal == Signal::TSTP;
        if matches!(
            signal,
            Signal::TERM | Signal::INT | Signal::HUP | Signal::QUIT
        ) {
            self.told = Some(signal);
        }
    }

    /// How much of the lease has to be left for the last step, which is KILL.
    fn margin(&self) -> Duration {
        // The library calls a lease lost when 2 % and 5 ms of it are left; a
        // little before that.
        self.orders.ttl / 20 + Duration::from_millis(20)
    }

    /// Returns when the lease has to be given up: when it is lost, or there is
    /// just enough time left for TERM and KILL.
    async fn danger(&self) {
        let guard = self.orders.guard;
        let needed = match self.orders.on_lost {
            OnLost::Kill => self.orders.kill_after + self.margin(),
            OnLost::Warn => Duration::ZERO,
        };
        let short = async {
            loop {
                match guard.remaining().checked_sub(needed) {
                    None | Some(Duration::ZERO) => return,
                    // Timers stand still in suspend, leases don't: look now and then.
                    Some(left) => sleep(left.min(Duration::from_secs(1))).await,
                }
            }
        };
        tokio::select! {
            _ = guard.lost() => {}
            () = short => {}
        }
    }

    fn lose(&mut self) {
        self.warned = true;
        let guard = self.orders.guard;
        let lost = guard.ensure_held().err();
        let left = guard.remaining();
        let name = guard.name();
        let why = match lost {
            Some(error) => error.to_string(),
            None => {
                let left = duration::spoken(left);
                format!("lock {name:?} can't be renewed, and is ours for only {left} more")
            }
        };
        if self.orders.on_lost == OnLost::Warn {
            let message = format!("{why}; the command goes on, as --on-lost warn says");
            return self.orders.output.warn(&message);
        }
        let message = format!("{why}; ending the command");
        self.orders.output.notice(&message);
        self.doom = Some(Doom::Lost);
        match left.checked_sub(self.margin()) {
            // Somebody else may have the lock by now: there is no time left.
            None | Some(Duration::ZERO) => self.kill(),
            Some(left) => self.terminate(left.min(self.orders.kill_after)),
        }
    }

    fn time_out(&mut self) {
        let most = duration::format(self.orders.max_runtime.unwrap_or_default());
        let message = format!("the command has run for {most}; ending it");
        self.orders.output.notice(&message);
        self.doom = Some(Doom::TimedOut);
        self.terminate(self.orders.kill_after);
    }

    fn terminate(&mut self, grace: Duration) {
        self.told = Some(Signal::TERM);
        self.kill_at = Some(Instant::now() + grace);
        self.send(Signal::TERM);
        // Who is stopped can't end.
        self.send(Signal::CONT);
    }

    fn kill(&mut self) {
        self.told = Some(Signal::KILL);
        self.kill_at = None;
        self.send(Signal::KILL);
    }

    /// The child was stopped: by Ctrl-Z, or because it wants the terminal.
    async fn stopped(&mut self, signal: i32, jobs: &mut Signals) {
        let is = |other: Signal| signal == other.as_raw();
        let wants_terminal = is(Signal::TTIN) || is(Signal::TTOU);
        let Some(terminal) = &self.terminal else {
            return;
        };
        if wants_terminal && terminal.is_ours() {
            terminal.give(self.group);
            return self.send(Signal::CONT);
        }
        let had_terminal = terminal.take_back(self.group);
        let asked = std::mem::take(&mut self.asked_to_stop);
        if is(Signal::STOP) && !had_terminal && !asked {
            // Somebody stopped the child, and not us: the lock is kept for it.
            // (A child in the foreground that catches TSTP, as top does, sets
            // the terminal right and then stops itself like this.)
            return;
        }
        if !terminal::has_job_control() {
            // Nobody could let us go on again.
            if had_terminal {
                terminal.give(self.group);
            }
            return self.send(Signal::CONT);
        }
        stop(jobs).await;
        self.go_on().await;
    }

    /// After a stop, in which nothing could be renewed.
    async fn go_on(&mut self) {
        // Asks the nodes: nobody else can have had the lock if they still have it for us.
        let guard = self.orders.guard;
        let renewed = guard.renew(self.orders.ttl).await;
        if guard.ensure_held().is_err() && self.orders.on_lost == OnLost::Kill {
            return self.lose();
        }
        if let Err(error) = renewed {
            self.orders.output.warn(&error.to_string());
        }
        if let Some(terminal) = &self.terminal
            && terminal.is_ours()
        {
            terminal.give(self.group);
        }
        self.send(Signal::CONT);
    }

    /// Sees to what the child has left behind.
    async fn conclude(&mut self, ending: Ending) -> Verdict {
        let had_terminal = match &self.terminal {
            Some(terminal) => terminal.take_back(self.group),
            None => false,
        };
        match self.doom {
            Some(Doom::Lost) => self.send(Signal::KILL),
            _ if self.leaves_nothing(ending) => self.sweep().await,
            _ => {}
        }
        if self.doom.is_some()
            && had_terminal
            && let Some(terminal) = &self.terminal
        {
            terminal.reset();
        }
        match (self.doom, ending) {
            (Some(Doom::Lost), _) => Verdict::Lost,
            (Some(Doom::TimedOut), _) => Verdict::TimedOut,
            (None, Ending::Killed(signal)) if had_terminal => {
                match [Signal::INT, Signal::QUIT]
                    .into_iter()
                    .find(|other| other.as_raw() == signal)
                {
                    Some(signal) => Verdict::Interrupted(signal),
                    None => Verdict::Ended(ending),
                }
            }
            (None, ending) => Verdict::Ended(ending),
        }
    }

    /// Whether the child ended because it was told to, and the rest of its
    /// group with it. To some programs HUP and INT mean other things, so there
    /// its death tells.
    fn leaves_nothing(&self, ending: Ending) -> bool {
        match self.told {
            Some(Signal::TERM | Signal::KILL) => true,
            Some(signal) => ending == Ending::Killed(signal.as_raw()),
            None => false,
        }
    }

    /// Waits until the rest of the group has ended too, and kills what does not.
    async fn sweep(&self) {
        let held = || self.orders.guard.remaining() >= self.margin();
        self.until_gone(self.orders.kill_after, held).await;
        self.send(Signal::KILL);
        // Dead at once, but for what hangs in the kernel.
        self.until_gone(Duration::from_secs(1), || true).await;
    }

    /// They are no children of ours, so there is nothing to wait on but time.
    async fn until_gone(&self, most: Duration, may_wait: impl Fn() -> bool) {
        let end = Instant::now() + most;
        while test_kill_process_group(self.group).is_ok() && may_wait() && Instant::now() < end {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Stops this process, and whoever is in its job, as Ctrl-Z would have; returns
/// when it goes on.
async fn stop(jobs: &mut Signals) {
    jobs.forget().await;
    let _ = kill_current_process_group(Signal::TSTP);
    let _ = kill_process(rustix::process::getpid(), Signal::STOP);
    while jobs.recv().await != Signal::CONT {}
    jobs.forget().await;
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
