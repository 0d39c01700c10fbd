//! Processes that wait for one lock get it in the order in which they came.
//!
//! Clients stand for processes here: each has its own connections and its own
//! place in the queues of the nodes. Who is told nothing asks again after three
//! seconds at the earliest, so what comes sooner was called.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlatch::{Guard, Redlatch};
use redlatch_testkit::{Fleet, RedisServer};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::support::{KEY, LONG, armed, client, eventually, patient};

/// Sooner than anybody asks without being called.
pub(crate) const CALLED: Duration = Duration::from_secs(3);

/// A client that waits for the lock, and stands in the queue.
pub(crate) async fn queued(latch: &Redlatch, server: &RedisServer) -> JoinHandle<Guard> {
    let waiting = server.queue("job").len();
    let job = latch.mutex("job");
    let waiter = tokio::spawn(async move { job.lock().await.unwrap() });
    eventually("its place", || server.queue("job").len() > waiting).await;
    waiter
}

/// The same as the first, whose request the node has parked.
pub(crate) async fn parked(latch: &Redlatch, server: &RedisServer) -> JoinHandle<Guard> {
    let waiter = queued(latch, server).await;
    eventually("its request is parked", || server.is_parked("job")).await;
    waiter
}

/// One in the queue, when the time is over for which its request is parked: it has to
/// be called.
async fn queued_for_long(latch: &Redlatch, server: &RedisServer) -> JoinHandle<Guard> {
    let waiter = queued(latch, server).await;
    eventually("nothing is parked", || !server.is_parked("job")).await;
    waiter
}

pub(crate) async fn called(waiter: JoinHandle<Guard>) -> Guard {
    let called = timeout(CALLED, waiter).await;
    called.expect("it was not called").unwrap()
}

/// Clients that stand for processes.
pub(crate) async fn clients<const N: usize>(server: &RedisServer) -> [Redlatch; N] {
    let mut clients = Vec::new();
    for _ in 0..N {
        clients.push(client(server).await);
    }
    clients.try_into().unwrap()
}

async fn is_empty(fleet: &[RedisServer]) {
    for server in fleet {
        eventually("nothing is left", || server.locks().is_empty()).await;
    }
}

#[tokio::test]
async fn clients_take_turns_in_the_order_in_which_they_came() {
    for nodes in [1, 5] {
        let fleet = armed(nodes);
        let holder = patient(fleet.urls()).build().await.unwrap();
        let guard = holder.mutex("job").lock().await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = vec![];
        for number in 0..6 {
            let latch = patient(fleet.urls()).build().await.unwrap();
            let waiter = queued(&latch, &fleet[nodes - 1]).await;
            let order = order.clone();
            tasks.push(tokio::spawn(async move {
                let guard = waiter.await.unwrap();
                order.lock().unwrap().push(number);
                guard.release().await.unwrap();
                latch.close().await;
            }));
        }
        guard.release().await.unwrap();
        // Who has just had it waits for all of them.
        let again = timeout(LONG, holder.mutex("job").lock()).await.unwrap();
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5], "{nodes} nodes");
        again.unwrap().release().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        is_empty(&fleet).await;
    }
}

#[tokio::test]
async fn who_will_not_wait_does_not_overtake_who_does() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let (holder, newcomer) = (client(&server).await, client(&server).await);
    let slow = patient([proxy.url()]).build().await.unwrap();
    let guard = holder.mutex("job").lock().await.unwrap();
    let waiter = queued_for_long(&slow, &server).await;
    // It is called, and its answer takes a while.
    proxy.delay_requests(Duration::from_millis(100));
    guard.release().await.unwrap();
    assert!(server.get(KEY).is_none(), "the lock is free");
    assert!(newcomer.mutex("job").try_lock().await.unwrap().is_none());
    called(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn one_who_is_gone_is_passed_over_at_once() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let (holder, second) = (client(&server).await, client(&server).await);
    let first = patient([proxy.url()]).build().await.unwrap();
    let guard = holder.mutex("job").lock().await.unwrap();
    let gone = queued(&first, &server).await;
    let waiter = queued(&second, &server).await;
    // As when its process was killed: the system closes its connections.
    proxy.cut();
    eventually("it is gone", || server.connected_clients() == 2).await;
    guard.release().await.unwrap();
    called(waiter).await.release().await.unwrap();
    gone.abort();
}

