//! Waiters are woken by what happens, in the order in which they came.
//!
//! Nodes that tell are asked again after three seconds at the earliest, and the
//! leases here last longer than that: what comes sooner was told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlatch::{Guard, MemoryNode, Redlatch};
use redlatch_testkit::{Proxy, RedisServer};
use tokio::task::JoinHandle;

use crate::support::{KEY, LONG, armed, eventually, patient};

/// Sooner than anybody looks without being told.
const TOLD: Duration = Duration::from_secs(3);

async fn latch(server: &RedisServer) -> Redlatch {
    patient([server.url()]).build().await.unwrap()
}

/// Starts to wait for the lock, and returns once it watches the key.
async fn waiter(latch: &Redlatch, server: &RedisServer) -> JoinHandle<Guard> {
    let looked = server.calls("client|caching");
    let job = latch.mutex("job");
    let waiter = tokio::spawn(async move { job.lock().await.unwrap() });
    eventually("the look", || server.calls("client|caching") > looked).await;
    eventually("the watch", || server.info("tracking_total_keys") == "1").await;
    waiter
}

async fn told(waiter: JoinHandle<Guard>) -> Guard {
    let told = tokio::time::timeout(TOLD, waiter).await;
    told.expect("it was not told").unwrap()
}

#[tokio::test]
async fn a_release_wakes_a_waiter_of_another_client_and_of_the_same() {
    for same in [true, false] {
        let server = RedisServer::start();
        let holder = latch(&server).await;
        let other = if same {
            holder.clone()
        } else {
            latch(&server).await
        };
        let guard = holder.mutex("job").lock().await.unwrap();
        let waiter = waiter(&other, &server).await;
        guard.release().await.unwrap();
        told(waiter).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn whatever_else_frees_the_lock_wakes_a_waiter() {
    let ways: [&[&str]; 4] = [
        &["DEL", KEY],
        &["UNLINK", KEY],
        &["FLUSHALL"],
        &["PEXPIRE", KEY, "20"],
    ];
    for way in ways {
        let server = RedisServer::start();
        let latch = latch(&server).await;
        server.command(&["SET", KEY, "stranger", "PX", "60000"]);
        let waiter = waiter(&latch, &server).await;
        server.command(way);
        told(waiter).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_stranger_of_another_type_that_goes_wakes_a_waiter() {
    let server = RedisServer::start();
    let latch = latch(&server).await;
    server.command(&["RPUSH", KEY, "x"]);
    let waiter = waiter(&latch, &server).await;
    server.command(&["DEL", KEY]);
    told(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn a_quorum_that_is_freed_wakes_a_waiter() {
    let fleet = armed(5);
    let holder = patient(fleet.urls()).build().await.unwrap();
    let other = patient(fleet.urls()).build().await.unwrap();
    let guard = holder.mutex("job").lock().await.unwrap();
    let waiter = waiter(&other, &fleet[4]).await;
    guard.release().await.unwrap();
    told(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn a_renewal_does_not_start_an_attempt() {
    let server = RedisServer::start();
    let (holder, other) = (latch(&server).await, latch(&server).await);
    let guard = holder
        .mutex("job")
        .ttl(Duration::from_secs(10))
        .lock()
        .await
        .unwrap();
    let waiter = waiter(&other, &server).await;
    // Who tries and is refused takes a place.
    let tried = server.calls("zadd");
    for _ in 0..5 {
        let looked = server.calls("client|caching");
        guard.renew(LONG).await.unwrap();
        server.command(&["PEXPIRE", KEY, "10000"]);
        eventually("another look", || server.calls("client|caching") > looked).await;
    }
    assert!(tried > 0);
    assert_eq!(server.calls("zadd"), tried, "it only looked");
    guard.release().await.unwrap();
    told(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_vanishes_is_followed_at_the_end_of_its_lease() {
    let server = RedisServer::start();
    let (holder, other) = (latch(&server).await, latch(&server).await);
    let job = holder
        .mutex("job")
        .ttl(Duration::from_secs(6))
        .renewal(false);
    let _ = job.lock().await.unwrap().detach();
    let guard = other.mutex("job").lock_timeout(LONG).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_whose_connection_breaks_is_not_stranded() {
    let breaks: [fn(&Proxy); 3] = [Proxy::disconnect, Proxy::half_close, |proxy| {
        proxy.cut();
        proxy.heal();
    }];
    for broken in breaks {
        let server = RedisServer::start();
        let proxy = server.proxy();
        let holder = latch(&server).await;
        let other = patient([proxy.url()]).build().await.unwrap();
        let guard = holder.mutex("job").lock().await.unwrap();
        let waiter = waiter(&other, &server).await;
        let watched = server.calls("client|caching");
        broken(&proxy);
        // It watches again by itself, over a new connection.
        eventually("the watch", || server.calls("client|caching") > watched).await;
        guard.release().await.unwrap();
        told(waiter).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_holder_that_vanishes_after_a_renewal_is_followed_too() {
    let server = RedisServer::with_args(&["--enable-debug-command", "local"]);
    // Nobody is told that a key has run out before somebody asks for it.
    server.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    let proxy = server.proxy();
    let holder = patient([proxy.url()]).node_timeout(Duration::from_millis(300));
    let holder = holder.ttl(Duration::from_secs(1)).build().await.unwrap();
    let other = latch(&server).await;
    let _guard = holder.mutex("job").lock().await.unwrap();
    let waiter = waiter(&other, &server).await;
    let looked = server.calls("client|caching");
    eventually("it sees a renewal", || {
        server.calls("client|caching") > looked
    })
    .await;
    proxy.cut();
    told(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_can_not_tell_is_asked_from_time_to_time() {
    let server = RedisServer::start();
    let user = "ACL SETUSER poor on >secret ~* +@all -client|tracking";
    server.command(&user.split(' ').collect::<Vec<_>>());
    let url = format!("redis://poor:secret@127.0.0.1:{}", server.port());
    let (holder, other) = (latch(&server).await, patient([url]).build().await.unwrap());
    let guard = holder.mutex("job").lock().await.unwrap();
    let job = other.mutex("job");
    let waiter = tokio::spawn(async move { job.lock().await.unwrap() });
    let looked = server.calls("get");
    eventually("several looks", || server.calls("get") > looked + 4).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_speaks_resp2_only_is_asked_from_time_to_time() {
    let server = RedisServer::builder().args(["--rename-command", "HELLO", "OLLEH"]);
    let server = server.start();
    let (holder, other) = (latch(&server).await, latch(&server).await);
    let guard = holder.mutex("job").lock().await.unwrap();
    let job = other.mutex("job");
    let waiter = tokio::spawn(async move { job.lock().await.unwrap() });
    let looked = server.calls("get");
    eventually("several looks", || server.calls("get") > looked + 4).await;
    assert!(server.queue("job").is_empty(), "it can't be called");
    guard.release().await.unwrap();
    told(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn a_full_tracking_table_strands_nobody_and_starts_no_race() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "tracking-table-max-keys", "1"]);
    let names = ["job", "other", "third"];
    let mut waiters = vec![];
    for name in names {
        server.command(&[
            "SET",
            &format!("redlatch:{name}"),
            "stranger",
            "PX",
            "60000",
        ]);
        let lock = latch(&server).await.mutex(name);
        waiters.push(tokio::spawn(async move { lock.lock().await.unwrap() }));
    }
    eventually("all watch", || server.calls("client|caching") >= 3).await;
    // Each look throws another one out of the table, who is told, and looks.
    let before = server.calls("client|caching");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let looks = server.calls("client|caching") - before;
    assert!(looks < 60, "{looks} looks in a second");
    for (name, waiter) in names.iter().zip(waiters) {
        server.command(&["DEL", &format!("redlatch:{name}")]);
        told(waiter).await.release().await.unwrap();
    }
}

/// The release may fall before, into and after the waiter's first requests.
#[tokio::test]
async fn a_release_during_a_refused_attempt_is_not_missed() {
    let server = RedisServer::start();
    let (holder, other) = (latch(&server).await, latch(&server).await);
    for round in 0..200 {
        let guard = holder.mutex("job").lock().await.unwrap();
        let job = other.mutex("job");
        let waiter = tokio::spawn(async move { job.lock().await.unwrap() });
        tokio::time::sleep(Duration::from_micros(20 * round)).await;
        match round % 3 {
            0 => drop(guard),
            1 => guard.release().await.unwrap(),
            _ => {
                // By a stranger, who calls nobody.
                let _ = guard.detach();
                server.command(&["DEL", KEY]);
            }
        }
        told(waiter).await.release().await.unwrap();
    }
    other.close().await;
    eventually("nothing is left", || server.locks().is_empty()).await;
}

#[tokio::test]
async fn waiters_of_one_process_take_turns_in_order() {
    let server = RedisServer::start();
    let latch = latch(&server).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = vec![];
    for number in 0..20 {
        let (job, order) = (latch.mutex("job"), order.clone());
        let task = tokio::spawn(async move {
            let guard = job.lock().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        });
        if number == 0 {
            eventually("the first one watches", || {
                server.calls("client|caching") > 0
            })
            .await;
        }
        tokio::task::yield_now().await;
        tasks.push(task);
    }
    guard.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn only_the_head_of_a_queue_speaks_to_the_nodes() {
    let server = RedisServer::start();
    let latch = latch(&server).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    let waiter = waiter(&latch, &server).await;
    let before = server.commands_processed();
    let others: Vec<_> = (0..200)
        .map(|_| {
            let job = latch.mutex("job");
            tokio::spawn(async move { job.lock().await.unwrap() })
        })
        .collect();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.commands_processed(), before);
    others.iter().for_each(JoinHandle::abort);
    guard.release().await.unwrap();
    told(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_waiter_passes_its_turn_on() {
    let server = RedisServer::start();
    let (holder, latch) = (latch(&server).await, latch(&server).await);
    let guard = holder.mutex("job").lock().await.unwrap();
    let first = waiter(&latch, &server).await;
    let job = latch.mutex("job");
    let second = tokio::spawn(async move { job.lock().await.unwrap() });
    tokio::task::yield_now().await;
    // Woken and cancelled in the same moment, or nearly.
    guard.release().await.unwrap();
    first.abort();
    if let Ok(guard) = first.await {
        drop(guard);
    }
    let guard = told(second).await;
    guard.release().await.unwrap();
    latch.close().await;
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn who_will_not_wait_is_not_held_up_by_those_who_do() {
    let server = RedisServer::start();
    let latch = latch(&server).await;
    let guard = latch.mutex("job").lock().await.unwrap();
    let waiter = waiter(&latch, &server).await;
    assert!(latch.mutex("job").try_lock().await.unwrap().is_none());
    let error = latch.mutex("job").lock_timeout(Duration::ZERO).await;
    assert!(error.unwrap_err().is_timeout());
    let soon = Duration::from_millis(20);
    let error = latch.mutex("job").lock_timeout(soon).await;
    assert!(error.unwrap_err().is_timeout());
    guard.release().await.unwrap();
    told(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn a_memory_node_tells_too() {
    let node = MemoryNode::new();
    let builder = || Redlatch::builder().node(node.clone()).ttl(LONG);
    let (one, other) = (
        builder().build().await.unwrap(),
        builder().build().await.unwrap(),
    );
    let guard = one.mutex("job").lock().await.unwrap();
    let job = other.mutex("job");
    let waiter = tokio::spawn(async move { job.lock().await.unwrap() });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    guard.release().await.unwrap();
    told(waiter).await.release().await.unwrap();
}
