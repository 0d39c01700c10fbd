//! Four workers want the same lock. It runs without Redis: the lock server is
//! inside this process, and everything else is as it is on Redis.
//!
//! ```sh
//! cargo run -q --release -p redlatch --example hello
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redlatch::Redlatch;
use tokio::task::JoinSet;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> redlatch::Result<()> {
    // With a server: `Redlatch::connect("redis://127.0.0.1").await?`
    let latch = Redlatch::in_memory().await?;

    println!("Four workers want the lock \"sku:0001\". Whoever comes first has it:");
    let inside = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for number in 1..=4 {
        let stock = latch.mutex("sku:0001").note(format!("worker {number}"));
        let inside = inside.clone();
        workers.spawn(async move {
            let guard = stock.lock().await?;
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            println!("  worker {number} has it");
            sleep(Duration::from_millis(150)).await;
            println!("  worker {number} gives it back");
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await
        });
    }

    sleep(Duration::from_millis(75)).await;
    if let Some(seen) = latch.inspect("sku:0001").await? {
        println!("  (held by {}, as anybody can see)", seen.owner());
    }
    for done in workers.join_all().await {
        done?;
    }

    println!("\nA long job has the lock, and somebody waits for 300 ms only:");
    let stock = latch.mutex("sku:0001").note("the stocktaking");
    let guard = stock.lock().await?;
    let late = stock.lock_timeout(Duration::from_millis(300)).await;
    let error = late.expect_err("the job has not given it back");
    assert!(error.is_timeout());
    println!("  {error}");
    let left = guard.remaining();
    println!("  the job's lease is good for another {left:.1?}, and renewed until it is dropped");

    guard.release().await?;
    assert!(latch.inspect("sku:0001").await?.is_none());
    println!("\nReleased: the lock is free.");
    latch.close().await;
    Ok(())
}
