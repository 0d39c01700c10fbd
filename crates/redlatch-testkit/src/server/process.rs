//! One run of `redis-server`, and the watchdog around it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A running server. Dropping it kills the server and waits until it is gone.
pub(crate) struct Process {
    pid: Pid,
    /// A shell that lives exactly as long as the server: its exit is the server's exit.
    watchdog: Child,
    /// Held open until the server is dead; when the kernel closes it for us, the watchdog acts.
    /// It must not stay inside `watchdog`, where `wait` would close it first.
    _lifeline: ChildStdin,
}

impl Process {
    /// Starts `command`, whose output goes to `log`. `directory` is the watchdog's to remove.
    pub(crate) fn spawn<A: AsRef<OsStr>>(directory: &Path, log: &Path, command: &[A]) -> Process {
        let mut watchdog = Command::new("sh")
            .args(["-c", include_str!("watchdog.sh"), "redlatch-watchdog"])
            .args([directory, log])
            .args(command)
            // A group of its own, or Ctrl-C would end the watchdog before it could do its work.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("`sh` starts");
        let lifeline = watchdog.stdin.take().expect("stdin is piped");
        let stdout = watchdog.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the watchdog prints the server's process id");
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        Process {
            pid: pid.unwrap_or_else(|| panic!("the watchdog printed {line:?}, not a process id")),
            watchdog,
            _lifeline: lifeline,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        let status = self.watchdog.try_wait().expect("the watchdog is our child");
        status.is_some()
    }

    /// Stops the server where it stands. Returns when it has stopped: a signal alone takes effect
    /// a little later, and the server could still answer a request sent after it.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.state() != Some('T') {
            assert!(
                Instant::now() < deadline,
                "server {} did not stop",
                self.pid()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal)
            .unwrap_or_else(|error| panic!("{signal:?} to server {}: {error}", self.pid()));
    }

    /// The state letter in `/proc/PID/stat`, behind the program's name in parentheses.
    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Where the server has ended by itself there is nothing to kill; SIGKILL also ends a
        // frozen one. The watchdog reaps it and follows.
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = self.watchdog.wait();
    }
}
