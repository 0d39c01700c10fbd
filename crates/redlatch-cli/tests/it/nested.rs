//! A run inside a run of the same lock takes part in it.

use redlatch_testkit::RedisServer;

use crate::support::{BINARY, KEY, Running, redlatch, run, text};

#[test]
fn a_nested_run_takes_part_in_the_lock() {
    let server = RedisServer::start();
    let inner = format!("{BINARY} run -n job -c 'echo $REDLATCH_FENCE $REDLATCH_TOKEN'");
    let script =
        format!("echo $REDLATCH_FENCE $REDLATCH_TOKEN; {inner}; redis=$?; {inner}; exit $redis");
    let output = run(&server, &["-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(
        lines.len(),
        3,
        "the inner one left the lock to the outer one"
    );
    assert!(lines.iter().all(|line| *line == lines[0]), "{lines:?}");
    assert_eq!(server.locks(), [""; 0], "the outer one gave it back");
}

#[test]
fn also_with_another_lock_between() {
    let server = RedisServer::start();
    let script = format!("{BINARY} run -n other -c '{BINARY} run -n job -- echo inside'");
    let output = run(&server, &["-c", &script]);
    assert_eq!(text(&output.stdout), "inside\n", "{}", text(&output.stderr));
    assert_eq!(server.locks(), [""; 0]);
}

#[test]
fn the_lock_is_still_held_after_the_inner_run() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    let script = format!("{BINARY} run job -- true; echo; read x");
    command.args(["run", "job", "-c", &script]);
    let running = Running::start(command.stdin(std::process::Stdio::piped()));
    running.stdout.next();
    assert_eq!(server.locks(), [KEY]);
    assert_eq!(run(&server, &["-n", "--", "true"]).status.code(), Some(75));
}

#[test]
fn a_stale_token_is_not_adopted() {
    let server = RedisServer::start();
    let output = run(
        &server,
        &["-c", "echo $REDLATCH_FENCE; echo $REDLATCH_TOKEN"],
    );
    let lines = text(&output.stdout);
    let (fence, token) = lines.trim().split_once('\n').unwrap();
    let stale = || {
        let mut command = redlatch(std::slice::from_ref(&server));
        command
            .env("REDLATCH_LOCK", "job")
            .env("REDLATCH_FENCE", fence)
            .env("REDLATCH_TOKEN", token);
        command
    };

    // Nobody has the lock: it is taken anew, with a token of its own.
    let mut command = stale();
    command.args([
        "run",
        "-n",
        "job",
        "-c",
        "echo $REDLATCH_TOKEN; echo; read x",
    ]);
    let holder = Running::start(command.stdin(std::process::Stdio::piped()));
    let new = holder.stdout.next();
    assert_ne!(new, token);
    assert_eq!(server.get(KEY), Some(new.into_bytes()));

    // Somebody has it: it is respected.
    holder.stdout.next();
    let output = stale()
        .args(["run", "-n", "job", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(75));
}

#[test]
fn what_is_no_token_is_not_adopted() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    command
        .env("REDLATCH_LOCK", "job")
        .env("REDLATCH_FENCE", "x")
        .env("REDLATCH_TOKEN", "")
        .env("REDLATCH_OUTER", "{not json");
    let output = command.args(["run", "job", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}
