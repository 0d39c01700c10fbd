//! A lease passes from holder to holder inside a process, with no word to any
//! node, and so that others get their turn.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlatch::{Builder, Guard, Loss, Redlatch};
use redlatch_testkit::RedisServer;
use tokio::task::JoinHandle;

use crate::support::{KEY, LONG, armed, eventually, patient};

/// Hand-overs bounded by their number alone.
fn often(server: &RedisServer, most: u32) -> Builder {
    patient([server.url()]).handovers(most, LONG)
}

/// Somebody who waits for the lock, and has joined the queue.
async fn waiter(latch: &Redlatch) -> JoinHandle<Guard> {
    let job = latch.mutex("job");
    let waiter = tokio::spawn(async move { job.lock().await.unwrap() });
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    waiter
}

/// The same, as the head of the queue, which watches the key.
async fn watching(latch: &Redlatch, server: &RedisServer) -> JoinHandle<Guard> {
    let watches = server.calls("client|caching");
    let waiting = waiter(latch).await;
    eventually("the watch", || server.calls("client|caching") > watches).await;
    waiting
}

/// The lock held, and one who waits and watches.
async fn held_and_waited_for(latch: &Redlatch, server: &RedisServer) -> (Guard, JoinHandle<Guard>) {
    let guard = latch.mutex("job").lock().await.unwrap();
    let waiting = watching(latch, server).await;
    (guard, waiting)
}

