//! What a quorum can do without the rest, and what is left of it afterwards.

use std::ops::Range;
use std::time::Duration;

use redlatch::node::NodeErrorKind;
use redlatch::{Builder, Redlatch};
use redlatch_testkit::{Fleet, Proxy, RedisServer};

use crate::support::{
    KEY, LONG, NODE_TIMEOUT, are_empty, arm, armed, at_once, closes_empty, eventually,
    eventually_everywhere, eventually_locked, is_held_by, no_quorum, patient, renewals,
};

#[derive(Clone, Copy, Debug)]
enum Fault {
    Dead,
    Frozen,
    Slow,
}

const FAULTS: [Fault; 3] = [Fault::Dead, Fault::Frozen, Fault::Slow];

/// Five nodes that a fault can strike.
struct Cluster {
    fleet: Fleet,
    proxies: Vec<Proxy>,
    fault: Fault,
}

impl Cluster {
    fn start(fault: Fault) -> Self {
        // The dead come back with all they knew.
        let fleet = Fleet::start_with(5, &RedisServer::builder().append_only());
        arm(&fleet);
        Self {
            proxies: fleet.proxies(),
            fleet,
            fault,
        }
    }

    /// A client with time to spare. Without the restart guard, which would keep
    /// out the dead when they come back.
    fn patient(&self) -> Builder {
        patient(self.urls()).restart_guard(false)
    }

    fn urls(&self) -> Vec<String> {
        match self.fault {
            Fault::Slow => self.proxies.iter().map(Proxy::url).collect(),
            Fault::Dead | Fault::Frozen => self.fleet.urls(),
        }
    }

    fn strike(&self, nodes: Range<usize>) {
        for node in nodes {
            match self.fault {
                Fault::Dead => self.fleet[node].kill(),
                Fault::Frozen => self.fleet[node].freeze(),
                Fault::Slow => self.proxies[node].delay(LONG),
            }
        }
    }

    fn mend(&self, nodes: Range<usize>) {
        for node in nodes {
            match self.fault {
                Fault::Dead => self.fleet[node].restart(),
                Fault::Frozen => self.fleet[node].thaw(),
                Fault::Slow => self.proxies[node].heal(),
            }
        }
    }
}

/// Locks, renews and releases, and never waits for a node that is silent.
async fn use_lock(latch: &Redlatch) {
    let job = latch.mutex("job");
    let guard = at_once(job.lock()).await.unwrap();
    at_once(guard.renew(2 * LONG)).await.unwrap();
    guard.ensure_held().unwrap();
    at_once(guard.release()).await.unwrap();
    let guard = at_once(job.try_lock()).await.unwrap().expect("it is free");
    at_once(guard.release()).await.unwrap();
}

#[tokio::test]
async fn two_bad_nodes_of_five_are_not_waited_for() {
    for fault in FAULTS {
        let cluster = Cluster::start(fault);
        let latch = cluster.patient().build().await.unwrap();
        use_lock(&latch).await;
        cluster.strike(0..2);
        use_lock(&latch).await;
        cluster.mend(0..2);
        closes_empty(&latch, &cluster.fleet).await;
    }
}

#[tokio::test]
async fn nodes_may_be_bad_before_the_client_is_built() {
    for fault in FAULTS {
        let cluster = Cluster::start(fault);
        cluster.strike(3..5);
        let patience = Duration::from_millis(500);
        let builder = cluster.patient().connect_timeout(patience);
        let latch = builder.build().await.unwrap();
        use_lock(&latch).await;

        cluster.mend(3..5);
        // The lease ends up on the nodes that have come back, too.
        eventually_everywhere(&latch, 5).await;
        closes_empty(&latch, &cluster.fleet).await;
    }
}

#[tokio::test]
async fn renewal_does_not_wait_for_bad_nodes() {
    for fault in FAULTS {
        let cluster = Cluster::start(fault);
        // Renewed after 0.5 s: had it then waited for a node, it would be lost.
        let latch = cluster
            .patient()
            .node_timeout(Duration::from_millis(1200))
            .ttl(Duration::from_millis(1500));
        let latch = latch.build().await.unwrap();
        let guard = latch.mutex("job").lock().await.unwrap();
        cluster.strike(1..3);
        renewals(&cluster.fleet[4], 4).await;
        guard.ensure_held().unwrap();
        assert!(is_held_by(&cluster.fleet[3..], &guard));
        guard.release().await.unwrap();
        assert!(cluster.fleet[0].locks().is_empty());
        assert!(are_empty(&cluster.fleet[3..]));
    }
}

