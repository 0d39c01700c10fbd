//! Two machines can't run at once.

use std::fs;
use std::process::Command;

use redlatch_testkit::RedisServer;

use crate::support::{BINARY, armed, isolate, redlatch};

const PROCESSES: usize = 4;
const ROUNDS: usize = 5;

/// Reads a number, waits a moment, and writes the next one.
const INCREMENT: &str = "n=$(cat counter); sleep 0.02; echo $((n + 1)) > counter";

#[test]
fn no_increment_is_lost_over_one_node() {
    assert_eq!(count(&armed(1), true), PROCESSES * ROUNDS);
}

#[test]
fn no_increment_is_lost_over_five_nodes() {
    assert_eq!(count(&armed(5), true), PROCESSES * ROUNDS);
}

#[test]
fn without_the_lock_increments_are_lost() {
    assert!(count(&[], false) < PROCESSES * ROUNDS);
}

fn count(servers: &[RedisServer], locked: bool) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let counter = directory.path().join("counter");
    fs::write(&counter, "0").unwrap();
    let work = match locked {
        true => format!("{BINARY} run -q counter -c '{INCREMENT}'"),
        false => INCREMENT.to_owned(),
    };
    let script = format!("for i in $(seq {ROUNDS}); do {work} || exit 1; done");
    let workers: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut command = Command::new("sh");
            isolate(&mut command, servers);
            command.args(["-c", &script]).current_dir(directory.path());
            command.spawn().unwrap()
        })
        .collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    fs::read_to_string(&counter)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn a_lock_is_held_while_two_of_five_nodes_are_dead() {
    let fleet = armed(5);
    fleet[0].kill();
    fleet[3].kill();
    let output = redlatch(&fleet)
        .args(["run", "job", "--", "echo", "held"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"held\n");
    fleet[1].kill();
    let output = redlatch(&fleet)
        .args(["run", "job", "--", "echo", "held"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert_eq!(output.stdout, b"");
}
