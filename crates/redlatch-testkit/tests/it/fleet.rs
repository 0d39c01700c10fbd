//! `Fleet`: independent servers.

use std::collections::HashSet;
use std::thread;

use redlatch_testkit::{Fleet, RedisServer};

use crate::support::Client;

#[test]
fn eight_servers_start_in_parallel_without_a_collision() {
    let fleet = Fleet::start(8);
    assert_eq!(fleet.len(), 8);
    let ports: HashSet<_> = fleet.iter().map(RedisServer::port).collect();
    let runs: HashSet<_> = fleet.iter().map(|server| server.info("run_id")).collect();
    assert_eq!((ports.len(), runs.len()), (8, 8));
    for (server, url) in fleet.iter().zip(fleet.urls()) {
        assert_eq!(url, format!("redis://127.0.0.1:{}", server.port()));
        // Whoever listens on the port is the process that the kit talks to.
        Client::connect(server.address()).ask("SET k v").unwrap();
        assert_eq!(server.keys(), ["k"]);
    }
}

#[test]
fn fleets_of_several_threads_do_not_collide() {
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for server in Fleet::start(3).iter() {
                    server.restart();
                }
            });
        }
    });
}

#[test]
fn settings_hold_for_every_server() {
    let fleet = Fleet::start_with(2, &RedisServer::builder().append_only());
    for server in fleet.iter() {
        server.command(&["SET", "k", "v"]);
        server.restart();
        assert_eq!(server.keys(), ["k"]);
    }
}

#[test]
fn each_proxy_leads_to_its_server() {
    let fleet = Fleet::start(2);
    let proxies = fleet.proxies();
    Client::connect(proxies[1].address())
        .ask("SET k v")
        .unwrap();
    assert!(fleet[0].keys().is_empty());
    assert_eq!(fleet[1].keys(), ["k"]);
}
