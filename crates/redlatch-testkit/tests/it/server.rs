//! `RedisServer`: what it answers, and what survives a restart.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use redlatch_testkit::{RedisServer, Reply};

use crate::support::{Client, eventually};

#[test]
fn commands_are_answered() {
    let server = RedisServer::start();
    assert_eq!(server.command(&["PING"]).as_text(), "PONG");
    assert_eq!(server.command(&["INCR", "n"]), Reply::Int(1));
    assert!(server.command(&["GET", "nothing"]).is_nil());
    assert!(server.command(&["LPUSH", "n", "x"]).is_error());
    assert_eq!(
        server.command(&["MGET", "n", "nothing"]),
        Reply::Array(vec![Reply::Bulk(b"1".to_vec()), Reply::Nil])
    );
    let bytes = b"\0\r\n\xff";
    server.command(&[&b"SET"[..], b"bytes", bytes]);
    assert_eq!(server.get("bytes").as_deref(), Some(&bytes[..]));
}

#[test]
fn a_fresh_server_is_empty_and_can_be_looked_at() {
    let server = RedisServer::start();
    assert!(server.keys().is_empty());
    server.command(&["SET", "b", "1", "PX", "60000"]);
    server.command(&["SET", "a", "1"]);
    assert_eq!(server.keys(), ["a", "b"]);
    assert!((1..=60_000).contains(&server.pttl("b")));
    assert_eq!(server.pttl("a"), -1);
    assert_eq!(server.pttl("c"), -2);
    assert_eq!(server.get("c"), None);
    assert_eq!(server.info("run_id").len(), 40);
}

#[test]
fn counters_leave_the_kit_out() {
    let server = RedisServer::start();
    assert_eq!(server.connected_clients(), 0);
    let before = server.commands_processed();
    assert_eq!(server.commands_processed(), before);

    let mut client = Client::connect(server.address());
    client.ask("SET k v").unwrap();
    client.ask("INCR n").unwrap();
    assert_eq!(server.commands_processed(), before + 2);
    assert_eq!(server.calls("incr"), 1);
    assert_eq!(server.calls("evalsha"), 0);
    assert_eq!(server.connected_clients(), 1);
    drop(client);
    eventually("the client is gone", || server.connected_clients() == 0);
}

#[test]
fn a_password_is_asked_of_everybody_and_known_to_the_kit() {
    let server = RedisServer::with_args(&["--requirepass", "secret"]);
    server.command(&["SET", "k", "v"]);
    server.restart();
    assert!(server.keys().is_empty());
    let refused = Client::connect(server.address()).ask("GET k").unwrap();
    assert!(refused.starts_with("-NOAUTH"), "{refused}");
}

#[test]
fn unix_url_names_a_live_socket() {
    let server = RedisServer::start();
    let url = server.unix_url();
    UnixStream::connect(url.strip_prefix("unix://").unwrap()).unwrap();
}

#[test]
fn a_killed_server_refuses_and_comes_back_empty_on_its_port() {
    let server = RedisServer::start();
    server.command(&["SET", "k", "v"]);
    let (port, pid) = (server.port(), server.pid());
    server.kill();
    server.kill();
    let refused = TcpStream::connect(server.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(server.try_command(&["PING"]).is_err());

    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert!(server.keys().is_empty());
    Client::connect(server.address()).ask("PING").unwrap();
}

#[test]
fn append_only_survives_a_restart_but_not_an_empty_one() {
    let server = RedisServer::builder().append_only().start();
    server.command(&["SET", "k", "v"]);
    server.restart();
    assert_eq!(server.get("k").as_deref(), Some(&b"v"[..]));
    server.restart_empty();
    assert_eq!(server.get("k"), None);
    server.command(&["SET", "k", "w"]);
    server.restart();
    assert_eq!(server.get("k").as_deref(), Some(&b"w"[..]));
}

#[test]
fn a_truncated_log_loses_the_last_write() {
    let server = RedisServer::builder().append_only().start();
    server.command(&["SET", "first", "1"]);
    server.command(&["SET", "second", "2"]);
    server.restart_truncated(1);
    assert_eq!(server.keys(), ["first"]);
}

#[test]
fn a_frozen_server_answers_when_it_is_thawed() {
    let server = RedisServer::start();
    let mut client = Client::connect(server.address());
    assert_eq!(client.ask("PING").unwrap(), "+PONG");
    server.freeze();
    client.send("PING").unwrap();
    assert!(client.hears_nothing());
    server.thaw();
    assert_eq!(client.receive().unwrap(), "+PONG");
}

#[test]
#[should_panic(expected = "Bad directive")]
fn a_server_that_does_not_start_shows_its_log() {
    RedisServer::with_args(&["--no-such-setting", "1"]);
}

/// Everything blocks, but not on the runtime that the test runs in.
#[tokio::test(start_paused = true)]
async fn works_inside_a_runtime_with_a_paused_clock() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let mut client = Client::connect(proxy.address());
    proxy.delay(std::time::Duration::from_millis(5));
    assert_eq!(client.ask("PING").unwrap(), "+PONG");
    server.restart();
}

#[test]
fn a_movable_clock_is_stepped_while_the_server_runs_and_after_a_restart() {
    let server = RedisServer::builder().movable_clock().start();
    let ahead = || {
        let time = server.command(&["TIME"]);
        let server: i64 = time.as_array()[0].as_text().parse().unwrap();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        server - now.as_secs() as i64
    };
    assert!(server.shift_clock(0), "this test needs `cc`");
    assert!((-2..=2).contains(&ahead()));
    server.command(&["SET", "k", "v", "PX", "60000"]);
    server.shift_clock(-90_500);
    assert!((-93..=-88).contains(&ahead()));
    assert!(server.get("k").is_some());
    server.shift_clock(90_500);
    assert!((88..=93).contains(&ahead()));
    assert!(server.get("k").is_none(), "it has run out");
    server.restart();
    assert!((88..=93).contains(&ahead()));
}

#[test]
fn a_clock_that_was_not_asked_for_can_not_be_moved() {
    assert!(!RedisServer::start().shift_clock(1000));
}
