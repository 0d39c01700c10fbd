//! `--once`: one run per slot over the whole fleet.

use std::process::Stdio;

use redlatch_testkit::RedisServer;

use crate::support::{Running, armed, redlatch, run, text};
use crate::terminal::Session;

#[test]
fn a_slot_is_run_once() {
    let server = RedisServer::start();
    let again = |slot| run(&server, &["--once", slot, "--", "echo", "ran"]);
    assert_eq!(text(&again("monday").stdout), "ran\n");
    let output = again("monday");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("was run already"));
    assert_eq!(text(&again("tuesday").stdout), "ran\n");
    let kept = server.pttl("redlatch:job:once:monday");
    assert!(kept > 50 * 60 * 1000, "for about an hour, not {kept} ms");
}

#[test]
fn a_slot_that_failed_is_run_again() {
    let server = RedisServer::start();
    for _ in 0..2 {
        let output = run(&server, &["--once", "monday", "-c", "echo ran; exit 1"]);
        assert_eq!(text(&output.stdout), "ran\n");
        assert_eq!(output.status.code(), Some(1));
    }
    let output = run(
        &server,
        &["--once", "monday", "-c", "echo ran; kill -TERM $$"],
    );
    assert_eq!(output.status.code(), Some(143));
    let output = run(&server, &["--once", "monday", "--", "echo", "ran"]);
    assert_eq!(text(&output.stdout), "ran\n");
}

#[test]
fn of_many_machines_one_runs_it() {
    let fleet = armed(3);
    let start = || {
        let mut command = redlatch(&fleet);
        command.args(["run", "job", "--once", "monday", "--", "echo", "ran"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let machines: Vec<_> = (0..6).map(|_| start()).collect();
    let mut runs = 0;
    for machine in machines {
        let output = machine.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        runs += usize::from(!output.stdout.is_empty());
    }
    assert_eq!(runs, 1);
    // Also when a node is lost that had the record.
    fleet[0].kill();
    let output = start().wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn one_that_waits_runs_the_slot_if_the_first_one_fails() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    command.args([
        "run",
        "job",
        "--once",
        "monday",
        "-c",
        "echo; read x; exit 1",
    ]);
    let mut first = Running::start(command.stdin(Stdio::piped()));
    first.stdout.next();
    let mut command = redlatch(std::slice::from_ref(&server));
    let second = Running::start(command.args(["run", "job", "--once", "monday", "echo", "ran"]));
    second.stderr.find("waiting for lock");
    first.close_stdin();
    assert_eq!(second.stdout.next(), "ran");
}

#[test]
fn a_run_that_was_killed_leaves_the_slot_open() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    command.args(["run", "job", "--ttl", "2s", "--once", "monday"]);
    let first = Running::start(command.args(["-c", "echo; exec sleep 1000"]));
    first.stdout.next();
    first.signal(rustix::process::Signal::KILL);
    // Takes over at the very moment at which the lease has run out.
    let output = run(&server, &["--once", "monday", "--", "echo", "ran"]);
    assert_eq!(text(&output.stdout), "ran\n", "{}", text(&output.stderr));
}

#[test]
fn a_node_that_forgot_the_record_does_not_count() {
    let fleet = armed(3);
    let again = || {
        redlatch(&fleet)
            .args(["run", "-n", "job", "--once", "monday", "--", "echo", "ran"])
            .output()
            .unwrap()
    };
    assert_eq!(text(&again().stdout), "ran\n");
    fleet[0].restart_empty();
    assert_eq!(text(&again().stdout), "");
    fleet[1].restart_empty();
    let output = again();
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(69), "too few can tell");
}

#[test]
fn no_longer_record_is_promised_than_the_nodes_keep() {
    let fleet = armed(3);
    let output = redlatch(&fleet)
        .args([
            "run",
            "job",
            "--once",
            "monday",
            "--once-for",
            "2h",
            "--",
            "echo",
            "ran",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert_eq!(text(&output.stdout), "");
    let errors = text(&output.stderr);
    assert!(
        errors.contains("--once-for 2h is longer than max_ttl"),
        "{errors}"
    );
}

#[test]
fn a_short_memory_is_told_to_those_who_look() {
    let server = RedisServer::start();
    let mut session = Session::start(&server);
    session.run("export REDLATCH_RESTART_GUARD=on; $REDLATCH init", "armed");
    session.keys("$REDLATCH run job --once monday -- true\n");
    session.expect("this slot is remembered for 1m, which is max_ttl here");
    session.expect_code(0);
    let said = session.written().matches("is remembered for").count();
    for args in ["--once-for 1m --once tuesday", "-q --once friday"] {
        session.keys(&format!("$REDLATCH run {args} job -- true\n"));
        session.expect_code(0);
    }
    assert_eq!(session.written().matches("is remembered for").count(), said);

    // Cron would send it every night.
    let fleet = armed(3);
    let mut command = redlatch(&fleet);
    let output = command.args(["run", "job", "--once", "monday", "--", "true"]);
    let output = output.output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), String::new())
    );
}
