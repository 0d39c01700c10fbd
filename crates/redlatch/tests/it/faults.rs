//! Servers and connections that break and come back, behind one client.

use std::time::Duration;

use redlatch::Loss;
use redlatch_testkit::{Proxy, RedisServer};

use crate::support::{
    LONG, are_empty, armed, closes_empty, eventually, eventually_everywhere, is_held_by, patient,
    renewals,
};

#[tokio::test]
async fn a_flushed_script_cache_is_invisible() {
    for nodes in [1, 5] {
        let fleet = armed(nodes);
        let latch = patient(fleet.urls()).build().await.unwrap();
        let flush = || {
            for server in fleet.iter() {
                assert!(!server.command(&["SCRIPT", "FLUSH"]).is_error());
            }
        };
        flush();
        let guard = latch.mutex("job").lock().await.unwrap();
        flush();
        guard.renew(2 * LONG).await.unwrap();
        assert!(guard.remaining() > LONG);
        flush();
        let held = latch.inspect("job").await.unwrap().unwrap();
        assert_eq!(held.holder.token().as_ref(), Some(guard.token()));
        assert_eq!(held.on_nodes, nodes);
        flush();
        guard.release().await.unwrap();
        assert!(latch.inspect("job").await.unwrap().is_none());
        closes_empty(&latch, &fleet).await;
    }
}

