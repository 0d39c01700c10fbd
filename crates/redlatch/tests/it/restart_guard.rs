//! Nodes that may have forgotten what they granted are kept out until it no
//! longer matters.

use std::time::Duration;

use redlatch::node::NodeErrorKind;
use redlatch::{Admin, Builder, ConfigError, Error, Redlatch};
use redlatch_testkit::{Fleet, Proxy, RedisServer};

use crate::support::{KEY, eventually, no_quorum};

/// A quarantine of 2.1 s.
const MAX_TTL: Duration = Duration::from_secs(1);

fn builder(fleet: &Fleet) -> Builder {
    Redlatch::builder()
        .nodes(fleet.urls())
        .max_ttl(MAX_TTL)
        .ttl(MAX_TTL)
        .node_timeout(Duration::from_millis(300))
}

async fn admin(fleet: &Fleet) -> Admin {
    builder(fleet).admin().await.unwrap()
}

async fn armed(nodes: usize) -> (Fleet, Redlatch) {
    let fleet = Fleet::start_with(nodes, &RedisServer::builder().append_only());
    for status in admin(&fleet).await.assume_fresh().await {
        assert!(status.is_armed(), "{status}");
    }
    let latch = builder(&fleet).build().await.unwrap();
    (fleet, latch)
}

/// Whether each node may grant, as an administrator sees it.
async fn are_armed(fleet: &Fleet) -> Vec<bool> {
    let statuses = admin(fleet).await.status().await;
    statuses.iter().map(|status| status.is_armed()).collect()
}

#[tokio::test]
async fn new_nodes_wait_and_a_try_says_why_and_for_how_long() {
    let fleet = Fleet::start(3);
    let latch = builder(&fleet).build().await.unwrap();
    let error = latch.mutex("job").try_lock().await.unwrap_err();
    assert!(error.is_quarantined(), "{error}");
    let error = no_quorum(Err::<(), _>(error));
    assert!(error.quarantine().unwrap() <= Duration::from_millis(2100));
    for (_, reason) in &error.failures {
        assert_eq!(reason.kind(), NodeErrorKind::Quarantined);
    }
    assert!(error.to_string().contains("arm it"), "{error}");

    // A waiting lock waits it out, beyond all patience with outages.
    let guard = latch.mutex("job").lock().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn new_nodes_that_are_known_to_be_fresh_grant_at_once() {
    let (fleet, latch) = armed(3).await;
    let guard = latch.mutex("job").try_lock().await.unwrap().unwrap();
    guard.release().await.unwrap();
    assert_eq!(are_armed(&fleet).await, [true; 3]);
}

#[tokio::test]
async fn whatever_made_a_node_forget_it_is_kept_out() {
    let (fleet, latch) = armed(3).await;
    let faults: [fn(&RedisServer); 6] = [
        RedisServer::restart_empty,
        RedisServer::restart,
        |server| server.restart_truncated(1),
        |server| drop(server.command(&["FLUSHALL"])),
        // The locks are still there, but not which ballots were granted.
        |server| drop(server.command(&["DEL", "redlatch:__fence"])),
        |server| drop(server.command(&["HDEL", "redlatch:__fence", "floor"])),
    ];
    for fault in faults {
        let guard = latch.mutex("job").lock().await.unwrap();
        fault(&fleet[0]);
        // Felt by nobody: the others are a quorum.
        guard.renew(MAX_TTL).await.unwrap();
        guard.release().await.unwrap();
        let guard = latch.mutex("job").lock().await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(are_armed(&fleet).await, [false, true, true]);
        admin(&fleet).await.assume_fresh().await;
    }
}

#[tokio::test]
async fn a_promoted_replica_is_kept_out() {
    let (fleet, latch) = armed(3).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    let replica = RedisServer::start();
    let port = fleet[0].port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]);
    eventually("the copy", || replica.get(KEY).is_some()).await;
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    guard.release().await.unwrap();

    let urls = [replica.url(), fleet[1].url(), fleet[2].url()];
    let moved = Redlatch::builder()
        .nodes(urls)
        .max_ttl(MAX_TTL)
        .ttl(MAX_TTL);
    let moved = moved.build().await.unwrap();
    let guard = moved.mutex("job").lock().await.unwrap();
    moved.close().await;
    assert_ne!(
        replica.get(KEY).as_deref(),
        Some(guard.token().as_str().as_bytes())
    );
    assert_eq!(fleet[1].locks(), [KEY]);
}

