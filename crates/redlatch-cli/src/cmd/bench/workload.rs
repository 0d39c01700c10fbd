//! What is measured: answers of single nodes, and locks over all of them.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join, try_join_all};
use redlatch::node::NodeError;
use redlatch::{Error, Mutex, NodeView};

use super::times::Times;

/// Between two questions to the same node: this is not to be a load.
const PAUSE: Duration = Duration::from_millis(2);

/// The same after one that failed.
const LONG_PAUSE: Duration = Duration::from_millis(20);

/// So many failures in a row from the start, and it is said why.
const HOPELESS: u64 = 3;

/// How fast one node answers.
pub(super) struct NodeFigures {
    pub(super) node: String,
    pub(super) answers: Times,
    pub(super) failures: u64,
    /// Why the last question that failed did so.
    pub(super) error: Option<String>,
    /// Its clock, by the quickest answer: that is off by half of its time at most.
    pub(super) clock_ahead: Option<i64>,
}

/// How fast locks are.
pub(super) struct LockFigures {
    pub(super) workload: Workload,
    pub(super) fenced: bool,
    pub(super) tasks: usize,
    /// Acquire and release; when a lock is handed on, from the release to the next holder.
    pub(super) cycles: Times,
    pub(super) acquires: Times,
    pub(super) releases: Times,
    pub(super) failures: u64,
    pub(super) error: Option<Error>,
    /// How long it was measured.
    pub(super) took: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// One lock at a time.
    Single,
    /// Many tasks, each with a lock of its own.
    Parallel,
    /// Two clients that pass one lock to and fro.
    HandOff,
}

impl Workload {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Parallel => "parallel",
            Self::HandOff => "hand-off",
        }
    }
}

/// Asks every node again and again, each at its own pace.
pub(super) async fn ask_nodes(
    nodes: &[NodeView],
    length: Duration,
    limit: Duration,
) -> Vec<NodeFigures> {
    let asked = nodes.iter().map(|node| async move {
        let mut figures = NodeFigures::new(node.name());
        let mut quickest = Duration::MAX;
        let begin = Instant::now();
        while begin.elapsed() < length {
            match node.probe(limit).await {
                Ok(probe) => {
                    figures.answers.add(probe.took);
                    if probe.took < quickest {
                        quickest = probe.took;
                        figures.clock_ahead = probe.clock_ahead;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    figures.fail(&error);
                    tokio::time::sleep(LONG_PAUSE).await;
                }
            }
        }
        figures
    });
    join_all(asked).await
}

impl NodeFigures {
    pub(super) fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            answers: Times::default(),
            failures: 0,
            error: None,
            clock_ahead: None,
        }
    }

    fn fail(&mut self, error: &NodeError) {
        self.failures += 1;
        self.error = Some(error.to_string());
    }
}

/// One lock at a time, by turns of each kind, so that both see the same machine.
pub(super) async fn one_at_a_time(
    mutexes: [&Mutex; 2],
    length: Duration,
) -> Result<[LockFigures; 2], Error> {
    let [mut fenced, mut plain] =
        [true, false].map(|fenced| LockFigures::new(Workload::Single, fenced, 1));
    let begin = Instant::now();
    while begin.elapsed() < length {
        fenced.cycle(mutexes[0]).await?;
        plain.cycle(mutexes[1]).await?;
    }
    Ok([fenced, plain])
}

/// Each mutex in a task of its own, all of them at once.
pub(super) async fn in_parallel(
    mutexes: &[Mutex],
    fenced: bool,
    length: Duration,
) -> Result<LockFigures, Error> {
    let figures = LockFigures::new(Workload::Parallel, fenced, mutexes.len());
    let figures = RefCell::new(figures);
    let begin = Instant::now();
    // In one task: when it is dropped, all that they hold is given back.
    let tasks = mutexes.iter().map(|mutex| async {
        while begin.elapsed() < length {
            let cycled = cycle(mutex).await;
            figures.borrow_mut().note(cycled)?;
        }
        Ok::<(), Error>(())
    });
    try_join_all(tasks).await?;
    let mut figures = figures.into_inner();
    figures.took = begin.elapsed();
    Ok(figures)
}

