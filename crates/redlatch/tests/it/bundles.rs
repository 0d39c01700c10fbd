//! Requests that go out as one command, on real servers.

use std::time::Duration;

use futures_util::future::join_all;
use redlatch::{Guard, Redlatch};
use redlatch_testkit::RedisServer;

use crate::acl;
use crate::support::{LONG, armed, eventually, patient};

const LOCKS: usize = 100;

/// Tries each of these locks once, all at the same moment.
async fn try_all(latch: &Redlatch, fencing: bool) -> Vec<redlatch::Result<Option<Guard>>> {
    let locks = (0..LOCKS).map(|n| latch.mutex(format!("lock{n}")).fencing(fencing));
    let locks: Vec<_> = locks.collect();
    join_all(locks.iter().map(|lock| lock.try_lock())).await
}

async fn take_all(latch: &Redlatch, fencing: bool) -> Vec<Guard> {
    let taken = try_all(latch, fencing).await.into_iter();
    taken.map(|guard| guard.unwrap().unwrap()).collect()
}

async fn release_all(guards: Vec<Guard>) {
    for released in join_all(guards.into_iter().map(Guard::release)).await {
        released.unwrap();
    }
}

/// How many keys there are, beside that of the fences.
fn held(server: &RedisServer) -> usize {
    let keys = server.command(&["KEYS", "redlatch:lock*"]);
    keys.as_array().len()
}

#[tokio::test]
async fn many_requests_take_few_commands_and_each_has_its_own_answer() {
    let fleet = armed(3);
    let build = || async { patient(fleet.urls()).build().await.unwrap() };
    let (latch, other) = (build().await, build().await);
    for fencing in [true, false] {
        let before = fleet[0].calls("evalsha");
        let guards = take_all(&latch, fencing).await;
        assert_eq!(held(&fleet[0]), LOCKS);
        // Others are told of each who has it.
        for busy in try_all(&other, fencing).await {
            assert!(busy.unwrap().is_none());
        }
        release_all(guards).await;
        for server in fleet.iter() {
            eventually("all are free", || held(server) == 0).await;
        }
        let scripts = fleet[0].calls("evalsha") - before;
        // To acquire, to be refused, to be sure that a node which had not answered when two
        // had refused keeps nothing, and to release.
        let requests = 4 * LOCKS as u64;
        assert!(scripts < requests / 2, "{scripts} for {requests} requests");
    }
}

#[tokio::test]
async fn fences_grow_also_where_many_go_together() {
    let server = RedisServer::start();
    let latch = patient([server.url()]).build().await.unwrap();
    let mut last = vec![0; LOCKS];
    for _ in 0..5 {
        let guards = take_all(&latch, true).await;
        for (last, guard) in last.iter_mut().zip(&guards) {
            assert!(guard.fence() > *last);
            *last = guard.fence();
        }
        release_all(guards).await;
    }
}

#[tokio::test]
async fn leases_that_are_renewed_together_go_on_and_one_that_is_lost_is_told() {
    let fleet = armed(3);
    let latch = patient(fleet.urls()).ttl(Duration::from_secs(3));
    let latch = latch.node_timeout(Duration::from_millis(500));
    let latch = latch.build().await.unwrap();
    let mut guards = take_all(&latch, true).await;
    let lost = guards.swap_remove(7);
    for server in fleet.iter() {
        server.command(&["SET", &format!("redlatch:{}", lost.name()), "somebody else"]);
    }
    tokio::time::timeout(LONG, lost.lost()).await.unwrap();
    let renewed = || fleet[0].calls("pexpire") >= 2 * guards.len() as u64;
    eventually("all are renewed", renewed).await;
    for guard in &guards {
        guard.ensure_held().unwrap();
    }
    let scripts = fleet[0].calls("evalsha");
    let renewals = fleet[0].calls("pexpire");
    assert!(scripts < renewals / 2, "{scripts} for {renewals} renewals");
    release_all(guards).await;
}

