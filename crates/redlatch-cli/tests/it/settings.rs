//! Settings: where they come from, and what is never shown.

use std::fs;
use std::process::Command;

use redlatch_testkit::RedisServer;

use crate::support::{redlatch, text};

fn config(command: &mut Command) -> String {
    let output = command.arg("config").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The words of the line about a setting.
fn line<'a>(config: &'a str, setting: &str) -> Vec<&'a str> {
    let line = config.lines().find(|line| line.starts_with(setting));
    line.unwrap().split_whitespace().collect()
}

#[test]
fn flags_come_before_the_environment_before_files_before_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("redlatch/config.toml");
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(
        &file,
        "nodes = [\"redis://f:1\"]\nprefix = \"file:\"\nttl = \"5m\"",
    )
    .unwrap();
    let path = file.to_str().unwrap();
    let home = || {
        let mut command = redlatch(&[]);
        command.env("XDG_CONFIG_HOME", directory.path());
        command
    };

    let seen = config(&mut home());
    assert_eq!(line(&seen, "nodes"), ["nodes", "redis://f:1", path]);
    assert_eq!(line(&seen, "ttl"), ["ttl", "5m", path]);
    assert_eq!(line(&seen, "max_ttl"), ["max_ttl", "1m", "default"]);

    let seen = config(home().env("REDIS_URL", "redis://e:1"));
    assert_eq!(line(&seen, "nodes"), ["nodes", "redis://e:1", "$REDIS_URL"]);
    let seen = config(
        home()
            .env("REDIS_URL", "redis://e:1")
            .env("REDLATCH_NODES", "redis://r:1, redis://r:2"),
    );
    assert_eq!(
        line(&seen, "nodes"),
        ["nodes", "redis://r:1", "$REDLATCH_NODES"]
    );
    assert!(seen.contains("redis://r:2"));
    assert_eq!(
        line(&seen, "restart_guard"),
        ["restart_guard", "on", "default"]
    );

    let seen = config(home().env("REDLATCH_NODES", "redis://r:1").args([
        "--node",
        "redis://n:1",
        "--prefix",
        "p:",
    ]));
    assert_eq!(line(&seen, "nodes"), ["nodes", "redis://n:1", "--node"]);
    assert_eq!(line(&seen, "prefix"), ["prefix", "p:", "--prefix"]);

    // A file that was named stands alone.
    let other = directory.path().join("other.toml");
    fs::write(&other, "ttl = 7").unwrap();
    let seen = config(home().arg("--config").arg(&other));
    assert_eq!(line(&seen, "ttl"), ["ttl", "7s", other.to_str().unwrap()]);
    assert_eq!(line(&seen, "prefix"), ["prefix", "redlatch:", "default"]);
}

#[test]
fn the_settings_are_used() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    let locks = "redis-cli -u $REDLATCH_NODES --raw keys 'mine:*' | grep -v __";
    let output = command
        .args(["--prefix", "mine:", "run", "job", "-c", locks])
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "mine:job\n");
}

#[test]
fn a_mistake_in_a_file_is_named_by_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.toml");
    for (content, part) in [
        ("ttl = 5\nnodes = [\"redis://:secret@a\"", "line 2"),
        ("nod = \"redis://:secret@a\"", "\"nod\" is no setting"),
        ("ttl = \"soon\"", "1500ms"),
        ("restart_guard = \"maybe\"", "true or false"),
    ] {
        fs::write(&file, content).unwrap();
        let output = redlatch(&[])
            .arg("--config")
            .arg(&file)
            .arg("config")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(64), "{content}");
        let error = text(&output.stderr);
        assert!(error.contains(part), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn what_is_said_does_not_steer_the_terminal() {
    let server = RedisServer::start();
    for args in [
        &["--config", "/nonexistent/\x1b[2J\r", "config"][..],
        &["run", "-n", "\x1b[2Jjob", "--", "true"],
        &["man", "\x1b[2J"],
    ] {
        // Held by somebody else, so that there is something to say of each.
        server.command(&["SET", "redlatch:\x1b[2Jjob", "x"]);
        let mut command = redlatch(std::slice::from_ref(&server));
        let output = command.args(args).output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains("[2J"), "{said:?}");
        assert!(!said.contains(['\x1b', '\r']), "{said:?}");
    }
}

