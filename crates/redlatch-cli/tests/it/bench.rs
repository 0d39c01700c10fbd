//! `bench`: what is measured on one's own nodes, and that nothing is left of it.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use redlatch_testkit::{Fleet, RedisServer};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Running, armed, eventually, redlatch, text};
use crate::terminal::{CTRL_C, Session};

/// As short as it may be.
const SHORT: [&str; 3] = ["bench", "--seconds", "1"];

fn bench(command: &mut Command) -> (String, String, i32) {
    let output = command.output().unwrap();
    let code = output.status.code().unwrap();
    (text(&output.stdout), text(&output.stderr), code)
}

fn objects(lines: &str) -> Vec<Value> {
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let objects = objects.iter();
    objects.filter(|object| object["kind"] == kind).collect()
}

/// Nothing but the books that every lock is entered in.
#[track_caller]
fn assert_clean(server: &RedisServer) {
    let mut keys = server.keys();
    keys.retain(|key| key != "redlatch:__fence");
    assert_eq!(keys, [""; 0]);
}

#[track_caller]
fn assert_all_clean(fleet: &Fleet) {
    fleet.iter().for_each(assert_clean);
}

#[test]
fn nodes_locks_and_settings_are_told_in_three_tables() {
    let fleet = armed(3);
    let (table, errors, code) = bench(redlatch(&fleet).args(SHORT));
    assert_eq!((code, errors.as_str()), (0, ""), "{table}");
    let blocks: Vec<&str> = table.split("\n\n").collect();
    assert_eq!(blocks.len(), 4, "{table}");
    for (server, line) in fleet.iter().zip(blocks[0].lines().skip(1)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[0], server.address().to_string(), "{table}");
        assert!(words[1].parse::<u64>().unwrap() > 0, "{table}");
        // P50, P99, LONGEST, CLOCK, each with its unit.
        assert_eq!(
            words.iter().filter(|word| **word == "ms").count(),
            4,
            "{table}"
        );
    }
    let workloads: Vec<&str> = blocks[1].lines().skip(1).collect();
    assert_eq!(workloads.len(), 5, "{table}");
    assert_eq!(blocks[1].matches("16 tasks").count(), 2, "{table}");
    assert_eq!(blocks[1].matches(" plain ").count(), 2, "{table}");
    assert!(workloads[4].starts_with("from a release to the next client"));
    for (setting, now) in [("node_timeout", "500ms"), ("ttl", "30s")] {
        let line = blocks[2].lines().find(|line| line.starts_with(setting));
        let words: Vec<&str> = line.unwrap().split_whitespace().collect();
        assert_eq!(words[1], now, "{table}");
        assert!(["good", "warning", "bad"].contains(&words[3]), "{table}");
        assert!(blocks[3].contains(&format!("{setting}: ")), "{table}");
    }
    assert_all_clean(&fleet);
}

#[test]
fn programs_get_one_object_a_line() {
    let fleet = armed(3);
    let mut command = redlatch(&fleet);
    let args = ["--prefix", "mine:", "--json", "--tasks", "4"];
    let (lines, errors, code) = bench(command.args(SHORT).args(args));
    // The guards belong to another prefix: they are new there.
    assert_eq!(code, 69, "{errors}");
    assert_eq!(lines, "");

    let args = ["bench", "--seconds", "3", "--json", "--tasks", "4"];
    let (lines, errors, code) = bench(redlatch(&fleet).args(args));
    assert_eq!((code, errors.as_str()), (0, ""));
    let objects = objects(&lines);
    let check = |times: &Value| {
        let [p50, p90, p99, longest] =
            ["p50_us", "p90_us", "p99_us", "longest_us"].map(|name| times[name].as_u64().unwrap());
        assert!(times["count"].as_u64().unwrap() > 0, "{lines}");
        assert!(
            0 < p50 && p50 <= p90 && p90 <= p99 && p99 <= longest,
            "{lines}"
        );
    };
    let nodes = of_kind(&objects, "node");
    assert_eq!(nodes.len(), 3, "{lines}");
    for (node, server) in nodes.iter().zip(fleet.iter()) {
        assert_eq!(node["node"], server.address().to_string());
        assert_eq!(node["error"], Value::Null);
        assert!(node["clock_ahead_ms"].is_i64(), "{lines}");
        check(&node["round_trip"]);
    }
    let locks = of_kind(&objects, "locks");
    let kinds: Vec<_> = locks
        .iter()
        .map(|figures| ["workload", "lock"].map(|name| figures[name].as_str().unwrap()))
        .collect();
    assert_eq!(
        kinds,
        [
            ["single", "fenced"],
            ["single", "plain"],
            ["parallel", "fenced"],
            ["parallel", "plain"],
            ["hand-off", "fenced"]
        ]
    );
    for figures in &locks[..4] {
        for part in ["cycle", "acquire", "release"] {
            check(&figures[part]);
        }
        assert!(figures["per_second"].as_f64().unwrap() > 0.0, "{lines}");
    }
    assert_eq!(locks[2]["tasks"], 4);
    check(&locks[4]["hand_off"]);
    assert!(of_kind(&objects, "pause")[0]["longest_us"].is_u64());
    let settings = of_kind(&objects, "setting");
    assert_eq!(settings.len(), 2, "{lines}");
    assert_eq!(settings[0]["setting"], "node_timeout");
    assert_eq!(settings[0]["now_ms"], 500);
    assert!(
        settings[0]["at_least_ms"].as_u64().unwrap() >= 50,
        "{lines}"
    );
    assert_eq!(settings[1]["setting"], "ttl");
    assert!(
        settings[1]["at_least_ms"].as_u64().unwrap() >= 10_000,
        "{lines}"
    );
    assert_all_clean(&fleet);
}

