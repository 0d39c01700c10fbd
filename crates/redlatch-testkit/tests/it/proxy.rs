//! `Proxy`: each control, on live connections and on new ones.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use redlatch_testkit::{Proxy, RedisServer};

use crate::support::{Client, eventually, is_reset};

fn start() -> (RedisServer, Proxy, Client) {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let mut client = Client::connect(proxy.address());
    assert_eq!(client.ask("PING").unwrap(), "+PONG");
    (server, proxy, client)
}

#[test]
fn without_a_rule_everything_passes() {
    let (server, proxy, mut client) = start();
    assert_eq!(client.ask("SET k v").unwrap(), "+OK");
    assert_eq!(server.keys(), ["k"]);
    assert_eq!((proxy.connections(), proxy.accepted()), (1, 1));

    let second = Client::connect(proxy.address());
    assert_eq!((proxy.connections(), proxy.accepted()), (2, 2));
    drop((client, second));
    eventually("both are gone", || proxy.connections() == 0);
    eventually("also from the server", || server.connected_clients() == 0);
    assert_eq!(proxy.accepted(), 2);
}

#[test]
fn large_values_pass_whole() {
    let (server, _proxy, mut client) = start();
    let value = "x".repeat(3_000_000);
    let command = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}", value.len());
    assert_eq!(client.ask(&command).unwrap(), "+OK");
    assert_eq!(server.get("k").unwrap(), value.as_bytes());
}

#[test]
fn delay_is_added_in_each_direction() {
    let (_server, proxy, mut client) = start();
    let delay = Duration::from_millis(40);
    let mut round_trip = || {
        let start = Instant::now();
        assert_eq!(client.ask("PING").unwrap(), "+PONG");
        start.elapsed()
    };
    proxy.delay(delay);
    assert!(round_trip() >= 2 * delay);
    proxy.heal();
    proxy.delay_requests(delay);
    assert!(round_trip() >= delay);
    proxy.heal();
    proxy.delay_replies(delay);
    assert!(round_trip() >= delay);
}

#[test]
fn delay_of_requests_leaves_the_server_untouched_meanwhile() {
    let (server, proxy, mut client) = start();
    proxy.delay_requests(Duration::from_secs(3600));
    client.send("SET k v").unwrap();
    assert!(client.hears_nothing());
    assert!(server.keys().is_empty());
    proxy.heal();
    assert_eq!(client.receive().unwrap(), "+OK");
}

#[test]
fn delay_of_replies_lets_the_server_act_meanwhile() {
    let (server, proxy, mut client) = start();
    proxy.delay_replies(Duration::from_secs(3600));
    client.send("SET k v").unwrap();
    eventually("the server has it", || server.keys() == ["k"]);
    assert!(client.hears_nothing());
    proxy.heal();
    assert_eq!(client.receive().unwrap(), "+OK");
}

#[test]
fn delay_is_latency_and_keeps_the_order() {
    let (_server, proxy, mut client) = start();
    let delay = Duration::from_millis(500);
    proxy.delay_requests(delay);
    let start = Instant::now();
    for _ in 0..20 {
        client.send("INCR n").unwrap();
        // So that each is a read of its own; were they one, this would prove less, but not fail.
        thread::sleep(Duration::from_millis(5));
    }
    for n in 1..=20 {
        assert_eq!(client.receive().unwrap(), format!(":{n}"));
    }
    // Served one after the other, the delays would add up to this.
    assert!((delay..20 * delay).contains(&start.elapsed()));
}

#[test]
fn cut_resets_and_refuses_until_healed() {
    let (server, proxy, mut client) = start();
    proxy.cut();
    assert_eq!(proxy.connections(), 0);
    assert!(is_reset(&client.receive()));
    let refused = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    eventually("the server sees it", || server.connected_clients() == 0);

    proxy.heal();
    let mut client = Client::connect(proxy.address());
    assert_eq!(client.ask("PING").unwrap(), "+PONG");
}

#[test]
fn muted_connections_stay_mute_for_ever() {
    let (server, proxy, mut old) = start();
    proxy.mute();
    let mut young = Client::connect(proxy.address());
    old.send("SET old v").unwrap();
    young.send("SET young v").unwrap();
    assert!(old.hears_nothing() && young.hears_nothing());

    proxy.heal();
    let mut new = Client::connect(proxy.address());
    assert_eq!(new.ask("SET new v").unwrap(), "+OK");
    old.send("SET old v").unwrap();
    young.send("SET young v").unwrap();
    assert!(old.hears_nothing() && young.hears_nothing());
    assert_eq!(server.keys(), ["new"]);

    drop((old, young));
    eventually("only the new one counts", || proxy.connections() == 1);
}

/// A connection counts as soon as the client has it, even where nobody has accepted it yet.
#[test]
fn mute_holds_for_a_client_that_connected_just_before() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    for _ in 0..20 {
        let mut client = Client::connect(proxy.address());
        proxy.mute();
        proxy.heal();
        client.send("SET k v").unwrap();
        client.send("SET k v").unwrap();
        drop(client);
    }
    eventually("all are gone", || proxy.connections() == 0);
    assert!(server.keys().is_empty());
}