#[tokio::test]
async fn one_who_is_frozen_holds_others_up_for_one_turn_only() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let (holder, newcomer) = (client(&server).await, client(&server).await);
    let first = patient([proxy.url()]).build().await.unwrap();
    let guard = holder.mutex("job").lock().await.unwrap();
    let frozen = queued_for_long(&first, &server).await;
    // Its connection stays, but it hears and says nothing.
    proxy.hold();
    guard.release().await.unwrap();
    let guard = newcomer.mutex("job").lock_timeout(LONG).await.unwrap();
    assert_eq!(server.queue("job").len(), 0, "it lost its place");
    // It comes back, and gets it in its turn.
    proxy.heal();
    eventually("its place", || server.queue("job").len() == 1).await;
    guard.release().await.unwrap();
    called(frozen).await.release().await.unwrap();
}

#[tokio::test]
async fn one_who_gives_up_leaves_the_queue_and_passes_its_turn_on() {
    for nodes in [1, 5] {
        let fleet = armed(nodes);
        let builder = || patient(fleet.urls());
        let (holder, one, two, three) = (
            builder().build().await.unwrap(),
            builder().build().await.unwrap(),
            builder().build().await.unwrap(),
            builder().build().await.unwrap(),
        );
        let guard = holder.mutex("job").lock().await.unwrap();
        let server = &fleet[nodes - 1];
        let first = queued(&one, server).await;
        let second = queued(&two, server).await;
        let third = queued(&three, server).await;
        second.abort();
        eventually("it has left", || server.queue("job").len() == 2).await;
        // Called and cancelled in the same moment, or nearly.
        guard.release().await.unwrap();
        first.abort();
        drop(first.await.ok());
        called(third).await.release().await.unwrap();
        for latch in [holder, one, two, three] {
            latch.close().await;
        }
        is_empty(&fleet).await;
    }
}

#[tokio::test]
async fn a_task_that_gives_up_keeps_the_place_of_its_process() {
    let server = RedisServer::start();
    let [holder, one, other] = clients(&server).await;
    let guard = holder.mutex("job").lock().await.unwrap();
    let first = queued(&one, &server).await;
    let job = one.mutex("job");
    let heir = tokio::spawn(async move { job.lock().await.unwrap() });
    tokio::task::yield_now().await;
    let second = queued(&other, &server).await;
    first.abort();
    guard.release().await.unwrap();
    let guard = called(heir).await;
    assert!(!second.is_finished());
    guard.release().await.unwrap();
    called(second).await.release().await.unwrap();
}