#[tokio::test]
async fn a_mere_reconnect_costs_nothing() {
    let (fleet, latch) = armed(3).await;
    for server in fleet.iter() {
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }
    let guard = latch.mutex("job").lock().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(are_armed(&fleet).await, [true; 3]);
}

#[tokio::test]
async fn a_lease_that_a_majority_forgot_is_lost_before_anybody_can_have_the_lock() {
    let (fleet, latch) = armed(3).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    fleet[0].restart_empty();
    fleet[1].restart_empty();
    let other = builder(&fleet).build().await.unwrap();
    let mutex = other.mutex("job");
    let next = mutex.lock();
    tokio::pin!(next);
    tokio::select! {
        biased;
        lost = guard.lost() => drop(lost),
        _ = &mut next => panic!("two holders at once"),
    }
    let next = next.await.unwrap();
    assert!(next.fence() > guard.fence());
}

#[tokio::test]
async fn rolling_restarts_of_all_nodes_do_not_lose_a_lease() {
    let (fleet, latch) = armed(5).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    let token = guard.token().as_str().as_bytes();
    for server in fleet.iter() {
        server.restart_empty();
        eventually("the lease is back", || {
            server.get(KEY).as_deref() == Some(token)
        })
        .await;
        guard.ensure_held().unwrap();
    }
    assert_eq!(are_armed(&fleet).await, [true; 5]);
    let fence = guard.fence();
    guard.release().await.unwrap();
    let next = latch.mutex("job").lock().await.unwrap();
    assert!(next.fence() > fence);
    next.release().await.unwrap();
    latch.close().await;
    for server in fleet.iter() {
        assert!(server.locks().is_empty());
    }
}

#[tokio::test]
async fn a_bare_quorum_is_topped_up_when_the_others_come_back() {
    let (fleet, latch) = armed(5).await;
    fleet[3].freeze();
    fleet[4].freeze();
    let guard = latch.mutex("job").lock().await.unwrap();
    fleet[3].thaw();
    fleet[4].thaw();
    let token = guard.token().as_str().as_bytes();
    for server in [&fleet[3], &fleet[4]] {
        server.command(&["DEL", KEY]); // or it had been there after all
        eventually("the lease", || server.get(KEY).as_deref() == Some(token)).await;
    }
    guard.release().await.unwrap();
    latch.close().await;
    for server in fleet.iter() {
        assert!(server.locks().is_empty());
    }
}

#[tokio::test]
async fn a_lock_that_was_taken_away_is_never_resurrected() {
    let (fleet, latch) = armed(5).await;
    let other = builder(&fleet).build().await.unwrap();
    for force in [true, false] {
        let guard = latch.mutex("job").lock().await.unwrap();
        if force {
            assert!(other.force_release("job").await.unwrap());
        } else {
            for server in fleet.iter() {
                server.command(&["DEL", KEY]);
            }
        }
        guard.lost().await;
        let locked = fleet.iter().filter(|server| !server.locks().is_empty());
        assert_eq!(locked.count(), 0);
        assert!(guard.release().await.unwrap_err().is_lost());
    }
}

/// The model found this one: a mark that each node puts above what it has
/// granted itself lets the lease in where its acquire comes late.
#[tokio::test]
async fn an_acquire_that_comes_after_a_force_is_refused() {
    let (fleet, _) = armed(3).await;
    let proxies = fleet.proxies();
    let urls = proxies.iter().map(Proxy::url);
    let behind = Redlatch::builder()
        .nodes(urls)
        .max_ttl(MAX_TTL)
        .ttl(MAX_TTL);
    let behind = behind.build().await.unwrap();
    let direct = builder(&fleet).build().await.unwrap();

    proxies[2].hold();
    let guard = behind.mutex("job").lock().await.unwrap();
    assert!(fleet[2].locks().is_empty(), "it is still on its way there");
    assert!(direct.force_release("job").await.unwrap());
    let asked = fleet[2].calls("evalsha");
    proxies[2].heal();
    eventually("the acquire", || fleet[2].calls("evalsha") > asked).await;
    assert!(fleet.iter().all(|server| server.locks().is_empty()));
    guard.lost().await;
    assert!(fleet.iter().all(|server| server.locks().is_empty()));
}

