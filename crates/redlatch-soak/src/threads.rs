//! What a thread without async does with locks.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redlatch::blocking::Redlatch;
use redlatch_testkit::Dice;

use crate::uses::{kind, lock_name};
use crate::worker::{self, Tally, Task};

/// How often a client is used before another takes its place.
const USES: u64 = 40;

/// Starts a thread that uses locks until the tally is stopped.
pub(crate) fn start(task: &Task, tally: &Arc<Tally>) -> JoinHandle<()> {
    let (task, tally) = (task.clone(), tally.clone());
    thread::spawn(move || {
        let mut dice = Dice::new(!task.seed ^ task.number as u64);
        while !tally.is_stopped() {
            if let Err(error) = visit(&task, &tally, &mut dice) {
                tally.note(kind(&error));
            }
        }
    })
}

/// A client that comes, uses some locks, and goes.
fn visit(task: &Task, tally: &Tally, dice: &mut Dice) -> redlatch::Result<()> {
    let latch = Redlatch::build(worker::builder(&task.urls))?;
    for number in 0..USES {
        if tally.is_stopped() {
            break;
        }
        thread::sleep(dice.millis(1, 60_000 / (task.rate / 1000).clamp(1, 1000)));
        let name = match dice.below(2) {
            0 => lock_name("busy", dice.below(2)),
            _ => lock_name(&format!("thread:{}", task.number), dice.number()),
        };
        let mutex = latch.mutex(name);
        // So that the shared count stays true, also when it fails.
        tally.claim(task.rate);
        let locked = mutex.lock_timeout(Duration::from_millis(500));
        tally.settle(u64::from(locked.is_ok()));
        let guard = match locked {
            Err(error) if error.is_timeout() => continue,
            locked => locked?,
        };
        match number % 2 {
            0 => guard.release()?,
            _ => drop(guard),
        }
    }
    // Every second one just goes.
    if dice.below(2) == 0 {
        latch.close()?;
    }
    tally.note("blocking clients that came and went");
    Ok(())
}
