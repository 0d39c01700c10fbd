//! Re-entry, and leases handed to another process.

use std::time::Duration;

use redlatch::{Exported, Redlatch};
use redlatch_testkit::RedisServer;

use crate::support::{armed, build, client, eventually};

#[tokio::test]
async fn an_owner_locks_again_and_the_last_guard_frees_the_lock() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let worker = latch.owner("worker-7");
    let outer = worker.mutex("stock").lock().await.unwrap();
    let inner = worker.mutex("stock").try_lock().await.unwrap().unwrap();
    // The same name is the same owner.
    let third = latch.owner("worker-7").mutex("stock").lock().await.unwrap();
    assert_eq!(outer.token(), inner.token());
    assert_eq!(outer.token(), third.token());

    outer.release().await.unwrap();
    drop(inner);
    third.ensure_held().unwrap();
    assert_eq!(server.locks(), ["redlatch:stock"]);
    third.release().await.unwrap();
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn an_owner_stays_the_same_while_it_holds_something() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let outer = latch.owner("a").mutex("stock").lock().await.unwrap();
    // No handle of the owner is left, only its guard.
    let inner = latch.owner("a").mutex("stock").try_lock().await.unwrap();
    let inner = inner.expect("it is the same owner");
    drop(outer);
    let third = latch.owner("a").mutex("stock").try_lock().await.unwrap();
    let exported = third.expect("still the same").detach();
    drop(inner);
    eventually("the lock is free", || server.locks().is_empty()).await;

    // An adopted lease can be locked again too.
    let held = latch.mutex("stock").lock().await.unwrap().detach();
    let adopted = latch.owner("b").mutex("stock").adopt(held).await.unwrap();
    let again = latch.owner("b").mutex("stock").try_lock().await.unwrap();
    assert_eq!(again.expect("it is its own").token(), adopted.token());
    assert!(
        latch
            .mutex("stock")
            .adopt(exported)
            .await
            .unwrap_err()
            .is_lost()
    );
}

#[tokio::test]
async fn another_owner_and_no_owner_are_kept_out() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let guard = latch.owner("a").mutex("stock").lock().await.unwrap();
    let other = latch.owner("b").mutex("stock").try_lock().await.unwrap();
    assert!(other.is_none());
    assert!(latch.mutex("stock").try_lock().await.unwrap().is_none());
    let second = client(&server).await;
    let same_name = second.owner("a").mutex("stock").try_lock().await.unwrap();
    assert!(same_name.is_none(), "another client is another owner");
    drop(guard);
}

#[tokio::test]
async fn tasks_of_one_owner_that_lock_at_the_same_time_share_one_lease() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let tasks = (0..8).map(|_| {
        let mutex = latch.owner("a").mutex("stock");
        // The handle keeps its owner alive, so all of them are the same one.
        tokio::spawn(async move { mutex.lock().await.unwrap() })
    });
    let mut guards = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        guards.push(task.await.unwrap());
    }
    assert!(
        guards
            .iter()
            .all(|guard| guard.token() == guards[0].token())
    );
    assert_eq!(server.calls("set"), 1);
    drop(guards);
    eventually("the lock is free", || server.locks().is_empty()).await;
}

#[tokio::test]
async fn an_owners_waiting_task_does_not_hold_up_one_that_will_not_wait() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let _held = latch.mutex("stock").lock().await.unwrap();
    let worker = latch.owner("a");
    let mutex = worker.mutex("stock");
    let before = server.calls("set");
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    });
    eventually("it contends", || server.calls("set") > before).await;
    assert!(mutex.try_lock().await.unwrap().is_none());
    let soon = Duration::from_millis(10);
    assert!(mutex.lock_timeout(soon).await.unwrap_err().is_timeout());
    waiting.abort();
}

#[tokio::test]
async fn an_owner_whose_lease_was_lost_gets_a_new_one() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let worker = latch.owner("a");
    let mutex = worker.mutex("stock").ttl(Duration::from_secs(3));
    let lost = mutex.lock().await.unwrap();
    server.command(&["DEL", "redlatch:stock"]);
    assert!(
        lost.renew(Duration::from_secs(3))
            .await
            .unwrap_err()
            .is_lost()
    );

    let new = mutex.lock().await.unwrap();
    assert_ne!(new.token(), lost.token());
    assert!(lost.ensure_held().is_err(), "a lost lease never comes back");
    drop(lost);
    latch.close().await;
    new.ensure_held().unwrap();
    assert_eq!(server.locks(), ["redlatch:stock"]);
}

#[tokio::test]
async fn a_lease_is_adopted_by_another_client() {
    let fleet = armed(3);
    let one = build(Redlatch::builder().nodes(fleet.urls())).await;
    let other = build(Redlatch::builder().nodes(fleet.urls())).await;
    let guard = one.mutex("job").lock().await.unwrap();
    let fence = guard.fence();
    let (text, same) = {
        let exported = guard.detach();
        (exported.token().to_owned(), exported.fence())
    };
    assert_eq!(fence, same);

    let exported = Exported::new(&text, fence).unwrap();
    let adopted = other.mutex("job").adopt(exported).await.unwrap();
    assert_eq!(adopted.token().as_str(), text);
    assert_eq!(
        adopted.fence(),
        fence,
        "a fence is the holder's, and it is handed over"
    );
    adopted.ensure_held().unwrap();
    assert!(one.mutex("job").try_lock().await.unwrap().is_none());
    adopted.release().await.unwrap();
    other.close().await;
    one.close().await;
    for server in fleet.iter() {
        assert!(server.locks().is_empty());
    }
}

#[tokio::test]
async fn a_lease_that_is_gone_is_not_adopted_and_nothing_is_created() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    let exported = guard.export();
    guard.release().await.unwrap();
    let error = latch
        .mutex("job")
        .adopt(exported.clone())
        .await
        .unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(server.locks().is_empty());

    let next = latch.mutex("job").lock().await.unwrap();
    let error = latch.mutex("job").adopt(exported).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    next.ensure_held().unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_detached_lease_stays_until_its_ttl_and_is_not_renewed() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let mutex = latch.mutex("job").ttl(Duration::from_millis(600));
    let view = {
        let guard = mutex.lock().await.unwrap();
        let view = guard.lease();
        let _ = guard.detach();
        view
    };
    assert_eq!(server.locks(), ["redlatch:job"]);
    assert!(view.ensure_held().is_err(), "the guard is gone");
    eventually("the lease ends at its ttl", || server.locks().is_empty()).await;
}
