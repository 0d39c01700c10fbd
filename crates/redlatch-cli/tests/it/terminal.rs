//! A real terminal, with a real shell in it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use redlatch_testkit::RedisServer;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{BINARY, KEY, eventually, isolate};

/// An interactive shell on a terminal of its own.
pub(crate) struct Session {
    shell: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// What has been looked at.
    seen: usize,
}

impl Session {
    pub(crate) fn start(server: &RedisServer) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let line = || -> OwnedFd {
            let options = File::options().read(true).write(true).open(&name).unwrap();
            options.into()
        };
        let mut command = Command::new("setsid");
        isolate(&mut command, std::slice::from_ref(server));
        let shell = command
            // A shell with job control, whose terminal this is.
            .args(["--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"])
            .env("REDLATCH", BINARY)
            .env("PS1", "$ ")
            .env("TERM", "dumb")
            .stdin(Stdio::from(line()))
            .stdout(Stdio::from(line()))
            .stderr(Stdio::from(line()))
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let keyboard = File::from(master);
        let mut output = keyboard.try_clone().unwrap();
        let written = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It ends with an error when the last process has closed the terminal.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                written.lock().unwrap().push_str(&text);
            }
        });
        let mut session = Self {
            shell,
            keyboard,
            screen,
            seen: 0,
        };
        // What is typed is not to be found where its output is looked for.
        session.run("stty -echo; echo re''ady", "ready");
        session
    }

    pub(crate) fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this text is on the screen, behind what was waited for before.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) {
        let screen = self.screen.clone();
        let from = self.seen;
        let mut found = None;
        let mut last = String::new();
        let look = || {
            last = screen.lock().unwrap()[from..].to_owned();
            found = last.find(text);
            found.is_some()
        };
        let what = format!("{text:?} on the screen");
        let result =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| eventually(&what, look)));
        if result.is_err() {
            panic!("never on the screen: {text:?}, but {last:?}");
        }
        self.seen += found.unwrap() + text.len();
    }

    #[track_caller]
    pub(crate) fn run(&mut self, line: &str, expected: &str) {
        self.keys(&format!("{line}\n"));
        self.expect(expected);
    }

    /// All that was ever written there.
    pub(crate) fn written(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// Asks the shell how the last command ended.
    #[track_caller]
    pub(crate) fn expect_code(&mut self, code: i32) {
        self.run("echo co''de $?.", &format!("code {code}."));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Ends the shell, and with the terminal all that runs there.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_Z: &str = "\x1a";

#[test]
fn a_child_reads_from_the_terminal() {
    let server = RedisServer::start();
    let mut session = Session::start(&server);
    session.run(
        "$REDLATCH run job -c 'echo rea''dy; read a; echo got $a; exit 3'",
        "ready",
    );
    session.run("hello", "got hello");
    session.expect_code(3);
    // And the shell has the terminal back, for the next one.
    session.run("$REDLATCH run job -- cat", "");
    session.run("again", "again");
    session.keys("\x04");
    session.expect_code(0);
}

#[test]
fn a_child_can_set_the_terminal() {
    let server = RedisServer::start();
    let mut session = Session::start(&server);
    // What is done in the background stops the one who does it.
    session.run("$REDLATCH run job -- stty -echo && echo do''ne", "done");
    session.run(
        "$REDLATCH run job -- stty sane -echo | cat && echo do''ne",
        "done",
    );
}

#[test]
fn a_child_in_a_pipe_is_given_the_terminal_when_it_asks() {
    let server = RedisServer::start();
    let mut session = Session::start(&server);
    let script = "echo rea''dy; read a < /dev/tty; echo got $a";
    session.run(&format!("$REDLATCH run job -c '{script}' | cat"), "ready");
    session.run("hello", "got hello");
    session.expect_code(0);
}

#[test]
fn the_rest_of_a_pipe_can_read_from_the_terminal() {
    let server = RedisServer::start();
    let mut session = Session::start(&server);
    let directory = tempfile::tempdir().unwrap();
    session.keys(&format!("cd {}\n", directory.path().display()));
    let list = "echo rea''dy; while [ ! -e read ]; do sleep 0.01; done";
    let pager = "read a; echo $a; read b < /dev/tty; echo got $b; touch read";
    session.run(
        &format!("$REDLATCH run job -c '{list}' | sh -c '{pager}'"),
        "ready",
    );
    session.run("hello", "got hello");
    session.expect_code(0);
}

#[test]
fn ctrl_c_ends_the_child_and_the_script_around_it() {
    let server = RedisServer::start();
    let mut session = Session::start(&server);
    let body = "$REDLATCH run job -c \"echo rea''dy; exec sleep 1000\"; echo still he''re";
    session.run(&format!("bash -c '{body}'"), "ready");
    session.keys(CTRL_C);
    session.expect_code(130);
    let screen = session.screen.lock().unwrap().clone();
    assert!(!screen.contains("still here"), "{screen}");
    drop(screen);
    assert_eq!(server.locks(), [""; 0]);
}

#[test]
fn ctrl_c_ends_one_that_waits() {
    let server = RedisServer::start();
    server.command(&["SET", KEY, "a stranger"]);
    let mut session = Session::start(&server);
    session.run("$REDLATCH run job -- true", "waiting for lock");
    session.keys(CTRL_C);
    session.expect_code(130);
}

#[test]
fn ctrl_c_reaches_a_child_that_handles_it() {
    let server = RedisServer::start();
    let mut session = Session::start(&server);
    let script = "trap \"echo cau''ght; exit 4\" INT; echo rea''dy; while :; do sleep 0.01; done";
    session.run(&format!("$REDLATCH run job -c '{script}'"), "ready");
    session.keys(CTRL_C);
    session.expect("caught");
    session.expect_code(4);
}

#[test]
fn after_ctrl_z_the_child_goes_on_while_the_lease_is_valid() {
    let server = RedisServer::start();
    let mut session = Session::start(&server);
    session.run(
        "$REDLATCH run job -c 'echo rea''dy; read a; echo got $a; exit 3'",
        "ready",
    );
    session.keys(CTRL_Z);
    session.expect("Stopped");
    assert_eq!(server.locks(), [KEY], "it still has the lock");
    session.run("fg", "");
    session.run("hello", "got hello");
    session.expect_code(3);
}

#[test]
fn a_child_that_stops_itself_at_ctrl_z_can_be_continued() {
    let server = RedisServer::start();
    let mut session = Session::start(&server);
    // As top and editors do, once they have set the terminal right.
    let script = "trap \"kill -STOP \\$\\$; echo ba''ck\" TSTP; echo rea''dy; read a; echo got $a";
    session.run(&format!("$REDLATCH run job -c '{script}'"), "ready");
    session.keys(CTRL_Z);
    session.expect("Stopped");
    session.run("fg", "back");
}

#[test]
fn after_ctrl_z_the_child_goes_on_in_the_background() {
    let server = RedisServer::start();
    let mut session = Session::start(&server);
    // No loop with a sleep: a shell that is just starting a process by vfork does
    // not stop before that has gone on, with redlatch or without.
    let script = "echo rea''dy; read a < go; echo we''nt";
    let directory = tempfile::tempdir().unwrap();
    session.keys(&format!("cd {}; mkfifo go\n", directory.path().display()));
    session.run(&format!("$REDLATCH run job -c '{script}'"), "ready");
    session.keys(CTRL_Z);
    session.expect("Stopped");
    session.keys("bg\n");
    session.run("echo > go; wait; echo do''ne", "went");
    session.expect("done");
}

#[test]
fn after_ctrl_z_the_child_is_killed_when_the_lease_has_run_out() {
    let server = RedisServer::start();
    let mut session = Session::start(&server);
    let directory = tempfile::tempdir().unwrap();
    session.keys(&format!("cd {}\n", directory.path().display()));
    // So busy that it could not go on for even a moment without being seen.
    let script = ": > trace; echo rea''dy; while :; do echo x; done >> trace";
    let trace = || {
        std::fs::metadata(directory.path().join("trace"))
            .unwrap()
            .len()
    };
    session.run(
        &format!("$REDLATCH run job --ttl 1500ms -c '{script}'"),
        "ready",
    );
    session.keys(CTRL_Z);
    session.expect("Stopped");
    let before = trace();
    eventually("the end of the lease", || server.locks().is_empty());
    session.run("fg", "is lost");
    session.expect_code(79);
    assert_eq!(trace(), before, "it did not go on");
    session.run("jobs; echo no''ne", "none");
}

#[test]
fn one_that_waits_can_be_stopped_too() {
    let server = RedisServer::start();
    server.command(&["SET", KEY, "a stranger"]);
    let mut session = Session::start(&server);
    session.run("$REDLATCH run job -- echo wen''t", "waiting for lock");
    session.keys(CTRL_Z);
    session.expect("Stopped");
    server.command(&["DEL", KEY]);
    session.run("fg", "went");
    session.expect_code(0);
}
