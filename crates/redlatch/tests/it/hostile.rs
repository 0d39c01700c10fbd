//! A server that is broken beyond measure, or means harm, hurts nobody but itself.

use std::time::Duration;

use redlatch::Redlatch;
use redlatch_testkit::{Fleet, HostileServer, Manner};
use tokio::time::timeout;

use crate::support::KEY;

const MANNERS: [Manner; 12] = [
    Manner::Polite,
    Manner::Mute,
    Manner::HangsUp,
    Manner::LetsIn,
    Manner::Garbage,
    Manner::WrongTypes,
    Manner::HugeText,
    Manner::HugeArray,
    Manner::Nested,
    Manner::Half,
    Manner::Twice,
    Manner::Pushes,
];

/// Longer than all that a test does; what hangs ends here.
const PATIENCE: Duration = Duration::from_secs(30);

/// Three servers that work, and two that let a client in before they turn nasty.
struct Mixed {
    fleet: Fleet,
    hostile: [HostileServer; 2],
}

impl Mixed {
    fn start() -> Self {
        Self {
            fleet: Fleet::start(3),
            hostile: [(); 2].map(|()| HostileServer::start(Manner::Polite, KEY)),
        }
    }

    fn behave(&self, manner: Manner) {
        self.hostile.iter().for_each(|server| server.behave(manner));
    }

    async fn client(&self) -> Redlatch {
        let urls = self.fleet.urls().into_iter();
        let builder = Redlatch::builder()
            .nodes(urls.chain(self.hostile.iter().map(HostileServer::url)))
            // These have no guard that could be armed.
            .restart_guard(false);
        // A busy machine is no reason to call a healthy node too slow.
        let builder = builder.node_timeout(Duration::from_millis(500));
        builder.build().await.unwrap()
    }
}

/// Locks, looks, renews, releases; and one who waits gets it next.
async fn use_it(one: &Redlatch, other: &Redlatch) {
    let guard = one.mutex("job").lock().await.unwrap();
    let held = one.inspect("job").await.unwrap();
    assert!(held.is_some());
    guard.renew(Duration::from_secs(20)).await.unwrap();
    assert!(other.mutex("job").try_lock().await.unwrap().is_none());
    let waiting = other.mutex("job");
    let waiter = tokio::spawn(async move { waiting.lock().await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiter.is_finished(), "it is held");
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hostile_nodes_of_five_stop_nobody() {
    let servers = Mixed::start();
    let (one, other) = (servers.client().await, servers.client().await);
    let before = resident();
    for manner in MANNERS {
        servers.behave(manner);
        println!("{manner:?}, {} MB", resident() >> 20);
        timeout(PATIENCE, use_it(&one, &other))
            .await
            .unwrap_or_else(|_| panic!("{manner:?}: it hangs"));
    }
    // Other tests run in this process too; half a gigabyte they don't need.
    let grown = resident().saturating_sub(before);
    assert!(grown < 400 << 20, "{} MB more than before", grown >> 20);
    timeout(PATIENCE, async { tokio::join!(one.close(), other.close()) })
        .await
        .expect("it ends");
}

#[tokio::test]
async fn alone_a_hostile_server_is_an_error_that_says_what_is_wrong() {
    for manner in MANNERS {
        if matches!(manner, Manner::Twice | Manner::Pushes) {
            continue; // What these say can't be told from a grant.
        }
        let server = HostileServer::start(manner, KEY);
        let work = async {
            let builder = Redlatch::builder().nodes([server.url()]);
            let builder = builder.outage_patience(Duration::from_millis(300));
            let latch = builder.build().await?;
            latch
                .mutex("job")
                .lock_timeout(Duration::from_secs(2))
                .await
        };
        let result = timeout(PATIENCE, work).await;
        let error = result
            .unwrap_or_else(|_| panic!("{manner:?}: it hangs"))
            .expect_err("nothing was granted");
        println!("{manner:?}: {error}");
        let text = error.to_string();
        assert!(text.len() < 600, "{manner:?}: {text}");
        assert!(text.contains("127.0.0.1"), "{manner:?}: {text}");
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_when_a_connection_is_ready_is_not_stormed() {
    let server = HostileServer::start(Manner::Polite, KEY);
    let builder = Redlatch::builder().nodes([server.url()]);
    let latch = builder.build().await.unwrap();
    server.behave(Manner::LetsIn);
    // Ends the one connection that there is.
    let _ = latch.mutex("job").try_lock().await;
    let before = server.connections();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let made = server.connections() - before;
    assert!(made < 30, "{made} connections in two seconds");
}

#[tokio::test]
async fn a_flood_of_news_starts_no_flood_of_requests() {
    let servers = Mixed::start();
    let (one, other) = (servers.client().await, servers.client().await);
    servers.behave(Manner::Pushes);
    let guard = one.mutex("job").lock().await.unwrap();
    let before = servers.fleet[0].commands_processed();
    let result = other
        .mutex("job")
        .lock_timeout(Duration::from_secs(2))
        .await;
    assert!(result.unwrap_err().is_timeout());
    let sent = servers.fleet[0].commands_processed() - before;
    assert!(sent < 1000, "{sent} commands in two seconds");
    guard.release().await.unwrap();
}

/// How much memory this process uses, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}
