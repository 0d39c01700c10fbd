//! How fast each node answers, and what time it has.

use std::time::Duration;

use redlatch::{MemoryNode, Redlatch};
use redlatch_testkit::RedisServer;

use crate::support::{LONG, armed, patient};

#[tokio::test]
async fn each_node_is_probed_by_itself() {
    let fleet = armed(3);
    let latch = patient(fleet.urls()).build().await.unwrap();
    fleet[1].kill();
    let nodes = latch.nodes();
    let ports = [0, 1, 2].map(|at| format!("127.0.0.1:{}", fleet[at].port()));
    let names: Vec<&str> = nodes.iter().map(|node| node.name()).collect();
    assert_eq!(names, ports);
    for at in [0, 2] {
        let before = fleet[at].calls("time");
        let probe = nodes[at].probe(LONG).await.unwrap();
        assert!(probe.took > Duration::ZERO);
        assert_eq!(fleet[at].calls("time"), before + 1);
        // It is the same machine; what is between is how busy that is.
        let ahead = probe.clock_ahead.unwrap();
        assert!(ahead.abs() < 10_000, "{ahead}");
    }
    nodes[1].probe(LONG).await.unwrap_err();
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_seen() {
    let server = RedisServer::builder().movable_clock().start();
    if !server.shift_clock(3_600_000) {
        return;
    }
    let latch = patient([server.url()]).build().await.unwrap();
    let probe = latch.nodes()[0].probe(LONG).await.unwrap();
    let ahead = probe.clock_ahead.unwrap();
    assert!((3_590_000..=3_610_000).contains(&ahead), "{ahead}");
}

#[tokio::test]
async fn nodes_of_other_kinds_answer_too() {
    let server = RedisServer::start();
    let redis = redis::Client::open(server.url()).unwrap();
    let connection = redis.get_multiplexed_async_connection().await.unwrap();
    let borrowed = Redlatch::builder().connection("mine", connection);
    let latch = borrowed.build().await.unwrap();
    let probe = latch.nodes()[0].probe(LONG).await.unwrap();
    assert!(probe.clock_ahead.is_some());

    let memory = Redlatch::builder().node(MemoryNode::new());
    let latch = memory.build().await.unwrap();
    let probe = latch.nodes()[0].probe(LONG).await.unwrap();
    assert_eq!(probe.clock_ahead, None);

    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/locks.db", directory.path().display());
    let latch = Redlatch::connect(&url).await.unwrap();
    latch.nodes()[0].probe(LONG).await.unwrap();
}
