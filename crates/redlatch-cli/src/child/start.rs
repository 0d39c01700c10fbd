//! Starts the child and waits for it.
//!
//! The child is to die with us, also when we are killed. Linux sends it a
//! signal for that (PDEATHSIG) when the *thread* that started it ends, so one
//! thread starts it and stays until it has ended. Asking for that signal has to
//! be done between fork and exec, where only unsafe code runs; instead this
//! very program is started, asks for it, and then becomes the child.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, WaitOptions, getpid, getppid, waitpid};
use tokio::sync::{mpsc, oneshot};

use super::terminal;
use crate::exit_code::{ExitCode, Failure};

/// The hidden command that becomes the child.
pub(super) const WORD: &str = "__child";

/// What is to be started.
pub(super) struct Start {
    pub(super) command: Vec<OsString>,
    pub(super) environment: Vec<(String, String)>,
    /// Whether it is to be in the terminal's foreground.
    pub(super) foreground: bool,
}

/// A child that was started, in a process group of its own.
pub(super) struct Child {
    /// The child's process id, and that of its group.
    pub(super) group: Pid,
    pub(super) events: mpsc::UnboundedReceiver<Event>,
}

/// What happens to a child.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Stopped(i32),
    Ended(Ending),
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Exited(u8),
    Killed(i32),
}

impl Start {
    pub(super) async fn start(self) -> Result<Child, Failure> {
        let (started, start) = oneshot::channel();
        let (sender, events) = mpsc::unbounded_channel();
        let failed = |error| Failure::own(format!("can't start a process: {error}"));
        std::thread::Builder::new()
            .name("child".into())
            .spawn(move || match self.spawn() {
                Ok(group) => {
                    let _ = started.send(Ok(group));
                    wait(group, &sender);
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            })
            .map_err(failed)?;
        match start.await {
            Ok(Ok(group)) => Ok(Child { group, events }),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(Failure::own("the thread that starts the child has failed")),
        }
    }

    fn spawn(self) -> std::io::Result<Pid> {
        let foreground = if self.foreground { "1" } else { "0" };
        let child = super::this_program()
            .args([WORD, &getpid().as_raw_nonzero().to_string(), foreground])
            .args(self.command)
            .envs(self.environment)
            .process_group(0)
            .spawn()?;
        i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| std::io::Error::other("a process without a number"))
    }
}

/// Waits until the child has ended, and reports that and when it is stopped.
fn wait(child: Pid, events: &mpsc::UnboundedSender<Event>) {
    loop {
        let status = match waitpid(Some(child), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) => status,
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            // Nobody else waits for it, so this can't be; the other end hears of it.
            Err(_) => return,
        };
        let event = if let Some(code) = status.exit_status() {
            Event::Ended(Ending::Exited(u8::try_from(code & 0xff).unwrap_or(255)))
        } else if let Some(signal) = status.terminating_signal() {
            Event::Ended(Ending::Killed(signal))
        } else if let Some(signal) = status.stopping_signal() {
            Event::Stopped(signal)
        } else {
            continue;
        };
        if events.send(event).is_err() || matches!(event, Event::Ended(_)) {
            return;
        }
    }
}

/// What the helper process does: `__child PARENT FOREGROUND COMMAND ARGS…`.
pub(super) fn become_child(mut args: impl Iterator<Item = OsString>) -> ! {
    let parent = args.next().and_then(|text| text.to_str()?.parse().ok());
    let foreground = args.next().is_some_and(|text| text == "1");
    let Some(program) = args.next() else {
        leave(ExitCode::Failure)
    };
    #[cfg(target_os = "linux")]
    let _ = {
        use rustix::process::{Signal, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Signal::KILL))
    };
    // It may have died before we asked to be told.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != parent {
        leave(ExitCode::Failure)
    }
    if foreground {
        terminal::claim();
    }
    let error = Command::new(&program).args(args).exec();
    let program = program.display();
    let code = match error.kind() {
        ErrorKind::NotFound => {
            eprintln!("redlatch: error: can't run {program}: there is no such command");
            ExitCode::NotFound
        }
        _ => {
            eprintln!("redlatch: error: can't run {program}: {error}");
            ExitCode::CannotRun
        }
    };
    leave(code)
}

fn leave(code: ExitCode) -> ! {
    std::process::exit(code.number().into())
}
