//! Requests that were carried out, and whose replies never came.

use std::time::Duration;

use redlatch::Redlatch;
use redlatch_testkit::{Fleet, Proxy, RedisServer};

use crate::support::{KEY, LONG, armed, closes_empty, eventually, is_held_by, patient};

async fn behind_proxies(nodes: usize) -> (Fleet, Vec<Proxy>, Redlatch) {
    let fleet = armed(nodes);
    let proxies = fleet.proxies();
    let latch = patient(proxies.iter().map(Proxy::url));
    let latch = latch.build().await.unwrap();
    (fleet, proxies, latch)
}

fn lose_replies(proxies: &[Proxy]) {
    for proxy in proxies {
        proxy.lose_reply_to(KEY);
    }
}

#[tokio::test]
async fn an_acquire_whose_reply_was_lost_is_known_as_its_own() {
    for nodes in [1, 5] {
        let (fleet, proxies, latch) = behind_proxies(nodes).await;
        let before: Vec<u64> = fleet.iter().map(|server| server.calls("evalsha")).collect();
        lose_replies(&proxies);
        let guard = latch.mutex("job").try_lock().await.unwrap();
        let guard = guard.expect("what holds it is its own first request");
        eventually("the key on all nodes", || is_held_by(&fleet, &guard)).await;
        latch.close().await;
        for (server, before) in fleet.iter().zip(before) {
            assert_eq!(server.calls("evalsha"), before + 2, "sent twice");
            assert_eq!(server.calls("set"), 1, "granted once");
        }
        guard.release().await.unwrap();
        closes_empty(&latch, &fleet).await;
    }
}

#[tokio::test]
async fn an_acquire_that_is_sent_again_does_not_take_what_another_has() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let latch = patient([proxy.url()]).build().await.unwrap();
    let other = patient([server.url()]).build().await.unwrap();
    let guard = other.mutex("job").lock().await.unwrap();
    proxy.lose_reply_to(KEY);
    assert!(latch.mutex("job").try_lock().await.unwrap().is_none());
    assert_eq!(
        server.calls("evalsha"),
        3,
        "one that got it, and one sent twice"
    );
    latch.close().await;
    assert!(is_held_by(std::slice::from_ref(&server), &guard));
}

#[tokio::test]
async fn an_acquire_whose_replies_are_all_lost_leaves_nothing_behind() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let latch = patient([proxy.url()]).build().await.unwrap();
    let job = latch.mutex("job");
    let asking = async {
        loop {
            let carried_out = server.calls("set");
            proxy.lose_reply_to(KEY);
            eventually("the request", || server.calls("set") > carried_out).await;
        }
    };
    tokio::select! {
        guard = job.lock() => drop(guard), // it got through between two traps
        () = asking => {}
        () = tokio::time::sleep(Duration::from_millis(300)) => {}
    }
    proxy.heal();
    eventually("no key", || server.locks().is_empty()).await;
    closes_empty(&latch, std::slice::from_ref(&server)).await;
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_is_a_release() {
    for nodes in [1, 5] {
        let (fleet, proxies, latch) = behind_proxies(nodes).await;
        let guard = latch.mutex("job").lock().await.unwrap();
        eventually("the key on all nodes", || is_held_by(&fleet, &guard)).await;
        lose_replies(&proxies);
        guard.release().await.unwrap();
        closes_empty(&latch, &fleet).await;
    }
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_leaves_the_next_holder_alone() {
    for _ in 0..10 {
        let server = RedisServer::start();
        let proxy = server.proxy();
        let latch = patient([proxy.url()]).build().await.unwrap();
        let other = patient([server.url()]).build().await.unwrap();
        let guard = latch.mutex("job").lock().await.unwrap();
        let job = other.mutex("job");
        let next = tokio::spawn(async move { job.lock().await });
        eventually("somebody waits", || server.calls("set") > 1).await;
        proxy.lose_reply_to(KEY);
        guard.release().await.unwrap();
        latch.close().await;
        let next = next.await.unwrap().unwrap();
        assert!(is_held_by(std::slice::from_ref(&server), &next));
    }
}

#[tokio::test]
async fn a_release_in_flight_while_the_server_forgets_the_lease_is_a_loss() {
    let (fleet, proxies, latch) = behind_proxies(1).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    proxies[0].hold();
    let release = tokio::spawn(guard.release());
    tokio::time::sleep(Duration::from_millis(50)).await; // on its way
    fleet[0].restart_empty();
    proxies[0].heal();
    assert!(release.await.unwrap().unwrap_err().is_lost());
}

#[tokio::test]
async fn a_renewal_whose_reply_was_lost_is_a_renewal() {
    for nodes in [1, 5] {
        let (fleet, proxies, latch) = behind_proxies(nodes).await;
        let guard = latch.mutex("job").lock().await.unwrap();
        eventually("the key on all nodes", || is_held_by(&fleet, &guard)).await;
        lose_replies(&proxies);
        guard.renew(2 * LONG).await.unwrap();
        assert!(guard.remaining() > LONG);
        guard.release().await.unwrap();
        closes_empty(&latch, &fleet).await;
    }
}
