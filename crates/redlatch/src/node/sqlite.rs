//! A node in a file on this machine.
//!
//! Thin around the rules of [`redlatch_core`], like the node in memory: what is
//! here is where they are kept and how processes meet there.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `store` | the transactions, and why they are as they are |
//! | `ledger` | what is loaded and stored for a request |
//! | `clock` | the clock that all processes of a machine share |
//! | `file` | the file itself, and what can be wrong with it |
//! | `wake` | how who waits hears of other processes |

mod clock;
mod file;
mod ledger;
mod store;
#[cfg(test)]
mod tests;
mod wake;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use redlatch_core::{Key, News, Reply, Request};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use self::clock::Boot;
use self::file::BookFile;
use self::store::Store;
use self::wake::Doorbell;
use super::{
    Bell, Bells, Call, CallAll, Charter, Examining, Facts, Node, NodeError, NodeErrorKind, Page,
    Pattern, Ready, Scanning, USUAL_FILE_LIMIT, Watched, Watching,
};

/// So long nobody looks again for what other processes have freed: what they
/// do in quick succession is one look.
const PAUSE: Duration = Duration::from_millis(1);

/// How long a look at what others have freed may wait for the file.
const LOOK: Duration = Duration::from_millis(500);

/// A lock server in a file on this machine: for programs whose processes all
/// run on one machine. They exclude each other by the same path.
///
/// Also given by URL, as `sqlite:PATH`. The file is made when it is missing,
/// and its directory too; it must be on a local disk. Nothing is lost when
/// processes are killed. After a power failure fences go on growing, and leases
/// that were granted in the last moments may be forgotten, together with the
/// processes that held them. Linux only.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("locks.db");
/// use redlatch::{Redlatch, SqliteNode};
///
/// let latch = Redlatch::builder().node(SqliteNode::new(&path)).build().await?;
/// let guard = latch.mutex("nightly").lock().await?;
///
/// // Any other process of this machine:
/// let other = Redlatch::connect(&format!("sqlite:{}", path.display())).await?;
/// assert!(other.mutex("nightly").try_lock().await?.is_none());
/// # guard.release().await?;
/// # Ok::<_, redlatch::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct SqliteNode {
    name: String,
    file: BookFile,
    jobs: Result<mpsc::Sender<Job>, NodeError>,
    wakes: Arc<Wakes>,
}

/// SQLite's calls block, so they run on a thread of their own, one for each
/// node, in the order in which they were asked for.
type Job = Box<dyn FnOnce(&mut Store) + Send>;

impl SqliteNode {
    /// The node in this file. Nothing is done to the file before a client is built.
    pub fn new(path: impl AsRef<Path>) -> Self {
        // Absolute, so that a program may change its directory, and so that no
        // name has a meaning of its own to SQLite.
        let path = path.as_ref();
        let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let unready = "it is not part of a client yet";
        Self {
            name: format!("sqlite:{}", path.display()),
            file: BookFile::new(path),
            jobs: Err(NodeError::new(NodeErrorKind::Unreachable, unready)),
            wakes: Arc::default(),
        }
    }

    /// The path in a URL: `sqlite:PATH` or `sqlite:///PATH`. Nothing when it
    /// is another kind of URL.
    pub(crate) fn path_in(url: &str) -> Option<Result<PathBuf, String>> {
        let rest = url.strip_prefix("sqlite:")?;
        let path = match rest.strip_prefix("//") {
            Some(path) if path.starts_with('/') => path,
            Some(_) => {
                let problem = "write sqlite:PATH, or sqlite:///PATH with three slashes";
                return Some(Err(problem.into()));
            }
            None => rest,
        };
        Some(match path {
            "" => Err("it names no file: write sqlite:PATH".into()),
            path if path.ends_with('/') => Err("it names a directory, not a file".into()),
            path => Ok(path.into()),
        })
    }