#[test]
fn a_node_that_is_away_is_named_and_the_rest_measured() {
    let fleet = armed(3);
    fleet[1].kill();
    let away = fleet[1].address().to_string();
    let (table, errors, code) = bench(redlatch(&fleet).args(SHORT));
    assert_eq!((code, errors.as_str()), (0, ""), "{table}");
    let line = table.lines().find(|line| line.starts_with(&away)).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1..], ["0"], "{table}");
    let warning = format!("warning: {away} did not answer once: ");
    assert!(table.contains(&warning), "{table}");
    assert_eq!(table.matches(" fenced ").count(), 3, "{table}");
    for at in [0, 2] {
        assert_clean(&fleet[at]);
    }

    fleet[2].kill();
    let (table, errors, code) = bench(redlatch(&fleet).args(SHORT));
    assert_eq!((code, table.as_str()), (69, ""), "{errors}");
    assert!(errors.contains("2 of 3 nodes are needed"), "{errors}");
    for at in [1, 2] {
        let port = fleet[at].port().to_string();
        assert_eq!(errors.matches(&port).count(), 1, "{errors}");
    }
}

#[test]
fn new_nodes_are_left_as_they_are() {
    let fleet = Fleet::start(3);
    let (table, errors, code) = bench(redlatch(&fleet).args(SHORT));
    assert_eq!((code, table.as_str()), (69, ""), "{errors}");
    assert!(errors.contains("redlatch init"), "{errors}");
    for server in fleet.iter() {
        assert_eq!(server.keys(), [""; 0]);
    }
    // A quarantine that has begun would have to be waited out.
    let armed = redlatch(&fleet).arg("init").output().unwrap();
    assert_eq!(armed.status.code(), Some(0), "{}", text(&armed.stderr));
}

#[test]
fn one_that_is_interrupted_leaves_nothing_behind() {
    let fleet = armed(3);
    let is_own = |key: &String| key.starts_with("redlatch:__bench:");
    let many_are_held = || {
        let locks = fleet[0].locks();
        assert!(locks.iter().all(is_own), "{locks:?}");
        locks.len() >= 8
    };
    let is_queue = |key: &String| key.starts_with("redlatch:__queue:redlatch:__bench:");
    let one_is_waited_for = || fleet[0].keys().iter().any(is_queue);
    let moments: [(Signal, &dyn Fn() -> bool); 2] = [
        (Signal::INT, &many_are_held),
        (Signal::TERM, &one_is_waited_for),
    ];
    for (signal, moment) in moments {
        let mut command = redlatch(&fleet);
        command.args(["bench", "--seconds", "6", "--tasks", "32"]);
        let mut running = Running::start(&mut command);
        eventually("the moment for a signal", moment);
        running.signal(signal);
        assert_eq!(running.end().signal(), Some(signal.as_raw()));
        assert_all_clean(&fleet);
        assert_eq!(running.stdout.rest(), [""; 0]);
    }
}

#[test]
fn on_a_terminal_a_bar_shows_how_far_it_is() {
    let server = RedisServer::start();
    let mut session = Session::start(&server);
    session.keys("$REDLATCH bench --seconds 1\n");
    session.expect("[-");
    session.expect(" %  asking each node");
    session.expect(" %  one lock at a time");
    session.expect(" %  16 tasks, a lock each, plain");
    session.expect(" %  one lock to and fro between two clients");
    session.expect("\r\x1b[K\x1b[2mNODE");
    session.expect_code(0);
    session.keys("$REDLATCH bench --seconds 60\n");
    session.expect("] ");
    session.keys(CTRL_C);
    session.expect("$ ");
    session.expect_code(130);
    assert_clean(&server);
}

