//! What is dropped in odd places, and the end of the runtime.

use std::time::Duration;

use redlatch::{MemoryNode, Redlatch};
use redlatch_testkit::RedisServer;
use tokio::runtime::Runtime;

use crate::support::{client, eventually};

#[test]
fn a_guard_dropped_outside_the_runtime_is_released_by_it() {
    let server = RedisServer::start();
    let runtime = Runtime::new().unwrap();
    let guard = runtime.block_on(async {
        let latch = client(&server).await;
        latch.mutex("job").lock().await.unwrap()
    });
    std::thread::spawn(move || drop(guard)).join().unwrap();
    runtime.block_on(eventually("the lock is free", || server.locks().is_empty()));
}

#[test]
fn a_guard_that_outlives_its_runtime_is_dropped_in_peace() {
    let server = RedisServer::start();
    let runtime = Runtime::new().unwrap();
    let (latch, guard) = runtime.block_on(async {
        let latch = client(&server).await;
        let guard = latch.mutex("job").lock().await.unwrap();
        (latch, guard)
    });
    drop(runtime);
    drop(guard); // left to its ttl
    // Another runtime gets a clear error instead of waiting for ever.
    let runtime = Runtime::new().unwrap();
    let error = runtime.block_on(latch.mutex("job").try_lock()).unwrap_err();
    assert!(error.to_string().contains("runtime"), "{error}");
    runtime.block_on(latch.close());
}

#[test]
fn a_runtime_that_shuts_down_while_tasks_hold_guards_does_not_panic() {
    let server = RedisServer::start();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let latch = client(&server).await;
        for number in 0..20 {
            let mutex = latch.mutex(format!("job-{number}"));
            tokio::spawn(async move {
                let _guard = mutex.lock().await;
                std::future::pending::<()>().await;
            });
        }
        eventually("all are held", || server.locks().len() == 20).await;
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
}

#[tokio::test]
async fn close_waits_until_everything_dropped_is_released() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let mut guards = Vec::new();
    for number in 0..200 {
        guards.push(latch.mutex(format!("job-{number}")).lock().await.unwrap());
    }
    assert_eq!(server.locks().len(), 200);
    drop(guards);
    latch.close().await;
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn close_does_not_wait_for_a_node_that_is_gone() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    // A lease of an hour: were close to wait for it to end, this would never end.
    let mutex = latch.mutex("job").ttl(Duration::from_secs(3600));
    let guard = mutex.lock().await.unwrap();
    server.kill();
    drop(guard);
    latch.close().await;
}

#[tokio::test]
async fn a_client_that_is_dropped_with_its_guards_leaves_no_task_and_no_connection() {
    let server = RedisServer::start();
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let latch = client(&server).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    drop(latch);
    guard.ensure_held().unwrap();
    drop(guard);
    eventually("all tasks have ended", || tasks() == before).await;
    eventually("the connection is closed", || {
        server.connected_clients() == 0
    })
    .await;
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn a_memory_node_forgets_locks_that_nobody_asks_for_again() {
    let node = MemoryNode::new();
    let latch = Redlatch::builder().node(node.clone());
    let latch = latch
        .node_timeout(Duration::from_millis(5))
        .build()
        .await
        .unwrap();
    for number in 0..2_000 {
        let mutex = latch.mutex(format!("job-{number}"));
        let guard = mutex.ttl(Duration::from_millis(20)).lock().await.unwrap();
        let _ = guard.detach();
        if number % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(node.len() < 2_000, "{}", node.len());
}
