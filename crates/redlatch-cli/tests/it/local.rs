//! Without a server: locks in a file, for this machine only.

use std::process::Command;

use crate::support::{redlatch, text};

/// The binary with no node configured, and this state directory.
fn local(directory: &std::path::Path) -> Command {
    let mut command = redlatch(&[]);
    command.env("XDG_STATE_HOME", directory);
    command
}

#[test]
fn the_first_command_works_on_a_fresh_machine() {
    let directory = tempfile::tempdir().unwrap();
    let mut hello = local(directory.path());
    hello.args(["run", "hello", "--", "echo", "I hold the lock"]);
    let output = hello.output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "I hold the lock\n");
    let errors = text(&output.stderr);
    assert_eq!(
        errors.matches("on this machine only").count(),
        1,
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn commands_on_one_machine_exclude_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let mut inner = local(directory.path());
    // Inside, without what would let it in again.
    inner.args([
        "run",
        "job",
        "--",
        "env",
        "-u",
        "REDLATCH_TOKEN",
        "-u",
        "REDLATCH_LOCK",
    ]);
    inner.args([crate::support::BINARY, "run", "-n", "job", "--", "true"]);
    assert_eq!(inner.output().unwrap().status.code(), Some(75));
    let mut listed = local(directory.path());
    listed.args(["run", "job", "--", crate::support::BINARY, "ls"]);
    let listed = text(&listed.output().unwrap().stdout);
    assert!(listed.contains("job"), "{listed}");
    let output = local(directory.path()).args(["doctor"]).output().unwrap();
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}");
    assert!(table.contains("SQLite"), "{table}");
}

#[test]
fn a_file_is_given_more_time_than_a_server() {
    let timeout = |node: &str| {
        let mut config = redlatch(&[]);
        config.env_remove("REDLATCH_NODE_TIMEOUT");
        config.args(["--node", node, "config", "--json"]);
        let lines = text(&config.output().unwrap().stdout);
        let line = lines.lines().find(|line| line.contains("node_timeout"));
        let row: serde_json::Value = serde_json::from_str(line.unwrap()).unwrap();
        row["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(timeout("sqlite:/tmp/locks.db"), "500ms");
    assert_eq!(timeout("redis://a"), "50ms");
}

#[test]
fn a_file_that_can_not_be_used_is_69_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.db");
    std::fs::write(&path, "this is no database, and long enough to see that").unwrap();
    for (path, advice) in [
        (path.clone(), "move it away"),
        (path.join("below"), "give another path"),
        (directory.path().to_owned(), "give another path"),
    ] {
        let node = format!("sqlite:{}", path.display());
        let mut command = redlatch(&[]);
        command.args(["--node", &node, "run", "job", "--", "echo", "started"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{node}");
        assert_eq!(text(&output.stdout), "", "{node}");
        let errors = text(&output.stderr);
        assert!(
            errors.contains(advice) && errors.contains(&node),
            "{errors}"
        );
    }
}
