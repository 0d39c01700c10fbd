//! A lock that is lost: the child is ended before it can be somebody else's.

use std::fs;
use std::time::{Duration, SystemTime};

use redlatch_testkit::RedisServer;

use crate::support::{KEY, Running, armed, eventually, redlatch, until_renewed};

/// Writes the time again and again, and does not end at TERM.
const HEARTBEAT: &str = "trap 'echo TERM >> term' TERM; echo; \
                         while :; do date +%s%N > beat.new; mv beat.new beat; sleep 0.005; done";

const TTL: Duration = Duration::from_secs(3);

/// Starts the heartbeat, takes the nodes away by `fault` right after a renewal,
/// and sees that the heart stood still before the lease was over.
fn stands_still_in_time(servers: &[RedisServer], fault: impl FnOnce()) {
    let directory = tempfile::tempdir().unwrap();
    let mut command = redlatch(servers);
    command.current_dir(directory.path());
    command.args([
        "run",
        "job",
        "--ttl",
        "3s",
        "--kill-after",
        "800ms",
        "-c",
        HEARTBEAT,
    ]);
    let mut running = Running::start(&mut command);
    running.stdout.next();
    until_renewed(&servers[0]);
    let last_renewal = SystemTime::now();
    fault();
    assert_eq!(running.code(), 79);
    let beat = fs::read_to_string(directory.path().join("beat")).unwrap();
    let beat = Duration::from_nanos(beat.trim().parse().unwrap());
    let beat = SystemTime::UNIX_EPOCH + beat;
    let after = beat.duration_since(last_renewal).unwrap();
    assert!(
        after < TTL,
        "it went on until {after:?} after the last renewal"
    );
    assert!(after > TTL / 3, "it was given up after {after:?} already");
    assert!(
        directory.path().join("term").exists(),
        "it was asked to end"
    );
}

#[test]
fn a_frozen_server_ends_the_child_before_the_validity_ends() {
    let server = RedisServer::start();
    stands_still_in_time(std::slice::from_ref(&server), || server.freeze());
}

#[test]
fn a_dead_server_ends_the_child_before_the_validity_ends() {
    let server = RedisServer::start();
    stands_still_in_time(std::slice::from_ref(&server), || server.kill());
}

#[test]
fn a_lost_quorum_ends_the_child_before_the_validity_ends() {
    let fleet = armed(3);
    stands_still_in_time(&fleet, || {
        fleet[1].freeze();
        fleet[2].kill();
    });
}

#[test]
fn a_short_outage_does_no_harm() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    command.args(["run", "job", "--ttl", "3s", "-c", "echo; read x; exit 4"]);
    let mut running = Running::start(command.stdin(std::process::Stdio::piped()));
    running.stdout.next();
    server.freeze();
    std::thread::sleep(TTL / 3);
    server.thaw();
    until_renewed(&server);
    running.close_stdin();
    assert_eq!(running.code(), 4);
}

#[test]
fn with_warn_the_child_goes_on() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    command.args(["run", "job", "--ttl", "1500ms", "--on-lost", "warn"]);
    command.args(["-c", "echo; read x; exit 4"]);
    let mut running = Running::start(command.stdin(std::process::Stdio::piped()));
    running.stdout.next();
    server.command(&["DEL", KEY]);
    running.stderr.find("goes on");
    running.close_stdin();
    assert_eq!(running.code(), 4);
}

#[test]
fn the_lock_is_held_for_the_least_time_after_a_short_run() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    command.args(["run", "job", "--min-hold", "1h", "-c", "echo $$; exit 6"]);
    let mut running = Running::start(&mut command);
    let child = running.stdout.pid();
    // Nothing is left of a process when its parent has heard of its end.
    let process = std::path::PathBuf::from(format!("/proc/{child}"));
    eventually("the child's end", || !process.exists());
    assert_eq!(server.locks(), [KEY]);
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.code(), 6);
    assert_eq!(server.locks(), [""; 0]);

    let start = std::time::Instant::now();
    let output = crate::support::run(&server, &["--min-hold", "300ms", "--", "true"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(start.elapsed() >= Duration::from_millis(300));
}
