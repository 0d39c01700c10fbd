//! What the tasks of a client do with locks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future;
use redlatch::{Error, Guard, Mutex, Redlatch, Result};
use redlatch_testkit::Dice;
use tokio::time;

use crate::worker::{self, MAX_TTL, Tally, Task};

/// One way of using locks, and how often of a thousand times.
const USES: [(Use, u64); 14] = [
    (Use::Once, 420),
    (Use::Rush, 40),
    (Use::Busy, 300),
    (Use::Crowd, 40),
    (Use::Cancel, 60),
    (Use::Owner, 30),
    (Use::PassOn, 20),
    (Use::Abandon, 10),
    (Use::Force, 20),
    (Use::Long, 6),
    (Use::Run, 20),
    (Use::Slot, 10),
    (Use::Look, 20),
    (Use::Visit, 4),
];

#[derive(Clone, Copy, Debug)]
enum Use {
    /// A name that is never used again.
    Once,
    /// The same, and two clients want it.
    Rush,
    /// A name that all processes want.
    Busy,
    /// Several at once in one process: the lease is handed over.
    Crowd,
    /// Waits that are given up at any moment.
    Cancel,
    /// Locked again by the same owner.
    Owner,
    /// Detached, and adopted by another client.
    PassOn,
    /// Detached, and left to its ttl.
    Abandon,
    /// Taken away.
    Force,
    /// Held through several renewals.
    Long,
    /// By `Mutex::run`.
    Run,
    /// By `Redlatch::once`.
    Slot,
    /// Nothing is locked.
    Look,
    /// A client of its own, which comes and goes.
    Visit,
}

/// The name of a lock among its kind.
pub(crate) fn lock_name(kind: &str, number: u64) -> String {
    format!("{kind}:{number:x}")
}

/// What nothing here can cause.
pub(crate) const UNEXPECTED: &str = "other errors";

/// Errors by what they are, without names and numbers.
pub(crate) fn kind(error: &Error) -> &'static str {
    match error {
        Error::Timeout(_) => "waits that timed out",
        Error::NoQuorum(_) => "no quorum",
        Error::Lost(_) => "leases lost",
        _ => UNEXPECTED,
    }
}

/// A task that uses locks.
pub(crate) struct User {
    task: Task,
    latch: Redlatch,
    /// Another client in the same process.
    other: Redlatch,
    dice: Dice,
    tally: Arc<Tally>,
    /// What was lost on purpose.
    leaked: Vec<Box<dyn std::any::Any + Send>>,
}