#[tokio::test]
async fn renewal_goes_on_after_the_script_cache_was_flushed() {
    let server = RedisServer::start();
    let latch = patient([server.url()]).build().await.unwrap();
    let job = latch.mutex("job").ttl(Duration::from_secs(6));
    let guard = job.lock().await.unwrap();
    server.command(&["SCRIPT", "FLUSH"]);
    renewals(&server, 1).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_restart_between_two_locks_is_invisible() {
    let server = RedisServer::builder().append_only().start();
    let latch = patient([server.url()]).build().await.unwrap();
    let job = latch.mutex("job");
    for restart in [RedisServer::restart, RedisServer::restart_empty] {
        job.lock().await.unwrap().release().await.unwrap();
        restart(&server);
        job.lock().await.unwrap().release().await.unwrap();
    }
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn a_restart_that_forgets_nothing_is_invisible_to_the_holder() {
    let server = RedisServer::builder().append_only().start();
    let latch = patient([server.url()]).build().await.unwrap();
    let job = latch.mutex("job").ttl(Duration::from_secs(8));
    let guard = job.lock().await.unwrap();
    server.restart();
    renewals(&server, 1).await;
    assert!(is_held_by(std::slice::from_ref(&server), &guard));
    guard.release().await.unwrap();
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn a_restart_that_forgets_the_lease_is_told_as_a_loss() {
    let server = RedisServer::start();
    let latch = patient([server.url()]).build().await.unwrap();
    let job = latch.mutex("job").ttl(Duration::from_secs(8));
    let guard = job.lock().await.unwrap();
    server.restart_empty();
    assert_eq!(guard.lost().await.loss, Loss::Taken);
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn killed_connections_are_invisible_to_the_holder() {
    for nodes in [1, 5] {
        let fleet = armed(nodes);
        let latch = patient(fleet.urls()).build().await.unwrap();
        let hang_up = || {
            for server in fleet.iter() {
                let killed = server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                assert_eq!(killed.as_int(), 1);
            }
        };
        let guard = latch.mutex("job").lock().await.unwrap();
        eventually("the key on all nodes", || is_held_by(&fleet, &guard)).await;
        hang_up();
        guard.renew(2 * LONG).await.unwrap();
        assert!(is_held_by(&fleet, &guard));
        // One that is connected and has not yet subscribed is not hung up.
        let subscribed = |server: &RedisServer| {
            let clients = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            clients.as_text().lines().count() == 1
        };
        eventually("all connections", || fleet.iter().all(subscribed)).await;
        hang_up();
        guard.release().await.unwrap();
        closes_empty(&latch, &fleet).await;
    }
}

#[tokio::test]
async fn renewal_goes_on_after_connections_were_killed() {
    let server = RedisServer::start();
    let latch = patient([server.url()]).build().await.unwrap();
    let job = latch.mutex("job").ttl(Duration::from_secs(6));
    let guard = job.lock().await.unwrap();
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    renewals(&server, 1).await;
    assert!(is_held_by(std::slice::from_ref(&server), &guard));
    guard.release().await.unwrap();
}

/// Something that is done to a connection, and whether it lasts until it is healed.
type Damage = (&'static str, fn(&Proxy), bool);

const DAMAGES: [Damage; 7] = [
    ("mute", Proxy::mute, true),
    ("hold", Proxy::hold, true),
    ("drop_requests", Proxy::drop_requests, true),
    ("drop_replies", Proxy::drop_replies, true),
    ("cut", Proxy::cut, true),
    ("half_close", Proxy::half_close, false),
    ("disconnect", Proxy::disconnect, false),
];

#[tokio::test]
async fn a_damaged_connection_is_replaced() {
    for (name, damage, _) in DAMAGES {
        let server = RedisServer::start();
        let proxy = server.proxy();
        let latch = patient([proxy.url()]).node_timeout(Duration::from_millis(200));
        let latch = latch.outage_patience(LONG).build().await.unwrap();
        let job = latch.mutex("job");
        drop(job.lock().await.unwrap());

        damage(&proxy);
        // Only the connections of now: new ones are treated well.
        proxy.heal();
        let guard = job.lock().await.unwrap();
        assert!(is_held_by(std::slice::from_ref(&server), &guard), "{name}");
        // What was only held back has arrived, before anybody could notice.
        assert_eq!(proxy.accepted() > 1, name != "hold", "{name}");
        drop(guard);
        eventually("no key", || server.locks().is_empty()).await;
    }
}

#[tokio::test]
async fn a_client_outlives_an_outage_of_its_only_node() {
    for (name, damage, lasts) in DAMAGES {
        if !lasts {
            continue;
        }
        let server = RedisServer::start();
        let proxy = server.proxy();
        let latch = patient([proxy.url()]).node_timeout(Duration::from_millis(100));
        let latch = latch.outage_patience(LONG).build().await.unwrap();
        damage(&proxy);
        // Until the old connection was given up, and a new one was of no use either.
        for _ in 0..5 {
            assert!(latch.mutex("job").try_lock().await.is_err(), "{name}");
        }
        proxy.heal();
        let guard = latch.mutex("job").lock().await.unwrap();
        assert!(is_held_by(std::slice::from_ref(&server), &guard), "{name}");
        drop(guard);
        eventually("no key", || server.locks().is_empty()).await;
    }
}

#[tokio::test]
async fn mute_connections_to_all_nodes_are_replaced() {
    let fleet = armed(5);
    let proxies = fleet.proxies();
    let latch = patient(proxies.iter().map(Proxy::url)).node_timeout(Duration::from_millis(100));
    let latch = latch.build().await.unwrap();
    for proxy in &proxies {
        proxy.mute();
        proxy.heal();
    }
    eventually_everywhere(&latch, 5).await;
    assert!(proxies.iter().all(|proxy| proxy.accepted() > 1));
    eventually("no key", || are_empty(&fleet)).await;
}

#[tokio::test]
async fn a_lease_outlives_a_connection_that_falls_mute() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let latch = patient([proxy.url()]).node_timeout(Duration::from_millis(50));
    let latch = latch.build().await.unwrap();
    let job = latch.mutex("job").ttl(Duration::from_secs(6));
    let guard = job.lock().await.unwrap();
    proxy.mute();
    proxy.heal();
    renewals(&server, 1).await;
    guard.release().await.unwrap();
    assert!(server.locks().is_empty());
}

/// Both are there when it goes on: the answer, which nobody has read yet, and the end of
/// the time that the node had.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_was_kept_from_running_finds_the_answer_that_came_meanwhile() {
    let server = RedisServer::start();
    let short = Duration::from_millis(50);
    let latch = patient([server.url()]).node_timeout(short).ttl(LONG);
    let latch = latch.build().await.unwrap();
    for _ in 0..10 {
        let guard = latch.mutex("job").lock().await.unwrap();
        let kept = tokio::spawn(async move {
            let released = tokio::spawn(guard.release());
            tokio::task::yield_now().await;
            // It was sent, and now the only thread is busy with something else.
            std::thread::sleep(2 * short);
            released.await.unwrap()
        });
        kept.await.unwrap().unwrap();
    }
}
