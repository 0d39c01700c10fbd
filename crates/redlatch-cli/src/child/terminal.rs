//! Who may read from the terminal.
//!
//! The child has a process group of its own, so it has to be made the
//! terminal's foreground group before it can read from it. At once where both
//! stdin and stdout are the terminal, as with an editor; else when it asks,
//! because in `redlatch run x -- list | less` it is `less` that needs it.

use std::fs::File;
use std::io::IsTerminal;

use nix::sys::signal::{SigSet, SigmaskHow, Signal as MaskedSignal};
use rustix::process::{Pid, getpgid, getpgrp, getppid, getsid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The terminal that controls this process.
pub(super) struct Terminal {
    tty: File,
    own: Pid,
    /// How it was set when we came.
    modes: Option<Termios>,
}

impl Terminal {
    /// Nothing where there is none, as under cron.
    pub(super) fn open() -> Option<Self> {
        let tty = File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        let modes = tcgetattr(&tty).ok();
        let own = getpgrp();
        Some(Self { tty, own, modes })
    }

    /// Whether the child is to have it from the start.
    pub(super) fn is_for_child(&self) -> bool {
        self.is_ours() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }

    /// Whether this process is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == self.own)
    }

    /// Makes this group the one in the foreground.
    pub(super) fn give(&self, group: Pid) {
        set_foreground(&self.tty, group);
    }

    /// Takes it back where `group` has it. True when it had.
    pub(super) fn take_back(&self, group: Pid) -> bool {
        let had = tcgetpgrp(&self.tty).is_ok_and(|foreground| foreground == group);
        if had {
            set_foreground(&self.tty, self.own);
        }
        had
    }

    /// Sets it as it was: a child that was killed could not do so.
    pub(super) fn reset(&self) {
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(&self.tty, OptionalActions::Now, modes);
        }
    }
}

/// Makes the calling process's own group the one in the foreground.
pub(super) fn claim() {
    if let Ok(tty) = File::options().read(true).write(true).open("/dev/tty") {
        set_foreground(&tty, getpgrp());
    }
}

/// A process in the background that does this is stopped by SIGTTOU, unless it
/// blocks that.
fn set_foreground(tty: &File, group: Pid) {
    let mut blocked = SigSet::empty();
    blocked.add(MaskedSignal::SIGTTOU);
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let _ = tcsetpgrp(tty, group);
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
}

/// Whether a shell would notice that this process has stopped, and could let it
/// go on: somebody in the session, outside our group, is our ancestor.
pub(crate) fn has_job_control() -> bool {
    let (Ok(session), own) = (getsid(None), getpgrp()) else {
        return false;
    };
    let mut ancestor = getppid();
    while let Some(pid) = ancestor {
        if getsid(Some(pid)) != Ok(session) {
            return false;
        }
        if getpgid(Some(pid)) != Ok(own) {
            return true;
        }
        ancestor = parent(pid);
    }
    false
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name is in brackets and may hold anything; then the state, then the parent.
    let (_, rest) = stat.rsplit_once(')')?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}
