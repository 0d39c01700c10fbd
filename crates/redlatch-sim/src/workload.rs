//! What the tasks of the simulated clients do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use redlatch::{Exported, Guard, Lease, Mutex as Lock, Redlatch, RunError};
use tokio::time::timeout;

use crate::history::{End, Entry, Event, History};
use crate::plan::{Plan, Workload};
use crate::random::Random;
use crate::world::{Gate, World, rest};

/// What all tasks share.
pub(crate) struct Stage {
    pub(crate) world: Arc<World>,
    pub(crate) plan: Plan,
    pub(crate) history: History,
    /// No more locks are asked for.
    pub(crate) over: AtomicBool,
    /// No more faults: also none that tasks make themselves.
    pub(crate) calm: AtomicBool,
    /// Leases that were let go of, for others to adopt.
    adrift: Mutex<Vec<(usize, usize, Exported)>>,
    pub(crate) counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Stage {
    pub(crate) fn new(world: &Arc<World>, plan: &Plan) -> Arc<Self> {
        Arc::new(Self {
            world: world.clone(),
            plan: plan.clone(),
            history: History::default(),
            over: AtomicBool::new(false),
            calm: AtomicBool::new(false),
            adrift: Mutex::default(),
            counts: Mutex::default(),
        })
    }

    /// Notes an event of a call.
    fn note(&self, call: usize, event: Event) {
        self.world.note(|| format!("call {call}: {event:?}"));
        let at = self.world.micros();
        self.history.push(Entry { at, call, event });
    }

    pub(crate) fn count(&self, what: &'static str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(what).or_default() += 1;
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }
}

/// One task of a client.
pub(crate) struct Task {
    pub(crate) stage: Arc<Stage>,
    pub(crate) latch: Redlatch,
    pub(crate) gate: Arc<Gate>,
    pub(crate) client: usize,
    pub(crate) random: Random,
}

/// In what manner a lock is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Usual,
    /// For an owner, who may lock it again.
    Owned,
    /// By `Mutex::run`.
    Run,
    /// Together with others, all at the same moment.
    Several,
    /// It is taken away from whoever has it.
    Force,
}

/// A lock, and how it is wanted.
struct Wanted {
    number: usize,
    lock: Lock,
    renewal: bool,
    /// Whether its lease goes on for as long as it is held.
    renewed: bool,
}

impl Task {
    /// Locks and works until it is over.
    pub(crate) async fn run(mut self) {
        while !self.stage.over.load(Ordering::Relaxed) {
            self.gate.pass().await;
            let (number, manner) = self.choose();
            let lock = self.wanted(number, manner);
            match manner {
                Manner::Usual => {
                    if let Some((call, guard)) = self.acquire(&lock, None).await {
                        self.hold(call, &lock, guard, true).await;
                    }
                }
                Manner::Owned => self.own(&lock).await,
                Manner::Run => self.run_body(&lock).await,
                Manner::Several => self.several().await,
                Manner::Force => self.force(number).await,
            }
            rest(self.random.pick(&[0, 1, 5, 20, 100])).await;
        }
    }

    fn wanted(&mut self, number: usize, manner: Manner) -> Wanted {
        let ttl = self.stage.plan.ttl;
        let name = self.stage.plan.lock(number);
        let lock = match manner {
            Manner::Owned => self.latch.owner("owner").mutex(name),
            _ => self.latch.mutex(name),
        };
        let mut lock = lock.ttl(ttl).fencing(!self.stage.plan.is_plain(number));
        let renewal = self.random.percent(85);
        lock = lock.renewal(renewal);
        let is_limited = self.random.percent(10);
        if is_limited {
            lock = lock.max_hold(ttl * 2);
        }
        Wanted {
            number,
            lock,
            renewal,
            renewed: renewal && !is_limited,
        }
    }