    /// Does the work on the node's thread, as soon as the future is first polled.
    fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&mut Store, Instant) -> Result<T, NodeError> + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = Result<T, NodeError>> + Send>> {
        let jobs = self.jobs.clone();
        Box::pin(async move {
            let done = submit(&jobs?, limit, work)?;
            match tokio::time::timeout(limit, done).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(gone()),
                Err(_) => Err(NodeError::timed_out(limit)),
            }
        })
    }

    fn ask(
        &self,
        requests: Vec<Request>,
        limit: Duration,
    ) -> impl Future<Output = Result<Vec<Reply>, NodeError>> + Send + use<> {
        let (file, wakes) = (self.file.clone(), self.wakes.clone());
        self.run(limit, move |store, deadline| {
            let replies = store.apply(&requests, deadline)?;
            let mut freed = requests
                .iter()
                .zip(&replies)
                .filter_map(|(request, reply)| request.key().filter(|_| *reply == Reply::Released))
                .peekable();
            if freed.peek().is_some() {
                file.touch();
            }
            freed.for_each(|key| {
                wakes.bells.ring(key, News::Changed);
            });
            Ok(replies)
        })
    }
}

impl Node for SqliteNode {
    fn enlist(&mut self, charter: Charter) {
        self.jobs = start(&self.file, &charter);
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn usual_limit(&self) -> Duration {
        USUAL_FILE_LIMIT
    }

    fn call(&self, request: Request, limit: Duration) -> Call {
        let replies = self.ask(vec![request], limit);
        Box::pin(async move { replies.await?.pop().ok_or_else(gone) })
    }

    fn call_all(&self, requests: Vec<Request>, limit: Duration) -> CallAll {
        let asked = requests.len();
        let replies = self.ask(requests, limit);
        Box::pin(async move {
            match replies.await {
                Ok(replies) => replies.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); asked],
            }
        })
    }

    fn listen(&self, key: &Key) -> Option<Bell> {
        Some(self.wakes.bells.hang(key))
    }

    fn watch(&self, key: Key, limit: Duration) -> Watching {
        let told = self.wakes.start(&self.file, &self.jobs);
        let lives = self.run(limit, move |store, deadline| store.lives(&[key], deadline));
        let wakes = self.wakes.clone();
        Box::pin(async move {
            let remaining = lives.await?.pop().flatten();
            // Now that the file is there for sure.
            wakes.asked.notify_one();
            Ok(Watched { remaining, told })
        })
    }

    fn scan(&self, pattern: Pattern, after: Option<String>, limit: Duration) -> Scanning {
        self.run(limit, move |store, deadline| -> Result<Page, NodeError> {
            store.scan(&pattern, after.as_deref(), deadline)
        })
    }

    fn examine(&self, limit: Duration) -> Examining {
        self.run(limit, |store, deadline| {
            let identity = Some(store.identity(deadline)?);
            let mut round_trips = Vec::new();
            for _ in 0..5 {
                let begin = Instant::now();
                store.lives(&[Key::new("")], deadline)?;
                round_trips.push(begin.elapsed());
            }
            Ok(Facts {
                version: Some(format!("SQLite {}", rusqlite::version())),
                round_trips,
                identity,
                // What is held is forgotten only together with its holder.
                is_durable: Some(true),
                is_replica: Some(false),
                ..Facts::default()
            })
        })
    }

    fn ready(
        &self,
        limit: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Ready, NodeError>> + Send>> {
        let identity = self.run(limit, Store::identity);
        Box::pin(async move {
            let identity = Some(identity.await?);
            Ok(Ready { identity })
        })
    }
}

impl Drop for SqliteNode {
    fn drop(&mut self) {
        if let Some(task) = self.wakes.task.get() {
            task.abort();
        }
    }
}

/// Starts the thread; it ends when nobody can ask it anything any more.
fn start(file: &BookFile, charter: &Charter) -> Result<mpsc::Sender<Job>, NodeError> {
    let storage =
        |what: &str, error| NodeError::new(NodeErrorKind::Storage, format!("{what}: {error}"));
    let boot = Boot::read().map_err(|error| storage("this boot has no name in /proc", error))?;
    let mut store = Store::new(file.clone(), boot, charter);
    let (jobs, receiver) = mpsc::channel::<Job>();
    std::thread::Builder::new()
        .name("redlatch-sqlite".into())
        .spawn(move || {
            for job in receiver {
                job(&mut store);
                store.look_after();
            }
        })
        .map_err(|error| storage("its thread can't be started", error))?;
    Ok(jobs)
}