#[tokio::test]
async fn a_release_reaches_nodes_that_come_back_later() {
    for fault in FAULTS {
        let cluster = Cluster::start(fault);
        let latch = cluster.patient().build().await.unwrap();
        let guard = latch.mutex("job").lock().await.unwrap();
        let everywhere = || is_held_by(&cluster.fleet, &guard);
        eventually("the key on all nodes", everywhere).await;

        cluster.strike(0..2);
        at_once(guard.release()).await.unwrap();
        assert!(are_empty(&cluster.fleet[2..]));
        cluster.mend(0..2);
        eventually("no key", || are_empty(&cluster.fleet)).await;
    }
}

#[tokio::test]
async fn a_release_reaches_a_node_whose_connection_was_given_up() {
    let fleet = armed(5);
    let proxies = fleet.proxies();
    let latch = patient(proxies.iter().map(Proxy::url))
        .node_timeout(Duration::from_millis(50))
        .build()
        .await
        .unwrap();
    proxies[0].hold();
    proxies[1].hold();
    // Each leaves an acquire and a release on its way to the silent nodes.
    while proxies[..2].iter().any(|proxy| proxy.accepted() < 2) {
        drop(eventually_locked(&latch).await);
    }
    proxies[0].heal();
    proxies[1].heal();
    let heard = || fleet[..2].iter().all(|server| server.calls("set") > 0);
    eventually("the late acquire", heard).await;
    eventually("no key", || are_empty(&fleet)).await;
}

#[tokio::test]
async fn with_three_of_five_dead_each_of_them_is_named() {
    let fleet = armed(5);
    let patience = Duration::from_millis(300);
    let builder = patient(fleet.urls())
        .restart_guard(false)
        .outage_patience(patience);
    let latch = builder.build().await.unwrap();
    let job = latch.mutex("job");
    for server in &fleet[1..4] {
        server.kill();
    }
    let errors = [
        no_quorum(job.try_lock().await),
        no_quorum(job.lock().await),
        no_quorum(job.lock_timeout(patience / 2).await),
        no_quorum(job.lock_timeout(2 * patience).await),
        no_quorum(latch.inspect("job").await),
    ];
    for error in errors {
        assert_eq!((error.needed, error.nodes), (3, 5));
        let names: Vec<_> = error.failures.iter().map(|(name, _)| &name[..]).collect();
        let dead = [1, 2, 3].map(|node: usize| fleet[node].address().to_string());
        assert_eq!(names, dead);
        for (name, reason) in &error.failures {
            assert_eq!(reason.kind(), NodeErrorKind::Unreachable);
            assert!(reason.to_string().contains("refused"), "{reason}");
            assert!(error.to_string().contains(&format!("{name}: {reason}")));
        }
    }

    for server in &fleet[1..4] {
        server.restart();
    }
    let guard = eventually_locked(&latch).await;
    guard.release().await.unwrap();
    closes_empty(&latch, &fleet).await;
}

#[tokio::test]
async fn with_three_of_five_frozen_the_others_grants_are_given_back() {
    let fleet = armed(5);
    let limit = Duration::from_secs(1);
    let builder = patient(fleet.urls()).node_timeout(limit);
    let latch = builder.build().await.unwrap();
    for server in &fleet[2..] {
        server.freeze();
    }
    let error = no_quorum(latch.mutex("job").try_lock().await);
    assert_eq!(error.failures.len(), 3);
    for (_, reason) in &error.failures {
        assert_eq!(reason.kind(), NodeErrorKind::TimedOut);
        assert_eq!(reason.to_string(), "no answer within 1s");
    }
    closes_empty(&latch, &fleet[..2]).await;
    assert!(fleet[..2].iter().all(|server| server.calls("set") == 1));

    for server in &fleet[2..] {
        server.thaw();
    }
    let heard = || fleet[2..].iter().all(|server| server.calls("set") == 1);
    eventually("the late acquire", heard).await;
    eventually("no key", || are_empty(&fleet)).await;
}