    /// Takes and holds each of some locks, at the same moment and each for itself. Nobody
    /// waits for one while it has another, or at the end for all of them: who holds one
    /// lets go of it after a while, whatever becomes of the others.
    async fn several(&mut self) {
        let names = self.stage.plan.names();
        let first = self.random.below(names);
        let count = self.random.between(2, names.min(6) as u64) as usize;
        let each = (0..count).map(|at| {
            let mut task = Self {
                stage: self.stage.clone(),
                latch: self.latch.clone(),
                gate: self.gate.clone(),
                client: self.client,
                random: Random::new(self.random.next(), 8),
            };
            async move {
                let lock = task.wanted((first + at) % names, Manner::Usual);
                if let Some((call, guard)) = task.acquire(&lock, None).await {
                    task.hold(call, &lock, guard, true).await;
                }
            }
        });
        let each: Vec<_> = each.collect();
        join_all(each).await;
    }

    /// Which lock, and what is done with it.
    fn choose(&mut self) -> (usize, Manner) {
        let plan = &self.stage.plan;
        let number = self.random.below(plan.locks);
        if plan.workload < Workload::Second {
            return (number, Manner::Usual);
        }
        let calm = self.stage.is_calm();
        match self.random.below(100) {
            0..=14 => (plan.locks, Manner::Usual),
            15..=26 => (number, Manner::Owned),
            27..=36 => (number, Manner::Run),
            37..=40 if !calm => (number, Manner::Force),
            41..=65 if plan.workload >= Workload::Fourth => (number, Manner::Several),
            _ => (number, Manner::Usual),
        }
    }

    /// Locks as an owner, and mostly a second time.
    async fn own(&mut self, lock: &Wanted) {
        let owner = Some(self.client);
        let Some((call, guard)) = self.acquire(lock, owner).await else {
            return;
        };
        if self.random.percent(60)
            && let Some((again, inner)) = self.acquire(lock, owner).await
        {
            rest(self.random.between(0, 20)).await;
            // The two may be different leases, when the first was lost.
            let lost = inner.ensure_held().is_err();
            let end = if lost { End::Lost } else { End::Released };
            self.stage.note(again, Event::Ended(end));
            drop(inner);
        }
        self.hold(call, lock, guard, false).await;
    }

    /// Locks by `run`: the body is dropped when the lock is lost.
    async fn run_body(&mut self, lock: &Wanted) {
        let call = self.stage.history.next_call();
        let begin = Event::Begin {
            lock: lock.number,
            waits: true,
            adopts: None,
            owner: None,
            renewed: lock.renewed,
        };
        self.stage.note(call, begin);
        let length = match self.random.below(4) {
            0 => self.random.between(30, 300),
            _ => self.random.between(0, 30),
        };
        let (stage, gate) = (self.stage.clone(), self.gate.clone());
        let body = |lease: Lease| async move {
            let (token, fence) = (lease.token().id().to_owned(), lease.fence());
            stage.note(call, Event::Acquired { token, fence });
            rest(length).await;
            gate.pass().await;
            let end = match lease.ensure_held() {
                Ok(()) => End::Released,
                Err(_) => End::Lost,
            };
            stage.note(call, Event::Ended(end));
            Ok::<(), ()>(())
        };
        match lock.lock.run(body).await {
            Err(RunError::Lock(_)) => self.stage.note(call, Event::GaveUp),
            Err(RunError::Lost {
                completed: false, ..
            }) => {
                self.stage.note(call, Event::Ended(End::Lost));
                self.stage.count("bodies dropped");
            }
            _ => {}
        }
    }

    /// Takes a lock away from whoever has it.
    async fn force(&mut self, number: usize) {
        let call = self.stage.history.next_call();
        self.stage.note(call, Event::Forces { lock: number });
        self.stage.count("locks taken by force");
        let name = self.stage.plan.lock(number);
        let forced = self.latch.force_release(name);
        let done = match self.random.percent(20) {
            true => {
                let soon = Duration::from_millis(self.random.between(0, 4));
                timeout(soon, forced)
                    .await
                    .is_ok_and(|forced| forced.is_ok())
            }
            false => forced.await.is_ok(),
        };
        self.stage.note(call, Event::Forced { done });
    }

