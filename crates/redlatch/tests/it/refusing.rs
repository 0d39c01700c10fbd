//! Servers that answer, but with a refusal: the error says what to do about it.

use std::sync::Arc;
use std::time::Duration;

use redlatch::node::NodeErrorKind;
use redlatch_testkit::RedisServer;

use crate::support::{
    KEY, LONG, armed, closes_empty, eventually, eventually_locked, no_quorum, patient,
};

/// The reason that a single node gives for refusing the lock `job`.
#[track_caller]
fn reason<T>(tried: Result<T, redlatch::Error>) -> String {
    let error = no_quorum(tried);
    let [(_, reason)] = &error.failures[..] else {
        panic!("{error}")
    };
    assert_eq!(reason.kind(), NodeErrorKind::Server);
    assert!(error.to_string().contains(&reason.to_string()), "{error}");
    reason.to_string()
}

#[tokio::test]
async fn a_server_that_became_a_replica_says_so() {
    let server = RedisServer::start();
    let latch = patient([server.url()]).build().await.unwrap();
    let guard = latch.mutex("held").lock().await.unwrap();
    // Nobody listens there: it waits for its master, and keeps what it has.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let refused = reason(latch.mutex("job").try_lock().await);
    assert!(refused.contains("this is a replica"), "{refused}");
    let refused = reason(guard.renew(2 * LONG).await);
    assert!(refused.contains("this is a replica"), "{refused}");
    guard.ensure_held().unwrap();
    let refused = reason(guard.release().await);
    assert!(refused.contains("this is a replica"), "{refused}");

    server.command(&["REPLICAOF", "NO", "ONE"]);
    eventually("the release", || server.locks().is_empty()).await;
    eventually_locked(&latch).await.release().await.unwrap();
}

#[tokio::test]
async fn a_full_server_says_so_and_still_renews_and_releases() {
    let server = RedisServer::start();
    let latch = patient([server.url()]).build().await.unwrap();
    let guard = latch.mutex("held").lock().await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = reason(latch.mutex("job").try_lock().await);
    assert!(refused.contains("raise maxmemory"), "{refused}");
    guard.renew(2 * LONG).await.unwrap();
    guard.release().await.unwrap();
    assert!(server.locks().is_empty());

    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let guard = latch.mutex("job").try_lock().await.unwrap();
    guard.expect("it is free").release().await.unwrap();
}

#[tokio::test]
async fn a_minority_of_full_servers_is_done_without() {
    let fleet = armed(5);
    let latch = patient(fleet.urls()).build().await.unwrap();
    for server in &fleet[..2] {
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    }
    let guard = latch.mutex("job").try_lock().await.unwrap();
    guard.expect("three are enough").release().await.unwrap();
    fleet[2].command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = no_quorum(latch.mutex("job").try_lock().await);
    assert_eq!(error.failures.len(), 3, "{error}");
    closes_empty(&latch, &fleet).await;
}

#[tokio::test]
async fn a_server_that_is_still_loading_says_so() {
    // With 1 KiB between two looks at its clients, and 50 ms for each key.
    let slow = [
        "--loading-process-events-interval-bytes",
        "1024",
        "--key-load-delay",
        "50000",
    ];
    let server = Arc::new(RedisServer::with_args(&slow));
    let latch = patient([server.url()]).build().await.unwrap();
    for key in 0..60 {
        let value: String = (0..4096)
            .map(|at| char::from(33 + (at * key % 89) as u8))
            .collect();
        server.command(&["SET", &format!("ballast:{key}"), &value]);
    }
    server.command(&["CONFIG", "SET", "rdbcompression", "no"]);
    assert!(!server.command(&["SAVE"]).is_error());
    let restarted = server.clone();
    let restart = tokio::task::spawn_blocking(move || restarted.restart());
    let mut refusals = Vec::new();
    while !restart.is_finished() {
        match latch.mutex("job").try_lock().await {
            Ok(guard) => drop(guard),
            Err(error) => refusals.push(no_quorum::<()>(Err(error)).to_string()),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    restart.await.unwrap();
    let said = |text: &String| text.contains("it is still reading its data");
    assert!(refusals.iter().any(said), "{refusals:?}");
    eventually_locked(&latch).await.release().await.unwrap();
    assert!(server.get(KEY).is_none());
}