#[tokio::test]
async fn a_client_that_was_given_only_some_of_the_nodes_is_refused() {
    let (fleet, _latch) = armed(3).await;
    let some = Redlatch::builder()
        .nodes(&fleet.urls()[..2])
        .max_ttl(MAX_TTL);
    let Err(Error::Config(error)) = some.ttl(MAX_TTL).build().await else {
        panic!("not refused")
    };
    let text = error.to_string();
    assert!(matches!(*error, ConfigError::Node { .. }), "{text}");
    assert!(text.contains("default/3/1000"), "{text}");

    // Nor one that counts on shorter leases, or names another deployment.
    for other in [
        builder(&fleet).max_ttl(Duration::from_secs(2)),
        builder(&fleet).deployment("other"),
    ] {
        assert!(other.build().await.unwrap_err().is_config());
    }
}

#[tokio::test]
async fn a_deployment_changes_by_way_of_a_quarantine() {
    let (fleet, latch) = armed(3).await;
    let changed = || builder(&fleet).deployment("two");
    let admin = changed().admin().await.unwrap();
    for status in admin.assume_fresh().await {
        assert!(status.guard.is_err(), "{status}");
    }
    for status in admin.reconfigure().await {
        assert!(status.guard.is_ok() && !status.is_armed(), "{status}");
    }
    let error = latch.mutex("job").try_lock().await.unwrap_err();
    assert!(error.to_string().contains("two/3/1000"), "{error}");
    let new = changed().build().await.unwrap();
    assert!(
        new.mutex("job")
            .try_lock()
            .await
            .unwrap_err()
            .is_quarantined()
    );
    new.mutex("job")
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn without_the_right_to_info_the_guard_refuses_to_be_on() {
    let fleet = Fleet::start(3);
    let mut urls = Vec::new();
    for server in fleet.iter() {
        let user = "ACL SETUSER locker on >secret ~* +@all -info";
        server.command(&user.split(' ').collect::<Vec<_>>());
        urls.push(format!("redis://locker:secret@127.0.0.1:{}", server.port()));
    }
    let Err(Error::Config(error)) = Redlatch::builder().nodes(&urls).build().await else {
        panic!("not refused")
    };
    assert!(error.to_string().contains("+info"), "{error}");
    let off = Redlatch::builder().nodes(&urls).restart_guard(false);
    off.build().await.unwrap();
}

#[tokio::test]
async fn a_server_that_may_evict_locks_is_refused_also_when_it_comes_back() {
    let server =
        RedisServer::with_args(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let Err(Error::Config(error)) = Redlatch::connect(&server.url()).await else {
        panic!("not refused")
    };
    assert!(
        error
            .to_string()
            .contains("maxmemory-policy is allkeys-lru"),
        "{error}"
    );

    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let latch = Redlatch::connect(&server.url()).await.unwrap();
    latch
        .mutex("job")
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    server.restart();
    let told = async || {
        let tried = latch.mutex("job").try_lock().await;
        tried.is_err_and(|error| error.to_string().contains("allkeys-lru"))
    };
    while !told().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn one_node_is_guarded_when_asked_for() {
    let server = RedisServer::start();
    let builder = || {
        let builder = Redlatch::builder()
            .nodes([server.url()])
            .restart_guard(true);
        builder.max_ttl(MAX_TTL).ttl(MAX_TTL)
    };
    builder().admin().await.unwrap().assume_fresh().await;
    let latch = builder().build().await.unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();
    server.restart_empty();
    guard.lost().await;
    let next = latch.mutex("job").lock().await.unwrap();
    assert!(next.fence() > guard.fence());

    let unguarded = Redlatch::builder().nodes([server.url()]).admin().await;
    assert!(unguarded.unwrap_err().is_config());
}
