//! `ls`, `show` and `wait`: who holds what.

use std::process::Command;

use redlatch_testkit::RedisServer;

use crate::support::{Running, armed, eventually, redlatch, run, text};
use crate::terminal::Session;

/// Runs a lock's command until this is dropped.
pub(crate) fn hold(servers: &[RedisServer], name: &str) -> Running {
    let mut command = redlatch(servers);
    command.args(["run", name, "--note", "nightly"]);
    command.args(["--", "sh", "-c", "echo held; exec sleep 60"]);
    let running = Running::start(&mut command);
    running.stdout.find("held");
    running
}

fn output(command: &mut Command, args: &[&str]) -> (String, String, i32) {
    let output = command.args(args).output().unwrap();
    let code = output.status.code().unwrap();
    (text(&output.stdout), text(&output.stderr), code)
}

fn objects(lines: &str) -> Vec<serde_json::Value> {
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn locks_are_listed_in_aligned_columns() {
    let fleet = armed(3);
    let _two = hold(&fleet, "b:2");
    let one = hold(&fleet, "a:1");
    fleet[0].command(&["SET", "redlatch:stuck", "x\u{1b}[2J"]);
    let (table, errors, code) = output(&mut redlatch(&fleet), &["ls"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(
        !table.contains('\u{1b}'),
        "no colours off a terminal: {table:?}"
    );
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    let first = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    let names: Vec<String> = lines.iter().map(|line| first(line)).collect();
    assert_eq!(names, ["NAME", "a:1", "b:2", "stuck"]);
    for (word, column) in [("sh", "PROGRAM"), ("3/3", "NODES"), ("nightly", "NOTE")] {
        assert_eq!(lines[1].find(word), lines[0].find(column), "{table}");
    }
    assert!(lines[1].contains(&one.pid().to_string()), "{table}");
    assert!(lines[3].contains("(another client)") && lines[3].contains("for ever"));

    let (table, ..) = output(&mut redlatch(&fleet), &["ls", "b*"]);
    assert_eq!(table.lines().count(), 2);
    let (json, ..) = output(&mut redlatch(&fleet), &["ls", "--json"]);
    let objects = objects(&json);
    assert_eq!(objects.len(), 3);
    assert_eq!(objects[0]["name"], "a:1");
    assert_eq!(objects[0]["note"], "nightly");
    assert_eq!(objects[0]["on_nodes"], 3);
    assert!(objects[0]["fence"].as_u64().unwrap() > 0);
    assert_eq!(objects[2]["remaining_ms"], serde_json::Value::Null);
    assert_eq!(objects[2]["quorum"], false);
}

#[test]
fn a_list_says_what_it_could_not_see() {
    let fleet = armed(3);
    let _held = hold(&fleet, "job");
    fleet[2].kill();
    let (table, errors, code) = output(&mut redlatch(&fleet), &["ls"]);
    assert_eq!(code, 0);
    assert!(table.contains("2/3"), "{table}");
    assert!(errors.contains("was not asked to the end"), "{errors}");
    fleet[1].kill();
    let (_, errors, code) = output(&mut redlatch(&fleet), &["ls"]);
    assert_eq!(code, 69, "{errors}");
}

#[test]
fn on_a_terminal_there_are_colours_and_progress() {
    let server = RedisServer::with_args(&["--enable-debug-command", "local"]);
    // In steps: all at once takes longer on a busy machine than a reply may.
    for step in 0..20 {
        let prefix = format!("other{step}");
        server.command(&["DEBUG", "POPULATE", "50000", &prefix]);
    }
    server.command(&["SET", "redlatch:stuck", "x"]);
    let mut session = Session::start(&server);
    session.keys("$REDLATCH ls\n");
    session.expect("looked at ");
    session.expect(" of 1000001 keys");
    session.expect("\u{1b}[31mfor ever");
    session.keys("NO_COLOR=1 $REDLATCH ls\n");
    session.expect("  for ever");
    session.expect_code(0);
}

#[test]
fn one_lock_is_shown() {
    let server = RedisServer::start();
    let servers = std::slice::from_ref(&server);
    let (shown, _, code) = output(&mut redlatch(servers), &["show", "job"]);
    assert_eq!((shown.as_str(), code), ("job is free\n", 0));
    let held = hold(servers, "job");
    let (shown, ..) = output(&mut redlatch(servers), &["show", "job"]);
    assert!(shown.starts_with("name     job\n"), "{shown}");
    assert!(
        shown.contains(&format!("pid      {}\n", held.pid())),
        "{shown}"
    );
    assert!(shown.contains("nodes    1 of 1\n"), "{shown}");
    let token = server.get("redlatch:job").unwrap();
    let id = text(&token).split(' ').next().unwrap().to_owned();
    assert!(!shown.contains(&id), "a token opens the lock: {shown}");
    let (json, ..) = output(&mut redlatch(servers), &["show", "job", "--json"]);
    assert!(!json.contains(&id), "{json}");
    assert_eq!(objects(&json)[0]["held"], true);
    server.command(&["SET", "redlatch:job", "secret"]);
    let (shown, ..) = output(&mut redlatch(servers), &["show", "job"]);
    assert!(
        shown.contains("another client") && !shown.contains("secret"),
        "{shown}"
    );
}

#[test]
fn a_lock_is_waited_for_without_being_taken() {
    let server = RedisServer::start();
    let servers = std::slice::from_ref(&server);
    let (_, _, code) = output(&mut redlatch(servers), &["wait", "job"]);
    assert_eq!(code, 0, "it is free");
    server.command(&["SET", "redlatch:job", "somebody", "PX", "60000"]);
    let (_, errors, code) = output(&mut redlatch(servers), &["wait", "job", "-w", "100ms"]);
    assert_eq!(code, 75);
    assert!(errors.contains("still held"), "{errors}");
    let mut waiting = Running::start(redlatch(servers).args(["wait", "job", "-v"]));
    eventually("the watch", || server.calls("client|caching") >= 2);
    server.command(&["DEL", "redlatch:job"]);
    assert_eq!(waiting.code(), 0);
    assert!(server.locks().is_empty());
    assert_eq!(run(&server, &["-n", "--", "true"]).status.code(), Some(0));
}
