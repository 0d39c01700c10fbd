//! How a server is started.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::RedisServer;
use super::port::Port;
use super::process::Process;
use crate::Reply;
use crate::control::Control;

/// Only reached when something is badly wrong: a start takes about 10 ms.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How often another port is tried when something outside the kit took the one we reserved.
const PORTS_TRIED: usize = 5;

/// The settings of a server to be started; see [`RedisServer::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is started before `start`"]
pub struct Builder {
    args: Vec<String>,
    append_only: bool,
    movable_clock: bool,
    /// Where the certificates are, and whether clients must show one.
    tls: Option<(PathBuf, ClientCertificates)>,
}

/// Whether a TLS server asks its clients who they are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClientCertificates {
    Demanded,
    NotAsked,
}

impl Builder {
    /// Adds arguments for `redis-server`. A `--requirepass` among them is used by the kit too.
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Builder {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Every write is on disk before it is answered, so that a restart forgets nothing.
    ///
    /// Default: nothing is kept on disk, a restarted server is empty.
    pub fn append_only(mut self) -> Builder {
        self.append_only = true;
        self
    }

    /// The server's time of day can be set, by [`RedisServer::shift_clock`].
    ///
    /// It takes a C compiler (`cc`) on this machine; without one the clock can't be moved, and
    /// `shift_clock` says so.
    pub fn movable_clock(mut self) -> Builder {
        self.movable_clock = true;
        self
    }

    /// TLS on the server's port, with `ca.pem`, `server.pem` and `server.key` from `certificates`.
    pub(crate) fn tls(mut self, certificates: &Path, clients: ClientCertificates) -> Builder {
        self.tls = Some((certificates.to_owned(), clients));
        self
    }

    /// Starts the server and returns when it answers.
    ///
    /// # Panics
    ///
    /// When it does not start: the message holds the end of its log.
    #[track_caller]
    pub fn start(self) -> RedisServer {
        let home = Home::create();
        if self.movable_clock {
            home.build_clock();
        }
        for _ in 0..PORTS_TRIED {
            let port = Port::reserve();
            match self.launch(&home, &port) {
                Ok((process, control)) => {
                    return RedisServer {
                        builder: self,
                        running: Mutex::new(Some(process)),
                        control: Mutex::new(Some(control)),
                        questions: 0.into(),
                        port,
                        home,
                    };
                }
                Err(_) if home.log().contains("Address already in use") => home.forget_log(),
                Err(why) => panic!("{why}"),
            }
        }
        panic!("{PORTS_TRIED} free ports in a row were taken before redis-server could listen")
    }

    /// One run of the server, up to the moment when it answers.
    pub(super) fn launch(&self, home: &Home, port: &Port) -> Result<(Process, Control), String> {
        let command = self.command(home, port);
        let mut process = Process::spawn(home.path(), &home.log_path(), &command);
        let deadline = Instant::now() + START_LIMIT;
        loop {
            // Asked first: a server that ends after a refused connection is seen in the next turn.
            let ended = process.has_ended();
            let refusal = match self.greet(home, process.pid()) {
                Ok(control) => return Ok((process, control)),
                Err(refusal) => refusal,
            };
            if ended || Instant::now() > deadline {
                let how = if ended { "ended" } else { "does not answer" };
                let command = command.join(" ");
                let log = home.log();
                return Err(format!("{command}\n{how}: {refusal}. Its log:\n{log}"));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// A connection to the server, once it is ready to serve.
    fn greet(&self, home: &Home, pid: u32) -> io::Result<Control> {
        let mut control = Control::connect(&home.socket(), self.password())?;
        // Answered by an error while it loads its data.
        let pong = control.call(&["PING"])?;
        if pong != Reply::Text("PONG".into()) {
            return Err(io::Error::other(pong.to_string()));
        }
        let info = control.call(&["INFO", "server"])?;
        let ours = format!("process_id:{pid}\r\n");
        if !info.as_text().contains(&ours) {
            return Err(io::Error::other("another process answers"));
        }
        Ok(control)
    }

    pub(super) fn password(&self) -> Option<&str> {
        let flag = self.args.iter().position(|arg| arg == "--requirepass")?;
        self.args.get(flag + 1).map(String::as_str)
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.tls.is_some() {
            "rediss"
        } else {
            "redis"
        }
    }

    fn command(&self, home: &Home, port: &Port) -> Vec<String> {
        let mut command = Vec::new();
        if home.has_clock() {
            command.push("env".to_owned());
            command.push(format!("LD_PRELOAD={}", text(&home.clock_library())));
            command.push(format!("REDLATCH_CLOCK={}", text(&home.clock())));
        }
        command.push("redis-server".to_owned());
        let mut set = |name: &str, value: &str| {
            command.push(format!("--{name}"));
            command.push(value.to_owned());
        };
        set("daemonize", "no");
        set("bind", "127.0.0.1");
        set("unixsocket", &text(&home.socket()));
        set("dir", &text(&home.data()));
        set("save", "");
        if self.append_only {
            set("appendonly", "yes");
            set("appendfsync", "always");
        } else {
            set("appendonly", "no");
        }
        let number = port.number().to_string();
        match &self.tls {
            None => set("port", &number),
            Some((certificates, clients)) => {
                set("port", "0");
                set("tls-port", &number);
                set("tls-ca-cert-file", &text(&certificates.join("ca.pem")));
                set("tls-cert-file", &text(&certificates.join("server.pem")));
                set("tls-key-file", &text(&certificates.join("server.key")));
                set(
                    "tls-auth-clients",
                    match clients {
                        ClientCertificates::Demanded => "yes",
                        ClientCertificates::NotAsked => "no",
                    },
                );
            }
        }
        // Last, so that a test can overrule what is above.
        command.extend(self.args.iter().cloned());
        command
    }
}

/// A server's directory: `data/` is what it persists, beside it are its socket and its log.
pub(super) struct Home(TempDir);

impl Home {
    fn create() -> Home {
        let directory = tempfile::Builder::new().prefix("redlatch-").tempdir();
        let home = Home(directory.expect("a temporary directory can be made"));
        fs::create_dir(home.data()).expect("the temporary directory can be written");
        home
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path().join("redis.sock")
    }

    pub(super) fn wipe_data(&self) {
        fs::remove_dir_all(self.data()).expect("the data directory can be removed");
        fs::create_dir(self.data()).expect("the data directory can be made again");
    }

    /// What [`RedisServer::shift_clock`] writes and the preloaded library reads.
    pub(super) fn clock(&self) -> PathBuf {
        self.path().join("clock")
    }

    pub(super) fn has_clock(&self) -> bool {
        self.clock().exists()
    }

    fn clock_library(&self) -> PathBuf {
        self.path().join("clock.so")
    }

    /// Builds the library that is preloaded; without a compiler there will be none.
    fn build_clock(&self) {
        let source = self.path().join("clock.c");
        fs::write(&source, include_str!("clock.c")).expect("the temporary directory");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]);
        compiler.args([&self.clock_library(), &source]);
        let built = compiler.stdin(Stdio::null()).output();
        if built.is_ok_and(|built| built.status.success()) {
            fs::write(self.clock(), 0_i64.to_ne_bytes()).expect("the temporary directory");
        }
    }

    fn log_path(&self) -> PathBuf {
        self.path().join("redis.log")
    }

    /// The last lines of the log.
    fn log(&self) -> String {
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn forget_log(&self) {
        let _ = fs::remove_file(self.log_path());
    }
}

fn text(path: &Path) -> String {
    path.to_str()
        .expect("the temporary directory's name is UTF-8")
        .to_owned()
}
