//! A request that waits on the node is granted by the release itself.

use std::sync::Arc;
use std::time::Duration;

use redlatch::Redlatch;
use redlatch::core::Fence;
use redlatch_testkit::RedisServer;
use tokio::time::timeout;

use crate::fences::Wrong;
use crate::queueing::{CALLED, called, clients, parked, queued};
use crate::support::{KEY, LONG, client, eventually, patient};

#[tokio::test]
async fn who_gives_a_lock_back_hands_it_to_the_first() {
    let server = RedisServer::start();
    let [holder, one, other] = clients(&server).await;
    let guard = holder.mutex("job").lock().await.unwrap();
    let fence = guard.fence();
    let first = parked(&one, &server).await;
    let second = queued(&other, &server).await;
    let token = server.get(KEY);
    guard.release().await.unwrap();
    let next = server.get(KEY).expect("it is held all the time");
    assert_ne!(Some(&next), token.as_ref());
    let guard = called(first).await;
    assert_eq!(guard.token().as_str().as_bytes(), next);
    assert!(guard.fence() > fence);
    guard.ensure_held().unwrap();
    // The next one has parked its request when it came, and need not ask again,
    // unless this took so long that its request is not good any more.
    let (asked, in_time) = (server.calls("zadd"), server.is_parked("job"));
    let fence = guard.fence();
    guard.release().await.unwrap();
    let guard = called(second).await;
    assert!(guard.fence() > fence);
    assert!(!in_time || server.calls("zadd") == asked, "it asked again");
    guard.release().await.unwrap();
    eventually("nothing is left", || server.locks().is_empty()).await;
}

