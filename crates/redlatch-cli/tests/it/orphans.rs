//! Nothing that was started survives a TERM, a loss, or a KILL of `redlatch`.

use std::fs;

use redlatch_testkit::RedisServer;
use rustix::process::Signal;

use crate::support::{KEY, Running, eventually, pid, redlatch, runs};

/// Starts a process that ends by nothing but KILL, says its number and then its
/// own, and goes on until it is told to end.
const FAMILY: &str = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.02; done' & \
                      sleep 0.1; echo $$; wait; while :; do sleep 0.02; done";

fn family(server: &RedisServer, args: &[&str]) -> (Running, [u32; 2]) {
    let mut command = redlatch(std::slice::from_ref(server));
    command.args(["run", "job"]).args(args).args(["-c", FAMILY]);
    let running = Running::start(&mut command);
    let pids = [running.stdout.pid(), running.stdout.pid()];
    assert!(pids.into_iter().all(runs));
    (running, pids)
}

#[test]
fn after_a_term() {
    let server = RedisServer::start();
    let (mut running, pids) = family(&server, &["--kill-after", "200ms"]);
    running.signal(Signal::TERM);
    assert_eq!(running.code(), 143);
    assert!(!pids.into_iter().any(runs));
    assert_eq!(server.locks(), [""; 0]);
}

#[test]
fn after_a_loss() {
    let server = RedisServer::start();
    let (mut running, pids) = family(&server, &["--ttl", "1500ms"]);
    server.command(&["DEL", KEY]);
    assert_eq!(running.code(), 79);
    eventually("the end of both", || !pids.into_iter().any(runs));
}

#[test]
fn after_the_longest_time() {
    let server = RedisServer::start();
    let args = ["--max-runtime", "300ms", "--kill-after", "200ms"];
    let (mut running, pids) = family(&server, &args);
    assert_eq!(running.code(), 124);
    eventually("the end of both", || !pids.into_iter().any(runs));
}

#[test]
fn after_a_kill() {
    let server = RedisServer::start();
    let (mut running, pids) = family(&server, &["--ttl", "3s"]);
    running.signal(Signal::KILL);
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&running.end()),
        Some(9)
    );
    eventually("the end of both", || !pids.into_iter().any(runs));
    assert_eq!(server.locks(), [KEY], "and while the lock was still taken");
}

#[test]
fn the_child_itself_dies_with_redlatch_also_without_the_minder() {
    let server = RedisServer::start();
    let (running, [other, child]) = family(&server, &[]);
    let minder = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap();
        let children = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")));
        let children: String = children.map(Result::unwrap).collect();
        children.split_whitespace().find_map(|pid| {
            let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
            command.contains("__minder").then(|| pid.parse().unwrap())
        })
    };
    let mut found = None;
    eventually("the minder", || {
        found = minder();
        found.is_some()
    });
    rustix::process::kill_process(pid(found.unwrap()), Signal::KILL).unwrap();
    running.signal(Signal::KILL);
    eventually("the child's end", || !runs(child));
    // What only the minder would have ended.
    rustix::process::kill_process(pid(other), Signal::KILL).unwrap();
}

#[test]
fn what_a_child_leaves_behind_on_purpose_stays() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    let script = "sleep 1000 >/dev/null 2>&1 & echo $!";
    let mut running = Running::start(command.args(["run", "job", "-c", script]));
    let left = running.stdout.pid();
    assert_eq!(running.code(), 0);
    assert!(runs(left));
    rustix::process::kill_process(pid(left), Signal::KILL).unwrap();
}
