//! Once per slot, when nodes forget that it was done: a wrong "not yet" would
//! do the work twice.

use redlatch::{Error, Redlatch};
use redlatch_testkit::{Fleet, Proxy, RedisServer};

use crate::support::{NODE_TIMEOUT, arm, armed, eventually, patient};

/// The key of the record.
const KEY: &str = "redlatch:job:once:monday";

/// Ways to make a server forget, or to make it believe that it may have.
const FAULTS: [fn(&RedisServer); 4] = [
    RedisServer::restart_empty,
    RedisServer::restart,
    |server| server.restart_truncated(1),
    |server| drop(server.command(&["FLUSHALL"])),
];

async fn is_done(latch: &Redlatch) -> Result<bool, Error> {
    latch.once("job", "monday").is_done().await
}

#[tokio::test]
async fn a_slot_stays_done_whichever_nodes_forget_it() {
    for fault in FAULTS {
        let fleet = Fleet::start_with(3, &RedisServer::builder().append_only());
        arm(&fleet);
        let latch = patient(fleet.urls()).build().await.unwrap();
        assert!(!is_done(&latch).await.unwrap());
        latch.once("job", "monday").record().await.unwrap();
        fault(&fleet[0]);
        assert!(is_done(&latch).await.unwrap(), "two nodes know it");
        fault(&fleet[1]);
        match is_done(&latch).await {
            Ok(done) => assert!(done, "one still knows it"),
            Err(error) => assert!(matches!(error, Error::NoQuorum(_)), "{error}"),
        }
        fault(&fleet[2]);
        let error = is_done(&latch).await.unwrap_err();
        assert!(error.is_quarantined(), "nobody can tell: {error}");
        // Nor to a client that never knew them otherwise.
        let stranger = patient(fleet.urls()).build().await.unwrap();
        let error = is_done(&stranger).await.unwrap_err();
        assert!(error.is_quarantined(), "{error}");
    }
}

#[tokio::test]
async fn a_node_that_missed_the_record_and_one_that_forgot_it_are_no_quorum() {
    let fleet = armed(3);
    let proxies = fleet.proxies();
    let latch = patient(proxies.iter().map(Proxy::url));
    let latch = latch.build().await.unwrap();
    proxies[2].cut();
    latch.once("job", "monday").record().await.unwrap();
    let has_it = |server: &RedisServer| server.get(KEY).is_some();
    eventually("the record on both", || fleet[..2].iter().all(has_it)).await;
    assert!(!has_it(&fleet[2]));
    proxies[2].heal();
    fleet[0].restart_empty();
    // One would grant it, one has it, and one has forgotten it.
    for _ in 0..20 {
        match is_done(&latch).await {
            Ok(done) => assert!(
                done,
                "only a node that missed it and one that forgot it say so"
            ),
            Err(error) => assert!(matches!(error, Error::NoQuorum(_)), "{error}"),
        }
    }
    assert!(has_it(&fleet[1]), "and it is left as it was");
}

#[tokio::test]
async fn one_node_forgets_a_slot_unless_its_guard_is_on() {
    let server = RedisServer::start();
    let latch = patient([server.url()]).build().await.unwrap();
    latch.once("job", "monday").record().await.unwrap();
    assert!(is_done(&latch).await.unwrap());
    server.restart_empty();
    // As docs/command.md says: nothing tells it from a new server.
    assert!(!is_done(&latch).await.unwrap());

    let guarded = || patient([server.url()]).restart_guard(true);
    guarded().admin().await.unwrap().assume_fresh().await;
    let latch = guarded().build().await.unwrap();
    latch.once("job", "monday").record().await.unwrap();
    server.restart_empty();
    assert!(is_done(&latch).await.unwrap_err().is_quarantined());
}

#[tokio::test]
async fn one_that_vanishes_while_it_asks_closes_the_slot_for_a_moment_only() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let latch = patient([proxy.url()]).build().await.unwrap();
    proxy.drop_replies();
    let asked = tokio::spawn(async move { is_done(&latch).await });
    eventually("the question", || server.get(KEY).is_some()).await;
    // No longer than the lock of the work, which it has as well.
    let left = server.pttl(KEY);
    let most = 3 * NODE_TIMEOUT.as_millis() as i64;
    assert!(left <= most, "for another {left} ms");
    asked.abort();
}