    async fn acquire(&mut self, wanted: &Wanted, owner: Option<usize>) -> Option<(usize, Guard)> {
        let Wanted { number, lock, .. } = wanted;
        let call = self.stage.history.next_call();
        let begin = |waits, adopts| Event::Begin {
            lock: *number,
            waits,
            adopts,
            owner,
            renewed: wanted.renewed,
        };
        if let Some((from, exported)) = self.adrift(*number, owner) {
            self.stage.note(call, begin(false, Some(from)));
            let adopted = lock.adopt(exported).await;
            return self.came_of(call, adopted.ok());
        }
        let patience = Duration::from_millis(self.random.between(1, 800));
        let got = match self.random.below(10) {
            0..=4 => {
                self.stage.note(call, begin(true, None));
                lock.lock().await.ok()
            }
            5 | 6 => {
                self.stage.note(call, begin(true, None));
                let locked = timeout(patience, lock.lock()).await;
                if locked.is_err() {
                    self.stage.count("cancelled waits");
                }
                locked.ok().and_then(Result::ok)
            }
            7 => {
                // Cut off early, while requests are under way.
                self.stage.note(call, begin(false, None));
                let soon = Duration::from_millis(self.random.between(0, 4));
                let locked = timeout(soon, lock.lock()).await;
                if locked.is_err() {
                    self.stage.count("cancelled attempts");
                }
                locked.ok().and_then(Result::ok)
            }
            8 => {
                self.stage.note(call, begin(true, None));
                lock.lock_timeout(patience).await.ok()
            }
            _ => {
                self.stage.note(call, begin(false, None));
                lock.try_lock().await.ok().flatten()
            }
        };
        self.came_of(call, got)
    }

    fn came_of(&self, call: usize, guard: Option<Guard>) -> Option<(usize, Guard)> {
        let Some(guard) = guard else {
            self.stage.note(call, Event::GaveUp);
            return None;
        };
        let (token, fence) = (guard.token().id().to_owned(), guard.fence());
        self.stage.note(call, Event::Acquired { token, fence });
        Some((call, guard))
    }

    /// A lease that somebody has let go of, to be adopted.
    fn adrift(&self, number: usize, owner: Option<usize>) -> Option<(usize, Exported)> {
        if owner.is_some() {
            return None;
        }
        let adrift = &self.stage.adrift;
        let mut adrift = adrift.lock().unwrap_or_else(PoisonError::into_inner);
        let found = adrift.iter().position(|(lock, ..)| *lock == number)?;
        let (_, call, exported) = adrift.remove(found);
        Some((call, exported))
    }

    async fn hold(&mut self, call: usize, lock: &Wanted, guard: Guard, may_detach: bool) {
        let ttl = self.stage.plan.ttl.as_millis() as u64;
        // Without renewal, now and then to the very end.
        let length = match self.random.below(if lock.renewal { 12 } else { 20 }) {
            0..=3 => 0,
            4..=8 => self.random.between(1, 30),
            9 | 10 => self.random.between(30, 300),
            _ if self.stage.plan.patient => self.random.between(300, ttl / 2),
            _ => self.random.between(ttl, 2 * ttl),
        };
        let renewals = if self.random.percent(20) { 4 } else { 0 };
        let work = async {
            rest(length / 2).await;
            for _ in 0..renewals {
                let _ = guard.renew(Duration::from_millis(ttl)).await;
            }
            rest(length / 2).await;
            self.gate.pass().await;
        };
        let lost = tokio::select! {
            biased;
            _ = guard.lost() => true,
            () = work => guard.ensure_held().is_err(),
        };
        let detaches = self.random.percent(4)
            && may_detach
            && !self.stage.plan.patient
            && !self.stage.is_calm();
        let end = match (lost, detaches) {
            (true, _) => End::Lost,
            (false, true) => End::Detached,
            (false, false) => End::Released,
        };
        self.stage.note(call, Event::Ended(end));
        if end == End::Lost {
            self.stage.count("leases lost");
        }
        match (end, self.random.below(4)) {
            (End::Detached, keep) => {
                let exported = guard.detach();
                if keep > 0 {
                    let adrift = &self.stage.adrift;
                    let mut adrift = adrift.lock().unwrap_or_else(PoisonError::into_inner);
                    adrift.push((lock.number, call, exported));
                }
            }
            (_, 0) => drop(guard),
            (_, 1) => {
                let soon = Duration::from_millis(self.random.between(0, 3));
                let _ = timeout(soon, guard.release()).await;
            }
            _ => {
                let _ = guard.release().await;
            }
        }
    }
}