fn submit<T: Send + 'static>(
    jobs: &mpsc::Sender<Job>,
    limit: Duration,
    work: impl FnOnce(&mut Store, Instant) -> Result<T, NodeError> + Send + 'static,
) -> Result<oneshot::Receiver<Result<T, NodeError>>, NodeError> {
    // Sooner than the limit, so that what is known of the cause can be told.
    let deadline = Instant::now() + (limit - limit / 8).min(Duration::from_secs(3600));
    let (sender, done) = oneshot::channel();
    let job: Job = Box::new(move |store| {
        // What came too late is not done at all: whoever asked has been told so.
        let _ = match Instant::now() < deadline {
            true => sender.send(work(store, deadline)),
            false => sender.send(Err(NodeError::timed_out(limit))),
        };
    });
    jobs.send(job).map_err(|_| gone())?;
    Ok(done)
}

fn gone() -> NodeError {
    NodeError::new(NodeErrorKind::Unreachable, "its thread has ended")
}

/// Who waits in this process, and the task that tells them.
#[derive(Debug, Default)]
struct Wakes {
    bells: Bells,
    /// Somebody wants to be told.
    asked: Notify,
    task: std::sync::OnceLock<AbortHandle>,
    /// Whether the system has no bells left.
    deaf: AtomicBool,
}

impl Wakes {
    /// Sees that somebody listens to other processes; false when nobody can.
    fn start(
        self: &Arc<Self>,
        file: &BookFile,
        jobs: &Result<mpsc::Sender<Job>, NodeError>,
    ) -> bool {
        let (Ok(jobs), Ok(runtime)) = (jobs, tokio::runtime::Handle::try_current()) else {
            return false;
        };
        self.task.get_or_init(|| {
            let work = listen(self.clone(), file.path().into(), jobs.clone());
            runtime.spawn(work).abort_handle()
        });
        !self.deaf.load(Ordering::Relaxed)
    }
}

/// Rings for what other processes have freed, and for what has expired.
async fn listen(wakes: Arc<Wakes>, path: PathBuf, jobs: mpsc::Sender<Job>) {
    wakes.asked.notified().await;
    let Some(doorbell) = Doorbell::new(&path) else {
        tracing::warn!(
            file = %path.display(),
            "no inotify left (fs.inotify.max_user_instances): waiters ask again and again instead"
        );
        wakes.deaf.store(true, Ordering::Relaxed);
        wakes.bells.ring_all();
        return;
    };
    loop {
        let keys = wakes.bells.keys();
        if keys.is_empty() {
            wakes.asked.notified().await;
            continue;
        }
        let begin = Instant::now();
        let bells = wakes.clone();
        let looked = submit(&jobs, LOOK, move |store, deadline| {
            let mut soonest = Duration::MAX;
            for (key, life) in keys.iter().zip(store.lives(&keys, deadline)?) {
                match life {
                    None => {
                        bells.bells.ring(key, News::Changed);
                    }
                    Some(life) => soonest = soonest.min(life),
                }
            }
            Ok(soonest)
        });
        let Ok(looked) = looked else { return };
        let soonest = match looked.await {
            Ok(Ok(soonest)) => soonest,
            // Those who wait find out for themselves what is wrong.
            _ => {
                wakes.bells.ring_all();
                LOOK
            }
        };
        // Where many are waited for, a look takes longer: others get as much time.
        tokio::time::sleep(PAUSE.max(begin.elapsed())).await;
        tokio::select! {
            () = doorbell.rung(&path) => {}
            () = wakes.asked.notified() => {}
            () = tokio::time::sleep(soonest.saturating_add(PAUSE).min(Duration::from_secs(3600))) => {}
        }
    }
}