#[test]
fn slow_nodes_wrong_clocks_and_short_settings_are_told() {
    let fleet = Fleet::start_with(3, &RedisServer::builder().movable_clock());
    let proxies = fleet.proxies();
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url()).collect();
    let command = || {
        let mut command = redlatch(&[]);
        command.env("REDLATCH_NODES", urls.join(","));
        command
    };
    assert!(command().arg("init").output().unwrap().status.success());
    let moved = fleet[0].shift_clock(-7000);
    proxies[2].delay(Duration::from_millis(60));
    let mut command = command();
    command
        .env("REDLATCH_NODE_TIMEOUT", "100ms")
        .env("REDLATCH_TTL", "1s");
    let (lines, _, code) = bench(command.args(SHORT).arg("--json"));
    assert_eq!(code, 0, "{lines}");
    let objects = objects(&lines);
    let settings = of_kind(&objects, "setting");
    for (setting, least) in [(settings[0], 1000), (settings[1], 30_000)] {
        assert_eq!(setting["verdict"], "bad", "{lines}");
        assert!(setting["at_least_ms"].as_u64().unwrap() >= least, "{lines}");
    }
    let slow = proxies[2].address().to_string();
    assert!(settings[0]["reason"].as_str().unwrap().starts_with(&slow));
    let warnings = of_kind(&objects, "warning");
    let warned = |text: &str| {
        let mut warnings = warnings.iter();
        warnings.any(|warning| warning["message"].as_str().unwrap().starts_with(text))
    };
    assert!(warned(&format!("{slow} takes 1")), "{lines}");
    let clock = format!("the clock of {} is ", proxies[0].address());
    assert_eq!(warned(&clock), moved, "{lines}");
}

#[test]
fn a_node_that_falls_silent_holds_nothing_up() {
    let fleet = armed(3);
    fleet[2].freeze();
    let mut command = redlatch(&fleet);
    command.args(SHORT).args(["--json", "--tasks", "4"]);
    let (lines, errors, code) = bench(&mut command);
    assert_eq!(code, 0, "{errors}");
    let objects = objects(&lines);
    let nodes = of_kind(&objects, "node");
    assert_eq!(nodes[2]["round_trip"]["count"], 0, "{lines}");
    for figures in of_kind(&objects, "locks").iter().take(4) {
        assert!(figures["cycle"]["count"].as_u64().unwrap() > 0, "{lines}");
    }
    for at in [0, 1] {
        assert_clean(&fleet[at]);
    }
}

#[test]
fn the_prefix_is_that_of_the_settings() {
    let server = RedisServer::start();
    let mut command = redlatch(std::slice::from_ref(&server));
    let (_, errors, code) = bench(command.args(SHORT).args(["--prefix", "mine:"]));
    assert_eq!(code, 0, "{errors}");
    assert_eq!(server.keys(), ["mine:__fence"]);
}

#[test]
fn locks_in_a_file_are_measured_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = redlatch(&[]);
    command.env("XDG_STATE_HOME", directory.path());
    let (lines, errors, code) = bench(command.args(SHORT).arg("--json"));
    assert_eq!(code, 0, "{errors}");
    assert_eq!(
        errors.matches("on this machine only").count(),
        1,
        "{errors}"
    );
    let objects = objects(&lines);
    let nodes = of_kind(&objects, "node");
    assert_eq!(nodes[0]["clock_ahead_ms"], Value::Null);
    let settings = of_kind(&objects, "setting");
    assert!(
        settings[0]["at_least_ms"].as_u64().unwrap() >= 500,
        "{lines}"
    );
    let mut command = redlatch(&[]);
    command.env("XDG_STATE_HOME", directory.path());
    let (held, _, code) = bench(command.args(["-q", "ls", "--json"]));
    assert_eq!((held.as_str(), code), ("", 0));
}

#[test]
fn lengths_and_loads_that_make_no_sense_are_refused() {
    let server = RedisServer::start();
    for args in [
        ["--seconds", "0"],
        ["--seconds", "2h"],
        ["--seconds", "soon"],
        ["--tasks", "0"],
        ["--tasks", "1025"],
    ] {
        let mut command = redlatch(std::slice::from_ref(&server));
        let (_, errors, code) = bench(command.arg("bench").args(args));
        assert_eq!(code, 64, "{args:?}");
        assert!(errors.contains(args[0]), "{args:?}: {errors}");
    }
    assert_eq!(server.keys(), [""; 0]);
    let help = redlatch(&[]).args(["bench", "--help"]).output().unwrap();
    assert!(text(&help.stdout).contains("puts load on the nodes"));
}