#[test]
fn held_bytes_arrive_in_order_when_healed() {
    let (server, proxy, mut old) = start();
    proxy.hold();
    let mut new = Client::connect(proxy.address());
    for _ in 0..10 {
        old.send("INCR old").unwrap();
        new.send("INCR new").unwrap();
    }
    assert!(old.hears_nothing() && new.hears_nothing());
    assert!(server.keys().is_empty());

    proxy.heal();
    for n in 1..=10 {
        assert_eq!(old.receive().unwrap(), format!(":{n}"));
        assert_eq!(new.receive().unwrap(), format!(":{n}"));
    }
}

#[test]
fn dropped_replies_leave_the_request_done() {
    let (server, proxy, mut client) = start();
    proxy.drop_replies();
    client.send("SET k v").unwrap();
    eventually("the server has it", || server.keys() == ["k"]);
    assert!(client.hears_nothing());

    // A reply to a later request would look like the reply to this one.
    proxy.heal();
    client.send("SET l v").unwrap();
    eventually("the server has it", || server.keys() == ["k", "l"]);
    assert!(client.hears_nothing());
    let mut client = Client::connect(proxy.address());
    assert_eq!(client.ask("PING").unwrap(), "+PONG");
}

#[test]
fn dropped_requests_never_reach_the_server_while_replies_pass() {
    let (server, proxy, mut client) = start();
    client.ask("CLIENT ID").unwrap();
    assert_eq!(client.ask("SUBSCRIBE news").unwrap(), "*3");
    let rest: Vec<_> = (0..5).map(|_| client.receive().unwrap()).collect();
    assert_eq!(rest[4], ":1");

    proxy.drop_requests();
    client.send("UNSUBSCRIBE news").unwrap();
    assert!(client.hears_nothing());
    assert_eq!(server.command(&["PUBLISH", "news", "x"]).as_int(), 1);
    assert_eq!(client.receive().unwrap(), "*3");
}

#[test]
fn a_dead_server_is_not_noticed_behind_dropped_replies() {
    let (server, proxy, mut old) = start();
    proxy.drop_replies();
    server.kill();
    let mut new = Client::connect(proxy.address());
    new.send("PING").unwrap();
    assert!(old.hears_nothing() && new.hears_nothing());
}

#[test]
fn half_close_ends_replies_and_lets_requests_pass() {
    let (server, proxy, mut client) = start();
    proxy.half_close();
    assert_eq!(
        client.receive().unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
    client.send("SET k v").unwrap();
    eventually("the server has it", || server.keys() == ["k"]);
    assert_eq!(
        Client::connect(proxy.address()).ask("PING").unwrap(),
        "+PONG"
    );
}

#[test]
fn disconnect_resets_once() {
    let (_server, proxy, mut client) = start();
    proxy.disconnect();
    assert!(is_reset(&client.receive()));
    let mut client = Client::connect(proxy.address());
    assert_eq!(client.ask("PING").unwrap(), "+PONG");
    assert_eq!((proxy.connections(), proxy.accepted()), (1, 2));
}

#[test]
fn cut_after_request_loses_the_reply_and_nothing_else() {
    let (server, proxy, mut client) = start();
    proxy.cut_after_request(2);
    assert_eq!(client.ask("INCR n").unwrap(), ":1");
    assert!(is_reset(&client.ask("INCR n")));
    assert_eq!(server.get("n").unwrap(), b"2");

    let mut client = Client::connect(proxy.address());
    assert_eq!(client.ask("INCR n").unwrap(), ":3");
}

#[test]
fn lose_reply_to_picks_its_request() {
    let (server, proxy, mut client) = start();
    proxy.lose_reply_to("stock");
    assert_eq!(client.ask("INCR other").unwrap(), ":1");
    assert!(is_reset(&client.ask("INCR stock")));
    assert_eq!(server.get("stock").unwrap(), b"1");
    let mut client = Client::connect(proxy.address());
    assert_eq!(client.ask("INCR stock").unwrap(), ":2");
}

#[test]
fn a_server_that_refuses_is_a_connection_that_is_reset() {
    let (server, proxy, mut client) = start();
    server.kill();
    assert!(client.receive().is_err());
    let outcome = Client::connect(proxy.address()).ask("PING");
    assert!(is_reset(&outcome), "{outcome:?}");
    server.restart();
    assert_eq!(
        Client::connect(proxy.address()).ask("PING").unwrap(),
        "+PONG"
    );
}

#[test]
fn a_dropped_proxy_closes_and_refuses() {
    let (_server, proxy, mut client) = start();
    let address = proxy.address();
    drop(proxy);
    assert!(client.receive().is_err());
    assert!(TcpStream::connect(address).is_err());
}
