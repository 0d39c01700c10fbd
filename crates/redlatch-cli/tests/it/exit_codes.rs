//! The exit codes, each of them.

use redlatch_testkit::RedisServer;

use crate::support::{Running, armed, redlatch, run, text};

#[test]
fn the_childs_own_code_is_returned() {
    let server = RedisServer::start();
    for code in [0, 1, 7, 255] {
        let script = format!("exit {code}");
        let output = run(&server, &["--", "sh", "-c", &script]);
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(text(&output.stderr), "");
        assert_eq!(server.locks(), [""; 0], "given back");
    }
}

#[test]
fn a_child_that_dies_of_a_signal_gives_128_and_its_number() {
    let server = RedisServer::start();
    // 37 is a real-time signal: the shell knows no name for it.
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("HUP", 129), ("37", 165)] {
        let script = format!("kill -{signal} $$");
        let output = run(&server, &["-c", &script]);
        assert_eq!(output.status.code(), Some(code), "{signal}");
    }
}

#[test]
fn wrong_usage_is_64() {
    let server = RedisServer::start();
    for args in [
        &["--"][..],
        &["--nosuch", "--", "true"],
        &["-w", "soon", "--", "true"],
        &["-n", "-w", "1", "--", "true"],
        &["-c", "true", "--", "true"],
        &["--ttl", "30s", "--kill-after", "11s", "--", "true"],
        &["--ttl", "3h", "--once-for", "1s", "--", "true"],
        &["--ttl", "48h", "--", "true"],
        &[
            "--prefix",
            "",
            "--config",
            "/nonexistent/redlatch.toml",
            "--",
            "true",
        ],
    ] {
        let output = run(&server, args);
        assert_eq!(output.status.code(), Some(64), "{args:?}");
        assert_ne!(text(&output.stderr), "", "{args:?}");
    }
    let output = redlatch(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "no command at all");
    let output = redlatch(std::slice::from_ref(&server))
        .args(["run", "__fence", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64), "a reserved name");
}

#[test]
fn nodes_that_cant_be_reached_are_69_and_the_child_is_not_started() {
    let server = RedisServer::start();
    server.kill();
    let output = run(&server, &["--", "echo", "started"]);
    assert_eq!(output.status.code(), Some(69));
    assert_eq!(text(&output.stdout), "");
    let error = text(&output.stderr);
    assert!(error.contains(&server.address().to_string()), "{error}");
    assert!(error.contains("redlatch config"), "a next step: {error}");
}

#[test]
fn a_node_of_no_use_is_69() {
    let server =
        RedisServer::with_args(&["--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"]);
    let output = run(&server, &["--", "echo", "started"]);
    assert_eq!(output.status.code(), Some(69));
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn a_lock_that_somebody_else_has_is_75_or_what_was_asked_for() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    command.args([
        "run",
        "job",
        "--note",
        "by hand",
        "-c",
        "echo; read x; : secret",
    ]);
    let holder = Running::start(command.stdin(std::process::Stdio::piped()));
    holder.stdout.next();

    let output = run(&server, &["-n", "--", "echo", "started"]);
    assert_eq!(output.status.code(), Some(75));
    assert_eq!(text(&output.stdout), "");
    let error = text(&output.stderr);
    let user = text(
        &std::process::Command::new("id")
            .arg("-un")
            .output()
            .unwrap()
            .stdout,
    );
    for part in [
        "host ",
        "pid ",
        "program sh",
        "(by hand)",
        " ago",
        "for another",
        user.trim(),
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
    assert!(!error.contains("secret"), "no arguments: {error}");

    let output = run(&server, &["-w", "10ms", "--", "true"]);
    assert_eq!(output.status.code(), Some(75));
    assert!(text(&output.stderr).contains("program sh"));
    let output = run(&server, &["-n", "-E", "9", "--", "true"]);
    assert_eq!(output.status.code(), Some(9));
    for args in [
        &["-n", "-E", "0", "--", "true"][..],
        &["-w", "10ms", "-E", "0", "--", "true"],
    ] {
        let output = run(&server, args);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(text(&output.stderr), "", "without a word: {args:?}");
    }
    let output = run(&server, &["-n", "--json", "--", "true"]);
    let error = text(&output.stderr);
    assert!(error.contains(r#""program":"sh""#), "{error}");
    assert!(error.contains(r#""code":75"#), "{error}");
}

#[test]
fn a_lost_lock_is_79() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    command.args([
        "run",
        "job",
        "--ttl",
        "1500ms",
        "-c",
        "echo; exec sleep 1000",
    ]);
    let mut running = Running::start(&mut command);
    running.stdout.next();
    server.command(&["DEL", "redlatch:job"]);
    assert_eq!(running.code(), 79);
    running.stderr.find("is lost");
}

#[test]
fn a_child_that_runs_too_long_is_124() {
    let server = RedisServer::start();
    let args = ["--max-runtime", "100ms", "--", "sleep", "1000"];
    assert_eq!(run(&server, &args).status.code(), Some(124));
    // Also when it has to be killed, and when it ends itself in time.
    let stubborn = "trap '' TERM; while :; do sleep 0.01; done";
    let args = [
        "--max-runtime",
        "100ms",
        "--kill-after",
        "100ms",
        "-c",
        stubborn,
    ];
    assert_eq!(run(&server, &args).status.code(), Some(124));
    let args = ["--max-runtime", "1h", "-c", "exit 3"];
    assert_eq!(run(&server, &args).status.code(), Some(3));
    assert_eq!(server.locks(), [""; 0]);
}

#[test]
fn a_failure_of_our_own_is_125() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = redlatch(&[])
        .args(["completions", "bash"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn what_cant_be_run_is_126_and_what_is_not_there_127() {
    let server = RedisServer::start();
    for (command, code) in [("/etc/passwd", 126), ("/", 126), ("no-such-command", 127)] {
        let output = run(&server, &["--", command]);
        assert_eq!(output.status.code(), Some(code), "{command}");
        assert!(text(&output.stderr).contains(command));
        assert_eq!(server.locks(), [""; 0]);
    }
}

#[test]
fn a_node_that_is_down_is_named_once() {
    let fleet = armed(3);
    let said = |args: &[&str], down: &RedisServer| {
        let output = redlatch(&fleet).args(args).output().unwrap();
        let errors = text(&output.stderr);
        errors.matches(&down.port().to_string()).count()
    };
    let job = ["run", "-n", "job", "--", "true"];
    fleet[2].kill();
    assert_eq!(said(&job, &fleet[2]), 1);
    assert_eq!(said(&["ls"], &fleet[2]), 1);
    assert_eq!(said(&["doctor"], &fleet[2]), 0, "it is in the table");
    fleet[1].kill();
    assert_eq!(said(&job, &fleet[2]), 1, "in the error");
}
