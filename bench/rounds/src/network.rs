//! Nodes that run the shipped rules, behind a network with random delays.
//!
//! Messages are events in the order of their nanoseconds; only the clients'
//! own timers go by milliseconds, as tokio's do.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlatch::Clock;
use redlatch::core::{self, Key, News, NodeState, Reply, Request, Scene, Switchboard};
use redlatch::node::{Bells, Watched};
use tokio::sync::oneshot;
use tokio::time::Instant;

use redlatch_testkit::Dice;

/// How many nodes there are.
pub(crate) const NODES: usize = 5;

/// How long a message is under way: from, to; and one in a hundred up to that long.
const DELAY: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(1));
const LONG_DELAY: Duration = Duration::from_millis(10);

/// What the nodes' clocks show at the beginning.
const EPOCH: Duration = Duration::from_secs(1_800_000_000);

/// All nodes, and what is under way to them and from them.
pub(crate) struct Network {
    start: Instant,
    /// For how long nodes keep a free lock for the first who waits.
    turn: Mutex<Duration>,
    /// Whether nodes keep to themselves who has a lock, so that nobody can
    /// tell who is to keep its grants.
    secretive: bool,
    state: Mutex<State>,
}

struct State {
    dice: Dice,
    nodes: Vec<NodeOfAll>,
    /// The bells of each client on each node.
    bells: BTreeMap<(usize, Arc<str>), Bells>,
    events: BinaryHeap<Reverse<Event>>,
    /// When the last message comes in on each line: they don't overtake each other.
    lines: BTreeMap<(usize, Arc<str>, Way), Duration>,
    sent: u64,
}

#[derive(Default)]
struct NodeOfAll {
    state: NodeState,
    watchers: BTreeMap<Key, BTreeSet<Arc<str>>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    There,
    Back,
}

struct Event {
    at: Duration,
    number: u64,
    what: What,
}

enum What {
    Asked(usize, Arc<str>, Question),
    Answered(oneshot::Sender<Reply>, Reply),
    Looked(oneshot::Sender<Watched>, Watched),
    Told(Bells, Key, News),
}

/// What a client sends.
pub(crate) enum Question {
    Do(Request, oneshot::Sender<Reply>),
    Watch(Key, oneshot::Sender<Watched>),
}

impl Network {
    pub(crate) fn new(seed: u64, secretive: bool) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            turn: Mutex::default(),
            secretive,
            state: Mutex::new(State {
                dice: Dice::new(seed),
                nodes: (0..NODES).map(|_| NodeOfAll::default()).collect(),
                bells: BTreeMap::new(),
                events: BinaryHeap::new(),
                lines: BTreeMap::new(),
                sent: 0,
            }),
        })
    }

    /// A client comes to a node, and can be called there from now on.
    pub(crate) fn join(&self, node: usize, client: &Arc<str>, turn: Duration, bells: Bells) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = turn;
        self.lock().bells.insert((node, client.clone()), bells);
    }

    pub(crate) fn send(&self, node: usize, client: &Arc<str>, question: Question) {
        let what = What::Asked(node, client.clone(), question);
        self.lock()
            .post(self.now(), (node, client.clone(), Way::There), what);
    }

    /// How much time has passed.
    pub(crate) fn now(&self) -> Duration {
        Instant::now() - self.start
    }

    /// Lets time go on to the next message, or to when a timer may ring.
    pub(crate) async fn step(&self) {
        let now = self.now();
        let tick = Duration::from_millis(now.as_millis() as u64 + 1);
        let next = match self.lock().events.peek() {
            Some(Reverse(event)) => event.at.clamp(now, tick),
            None => tick,
        };
        tokio::time::advance(next - now).await;
        loop {
            let mut state = self.lock();
            if state.events.peek().is_none_or(|event| event.0.at > next) {
                break;
            }
            let Some(Reverse(event)) = state.events.pop() else {
                break;
            };
            self.deliver(&mut state, event);
        }
    }

    fn deliver(&self, state: &mut State, event: Event) {
        match event.what {
            What::Asked(node, client, question) => {
                self.answer(state, event.at, node, client, question);
            }
            // Who has stopped waiting does not hear it.
            What::Answered(asker, reply) => drop(asker.send(reply)),
            What::Looked(asker, watched) => drop(asker.send(watched)),
            What::Told(bells, key, news) => drop(bells.ring(&key, news)),
        }
    }

    /// A node does what it is asked to.
    fn answer(
        &self,
        state: &mut State,
        at: Duration,
        node: usize,
        client: Arc<str>,
        question: Question,
    ) {
        let now = (EPOCH + at).as_millis() as u64;
        let line = (node, client.clone(), Way::Back);
        let target = &mut state.nodes[node];
        match question {
            Question::Do(request, asker) => {
                let calls = Calls::default();
                let turn = *self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                let run = "simulated".into();
                let scene = Scene {
                    turn: turn.as_millis() as u64,
                    board: &calls,
                    ..Scene::new(now, &run, None)
                };
                let mut reply = target.state.apply(&request, &scene);
                if self.secretive {
                    hide_holder(&mut reply);
                }
                let mut calls = calls.0.into_inner();
                if let (Reply::Released, Some(key)) = (&reply, request.key()) {
                    let watchers = target.watchers.remove(key).into_iter().flatten();
                    calls.extend(watchers.map(|client| (client, key.clone(), News::Changed)));
                }
                state.post(at, line, What::Answered(asker, reply));
                for (client, key, news) in calls {
                    if let Some(bells) = state.bells.get(&(node, client.clone())).cloned() {
                        let line = (node, client, Way::Back);
                        state.post(at, line, What::Told(bells, key, news));
                    }
                }
            }
            Question::Watch(key, asker) => {
                target.state.sweep_key(&key, now);
                let stored = target.state.get(&key);
                let remaining = stored.map(|stored| stored.remaining(now).unwrap_or(Duration::MAX));
                if remaining.is_some() {
                    target.watchers.entry(key).or_default().insert(client);
                }
                let told = true;
                state.post(at, line, What::Looked(asker, Watched { remaining, told }));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn post(&mut self, now: Duration, line: (usize, Arc<str>, Way), what: What) {
        let most = match self.dice.below(100) {
            0 => LONG_DELAY,
            _ => DELAY.1,
        };
        let last = self.lines.entry(line).or_default();
        let at = (now + self.dice.time(DELAY.0, most)).max(*last);
        *last = at;
        self.sent += 1;
        let number = self.sent;
        self.events.push(Reverse(Event { at, number, what }));
    }
}

fn hide_holder(reply: &mut Reply) {
    if let Reply::Held(Some(holder))
    | Reply::Queued {
        holder: Some(holder),
        ..
    } = reply
    {
        holder.value = None;
    }
}

/// Notes whom a node calls while it does one thing.
#[derive(Debug, Default)]
struct Calls(RefCell<Vec<(Arc<str>, Key, News)>>);

impl Switchboard for Calls {
    fn call(&self, client: &str, key: &Key, news: News) -> bool {
        self.0.borrow_mut().push((client.into(), key.clone(), news));
        true
    }
}

/// The clock of every client: that of the simulation.
impl Clock for Network {
    fn now(&self) -> core::Instant {
        core::Instant::new(Network::now(self), EPOCH + Network::now(self))
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