#[tokio::test]
async fn an_outage_is_counted_from_its_own_beginning() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let patience = Duration::from_secs(3);
    let latch = patient([proxy.url()]).outage_patience(patience);
    let latch = latch.build().await.unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();

    let job = latch.mutex("job");
    let waiting = tokio::spawn(async move { job.lock().await });
    // It has waited, in vain but without an outage, for longer than its patience.
    tokio::time::sleep(patience + Duration::from_millis(200)).await;
    proxy.cut();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    proxy.heal();
    drop(guard);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_vote_that_is_not_won_gives_back_what_it_got() {
    let fleet = armed(5);
    let proxies = fleet.proxies();
    for server in &fleet[..3] {
        server.command(&["SET", KEY, "stranger", "PX", "60000"]);
    }
    let latch = patient(proxies.iter().map(Proxy::url));
    let latch = latch.build().await.unwrap();
    // The refusals come last, when the grants are already there.
    for proxy in &proxies[..3] {
        proxy.delay(Duration::from_millis(100));
    }
    assert!(latch.mutex("job").try_lock().await.unwrap().is_none());
    closes_empty(&latch, &fleet[3..]).await;
    assert!(fleet[3..].iter().all(|server| server.calls("set") == 1));
    for server in &fleet[..3] {
        assert_eq!(server.get(KEY).unwrap(), b"stranger");
    }
}

#[tokio::test]
async fn a_vote_lost_to_refusals_and_failures_together_gives_back_what_it_got() {
    let fleet = armed(5);
    let latch = patient(fleet.urls()).node_timeout(Duration::from_millis(500));
    let latch = latch.build().await.unwrap();
    for server in &fleet[..2] {
        server.command(&["SET", KEY, "stranger", "PX", "60000"]);
    }
    fleet[2].freeze();
    assert!(latch.mutex("job").try_lock().await.unwrap().is_none());
    fleet[2].thaw();
    closes_empty(&latch, &fleet[2..]).await;
    assert!(fleet[2..].iter().all(|server| server.calls("set") == 1));
    for server in &fleet[..2] {
        assert_eq!(server.get(KEY).unwrap(), b"stranger");
    }
}

#[tokio::test]
async fn nobody_sits_on_some_nodes_for_the_sake_of_those_that_were_silent_before() {
    let fleet = armed(5);
    let proxies = fleet.proxies();
    let latch = patient(proxies.iter().map(Proxy::url)).node_timeout(2 * NODE_TIMEOUT);
    let latch = latch.build().await.unwrap();
    proxies[0].mute();
    proxies[1].mute();
    // They are asked once, and found silent.
    let limit = Duration::from_millis(100);
    let silent = latch.status(limit).await;
    assert_eq!(silent.iter().filter(|node| node.guard.is_err()).count(), 2);
    // Of the three that are left, somebody has one: two are of no use.
    fleet[2].command(&["SET", KEY, "stranger"]);
    let tried = at_once(latch.mutex("job").try_lock()).await;
    assert!(tried.unwrap().is_none());
    eventually("they are given back", || are_empty(&fleet[3..])).await;

    // Without a contender the three are enough.
    fleet[2].command(&["DEL", KEY]);
    let guard = at_once(latch.mutex("job").lock()).await.unwrap();
    assert!(is_held_by(&fleet[2..], &guard));
}

#[tokio::test]
async fn two_clients_that_contend_on_five_nodes_leave_nothing_behind() {
    let fleet = armed(5);
    let first = patient(fleet.urls()).build().await.unwrap();
    let second = patient(fleet.urls()).build().await.unwrap();
    let contend = |latch: Redlatch| async move {
        for _ in 0..30 {
            let guard = latch.mutex("job").lock().await.unwrap();
            guard.ensure_held().unwrap();
            guard.release().await.unwrap();
        }
    };
    let work = async { tokio::join!(contend(first.clone()), contend(second.clone())) };
    tokio::time::timeout(6 * NODE_TIMEOUT, work).await.unwrap();
    first.close().await;
    closes_empty(&second, &fleet).await;
}
