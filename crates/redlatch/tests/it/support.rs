//! What several tests need.

use std::time::{Duration, Instant};

use redlatch::{Builder, Redlatch};
use redlatch_testkit::RedisServer;

/// Polls until `condition` holds; generous, because the machine may be busy.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A client of one server.
pub(crate) async fn client(server: &RedisServer) -> Redlatch {
    build(Redlatch::builder().nodes([server.url()])).await
}

pub(crate) async fn build(builder: Builder) -> Redlatch {
    // A busy machine is no reason to call a healthy node too slow.
    let builder = builder.node_timeout(Duration::from_millis(500));
    builder.build().await.unwrap()
}
