//! A node inside this process.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redlatch_core::{Instant, Key, News, NodeState, Reply, Request, Scene, Switchboard};

use super::{
    Bell, Bells, Call, Charter, Node, NodeError, Page, Pattern, Ready, Scanning, Watched, Watching,
};
use crate::clock::{Clock, SystemClock};

/// How many keys are looked at before others get their turn.
const PAGE: usize = 1000;

/// A lock server inside this process: for tests, and for programs that need
/// the locks of one process only.
///
/// Clones are the same node, so several clients can meet on it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use redlatch::{MemoryNode, Redlatch};
///
/// let node = MemoryNode::new();
/// let one = Redlatch::builder().node(node.clone()).build().await?;
/// let other = Redlatch::builder().node(node).build().await?;
///
/// let guard = one.mutex("stock").lock().await?;
/// assert!(other.mutex("stock").try_lock().await?.is_none());
/// # guard.release().await?;
/// # Ok::<_, redlatch::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct MemoryNode {
    inner: Arc<Inner>,
    charter: Option<Charter>,
}

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
    /// Leases are timed by the time that has passed since, on top of this.
    born: Instant,
    run: Arc<str>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bells: Bells,
    /// Which clients are to be told when something happens to a key.
    watchers: HashMap<Key, HashSet<Arc<str>>>,
    node: NodeState,
    /// How many keys were left after the last sweep.
    swept: usize,
}

impl MemoryNode {
    /// An empty node.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty node that reads the time from `clock`.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let born = clock.now();
        Self {
            inner: Arc::new(Inner {
                clock,
                born,
                run: "memory".into(),
                state: Mutex::default(),
            }),
            charter: None,
        }
    }

    /// How many keys it stores, those among them whose time is over and that
    /// nobody asked for since.
    pub fn len(&self) -> usize {
        self.lock().node.len()
    }

    /// Whether it stores nothing at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        let Inner { clock, born, .. } = &*self.inner;
        let age = u64::try_from(clock.now().since(*born).as_millis());
        born.unix_millis().saturating_add(age.unwrap_or(u64::MAX))
    }
}

impl Default for MemoryNode {
    fn default() -> Self {
        Self::new()
    }
}

impl Node for MemoryNode {
    fn enlist(&mut self, charter: Charter) {
        self.charter = Some(charter);
    }

    fn name(&self) -> &str {
        "memory"
    }

    fn call(&self, request: Request, _limit: Duration) -> Call {
        let node = self.clone();
        Box::pin(async move {
            let now = node.now();
            let mut state = node.lock();
            let state = &mut *state;
            // Keys that nobody asks for again must not pile up: sweep when the
            // number has doubled, which costs a constant share of each request.
            if state.node.len() > 2 * state.swept + 64 {
                state.node.sweep(now);
                state.swept = state.node.len();
                state
                    .watchers
                    .retain(|key, _| state.node.get(key).is_some());
            }
            let charter = node.charter.as_ref();
            let scene = Scene {
                now,
                run: &node.inner.run,
                policy: charter.and_then(|charter| charter.policy.as_ref()),
                turn: charter.map_or(0, |charter| charter.turn.as_millis() as u64),
                board: &state.bells,
            };
            let reply = state.node.apply(&request, &scene);
            if let (Reply::Released, Some(key)) = (&reply, request.key()) {
                for client in state.watchers.remove(key).into_iter().flatten() {
                    state.bells.ring(&called(&client, key), News::Changed);
                }
            }
            Ok(reply)
        })
    }

    fn watch(&self, key: Key, _limit: Duration) -> Watching {
        let node = self.clone();
        Box::pin(async move {
            let now = node.now();
            let mut state = node.lock();
            state.node.sweep_key(&key, now);
            let stored = state.node.get(&key);
            let remaining = stored.map(|stored| stored.remaining(now).unwrap_or(Duration::MAX));
            // It does not tell of an expiry; that is what the lease's end is for.
            let client = node.charter.as_ref().map(|charter| &charter.client);
            let told = client.is_some();
            if let Some(client) = client.filter(|_| remaining.is_some()) {
                state
                    .watchers
                    .entry(key)
                    .or_default()
                    .insert(client.clone());
            }
            Ok(Watched { remaining, told })
        })
    }

    fn listen(&self, key: &Key) -> Option<Bell> {
        let client = &self.charter.as_ref()?.client;
        Some(self.lock().bells.hang(&called(client, key)))
    }

    fn scan(&self, pattern: Pattern, after: Option<String>, _limit: Duration) -> Scanning {
        let node = self.clone();
        Box::pin(async move {
            let now = node.now();
            let state = node.lock();
            let mut keys = state.node.keys_after(after.as_deref().unwrap_or(""));
            let page: Vec<(Key, bool)> = keys
                .by_ref()
                .take(PAGE)
                .map(|(key, stored)| (key.clone(), stored.is_there(now)))
                .collect();
            let next = keys.next().and(page.last());
            Ok(Page {
                next: next.map(|(key, _)| key.as_str().to_owned()),
                looked_at: page.len() as u64,
                total: Some(state.node.len() as u64),
                keys: page
                    .into_iter()
                    .filter(|(key, is_there)| *is_there && pattern.matches(key.as_str()))
                    .map(|(key, _)| key)
                    .collect(),
            })
        })
    }

    fn ready(
        &self,
        _limit: Duration,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Ready, NodeError>> + Send>> {
        let identity = Some(format!("memory {:p}", Arc::as_ptr(&self.inner)));
        Box::pin(async move { Ok(Ready { identity }) })
    }
}

/// Calls those who listen.
impl Switchboard for Bells {
    fn call(&self, client: &str, key: &Key, news: News) -> bool {
        self.ring(&called(client, key), news)
    }
}

/// Under which name the bell hangs by which a client is called for a lock.
fn called(client: &str, key: &Key) -> Key {
    Key::new(format!("{client} {key}"))
}