#[tokio::test]
async fn a_lease_is_handed_on_without_a_word_to_the_node() {
    let server = RedisServer::start();
    let latch = often(&server, 32).build().await.unwrap();
    let (first, second) = held_and_waited_for(&latch, &server).await;
    let (token, fence) = (first.token().clone(), first.fence());
    let view = first.lease();
    let before = server.calls("evalsha");
    first.release().await.unwrap();
    let second = second.await.unwrap();
    // Nobody waits any more: that is said, and nothing else.
    eventually("nobody waits", || server.queue("job").is_empty()).await;
    assert!(server.calls("evalsha") <= before + 1);
    assert_eq!(*second.token(), token, "the token names the lease");
    assert_eq!(second.fence(), fence + 1, "the fence names the holder");
    assert_eq!(view.lost().await.loss, Loss::Released);
    second.ensure_held().unwrap();

    // By drop as well.
    let third = watching(&latch, &server).await;
    drop(second);
    let third = third.await.unwrap();
    assert_eq!(third.fence(), fence + 2);
    third.release().await.unwrap();
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn after_so_many_times_in_a_row_the_nodes_decide_again() {
    let server = RedisServer::start();
    let latch = often(&server, 4).build().await.unwrap();
    let (guard, first) = held_and_waited_for(&latch, &server).await;
    let fences = Arc::new(Mutex::new(vec![guard.fence()]));
    let mut tasks = Vec::new();
    for _ in 0..11 {
        let (job, fences) = (latch.mutex("job"), fences.clone());
        tasks.push(tokio::spawn(async move {
            let guard = job.lock().await.unwrap();
            fences.lock().unwrap().push(guard.fence());
            guard.release().await.unwrap();
        }));
    }
    guard.release().await.unwrap();
    let first = first.await.unwrap();
    fences.lock().unwrap().push(first.fence());
    first.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let fences = fences.lock().unwrap();
    assert!(fences.is_sorted_by(|one, other| one < other), "{fences:?}");
    // 13 holders, five of them to an acquire.
    let ballots: Vec<u64> = fences.iter().map(|fence| fence >> 10).collect();
    for ballot in &ballots {
        let holders = ballots.iter().filter(|other| *other == ballot).count();
        assert!(holders <= 5, "{ballots:?}");
    }
}

#[tokio::test]
async fn another_process_gets_its_turn() {
    let server = RedisServer::start();
    let busy = patient([server.url()]).build().await.unwrap();
    let other = patient([server.url()]).build().await.unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (job, stop) = (busy.mutex("job"), stop.clone());
        tasks.push(tokio::spawn(async move {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                job.lock().await.unwrap().release().await.unwrap();
            }
        }));
    }
    for _ in 0..10 {
        other
            .mutex("job")
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_lease_is_never_handed_on() {
    let server = RedisServer::start();
    let latch = often(&server, 32).build().await.unwrap();
    let (guard, second) = held_and_waited_for(&latch, &server).await;
    server.command(&["DEL", KEY]);
    // The waiter was told, and gets a lease of its own while the first one is held.
    let second = second.await.unwrap();
    assert!(guard.renew(LONG).await.unwrap_err().is_lost());
    let third = watching(&latch, &server).await;
    let lost = guard.token().clone();
    assert!(guard.release().await.unwrap_err().is_lost());
    second.ensure_held().unwrap();
    assert!(!third.is_finished(), "it was handed a lost lease");
    let fence = second.fence();
    second.release().await.unwrap();
    let third = third.await.unwrap();
    assert_ne!(*third.token(), lost);
    assert!(third.fence() > fence);
    third.release().await.unwrap();
}

#[tokio::test]
async fn a_loss_reaches_the_one_it_was_handed_to() {
    let server = RedisServer::start();
    let builder = often(&server, 32).node_timeout(Duration::from_millis(100));
    let latch = builder
        .ttl(Duration::from_millis(900))
        .build()
        .await
        .unwrap();
    let (first, second) = held_and_waited_for(&latch, &server).await;
    first.release().await.unwrap();
    let second = second.await.unwrap();
    server.freeze();
    assert_eq!(second.lost().await.loss, Loss::Expired);
    server.thaw();
}

#[tokio::test]
async fn a_handed_lease_is_renewed_for_its_new_holder() {
    let server = RedisServer::start();
    let builder = often(&server, 32).node_timeout(Duration::from_millis(100));
    let latch = builder
        .ttl(Duration::from_millis(900))
        .build()
        .await
        .unwrap();
    let (first, second) = held_and_waited_for(&latch, &server).await;
    first.release().await.unwrap();
    let second = second.await.unwrap();
    crate::support::renewals(&server, 3).await;
    second.ensure_held().unwrap();
    second.release().await.unwrap();
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn it_is_renewed_also_when_the_last_holder_did_without() {
    let server = RedisServer::start();
    let builder = often(&server, 32).node_timeout(Duration::from_millis(500));
    let builder = builder.ttl(Duration::from_secs(3));
    let latch = builder.build().await.unwrap();
    for first in [
        latch.mutex("job").renewal(false),
        latch.mutex("job").max_hold(LONG),
    ] {
        let first = first.lock().await.unwrap();
        let second = watching(&latch, &server).await;
        first.release().await.unwrap();
        let second = second.await.unwrap();
        crate::support::renewals(&server, 1).await;
        second.ensure_held().unwrap();
        second.release().await.unwrap();
    }
}

#[tokio::test]
async fn who_wants_something_else_gets_a_lease_of_its_own() {
    let server = RedisServer::start();
    let latch = often(&server, 32).build().await.unwrap();
    let wishes = [
        latch.mutex("job").ttl(LONG / 2),
        latch.mutex("job").renewal(false),
        latch.mutex("job").max_hold(LONG),
        latch.mutex("job").fencing(false),
    ];
    for wish in wishes {
        let guard = latch.mutex("job").lock().await.unwrap();
        let waiting = tokio::spawn(async move { wish.lock().await.unwrap() });
        let watches = server.calls("client|caching");
        eventually("the watch", || server.calls("client|caching") > watches).await;
        let token = guard.token().clone();
        guard.release().await.unwrap();
        let next = waiting.await.unwrap();
        assert_ne!(*next.token(), token);
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn an_exported_lease_is_not_handed_around() {
    let server = RedisServer::start();
    let latch = often(&server, 32).build().await.unwrap();
    let (guard, second) = held_and_waited_for(&latch, &server).await;
    let exported = guard.export();
    guard.release().await.unwrap();
    let second = second.await.unwrap();
    assert_ne!(second.token().as_str(), exported.token());
    second.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_that_is_cancelled_as_it_is_handed_the_lease_passes_it_on() {
    let server = RedisServer::start();
    let latch = often(&server, 1000).build().await.unwrap();
    for _ in 0..50 {
        let guard = latch.mutex("job").lock().await.unwrap();
        let second = waiter(&latch).await;
        let third = waiter(&latch).await;
        // Handed to the second one, which is cancelled before it can know.
        drop(guard);
        second.abort();
        let _ = second.await;
        third.await.unwrap().release().await.unwrap();
    }
    latch.close().await;
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn over_five_nodes_nothing_is_left_behind() {
    let fleet = armed(5);
    let latch = patient(fleet.urls()).build().await.unwrap();
    let tasks = (0..8).map(|_| {
        let job = latch.mutex("job");
        tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..50 {
                let guard = job.lock().await.unwrap();
                assert!(guard.fence() > last);
                last = guard.fence();
                guard.release().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    crate::support::closes_empty(&latch, &fleet).await;
}