#[tokio::test]
async fn a_stranger_that_knows_nothing_of_the_queue_takes_part() {
    let server = RedisServer::start();
    let (holder, other) = (client(&server).await, client(&server).await);
    let guard = holder.mutex("job").lock().await.unwrap();
    let waiter = queued(&other, &server).await;
    guard.release().await.unwrap();
    let guard = called(waiter).await;
    let waiter = queued(&holder, &server).await;
    // The lock changes hands behind the back of the one who waits.
    let _ = guard.detach();
    server.command(&["SET", KEY, "stranger", "PX", "60000"]);
    assert_eq!(server.queue("job").len(), 1, "it still waits");
    server.command(&["DEL", KEY]);
    called(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn one_who_may_not_call_anybody_takes_nobodys_place() {
    let server = RedisServer::start();
    // It may use no channel: new users of a server may not.
    let poor = as_user(&server, "resetchannels").await;
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = poor.mutex("job").lock().await.unwrap();
    let first = queued(&one, &server).await;
    let second = queued(&other, &server).await;
    guard.release().await.unwrap();
    called(first).await.release().await.unwrap();
    called(second).await.release().await.unwrap();
}

#[tokio::test]
async fn a_place_that_was_taken_and_given_back_runs_out() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let poor = as_user(&server, "resetchannels").await;
    let first = patient([proxy.url()]).build().await.unwrap();
    let guard = poor.mutex("job").lock().await.unwrap();
    let waiter = parked(&first, &server).await;
    // Whatever becomes of its place now, it did not do it.
    proxy.hold();
    guard.release().await.unwrap();
    assert_eq!(server.get(KEY), None, "who is granted must hear of it");
    assert_eq!(server.queue("job").len(), 1);
    let lives = server.command(&["PTTL", "redlatch:__queue:redlatch:job"]);
    assert!(lives.as_int() > 0, "{lives:?}");
    proxy.heal();
    called(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn one_who_can_not_be_called_does_not_storm_a_lock_that_is_kept() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let holder = patient([server.url()]).build().await.unwrap();
    let first = patient([proxy.url()]).build().await.unwrap();
    let poor = as_user(&server, "allchannels -subscribe").await;
    let guard = holder.mutex("job").lock().await.unwrap();
    let frozen = queued(&first, &server).await;
    proxy.hold();
    guard.release().await.unwrap();
    let before = server.calls("evalsha");
    let guard = poor.mutex("job").lock_timeout(LONG).await.unwrap();
    let asked = server.calls("evalsha") - before;
    assert!(asked < 60, "it asked {asked} times within one turn");
    guard.release().await.unwrap();
    frozen.abort();
}

/// A client that may do all but what this rule takes away.
async fn as_user(server: &RedisServer, rule: &str) -> Redlatch {
    let user = format!("ACL SETUSER poor on >secret ~* +@all {rule}");
    server.command(&user.split(' ').collect::<Vec<_>>());
    let url = format!("redis://poor:secret@127.0.0.1:{}", server.port());
    patient([url]).build().await.unwrap()
}

#[tokio::test]
async fn a_node_that_is_silent_does_not_make_one_deaf_to_the_others() {
    let fleet = armed(3);
    let proxy = fleet[2].proxy();
    let urls = [fleet[0].url(), fleet[1].url(), proxy.url()];
    let holder = patient(fleet.urls()).build().await.unwrap();
    let other = patient(urls).build().await.unwrap();
    let guard = holder.mutex("job").lock().await.unwrap();
    proxy.hold();
    let waiter = queued(&other, &fleet[0]).await;
    eventually("its place", || fleet[1].queue("job").len() == 1).await;
    guard.release().await.unwrap();
    let guard = called(waiter).await;
    proxy.heal();
    guard.release().await.unwrap();
}

/// Tasks of several clients, by hand-over and by call, in every order: a call
/// that is lost shows as a long wait.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_forgotten_in_a_crowd() {
    for nodes in [1, 3] {
        crowd(&armed(nodes)).await;
    }
}

async fn crowd(fleet: &Fleet) {
    let mut tasks = vec![];
    let mut clients = vec![];
    for number in 0..4 {
        let latch = patient(fleet.urls()).build().await.unwrap();
        for task in 0..3 {
            let job = latch.mutex("job").fencing(task != 1);
            tasks.push(tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                for cycle in 0..60 {
                    let begin = Instant::now();
                    let waited = match (cycle + number) % 7 {
                        // Some give up while they wait.
                        0 => {
                            let soon = Duration::from_millis(2);
                            drop(timeout(soon, job.lock()).await);
                            continue;
                        }
                        _ => job.lock().await.unwrap(),
                    };
                    longest = longest.max(begin.elapsed());
                    if cycle % 3 == 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    waited.release().await.unwrap();
                    if cycle % 5 == 0 {
                        tokio::time::sleep(Duration::from_millis(3)).await;
                    }
                }
                longest
            }));
        }
        clients.push(latch);
    }
    for task in tasks {
        let longest = timeout(LONG, task)
            .await
            .expect("it waits in vain")
            .unwrap();
        assert!(longest < CALLED, "somebody was forgotten for {longest:?}");
    }
    for latch in clients {
        latch.close().await;
    }
    is_empty(fleet).await;
}
