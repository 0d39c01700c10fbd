//! The same for code without async: threads and plain calls.
//!
//! ```sh
//! cargo run -p redlatch --example blocking --features blocking -- redis://127.0.0.1
//! ```
//!
//! The URL can also be in `REDIS_URL`. Without one, a throw-away server is started.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use redlatch::blocking::Redlatch;

fn main() -> redlatch::Result<()> {
    let nodes = support::nodes();
    let latch = Redlatch::connect(&nodes.urls[0])?;

    // Not one atomic step: without the lock, counts would be lost.
    let count = AtomicU32::new(0);
    let results: Vec<redlatch::Result<()>> = thread::scope(|scope| {
        let threads: Vec<_> = (1..=4)
            .map(|number| {
                let counter = latch.mutex("counter").note(format!("thread {number}"));
                let count = &count;
                scope.spawn(move || {
                    for _ in 0..5 {
                        let guard = counter.lock_timeout(Duration::from_secs(20))?;
                        let before = count.load(Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(2));
                        count.store(before + 1, Ordering::SeqCst);
                        guard.release()?;
                    }
                    Ok(())
                })
            })
            .collect();
        let ends = threads.into_iter().map(|thread| thread.join());
        ends.map(|end| end.expect("no thread panics")).collect()
    });
    for result in results {
        result?;
    }
    let count = count.into_inner();
    println!("4 threads counted to {count}");
    assert_eq!(count, 20);

    // A lease is renewed in the background while the caller works.
    let report = latch.mutex("report").ttl(Duration::from_millis(300));
    let guard = report.lock()?;
    thread::sleep(Duration::from_millis(700));
    guard.ensure_held()?;
    println!("held for longer than its ttl, because it is renewed");

    // A thread that only waits for the loss of its lock.
    assert!(latch.force_release("report")?);
    assert!(guard.wait_lost(Duration::from_secs(2))?);
    println!("an operator took it away, and the holder was told");
    latch.close()
}