/// Two clients that want the same lock all the time. Each holds it for as long
/// as the other needs to come to the queue.
pub(super) async fn hand_off(
    mutexes: [&Mutex; 2],
    hold: Duration,
    length: Duration,
) -> Result<LockFigures, Error> {
    let figures = RefCell::new(LockFigures::new(Workload::HandOff, true, 2));
    let released: Cell<Option<Instant>> = Cell::new(None);
    let begin = Instant::now();
    let player = |mutex: &Mutex| {
        let mutex = mutex.clone();
        let (figures, released) = (&figures, &released);
        async move {
            while begin.elapsed() < length {
                let asked = Instant::now();
                let guard = match mutex.lock_timeout(length).await {
                    Ok(guard) => guard,
                    Err(error) => {
                        figures.borrow_mut().fail(error)?;
                        tokio::time::sleep(LONG_PAUSE).await;
                        continue;
                    }
                };
                // Only of one that had come before: else it is not passed on.
                if let Some(released) = released.take()
                    && released.saturating_duration_since(asked) >= hold / 2
                {
                    figures.borrow_mut().cycles.add(released.elapsed());
                }
                tokio::time::sleep(hold).await;
                released.set(Some(Instant::now()));
                if let Err(error) = guard.release().await {
                    figures.borrow_mut().fail(error)?;
                }
            }
            Ok::<(), Error>(())
        }
    };
    try_join(player(mutexes[0]), player(mutexes[1])).await?;
    let mut figures = figures.into_inner();
    figures.took = begin.elapsed();
    Ok(figures)
}

/// How long an acquire and a release took, or why there was none.
type Cycled = Result<(Duration, Duration), Option<Error>>;

async fn cycle(mutex: &Mutex) -> Cycled {
    let begin = Instant::now();
    let failure = match mutex.try_lock().await {
        Ok(Some(guard)) => {
            let acquired = begin.elapsed();
            match guard.release().await {
                Ok(()) => return Ok((acquired, begin.elapsed() - acquired)),
                Err(error) => Some(error),
            }
        }
        // What is left of a release that failed.
        Ok(None) => None,
        Err(error) => Some(error),
    };
    tokio::time::sleep(LONG_PAUSE).await;
    Err(failure)
}

impl LockFigures {
    fn new(workload: Workload, fenced: bool, tasks: usize) -> Self {
        Self {
            workload,
            fenced,
            tasks,
            cycles: Times::default(),
            acquires: Times::default(),
            releases: Times::default(),
            failures: 0,
            error: None,
            took: Duration::ZERO,
        }
    }

    pub(super) fn per_second(&self) -> f64 {
        match self.took.is_zero() {
            true => 0.0,
            false => self.cycles.count() as f64 / self.took.as_secs_f64(),
        }
    }

    /// One that is measured alone: only its own time counts.
    async fn cycle(&mut self, mutex: &Mutex) -> Result<(), Error> {
        let begin = Instant::now();
        let cycled = cycle(mutex).await;
        self.took += begin.elapsed();
        self.note(cycled)
    }

    fn note(&mut self, cycled: Cycled) -> Result<(), Error> {
        match cycled {
            Ok((acquire, release)) => {
                self.cycles.add(acquire + release);
                self.acquires.add(acquire);
                self.releases.add(release);
                Ok(())
            }
            Err(Some(error)) => self.fail(error),
            Err(None) => {
                self.failures += 1;
                Ok(())
            }
        }
    }

    /// A failure now and then is a figure; one that waiting can't mend, or that
    /// all attempts end in, is the end.
    fn fail(&mut self, error: Error) -> Result<(), Error> {
        self.failures += 1;
        let passes = matches!(
            error,
            Error::NoQuorum(_) | Error::Timeout(_) | Error::Lost(_)
        );
        let hopeless = self.cycles.count() == 0 && self.failures >= HOPELESS;
        if !passes || hopeless || error.is_quarantined() {
            return Err(error);
        }
        self.error = Some(error);
        Ok(())
    }
}
