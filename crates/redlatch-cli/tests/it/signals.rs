//! Signals: passed on to the child's group, and deadly to one that waits.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use redlatch_testkit::RedisServer;
use rustix::process::Signal;

use crate::support::{BINARY, Running, eventually, isolate, redlatch, runs};

#[test]
fn signals_reach_the_whole_group() {
    let server = RedisServer::start();
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        let trap = format!("trap 'echo $0 {name}; exit 5' {name}; echo ready");
        let wait = "while :; do sleep 0.01; done";
        let inner = format!("{trap}; {wait}");
        let outer = format!("{trap}; sh -c \"$1\" inner; {wait}");
        let mut command = redlatch(std::slice::from_ref(&server));
        command.args(["run", "job", "--", "sh", "-c", &outer, "outer", &inner]);
        let mut running = Running::start(&mut command);
        assert_eq!(running.stdout.next(), "ready");
        assert_eq!(running.stdout.next(), "ready");
        running.signal(signal);
        let mut heard = [running.stdout.next(), running.stdout.next()];
        heard.sort();
        assert_eq!(heard, [format!("inner {name}"), format!("outer {name}")]);
        assert_eq!(running.code(), 5, "{name}");
    }
}

#[test]
fn one_that_waits_dies_of_a_signal_at_once() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    let holder = Running::start(command.args(["run", "job", "-c", "echo; exec sleep 1000"]));
    holder.stdout.next();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1] {
        let mut command = redlatch(std::slice::from_ref(&server));
        let mut waiter = Running::start(command.args(["run", "job", "--", "echo", "started"]));
        let said = waiter.stderr.find("waiting for lock");
        assert!(said.contains("program sh"), "{said}");
        waiter.signal(signal);
        assert_eq!(waiter.end().signal(), Some(signal.as_raw()));
        assert_eq!(waiter.stdout.rest(), [""; 0], "not started");
    }
}

#[test]
fn one_that_waits_for_a_frozen_node_dies_of_a_signal_at_once() {
    let server = RedisServer::start();
    server.freeze();
    let mut command = redlatch(std::slice::from_ref(&server));
    command.env("REDLATCH_CONNECT_TIMEOUT", "1h");
    let mut waiter = Running::start(command.args(["run", "job", "--", "echo", "started"]));
    // It is caught from the moment on at which the kernel says so.
    let caught = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
        mask >> (Signal::TERM.as_raw() - 1) & 1 == 1
    };
    eventually("TERM is caught", || caught(waiter.pid()));
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.end().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn what_is_ignored_stays_ignored() {
    let server = RedisServer::start();
    let mut command = Command::new("sh");
    isolate(&mut command, std::slice::from_ref(&server));
    let script =
        format!("trap '' HUP; exec {BINARY} run job -c 'kill -HUP $$ $PPID; echo alive; read x'");
    command
        .args(["-c", &script])
        .stdin(std::process::Stdio::piped());
    let running = Running::start(&mut command);
    assert_eq!(running.stdout.next(), "alive");
    assert!(runs(running.pid()));
}
