//! Ends the child's group when this process was killed.
//!
//! PDEATHSIG ends the child, but not what the child has started. So a second
//! helper process waits at the end of a pipe: when the pipe closes without a
//! word, this process is gone, and the helper kills the group.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

/// The hidden command that is the helper.
pub(super) const WORD: &str = "__minder";

/// The near end of the pipe.
pub(super) struct Minder {
    helper: std::process::Child,
    pipe: Option<ChildStdin>,
}

impl Minder {
    pub(super) fn start(group: Pid) -> std::io::Result<Self> {
        let mut helper = super::this_program()
            .args([WORD, &group.as_raw_nonzero().to_string()])
            // A group of its own: neither Ctrl-C nor Ctrl-Z is meant for it.
            .process_group(0)
            .stdin(Stdio::piped())
            // It must not keep open what somebody reads from until it is closed.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()?;
        let pipe = helper.stdin.take();
        Ok(Self { helper, pipe })
    }

    /// The child has ended: what it left behind was meant to stay.
    pub(super) fn dismiss(mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(b".");
        }
        // A leader of many terms is not to collect dead helpers, nor to wait for one.
        std::thread::spawn(move || self.helper.wait());
    }
}

/// What the helper process does: `__minder GROUP`.
pub(super) fn mind(mut args: impl Iterator<Item = OsString>) -> ! {
    let group = args.next().and_then(|text| text.to_str()?.parse().ok());
    let word = std::io::stdin().read(&mut [0]);
    if let (Ok(0) | Err(_), Some(group)) = (word, group.and_then(Pid::from_raw)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    std::process::exit(0)
}