#[tokio::test]
async fn a_server_that_has_forgotten_its_scripts_is_told_them_again() {
    let server = RedisServer::start();
    let latch = patient([server.url()]).build().await.unwrap();
    for _ in 0..3 {
        server.command(&["SCRIPT", "FLUSH"]);
        let guards = take_all(&latch, true).await;
        server.command(&["SCRIPT", "FLUSH"]);
        release_all(guards).await;
        assert_eq!(held(&server), 0);
    }
    // And then it is as before.
    release_all(take_all(&latch, true).await).await;
    let before = server.calls("eval");
    release_all(take_all(&latch, true).await).await;
    assert_eq!(server.calls("eval"), before);
}

#[tokio::test]
async fn a_server_without_memory_refuses_what_takes_some_and_takes_back_what_frees_some() {
    let server = RedisServer::start();
    let latch = patient([server.url()]).build().await.unwrap();
    let guards = take_all(&latch, true).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    // In the same commands.
    let locks: Vec<_> = (0..LOCKS).map(|n| latch.mutex(format!("new{n}"))).collect();
    let tries = join_all(locks.iter().map(|lock| lock.try_lock()));
    let releases = join_all(guards.into_iter().map(Guard::release));
    let (refused, released) = tokio::join!(tries, releases);
    for refused in refused {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("raise maxmemory"), "{error}");
    }
    for released in released {
        released.unwrap();
    }
    assert_eq!(held(&server), 0);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    release_all(take_all(&latch, true).await).await;
}

#[tokio::test]
async fn a_node_that_may_have_forgotten_grants_none_of_them() {
    let forget: [&[&str]; 3] = [
        &["HDEL", "redlatch:__fence", "guard"],
        &["HDEL", "redlatch:__fence", "floor"],
        &["DEL", "redlatch:__fence"],
    ];
    for forget in forget {
        let fleet = armed(3);
        let latch = patient(fleet.urls()).outage_patience(Duration::ZERO);
        let latch = latch.build().await.unwrap();
        let guards = take_all(&latch, true).await;
        for server in fleet.iter() {
            server.command(forget);
        }
        let locks: Vec<_> = (0..LOCKS).map(|n| latch.mutex(format!("new{n}"))).collect();
        for refused in join_all(locks.iter().map(|lock| lock.try_lock())).await {
            let error = refused.unwrap_err();
            assert!(error.is_quarantined(), "{error}");
        }
        // What was granted can be given back all the same.
        release_all(guards).await;
    }
}

#[tokio::test]
async fn who_lacks_the_rights_for_it_sends_requests_by_themselves() {
    for (name, fencing) in [("unguarded", true), ("plain", false)] {
        let server = RedisServer::start();
        let latch = acl::user_of(&server, name).ttl(LONG).max_ttl(2 * LONG);
        let latch = latch.build().await.unwrap();
        for _ in 0..3 {
            let guards = take_all(&latch, fencing).await;
            assert_eq!(held(&server), LOCKS);
            release_all(guards).await;
            assert_eq!(held(&server), 0);
        }
    }
}

#[tokio::test]
async fn who_gives_back_a_lost_lease_is_told_so_also_where_a_bundle_was_refused() {
    for may_bundle in [true, false] {
        let server = RedisServer::start();
        let latch = match may_bundle {
            true => patient([server.url()]),
            false => acl::user_of(&server, "unguarded").max_ttl(2 * LONG),
        };
        let latch = latch.ttl(LONG).build().await.unwrap();
        let mut guards = Vec::new();
        // One after the other, so that what follows is the first bundle.
        for number in 0..20 {
            let lock = latch.mutex(format!("lock{number}"));
            guards.push(lock.lock().await.unwrap());
        }
        server.command(&["DEL", "redlatch:lock7"]);
        server.command(&["SET", "redlatch:lock11", "somebody else"]);
        let released = join_all(guards.into_iter().map(Guard::release)).await;
        for (number, released) in released.into_iter().enumerate() {
            match number {
                7 | 11 => assert!(released.unwrap_err().is_lost(), "{number}"),
                _ => released.unwrap(),
            }
        }
    }
}
