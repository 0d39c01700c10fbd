//! Tokens with ids of one's own: a small snowflake generator.
//!
//! ```sh
//! cargo run -p redlatch --example snowflake
//! ```
//!
//! It needs no Redis. The ids are readable and grow with time, but they can be
//! guessed, and whoever knows a token can release its lock. Where that matters,
//! stay with the default: 20 random bytes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use redlatch::{MemoryNode, Redlatch};

#[tokio::main]
async fn main() -> redlatch::Result<()> {
    // Each process needs a machine number that no other one has.
    let ids = Arc::new(Snowflake::new(7));

    let source = ids.clone();
    let latch = Redlatch::builder()
        .node(MemoryNode::new())
        .token_source(move || source.next(unix_millis()).to_string())
        .build()
        .await?;
    let guard = latch.mutex("sku:0001").lock().await?;
    println!("this lease has the id {}", guard.token().id());
    let id: u64 = guard.token().id().parse().expect("our own number");
    assert_eq!(Snowflake::machine_of(id), 7);
    guard.release().await?;

    // Threads that draw at the same time.
    let drawn: Vec<Vec<u64>> = thread::scope(|scope| {
        let draw = || (0..20_000).map(|_| ids.next(unix_millis())).collect();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(draw)).collect();
        let ends = threads.into_iter().map(|thread| thread.join());
        ends.map(|ids| ids.expect("it only draws numbers"))
            .collect()
    });
    let different: HashSet<u64> = drawn.into_iter().flatten().collect();
    assert_eq!(different.len(), 8 * 20_000);
    println!("160000 ids from 8 threads, all different");

    // A clock that goes back, as clocks do when they are set.
    let clock = [5_000, 5_001, 4_000, 4_001, 5_002].into_iter().cycle();
    let ids = Snowflake::new(1);
    let drawn: Vec<u64> = clock
        .take(10_000)
        .map(|time| ids.next(EPOCH + time))
        .collect();
    assert!(drawn.is_sorted_by(|one, next| one < next));
    println!("10000 ids by a clock that goes back, all different and growing");

    latch.close().await;
    Ok(())
}

/// Numbers of 63 bits that never repeat: 41 bits of milliseconds, 10 of the
/// machine's number, 12 of a sequence within the millisecond.
struct Snowflake {
    machine: u64,
    /// Time and sequence of the last number, without the machine.
    last: Mutex<u64>,
}

/// Time counts from here: 2024-01-01, in Unix milliseconds.
const EPOCH: u64 = 1_704_067_200_000;
const MACHINE_BITS: u32 = 10;
const SEQUENCE_BITS: u32 = 12;

impl Snowflake {
    fn new(machine: u64) -> Self {
        assert!(machine < 1 << MACHINE_BITS, "a number from 0 to 1023");
        let last = Mutex::new(0);
        Self { machine, last }
    }

    /// The next number; `now` is in Unix milliseconds.
    ///
    /// Time and sequence are one counter that never goes back: when the clock
    /// does, or when a millisecond is used up, it counts on from where it was,
    /// ahead of the clock. It starts anew with the process, so one that
    /// restarts while the clock is set back can repeat itself.
    fn next(&self, now: u64) -> u64 {
        let now = now.saturating_sub(EPOCH) << SEQUENCE_BITS;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = now.max(*last + 1);
        let time = *last >> SEQUENCE_BITS;
        let sequence = *last & ((1 << SEQUENCE_BITS) - 1);
        (time << MACHINE_BITS | self.machine) << SEQUENCE_BITS | sequence
    }

    fn machine_of(id: u64) -> u64 {
        id >> SEQUENCE_BITS & ((1 << MACHINE_BITS) - 1)
    }
}

fn unix_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}