impl User {
    pub(crate) fn new(
        task: Task,
        [latch, other]: [Redlatch; 2],
        dice: Dice,
        tally: Arc<Tally>,
    ) -> Self {
        Self {
            task,
            latch,
            other,
            dice,
            tally,
            leaked: Vec::new(),
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(crate) fn rate(&self) -> u64 {
        self.task.rate
    }

    /// Uses a lock, in one way or another.
    pub(crate) async fn act(&mut self) {
        let mut left = self.dice.below(USES.iter().map(|(_, share)| share).sum());
        let chosen = USES.iter().find(|(_, share)| {
            let hit = left < *share;
            left = left.saturating_sub(*share);
            hit
        });
        let (chosen, _) = chosen.expect("all shares together");
        let acquired = match self.go(*chosen).await {
            Ok(acquired) => acquired,
            Err(error) => {
                self.tally.note(kind(&error));
                0
            }
        };
        self.tally.settle(acquired);
    }

    /// How many acquisitions there were.
    async fn go(&mut self, chosen: Use) -> Result<u64> {
        match chosen {
            Use::Once => self.once().await,
            Use::Rush => self.rush().await,
            Use::Busy => self.busy().await,
            Use::Crowd => self.crowd().await,
            Use::Cancel => self.cancel().await,
            Use::Owner => self.owner().await,
            Use::PassOn => self.pass_on().await,
            Use::Abandon => self.abandon().await,
            Use::Force => self.force().await,
            Use::Long => self.long().await,
            Use::Run => self.run().await,
            Use::Slot => self.slot().await,
            Use::Look => self.look().await,
            Use::Visit => self.visit().await,
        }
    }

    async fn once(&mut self) -> Result<u64> {
        let mutex = self.fresh();
        let guard = match self.dice.below(3) {
            0 => mutex.try_lock().await?,
            1 => Some(mutex.lock().await?),
            _ => Some(mutex.lock_timeout(Duration::from_secs(2)).await?),
        };
        let Some(guard) = guard else { return Ok(0) };
        self.leak();
        if self.task.leak.contains("guards") && self.dice.below(5) == 0 {
            self.leaked.push(Box::new(guard));
            return Ok(1);
        }
        self.give_back(guard).await?;
        Ok(1)
    }

    async fn rush(&mut self) -> Result<u64> {
        let mutex = self.fresh();
        let guard = mutex.lock().await?;
        let rival = self.other.mutex(mutex.name());
        let patience = self.dice.millis(1, 60);
        let hold = self.dice.millis(0, 40);
        let (waited, ()) = tokio::join!(rival.lock_timeout(patience), async {
            time::sleep(hold).await;
            drop(guard);
        });
        Ok(1 + u64::from(waited.is_ok()))
    }

    async fn busy(&mut self) -> Result<u64> {
        let mutex = self.shared();
        let guard = match self.dice.below(4) {
            0 => mutex.try_lock().await?,
            1 => Some(mutex.lock().await?),
            _ => {
                let patience = self.dice.millis(20, 1000);
                Some(mutex.lock_timeout(patience).await?)
            }
        };
        let Some(guard) = guard else { return Ok(0) };
        self.pause(0, 40).await;
        self.give_back(guard).await?;
        Ok(1)
    }

    async fn crowd(&mut self) -> Result<u64> {
        let name = format!("crowd:{}", self.task.number);
        let mutex = self.latch.mutex(lock_name(&name, self.dice.below(4)));
        let turns = (0..4).map(|_| async {
            let guard = mutex.lock().await?;
            tokio::task::yield_now().await;
            drop(guard);
            Ok::<_, Error>(())
        });
        let turns = future::join_all(turns).await;
        Ok(turns.iter().filter(|turn| turn.is_ok()).count() as u64)
    }

    async fn cancel(&mut self) -> Result<u64> {
        let mutex = match self.dice.below(2) {
            0 => self.fresh(),
            _ => self.shared(),
        };
        // Often in the middle of an attempt: one takes less than a millisecond.
        let patience = Duration::from_micros(self.dice.below(1500));
        match time::timeout(patience, mutex.lock()).await {
            Ok(guard) => {
                drop(guard?);
                Ok(1)
            }
            Err(_) => {
                self.tally.note("waits that were cancelled");
                Ok(0)
            }
        }
    }

    async fn owner(&mut self) -> Result<u64> {
        let owner = match self.dice.below(2) {
            0 => self.latch.owner(format!("owner-{}", self.dice.below(4))),
            _ => self.latch.owner(lock_name("owner", self.dice.number())),
        };
        let mutex = match self.dice.below(2) {
            0 => owner.mutex(lock_name("owned", self.dice.below(4))),
            _ => owner.mutex(lock_name("owned-once", self.dice.number())),
        };
        let outer = mutex.lock_timeout(Duration::from_secs(1)).await?;
        let inner = mutex.lock_timeout(Duration::from_secs(1)).await?;
        drop(outer);
        self.give_back(inner).await?;
        Ok(2)
    }

    async fn pass_on(&mut self) -> Result<u64> {
        let mutex = self.fresh();
        let exported = mutex.lock().await?.detach();
        let guard = self.other.mutex(mutex.name()).adopt(exported).await?;
        self.give_back(guard).await?;
        Ok(2)
    }

    async fn abandon(&mut self) -> Result<u64> {
        let mutex = self.fresh().ttl(self.task.long.min(MAX_TTL));
        let _ = mutex.lock().await?.detach();
        Ok(1)
    }

    async fn force(&mut self) -> Result<u64> {
        let mutex = self.fresh().ttl(Duration::from_millis(900));
        let guard = mutex.lock().await?;
        self.latch.force_release(mutex.name()).await?;
        if self.dice.below(2) == 0 {
            // Told by the next renewal.
            guard.lost().await;
        }
        match guard.release().await {
            Err(Error::Lost(_)) => self.tally.note("leases taken away by force"),
            released => released?,
        }
        Ok(1)
    }

    async fn long(&mut self) -> Result<u64> {
        let ttl = (self.task.long / 3).clamp(Duration::from_millis(600), MAX_TTL);
        let mut mutex = self.fresh().ttl(ttl).note("held for long");
        if self.dice.below(4) == 0 {
            let shortest = Duration::from_millis(400);
            mutex = mutex.max_hold((self.task.long / 2).max(shortest));
        }
        let guard = mutex.lock().await?;
        let length = self.dice.time(self.task.long / 2, self.task.long);
        if time::timeout(length, guard.lost()).await.is_ok() {
            self.tally.note("leases that reached max_hold");
            drop(guard);
            return Ok(1);
        }
        self.give_back(guard).await?;
        Ok(1)
    }

    async fn run(&mut self) -> Result<u64> {
        let mutex = self.fresh();
        let body = |lease: redlatch::Lease| async move {
            tokio::task::yield_now().await;
            lease.ensure_held()
        };
        match mutex.run(body).await {
            Ok(()) => Ok(1),
            Err(redlatch::RunError::Lock(error) | redlatch::RunError::Body(error)) => Err(error),
            Err(_) => {
                self.tally.note("runs that were lost");
                Ok(1)
            }
        }
    }

    async fn slot(&mut self) -> Result<u64> {
        let slot = lock_name("slot", self.dice.number());
        let slot = self.latch.once("report", slot);
        let slot = slot.keep(self.task.long.min(MAX_TTL));
        slot.is_done().await?;
        slot.record().await?;
        Ok(2)
    }

    async fn look(&mut self) -> Result<u64> {
        match self.dice.below(4) {
            0 => {
                self.latch.locks("busy:*").await?;
            }
            1 => {
                let limit = Some(Duration::from_millis(200));
                self.latch.wait_until_free("busy:1", limit).await?;
            }
            _ => {
                self.latch.inspect("busy:0").await?;
            }
        }
        Ok(0)
    }

    async fn visit(&mut self) -> Result<u64> {
        let latch = worker::builder(&self.task.urls).build().await?;
        let mine = std::mem::replace(&mut self.latch, latch);
        let (fresh, shared) = (self.fresh(), self.shared());
        let visitor = std::mem::replace(&mut self.latch, mine);
        let held = fresh.lock().await?;
        let waited = shared.lock_timeout(Duration::from_millis(500)).await;
        drop(held);
        drop((fresh, shared));
        // Every second one just goes, with what it holds.
        if self.dice.below(2) == 0 {
            visitor.close().await;
        }
        self.tally.note("clients that came and went");
        Ok(1 + u64::from(waited.is_ok()))
    }

    /// A mutex whose name was never used before.
    fn fresh(&mut self) -> Mutex {
        let mutex = self.latch.mutex(lock_name("fresh", self.dice.number()));
        mutex.fencing(self.dice.below(4) > 0)
    }

    /// A mutex that others want too.
    fn shared(&mut self) -> Mutex {
        let number = self.dice.below(2);
        match self.dice.below(4) {
            0 => self
                .latch
                .mutex(lock_name("busy-plain", number))
                .fencing(false),
            _ => self.latch.mutex(lock_name("busy", number)),
        }
    }

    async fn give_back(&mut self, guard: Guard) -> Result<()> {
        match self.dice.below(2) {
            0 => guard.release().await,
            _ => {
                drop(guard);
                Ok(())
            }
        }
    }

    async fn pause(&mut self, least: u64, most: u64) {
        time::sleep(self.dice.millis(least, most)).await;
    }

    /// Loses what the plan says.
    fn leak(&mut self) {
        if self.task.leak.contains("tasks") && self.dice.below(5) == 0 {
            tokio::spawn(future::pending::<()>());
        }
        if self.task.leak.contains("handles") && self.dice.below(5) == 0 {
            let file = std::fs::File::open("/dev/null").expect("it is always there");
            self.leaked.push(Box::new(file));
        }
        if self.task.leak.contains("memory") {
            self.leaked.push(Box::new(vec![1u8; 16 * 1024]));
        }
    }
}