#[tokio::test]
async fn one_whose_parked_ballot_was_outdone_asks_for_the_next_one() {
    let server = RedisServer::start();
    let [holder, other] = clients(&server).await;
    let ahead = patient([server.url()]).clock(Arc::new(Wrong(8)));
    let ahead = ahead.build().await.unwrap();
    let guard = holder.mutex("job").lock().await.unwrap();
    let first = parked(&ahead, &server).await;
    let second = queued(&other, &server).await;
    let asked = server.calls("zadd");
    guard.release().await.unwrap();
    let guard = called(first).await;
    // What the second has parked is below the ballot of the one before it.
    eventually("it asks anew", || server.calls("zadd") > asked).await;
    let ballot = Fence::new(guard.fence()).ballot();
    guard.release().await.unwrap();
    let guard = called(second).await;
    // Just what it takes: what others have parked behind it is above that.
    assert_eq!(Fence::new(guard.fence()).ballot(), ballot.next());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn one_who_becomes_the_first_untold_finds_out_when_its_request_is_over() {
    let server = RedisServer::start();
    let [holder, one, other] = clients(&server).await;
    let guard = holder.mutex("job").lock().await.unwrap();
    let first = parked(&one, &server).await;
    let second = queued(&other, &server).await;
    let looked = server.calls("client|caching");
    guard.release().await.unwrap();
    let crashed = called(first).await;
    // It asks, and parks nothing, so that it is told from then on.
    let queue = format!("redlatch:__queue:{KEY}");
    eventually("nothing is parked", || {
        server.queue("job").len() == 1 && server.command(&["ZCARD", &queue]).as_int() == 1
    })
    .await;
    eventually("it looks", || server.calls("client|caching") > looked).await;
    server.command(&["DEL", KEY]);
    let guard = called(second).await;
    assert!(guard.fence() > crashed.fence());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn one_who_hears_too_late_that_it_was_granted_does_not_hold_it() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let ttl = Duration::from_secs(1);
    let hasty = |url: String| {
        let builder = Redlatch::builder().nodes([url]).ttl(ttl);
        builder.node_timeout(Duration::from_millis(100)).build()
    };
    let (holder, newcomer) = (client(&server).await, client(&server).await);
    let first = hasty(proxy.url()).await.unwrap();
    let guard = holder.mutex("job").lock().await.unwrap();
    let frozen = parked(&first, &server).await;
    proxy.hold();
    guard.release().await.unwrap();
    assert!(server.get(KEY).is_some(), "it was granted");
    // It is as one who dies while it holds the lock: that costs its ttl.
    let guard = newcomer.mutex("job").lock_timeout(LONG).await.unwrap();
    proxy.heal();
    eventually("its place", || server.queue("job").len() == 1).await;
    assert!(!frozen.is_finished(), "it knows that it does not hold it");
    let fence = guard.fence();
    guard.release().await.unwrap();
    let guard = timeout(LONG, frozen).await.unwrap().unwrap();
    assert!(guard.fence() > fence);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_can_not_write_tells_nobody_that_it_granted() {
    let server = RedisServer::start();
    let (holder, other) = (client(&server).await, client(&server).await);
    let guard = holder.mutex("job").lock().await.unwrap();
    let token = server.get(KEY);
    let waiter = parked(&other, &server).await;
    // Every write of a script is refused until one has been done.
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused = guard.release().await;
    let held = server.get(KEY);
    let is_held_by_one = held == token && !waiter.is_finished();
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert!(is_held_by_one, "{refused:?}");
    // The release goes on in the background, and the next one is called.
    called(waiter).await.release().await.unwrap();
    eventually("nothing is left", || server.locks().is_empty()).await;
}

#[tokio::test]
async fn a_server_out_of_memory_hands_on_in_full_or_not_at_all() {
    let server = RedisServer::start();
    let (holder, other) = (client(&server).await, client(&server).await);
    let guard = holder.mutex("job").lock().await.unwrap();
    let waiter = parked(&other, &server).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let _ = guard.release().await;
    let guard = called(waiter).await;
    assert_eq!(
        server.get(KEY).as_deref(),
        Some(guard.token().as_str().as_bytes()),
        "who has it is who is stored"
    );
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    guard.release().await.unwrap();
    eventually("nothing is left", || server.locks().is_empty()).await;
}

#[tokio::test]
async fn a_client_that_is_closed_gives_back_what_it_is_granted() {
    let server = RedisServer::start();
    let [holder, closed] = clients(&server).await;
    let guard = holder.mutex("job").lock().await.unwrap();
    let job = closed.mutex("job");
    let waiter = tokio::spawn(async move { job.lock().await });
    eventually("its request is parked", || server.is_parked("job")).await;
    // Not waited for: a client is closed while somebody waits.
    let closing = tokio::spawn(async move { closed.close().await });
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    let refused = timeout(CALLED, waiter).await.unwrap().unwrap();
    assert!(
        matches!(refused, Err(redlatch::Error::Closed)),
        "{refused:?}"
    );
    closing.await.unwrap();
    eventually("nothing is left", || server.locks().is_empty()).await;
}

#[tokio::test]
async fn who_may_hold_a_lock_for_a_moment_only_parks_nothing() {
    let server = RedisServer::start();
    let [holder, brief] = clients(&server).await;
    let guard = holder.mutex("job").lock().await.unwrap();
    let job = brief.mutex("job").max_hold(Duration::from_secs(1));
    let waiter = tokio::spawn(async move { job.lock().await.unwrap() });
    eventually("its place", || server.queue("job").len() == 1).await;
    assert!(!server.is_parked("job"));
    guard.release().await.unwrap();
    called(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn one_whose_connection_is_lost_finds_out_that_it_was_granted() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let holder = client(&server).await;
    let first = patient([proxy.url()]).build().await.unwrap();
    let guard = holder.mutex("job").lock().await.unwrap();
    let waiter = parked(&first, &server).await;
    // The server has not noticed yet, and believes that it was heard.
    proxy.hold();
    guard.release().await.unwrap();
    assert!(server.get(KEY).is_some(), "it was granted");
    proxy.cut();
    proxy.heal();
    called(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn what_is_granted_to_one_who_gives_up_goes_to_the_next_of_its_process() {
    let server = RedisServer::start();
    let [holder, one, other] = clients(&server).await;
    for _ in 0..20 {
        let guard = holder.mutex("job").lock().await.unwrap();
        let first = queued(&one, &server).await;
        let job = one.mutex("job");
        let heir = tokio::spawn(async move { job.lock().await.unwrap() });
        tokio::task::yield_now().await;
        let second = queued(&other, &server).await;
        eventually("a request is parked", || server.is_parked("job")).await;
        // Granted by the node, and given up before it hears of it.
        guard.release().await.unwrap();
        first.abort();
        match first.await {
            // It heard it first: then the heir is handed the lease.
            Ok(guard) => drop(guard),
            Err(aborted) => assert!(aborted.is_cancelled()),
        }
        called(heir).await.release().await.unwrap();
        called(second).await.release().await.unwrap();
        eventually("nothing is left", || server.locks().is_empty()).await;
    }
}

/// Said before a release, it makes the server call the next holder before it
/// answers the last one.
#[tokio::test]
async fn only_who_got_the_lock_from_another_asks_for_the_time_before_its_release() {
    let server = RedisServer::start();
    let [holder, one] = clients(&server).await;
    let guard = holder.mutex("job").lock().await.unwrap();
    let waiter = parked(&one, &server).await;
    guard.release().await.unwrap();
    let guard = called(waiter).await;
    // Nobody waits any more, so no script looks at the clock for this.
    let before = server.calls("time");
    guard.release().await.unwrap();
    assert_eq!(server.calls("time"), before + 1);
    // Plain, because a ballot makes the script look at the clock.
    let job = one.mutex("job").fencing(false);
    let guard = job.try_lock().await.unwrap().unwrap();
    let before = server.calls("time");
    guard.release().await.unwrap();
    assert_eq!(server.calls("time"), before);
}
