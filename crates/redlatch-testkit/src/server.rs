//! A real `redis-server`, and what a test may do to it.

mod builder;
mod port;
mod process;

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::builder::Builder;
pub(crate) use self::builder::ClientCertificates;
pub(crate) use self::port::Port;

use self::builder::Home;
use self::process::Process;
use crate::control::Control;
use crate::{Proxy, Reply};

/// A `redis-server` process of its own, on a loopback port of its own.
///
/// It ends when this is dropped, also by a panic, and when the test process itself goes, also by
/// SIGKILL.
pub struct RedisServer {
    builder: Builder,
    /// Fields are dropped in this order: the process goes before its port and its directory.
    running: Mutex<Option<Process>>,
    /// Kept open between commands, and made again after a failure.
    control: Mutex<Option<Control>>,
    /// How many INFO this kit has asked of this run, which `commands_processed` leaves out.
    questions: AtomicU64,
    port: Port,
    home: Home,
}

/// Start and stop.
impl RedisServer {
    /// A fresh, empty server without persistence.
    #[track_caller]
    pub fn start() -> RedisServer {
        RedisServer::builder().start()
    }

    /// The same with further arguments, such as `&["--requirepass", "secret"]`.
    #[track_caller]
    pub fn with_args(args: &[&str]) -> RedisServer {
        RedisServer::builder().args(args.iter().copied()).start()
    }

    /// A server with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Ends the server with SIGKILL and waits until it is dead; its port then refuses connections
    /// and stays reserved. Does nothing to a dead one.
    pub fn kill(&self) {
        *lock(&self.control) = None;
        *lock(&self.running) = None;
    }

    /// Kills the server and starts it again on the same port, with what it had persisted: all of
    /// it with [`Builder::append_only`], else nothing.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        self.launch();
    }

    /// Kills the server and starts it again on the same port with nothing on its disk.
    #[track_caller]
    pub fn restart_empty(&self) {
        self.kill();
        self.home.wipe_data();
        self.launch();
    }

    /// Kills the server, cuts `bytes` off the end of its append-only file, and starts it again.
    ///
    /// Redis drops the command that the cut went through, so one byte loses the last write.
    #[track_caller]
    pub fn restart_truncated(&self, bytes: u64) {
        self.kill();
        let file = fs::read_dir(self.home.data().join("appendonlydir"))
            .expect("the server was started with `append_only`")
            .map(|entry| entry.expect("its directory can be read").path())
            .find(|path| path.to_string_lossy().ends_with(".incr.aof"))
            .expect("an append-only server has an incremental file");
        let cut = || {
            let file = fs::OpenOptions::new().write(true).open(&file)?;
            file.set_len(file.metadata()?.len().saturating_sub(bytes))
        };
        cut().unwrap_or_else(|error| panic!("cutting {}: {error}", file.display()));
        self.launch();
    }

    /// Stops the process with SIGSTOP: connections stay open, nothing is answered.
    #[track_caller]
    pub fn freeze(&self) {
        self.with_process(Process::freeze);
    }

    /// Lets a frozen process go on.
    #[track_caller]
    pub fn thaw(&self) {
        self.with_process(Process::thaw);
    }

    /// Steps the server's time of day to `millis` off this machine's; restarts keep it.
    ///
    /// False when it can't be moved: see [`Builder::movable_clock`].
    #[track_caller]
    pub fn shift_clock(&self, millis: i64) -> bool {
        use std::os::unix::fs::FileExt;
        if !self.home.has_clock() {
            return false;
        }
        // Written in place: the running server has the file mapped.
        let file = fs::OpenOptions::new().write(true).open(self.home.clock());
        file.and_then(|file| file.write_all_at(&millis.to_ne_bytes(), 0))
            .unwrap_or_else(|error| panic!("setting the clock of {self:?}: {error}"));
        true
    }

    #[track_caller]
    fn with_process<T>(&self, act: impl FnOnce(&Process) -> T) -> T {
        match &*lock(&self.running) {
            Some(process) => act(process),
            None => panic!("{self:?} was killed and not restarted"),
        }
    }

    #[track_caller]
    fn launch(&self) {
        match self.builder.launch(&self.home, &self.port) {
            Ok((process, control)) => {
                *lock(&self.running) = Some(process);
                *lock(&self.control) = Some(control);
                self.questions.store(0, Ordering::Relaxed);
            }
            Err(why) => panic!("restarting {self:?}: {why}"),
        }
    }
}

/// Where it is.
impl RedisServer {
    /// The port, the same for as long as this value lives.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The loopback address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// `redis://127.0.0.1:PORT`, or `rediss://…` behind TLS. Never with a password.
    pub fn url(&self) -> String {
        format!("{}://{}", self.builder.scheme(), self.address())
    }

    /// `unix:///…/redis.sock`, on which every server listens too.
    pub fn unix_url(&self) -> String {
        format!("unix://{}", self.home.socket().display())
    }

    /// The process id of the present run.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.with_process(Process::pid)
    }

    /// Where it keeps its data, to be tampered with between [`kill`](Self::kill) and
    /// [`restart`](Self::restart).
    pub fn data_directory(&self) -> PathBuf {
        self.home.data()
    }

    /// A fault proxy in front of this server.
    pub fn proxy(&self) -> Proxy {
        Proxy::start(self.address())
    }
}