#[test]
fn a_password_is_never_shown() {
    let server = RedisServer::with_args(&["--requirepass", "hushhush"]);
    let url = format!("redis://:hushhush@{}", server.address());
    let wrong = format!("redis://ada:wrongpass@{}", server.address());
    let invalid = "redis://:hushhush@[broken".to_owned();
    for url in [&url, &wrong, &invalid] {
        for args in [
            &["config"][..],
            &["config", "--json"],
            &["-vv", "run", "job", "--", "true"],
            &["-vv", "--json", "run", "job", "--", "true"],
        ] {
            let mut command = redlatch(&[]);
            let output = command
                .env("REDLATCH_NODES", url)
                .args(args)
                .output()
                .unwrap();
            let all = text(&output.stdout) + &text(&output.stderr);
            assert!(!all.contains("hush") && !all.contains("wrongpass"), "{all}");
        }
    }
    let output = redlatch(&[])
        .env("REDLATCH_NODES", &url)
        .args(["run", "job", "--", "echo", "in"])
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "in\n", "but it is used");

    let output = redlatch(&[])
        .args(["--node", &url, "run", "job", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64), "not in a flag");
    let error = text(&output.stderr);
    assert!(
        error.contains("REDLATCH_NODES") && !error.contains("hush"),
        "{error}"
    );
}

#[test]
fn settings_are_json_by_the_line() {
    let output = redlatch(&[])
        .env("REDLATCH_NODES", "redis://a,redis://b")
        .args(["config", "--json"])
        .output()
        .unwrap();
    let first = text(&output.stdout).lines().next().unwrap().to_owned();
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    let expected = serde_json::json!({
        "setting": "nodes",
        "value": ["redis://a", "redis://b"],
        "from": "$REDLATCH_NODES",
    });
    assert_eq!(first, expected);
}

#[test]
fn without_a_node_one_is_told_that_locks_are_local_also_quietly() {
    let directory = tempfile::tempdir().unwrap();
    for quiet in [&[][..], &["-q"]] {
        let output = redlatch(&[])
            .env("XDG_STATE_HOME", directory.path())
            .args(quiet)
            .args(["run", "job", "--", "true"])
            .output()
            .unwrap();
        let error = text(&output.stderr);
        assert!(error.contains("on this machine only"), "{error}");
    }
    let seen = config(redlatch(&[]).env("XDG_STATE_HOME", directory.path()));
    let database = directory.path().join("redlatch/locks.db");
    let database = format!("sqlite:{}", database.display());
    assert_eq!(line(&seen, "nodes"), ["nodes", &database, "default"]);
    let output = redlatch(&[])
        .args(["--node", &database, "run", "job", "--", "true"])
        .output()
        .unwrap();
    assert!(!text(&output.stderr).contains("on this machine only"));
}

#[test]
fn help_teaches() {
    let help = |args: &[&str]| text(&redlatch(&[]).args(args).output().unwrap().stdout);
    let run = help(&["help", "run"]);
    for part in ["Examples:", "redlatch run backup", "REDLATCH_FENCE", "79"] {
        assert!(run.contains(part), "{part}");
    }
    for shell in ["bash", "zsh", "fish", "powershell"] {
        assert!(
            help(&["completions", shell]).contains("redlatch"),
            "{shell}"
        );
    }
    assert!(help(&["--config", "/nonexistent", "man"]).contains(".TH redlatch 1"));
    assert!(help(&["man", "run"]).contains(".TH redlatch-run 1"));
    assert!(!help(&["help"]).contains("__"), "helpers are hidden");
}
