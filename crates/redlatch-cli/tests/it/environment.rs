//! What the child is given: its arguments, its streams, its environment.

use std::io::Write;
use std::process::{Command, Stdio};

use redlatch_testkit::RedisServer;

use crate::support::{redlatch, run, text};

#[test]
fn arguments_arrive_as_they_are() {
    let server = RedisServer::start();
    let output = run(
        &server,
        &["--", "printf", "<%s>", "a b", "$HOME", "*", "-n", "--", ""],
    );
    assert_eq!(text(&output.stdout), "<a b><$HOME><*><-n><--><>");
    // The two dashes may be left out.
    let output = run(&server, &["printf", "<%s>", "-n", "-q", "--json"]);
    assert_eq!(text(&output.stdout), "<-n><-q><--json>");
}

#[test]
fn a_line_for_the_shell_is_run_by_the_shell() {
    let server = RedisServer::start();
    let output = run(&server, &["-c", "echo a | tr a b; exit 3"]);
    assert_eq!(text(&output.stdout), "b\n");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn stdin_stdout_and_stderr_are_the_childs() {
    let server = RedisServer::start();
    let mut child = redlatch(std::slice::from_ref(&server))
        .args(["run", "job", "-c", "cat; echo oops >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let mut stdin = child.stdin.take().unwrap();
    let input = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(output.stdout, bytes);
    assert_eq!(text(&output.stderr), "oops\n");
}

#[test]
fn the_environment_names_the_lock() {
    let server = RedisServer::start();
    let script = "echo $REDLATCH_LOCK; echo $REDLATCH_FENCE; echo $MINE";
    let seen = |fence_before: u64| {
        let mut command = redlatch(std::slice::from_ref(&server));
        command
            .env("MINE", "kept")
            .args(["run", "job", "-c", script]);
        let output = text(&command.output().unwrap().stdout);
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!((lines[0], lines[2]), ("job", "kept"));
        let fence: u64 = lines[1].parse().unwrap();
        assert!(fence > fence_before);
        fence
    };
    seen(seen(0));
}

#[test]
fn no_other_file_is_left_open_for_the_child() {
    let server = RedisServer::start();
    let script = "ls -l /proc/self/fd";
    let count = |command: &mut Command| {
        let files = text(&command.args(["-c", script]).output().unwrap().stdout);
        files.lines().filter(|line| line.contains("->")).count()
    };
    // Whoever started the tests may have left something open for all of us.
    let without = count(Command::new("sh").stdin(Stdio::null()));
    let with = count(redlatch(std::slice::from_ref(&server)).args(["run", "job"]));
    assert_eq!(with, without);
}
