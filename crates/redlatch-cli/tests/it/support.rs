//! What the tests share.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use redlatch::Redlatch;
use redlatch_testkit::{Fleet, RedisServer};
use rustix::process::{Pid, Signal, kill_process};

/// How long a test waits for what must happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_redlatch");

/// The binary, with nothing from the environment of the tests, and with time
/// for servers on a busy machine.
pub(crate) fn redlatch(servers: &[RedisServer]) -> Command {
    let mut command = Command::new(BINARY);
    isolate(&mut command, servers);
    command
}

pub(crate) fn isolate(command: &mut Command, servers: &[RedisServer]) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("REDLATCH_") || name.starts_with("XDG_") || name == "REDIS_URL" {
            command.env_remove(&*name);
        }
    }
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    command
        .env("HOME", "/nonexistent")
        .env("SHELL", "/bin/sh")
        .env("REDLATCH_NODE_TIMEOUT", "500ms")
        .stdin(Stdio::null());
    if !urls.is_empty() {
        command.env("REDLATCH_NODES", urls.join(","));
    }
}

/// `redlatch run job ARGS…` on one server, to its end.
pub(crate) fn run(server: &RedisServer, args: &[&str]) -> Output {
    let mut command = redlatch(std::slice::from_ref(server));
    command.args(["run", "job"]).args(args).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// New servers that may grant at once.
pub(crate) fn armed(nodes: usize) -> Fleet {
    let fleet = Fleet::start(nodes);
    if nodes == 1 {
        return fleet;
    }
    let urls = fleet.urls();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let admin = Redlatch::builder().nodes(urls).admin().await.unwrap();
        for status in admin.assume_fresh().await {
            assert!(status.is_armed(), "{status}");
        }
    });
    fleet
}

/// A command that runs, with its output by the line. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self {
            child,
            stdout,
            stderr,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid(self.child.id()), signal).unwrap();
    }

    pub(crate) fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    /// Waits for its end, which must come.
    #[track_caller]
    pub(crate) fn end(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the end of redlatch", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    #[track_caller]
    pub(crate) fn code(&mut self) -> i32 {
        let status = self.end();
        match status.code() {
            Some(code) => code,
            None => panic!("died of signal {:?}", status.signal()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process writes, line by line.
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self(receiver)
    }

    /// The next line, which must come.
    #[track_caller]
    pub(crate) fn next(&self) -> String {
        match self.0.recv_timeout(DEADLINE) {
            Ok(line) => line,
            Err(error) => panic!("no further line: {error}"),
        }
    }

    /// The next line with this text in it, which must come.
    #[track_caller]
    pub(crate) fn find(&self, text: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.0.recv_timeout(DEADLINE) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{text:?} never came, but {seen:#?}")
                }
            }
        }
    }

    /// All that is still to come.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.0.iter().collect()
    }

    /// The number in the next line.
    #[track_caller]
    pub(crate) fn pid(&self) -> u32 {
        self.next().parse().unwrap()
    }
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "never seen: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

/// Whether a process runs; one that is dead but not yet waited for does not.
pub(crate) fn runs(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let (_, rest) = stat.rsplit_once(')').unwrap();
    !matches!(rest.trim_start().chars().next(), Some('Z' | 'X'))
}

/// Waits until the lease on the lock `job` is renewed.
#[track_caller]
pub(crate) fn until_renewed(server: &RedisServer) {
    let mut left = server.pttl(KEY);
    eventually("a renewal", || {
        let now = server.pttl(KEY);
        let grown = now > left;
        left = now;
        grown
    });
}

/// The key of the lock `job`.
pub(crate) const KEY: &str = "redlatch:job";
