//! What a first user tries.

use std::time::Duration;

use redlatch::{Error, Redlatch};
use redlatch_testkit::RedisServer;

use crate::support::armed;

#[tokio::test]
async fn one_holder_at_a_time_on_one_node() {
    let server = RedisServer::start();
    let latch = Redlatch::connect(&server.url()).await.unwrap();
    let stock = latch.mutex("sku:0001");

    let guard = stock.lock().await.unwrap();
    assert_eq!(server.locks(), ["redlatch:sku:0001"]);
    assert_eq!(
        server.get("redlatch:sku:0001").unwrap(),
        guard.token().as_str().as_bytes()
    );
    assert!(stock.try_lock().await.unwrap().is_none());

    guard.release().await.unwrap();
    assert!(server.locks().is_empty());
    let next = stock.try_lock().await.unwrap().expect("it is free");
    drop(next);
    latch.close().await;
    assert!(server.locks().is_empty());
    assert!(matches!(stock.lock().await, Err(Error::Closed)));
}

#[tokio::test]
async fn a_lease_is_on_all_five_nodes_and_leaves_all_of_them() {
    let fleet = armed(5);
    let latch = Redlatch::builder()
        .nodes(fleet.urls())
        .build()
        .await
        .unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();
    latch.close().await; // also waits for the nodes that the quorum did not
    for server in fleet.iter() {
        assert_eq!(server.locks(), ["redlatch:job"]);
    }
    guard.release().await.unwrap();
    latch.close().await;
    for server in fleet.iter() {
        assert!(server.locks().is_empty());
    }
}

#[tokio::test]
async fn the_timeout_error_names_the_holder() {
    let server = RedisServer::start();
    let latch = Redlatch::connect(&server.url()).await.unwrap();
    let _guard = latch
        .mutex("job")
        .note("nightly report")
        .lock()
        .await
        .unwrap();
    let error = latch
        .mutex("job")
        .lock_timeout(Duration::from_millis(60))
        .await
        .unwrap_err();
    let Error::Timeout(timeout) = &error else {
        panic!("{error}")
    };
    let owner = timeout.holder.as_ref().unwrap().owner();
    assert_eq!(owner.pid, Some(std::process::id()));
    assert_eq!(owner.note.as_deref(), Some("nightly report"));
    assert!(error.to_string().contains("nightly report"), "{error}");
}
