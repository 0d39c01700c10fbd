//! What several tests need.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// How long something that must happen may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Polls until `condition` holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn process_exists(pid: u32) -> bool {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::test_kill_process(pid).is_ok()
}

/// A Redis client that knows inline commands and replies of one line.
pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(stream)
    }

    pub(crate) fn send(&mut self, command: &str) -> io::Result<()> {
        self.0.write_all(format!("{command}\r\n").as_bytes())
    }

    /// The next line; an error of kind `UnexpectedEof` after a FIN.
    pub(crate) fn receive(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        line.truncate(line.len() - 2);
        Ok(String::from_utf8(line).unwrap())
    }

    pub(crate) fn ask(&mut self, command: &str) -> io::Result<String> {
        self.send(command)?;
        self.receive()
    }

    /// Whether nothing at all arrives for a little while. It can't prove a rule, only refute it.
    pub(crate) fn hears_nothing(&mut self) -> bool {
        self.0
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let heard = self.0.read(&mut [0]);
        self.0.set_read_timeout(Some(PATIENCE)).unwrap();
        matches!(heard, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

/// How a connection that was reset looks, depending on who notices first.
pub(crate) fn is_reset<T>(outcome: &io::Result<T>) -> bool {
    matches!(outcome, Err(error) if matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    ))
}
