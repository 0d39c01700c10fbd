//! One lock on five independent servers: any two of them may fail.
//!
//! ```sh
//! cargo run -p redlatch --example five_nodes -- redis://a redis://b redis://c redis://d redis://e
//! ```
//!
//! Without URLs, five throw-away servers are started, and some of them killed.

use std::time::Duration;

use redlatch::{Error, Redlatch};
use redlatch_testkit::Fleet;

#[tokio::main]
async fn main() -> redlatch::Result<()> {
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    let fleet = urls.is_empty().then(|| Fleet::start(5));
    if let Some(fleet) = &fleet {
        println!("No URLs are given, so five servers are started for this example.");
        urls = fleet.urls();
        // New servers wait until every lease they might have forgotten has run
        // out. These have never held one, so they are armed at once; a real
        // deployment does that once, when it is set up.
        let admin = Redlatch::builder().nodes(&urls).admin().await?;
        for status in admin.assume_fresh().await {
            println!("{status}");
        }
    }

    // Independent masters, not replicas of each other. The quorum is counted
    // over all that are listed here, so list the same ones in every program.
    let latch = Redlatch::builder().nodes(urls).build().await?;
    let job = latch.mutex("nightly-report");

    let guard = job.lock().await?;
    let seen = latch.inspect("nightly-report").await?.expect("we hold it");
    println!("locked on {} of {} nodes", seen.on_nodes, seen.nodes);
    assert!(seen.has_quorum());
    guard.release().await?;

    if let Some(fleet) = fleet {
        println!("two servers are killed");
        fleet[0].kill();
        fleet[1].kill();
        let guard = job.lock_timeout(Duration::from_secs(5)).await?;
        println!("locked all the same, by the other three");
        guard.release().await?;

        println!("a third one is killed");
        fleet[2].kill();
        let Err(Error::NoQuorum(error)) = job.try_lock().await else {
            panic!("two of five nodes must not be enough");
        };
        println!("no lock, and the error says why:\n  {error}");
    }
    latch.close().await;
    Ok(())
}
