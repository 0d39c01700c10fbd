//! A job that stops when its lock is lost: here an operator takes it away.
//!
//! ```sh
//! cargo run -p redlatch --example stop_on_loss
//! ```
//!
//! It needs no Redis. On Redis, all is the same.

use std::error::Error;
use std::time::Duration;

use redlatch::{Loss, MemoryNode, Redlatch, RunError};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let node = MemoryNode::new();
    let latch = Redlatch::builder().node(node.clone()).build().await?;
    let operator = Redlatch::builder().node(node).build().await?;
    // Renewed at a third of its ttl: so soon a lost lock is noticed at the latest.
    let job = latch.mutex("import").ttl(Duration::from_millis(900));

    println!("1. `run` drops the job when the lock is lost.");
    let away = tokio::spawn(take_away(operator.clone()));
    let result = job
        .run(|_| async {
            for step in 1..=100 {
                println!("  the job does step {step}");
                sleep(Duration::from_millis(150)).await;
            }
            Ok::<_, std::io::Error>(())
        })
        .await;
    away.await??;
    let Err(RunError::Lost { lost, completed }) = result else {
        panic!("the job must not come to its end");
    };
    println!("  stopped: {lost}");
    assert_eq!(lost.loss, Loss::Taken);
    assert!(!completed);

    println!("2. A job that must tidy up listens to `lost` itself.");
    let guard = job.lock().await?;
    let away = tokio::spawn(take_away(operator.clone()));
    let mut steps = 0;
    let lost = loop {
        tokio::select! {
            lost = guard.lost() => break lost,
            () = sleep(Duration::from_millis(150)) => {
                steps += 1;
                println!("  the job has done step {steps}");
            }
        }
    };
    away.await??;
    println!("  tidying up after {steps} steps: {}", lost.loss);
    assert!(guard.ensure_held().is_err(), "a lost lease stays lost");
    // The release says it too, for jobs that did not look before.
    let error = guard.release().await.expect_err("it was lost");
    assert!(error.is_lost());
    latch.close().await;
    operator.close().await;
    Ok(())
}

async fn take_away(operator: Redlatch) -> redlatch::Result<()> {
    sleep(Duration::from_millis(400)).await;
    println!("  an operator takes the lock away");
    assert!(operator.force_release("import").await?);
    Ok(())
}
