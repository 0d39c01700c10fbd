//! A server never outlives its test.

use std::env;
use std::io::{BufRead, BufReader};
use std::panic;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use redlatch_testkit::RedisServer;

use crate::support::{eventually, process_exists};

#[test]
fn server_ends_on_drop() {
    let server = RedisServer::start();
    let (pid, data) = (server.pid(), server.data_directory());
    assert!(process_exists(pid) && data.exists());
    drop(server);
    assert!(!process_exists(pid) && !data.exists());
}

#[test]
fn frozen_server_ends_on_drop() {
    let server = RedisServer::start();
    let pid = server.pid();
    server.freeze();
    drop(server);
    assert!(!process_exists(pid));
}

#[test]
fn server_ends_when_its_test_panics() {
    let outcome = panic::catch_unwind(|| {
        let server = RedisServer::start();
        panic::panic_any(server.pid());
    });
    let pid = outcome.unwrap_err().downcast::<u32>().unwrap();
    assert!(!process_exists(*pid));
}

#[test]
fn server_ends_when_its_process_is_killed() {
    survives_nothing("life::server_ends_when_its_process_is_killed", |_| {});
}

/// The kernel hangs up on a process group that is left behind with a stopped member.
#[test]
fn frozen_server_ends_when_its_process_is_killed() {
    survives_nothing(
        "life::frozen_server_ends_when_its_process_is_killed",
        RedisServer::freeze,
    );
}

/// Set in the process that is going to be killed.
const VICTIM: &str = "REDLATCH_TESTKIT_VICTIM";

/// Runs the test `name` once more in a process of its own, which starts a server and prepares it;
/// kills that process, and waits for the server and its directory to go.
fn survives_nothing(name: &str, prepare: fn(&RedisServer)) {
    if env::var_os(VICTIM).is_some() {
        let server = RedisServer::start();
        prepare(&server);
        let directory = server.data_directory();
        println!("\nvictim {} {}", server.pid(), directory.display());
        loop {
            thread::park();
        }
    }

    let mut victim = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(victim.stdout.take().unwrap());
    let line = stdout
        .lines()
        .map(Result::unwrap)
        .find(|line| line.starts_with("victim "))
        .expect("the victim reports its server");
    let [_, pid, directory] = line.split(' ').collect::<Vec<_>>()[..] else {
        panic!("unexpected report: {line}")
    };
    let pid = pid.parse().unwrap();
    assert!(process_exists(pid));

    victim.kill().unwrap();
    victim.wait().unwrap();
    eventually("the server is gone", || !process_exists(pid));
    let home = Path::new(directory).parent().unwrap();
    eventually("its directory is gone", || !home.exists());
}
