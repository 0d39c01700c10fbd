//! A first lock on one Redis server, and what one can ask about it.
//!
//! ```sh
//! cargo run -p redlatch --example first_lock -- redis://127.0.0.1
//! ```
//!
//! The URL can also be in `REDIS_URL`. Without one, a throw-away server is started.

mod support;

use std::time::Duration;

use redlatch::Redlatch;

#[tokio::main]
async fn main() -> redlatch::Result<()> {
    let nodes = support::nodes();
    let latch = Redlatch::connect(&nodes.urls[0]).await?;

    // A handle is cheap. Nothing is asked of the server before it is locked.
    let stock = latch.mutex("sku:0001").note("first_lock example");

    // Waits, but no longer than 3 s. The error says who holds the lock.
    let guard = stock.lock_timeout(Duration::from_secs(3)).await?;
    println!("locked, and ours for another {:.1?}", guard.remaining());

    // Somebody else does not get it. `try_lock` does not wait.
    assert!(stock.try_lock().await?.is_none());
    let seen = latch.inspect("sku:0001").await?.expect("we hold it");
    println!("everybody sees that it is held by {}", seen.owner());

    // The lease is renewed while the guard lives. Before a step that must not
    // be done by two, ask: it costs no round trip.
    guard.ensure_held()?;
    println!("… here the work is done …");

    // Dropping the guard releases too, in the background. `release` waits for
    // it, and says when the lock was lost before.
    guard.release().await?;
    assert!(latch.inspect("sku:0001").await?.is_none());
    println!("released");

    // Before the program ends: wait for what is released in the background.
    latch.close().await;
    Ok(())
}