/// Ask and look, past any proxy.
impl RedisServer {
    /// Sends one command over the kit's own connection; an error reply is a reply.
    ///
    /// # Panics
    ///
    /// When there is no reply within five seconds, or no server.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&self, command: &[A]) -> Reply {
        self.try_command(command).unwrap_or_else(|error| {
            let name = command.first().map_or(&b""[..], AsRef::as_ref);
            panic!("{} to {self:?}: {error}", name.escape_ascii())
        })
    }

    /// The same for a server that may be dead or frozen.
    pub fn try_command<A: AsRef<[u8]>>(&self, command: &[A]) -> io::Result<Reply> {
        let mut slot = lock(&self.control);
        let mut control = match slot.take() {
            Some(control) => control,
            None => Control::connect(&self.home.socket(), self.builder.password())?,
        };
        // Put back only after a success: after a time-out its next reply would be the late one.
        let reply = control.call(command)?;
        *slot = Some(control);
        Ok(reply)
    }

    /// All keys, sorted.
    #[track_caller]
    pub fn keys(&self) -> Vec<String> {
        let reply = self.command(&["KEYS", "*"]);
        let mut keys: Vec<_> = reply.as_array().iter().map(Reply::as_text).collect();
        keys.sort_unstable();
        keys.into_iter().map(str::to_owned).collect()
    }

    /// The keys of locks, sorted: all but those in which a node keeps its own books.
    #[track_caller]
    pub fn locks(&self) -> Vec<String> {
        let mut keys = self.keys();
        keys.retain(|key| !key.ends_with(":__fence"));
        keys
    }

    /// Who waits for the lock with this name, under the default prefix: the
    /// channels on which they are called, the first one first.
    #[track_caller]
    pub fn queue(&self, name: &str) -> Vec<String> {
        let mut tickets = self.queue_members(name);
        tickets.retain(|member| !member.contains(' '));
        tickets
    }

    /// The tickets of those who wait, each followed by what is parked with it.
    #[track_caller]
    fn queue_members(&self, name: &str) -> Vec<String> {
        let key = format!("redlatch:__queue:redlatch:{name}");
        let members = self.command(&["ZRANGE", &key, "0", "+inf", "BYSCORE"]);
        let members = members.as_array().iter();
        members.map(|member| member.as_text().to_owned()).collect()
    }

    /// Whether the first has a request for this lock parked, which could still be
    /// granted.
    #[track_caller]
    pub fn is_parked(&self, name: &str) -> bool {
        let members = self.queue_members(name);
        let parked = members.get(1).filter(|member| member.contains(' '));
        let last = parked.and_then(|parked| parked.split(' ').nth(1)?.parse::<u64>().ok());
        last.is_some_and(|last| self.clock() <= last)
    }

    /// The server's clock, in milliseconds since 1970.
    #[track_caller]
    fn clock(&self) -> u64 {
        let time = self.command(&["TIME"]);
        let number = |at: usize| time.as_array()[at].as_text().parse::<u64>();
        let read = |at| number(at).expect("TIME gives numbers");
        read(0) * 1000 + read(1) / 1000
    }

    /// The string at `key`, if there is one.
    #[track_caller]
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        match self.command(&["GET", key]) {
            Reply::Nil => None,
            Reply::Bulk(bytes) => Some(bytes),
            other => panic!("GET {key} from {self:?}: {other}"),
        }
    }

    /// What is left of `key`'s life in ms; -1 when it never expires, -2 when it isn't there.
    #[track_caller]
    pub fn pttl(&self, key: &str) -> i64 {
        self.command(&["PTTL", key]).as_int()
    }

    /// One field of INFO, such as `run_id`.
    #[track_caller]
    pub fn info(&self, field: &str) -> String {
        let info = self.command(&["INFO", "everything"]);
        self.questions.fetch_add(1, Ordering::Relaxed);
        find_field(info.as_text(), field)
            .unwrap_or_else(|| panic!("INFO of {self:?} has no field {field}"))
            .to_owned()
    }

    /// How many commands this run has processed, those inside scripts and those of
    /// [`command`](Self::command) included, but not what the kit itself asks of INFO.
    #[track_caller]
    pub fn commands_processed(&self) -> u64 {
        let questions = self.questions.load(Ordering::Relaxed);
        self.number("total_commands_processed")
            .saturating_sub(questions)
    }

    /// How often this run has been sent the command `name`, such as `evalsha` or `client|tracking`.
    #[track_caller]
    pub fn calls(&self, name: &str) -> u64 {
        let info = self.command(&["INFO", "commandstats"]);
        self.questions.fetch_add(1, Ordering::Relaxed);
        // cmdstat_get:calls=3,usec=…; a command that was never called has no line.
        find_field(info.as_text(), &format!("cmdstat_{name}"))
            .and_then(|line| line.strip_prefix("calls=")?.split(',').next()?.parse().ok())
            .unwrap_or(0)
    }

    /// How many clients are connected, not counting the kit itself.
    #[track_caller]
    pub fn connected_clients(&self) -> usize {
        self.number("connected_clients") as usize - 1
    }

    #[track_caller]
    fn number(&self, field: &str) -> u64 {
        let value = self.info(field);
        value
            .parse()
            .unwrap_or_else(|_| panic!("{field} of {self:?} is {value:?}, not a number"))
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redis-server on {}", self.url())
    }
}

fn find_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// A test that panicked while it held the lock must not take the clean-up down with it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
