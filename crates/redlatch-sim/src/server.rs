//! A simulated Redis server: commands in, answers and pushes out.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlatch_core::rules::Policy;
use redlatch_core::{Key, NodeState, Reply, Request};
use tokio::time::Instant;

use crate::lua::Engine;
use crate::network::Wire;
use crate::plan::{Kind, Planted};
use crate::rulebook::{self, Board};
pub(crate) use crate::store::Refusal;
use crate::store::{Effects, Now, Store, is_write};
use crate::value::{Value, show, take_command};
use crate::world::{Ticker, World};

thread_local! {
    static ENGINE: RefCell<Engine> = RefCell::new(Engine::new());
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) node: usize,
    pub(crate) clock: Arc<Ticker>,
    world: Arc<World>,
    planted: Option<Planted>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    up: bool,
    /// How often it was started.
    runs: u64,
    memory: Memory,
    /// What it would find on its disk.
    saved: Memory,
    scripts: BTreeMap<String, String>,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    /// Which connections are to be told of which keys.
    tracked: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// What it refuses to do for now.
    refuses: Option<Refusal>,
    /// What clients want guarded: the rules ask for it, the scripts are told.
    policy: Option<Policy>,
}

#[derive(Clone, Debug)]
enum Memory {
    Scripts(Store),
    Rules(NodeState),
}

#[derive(Debug)]
struct Connection {
    wire: Wire,
    /// Whether the next read is tracked.
    caching: bool,
    channels: BTreeSet<String>,
}

/// What a server has after it was started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comeback {
    Kept,
    RolledBack,
    Emptied,
}

impl Server {
    pub(crate) fn new(
        node: usize,
        world: &Arc<World>,
        clock: Arc<Ticker>,
        kind: Kind,
        planted: Option<Planted>,
    ) -> Arc<Self> {
        let memory = Memory::empty(kind);
        Arc::new(Self {
            node,
            clock,
            world: world.clone(),
            planted,
            state: Mutex::new(State {
                up: true,
                runs: 1,
                saved: memory.clone(),
                memory,
                scripts: BTreeMap::new(),
                connections: BTreeMap::new(),
                next_connection: 1,
                tracked: BTreeMap::new(),
                refuses: None,
                policy: None,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Now {
        Now {
            micros: self.clock.day_micros(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.lock().up
    }

    pub(crate) fn next_connection(&self) -> u64 {
        let mut state = self.lock();
        state.next_connection += 1;
        state.next_connection
    }

    pub(crate) fn accept(&self, id: u64, wire: Wire) {
        let connection = Connection {
            wire,
            caching: false,
            channels: BTreeSet::new(),
        };
        self.lock().connections.insert(id, connection);
    }

    pub(crate) fn hang_up(&self, id: u64) {
        let mut state = self.lock();
        state.connections.remove(&id);
        state.tracked.values_mut().for_each(|ids| {
            ids.remove(&id);
        });
    }

    /// Bytes have come in: does all that is asked for in them.
    pub(crate) fn receive(&self, id: u64, input: &mut Vec<u8>) {
        while let Some(words) = take_command(input) {
            let mut state = self.lock();
            if !state.connections.contains_key(&id) {
                return;
            }
            let mut pushes = Vec::new();
            let answer = self.run(&mut state, id, &words, &mut pushes);
            self.world.note(|| {
                let shown = words
                    .iter()
                    .skip(usize::from(words[0].starts_with(b"EVAL")) * 2);
                let shown: Vec<_> = shown.map(|word| show(word)).collect();
                let mut what = String::new();
                answer.show(&mut what);
                format!(
                    "node {} connection {id}: {} -> {what}",
                    self.node,
                    shown.join(" ")
                )
            });
            for (to, push) in pushes {
                self.world.note(|| {
                    let mut what = String::new();
                    push.show(&mut what);
                    format!("node {} tells connection {to}: {what}", self.node)
                });
                self.send(&state, to, &push);
            }
            self.send(&state, id, &answer);
        }
    }

    fn send(&self, state: &State, id: u64, value: &Value) {
        if let Some(connection) = state.connections.get(&id) {
            let mut bytes = Vec::new();
            value.write(&mut bytes);
            connection.wire.send(&self.world, bytes);
        }
    }

    fn run(
        &self,
        state: &mut State,
        id: u64,
        words: &[Vec<u8>],
        pushes: &mut Vec<(u64, Value)>,
    ) -> Value {
        let now = self.now();
        let word = |at: usize| words.get(at).map(|word| word.to_ascii_uppercase());
        let text = |at: usize| String::from_utf8_lossy(&words[at]).into_owned();
        match (word(0).as_deref().unwrap_or_default(), word(1).as_deref()) {
            (b"HELLO", _) => Value::Map(vec![(Value::text("proto"), Value::Int(3))]),
            (b"PING", _) => Value::Status("PONG"),
            (b"TIME", _) => now.told(),
            (b"INFO", _) => Value::text(self.info(state)),
            (b"CLIENT", Some(b"CACHING")) => {
                if let Some(connection) = state.connections.get_mut(&id) {
                    connection.caching = true;
                }
                Value::Status("OK")
            }
            (b"CLIENT", _) => Value::Status("OK"),
            (b"SUBSCRIBE", _) => {
                if let Some(connection) = state.connections.get_mut(&id) {
                    connection.channels.insert(text(1));
                }
                let channel = Value::text(text(1));
                Value::Push(vec![Value::text("subscribe"), channel, Value::Int(1)])
            }
            (b"SCRIPT", Some(b"LOAD")) => {
                let hash = redis_hash(&text(2));
                state.scripts.insert(hash.clone(), text(2));
                Value::text(hash)
            }
            (b"EVALSHA", _) => match state.scripts.get(&text(1)).cloned() {
                None => Value::Error("NOSCRIPT No matching script. Please use EVAL.".into()),
                Some(script) => self.script(state, &script, &words[2..], now, pushes),
            },
            (b"EVAL", _) => {
                let script = text(1);
                state.scripts.insert(redis_hash(&script), script.clone());
                self.script(state, &script, &words[2..], now, pushes)
            }
            (b"PTTL", _) => {
                let caching = state.connections.get_mut(&id);
                if caching.is_some_and(|connection| std::mem::take(&mut connection.caching)) {
                    state
                        .tracked
                        .entry(words[1].clone())
                        .or_default()
                        .insert(id);
                }
                match &mut state.memory {
                    Memory::Scripts(store) => store.run(words, now, &mut Effects::default()),
                    Memory::Rules(rules) => {
                        let key = Key::new(text(1));
                        rules.sweep_key(&key, now.millis());
                        Value::Int(
                            match rules.get(&key).map(|stored| stored.last_millisecond) {
                                None => -2,
                                Some(None) => -1,
                                Some(Some(last)) => (last - now.millis()) as i64,
                            },
                        )
                    }
                }
            }
            // Whether a plain lock was had already, by one whose connection broke.
            (b"GET", _) => match &mut state.memory {
                Memory::Scripts(store) => store.run(words, now, &mut Effects::default()),
                Memory::Rules(rules) => {
                    let key = Key::new(text(1));
                    rules.sweep_key(&key, now.millis());
                    let value = rules.get(&key).and_then(|stored| stored.value.clone());
                    value.map_or(Value::Nil, Value::Text)
                }
            },
            // A plain lock, by one who does not wait.
            (b"SET", _) if state.refuses.is_some() => {
                let answer = state.refuses.and_then(|refusal| refusal.of(b"SET"));
                answer.unwrap_or(Value::Nil)
            }
            (b"SET", _) => {
                let mut effects = Effects::default();
                let answer = match &mut state.memory {
                    Memory::Scripts(store) => store.run(words, now, &mut effects),
                    Memory::Rules(rules) => {
                        let run: Arc<str> = Arc::default();
                        let scene = redlatch_core::rules::Scene::new(now.millis(), &run, None);
                        let reply = rules.apply(&rulebook::set(words), &scene);
                        match reply {
                            Reply::Granted => {
                                effects.touched.insert(words[1].clone());
                                Value::Status("OK")
                            }
                            _ => Value::Nil,
                        }
                    }
                };
                for key in effects.touched {
                    invalidate(state, &key, pushes);
                }
                answer
            }
            (b"HGET", _) => match &mut state.memory {
                Memory::Scripts(store) => store.run(words, now, &mut Effects::default()),
                Memory::Rules(rules) => {
                    let guard = rules.guard().map(rulebook::stored_guard);
                    guard.unwrap_or(Value::Nil)
                }
            },
            _ => panic!("no client of ours says {}", text(0)),
        }
    }

    fn script(
        &self,
        state: &mut State,
        script: &str,
        words: &[Vec<u8>],
        now: Now,
        pushes: &mut Vec<(u64, Value)>,
    ) -> Value {
        let count: usize = String::from_utf8_lossy(&words[0]).parse().unwrap_or(0);
        let (keys, arguments) = words[1..].split_at(count);
        let mut effects = Effects::default();
        let info = self.info(state);
        let run: Arc<str> = self.run_name(state).into();
        let subscribers = |channel: &str| -> Vec<u64> {
            let has = |connection: &Connection| connection.channels.contains(channel);
            let all = state
                .connections
                .iter()
                .filter(|(_, connection)| has(connection));
            all.map(|(id, _)| *id).collect()
        };
        let mut publish = |channel: &str, message: &str| {
            let heard = subscribers(channel);
            for id in &heard {
                let words = ["message", channel, message].map(Value::text);
                pushes.push((*id, Value::Push(words.to_vec())));
            }
            heard.len() as i64
        };
        let refuses = state.refuses;
        let answer = match &mut state.memory {
            Memory::Scripts(store) => {
                // A script is refused its first write; one that has written goes on.
                let mut has_written = false;
                let planted = self.planted.map(|planted| planted.script(script));
                let script = planted.as_deref().unwrap_or(script);
                ENGINE.with_borrow_mut(|engine| {
                    engine.run(script, keys, arguments, |words| match &words[0][..] {
                        b"INFO" => Value::text(&info),
                        b"PUBLISH" => {
                            let [channel, message] =
                                [1, 2].map(|at| String::from_utf8_lossy(&words[at]));
                            Value::Int(publish(&channel, &message))
                        }
                        command => {
                            let refusal = refuses.filter(|_| !has_written);
                            if let Some(error) = refusal.and_then(|refusal| refusal.of(command)) {
                                return error;
                            }
                            has_written |= is_write(command);
                            store.run(words, now, &mut effects)
                        }
                    })
                })
            }
            Memory::Rules(rules) => {
                let is_bundle = rulebook::is_bundle(script);
                let asked = rulebook::read(script, keys, arguments);
                let channels = state
                    .connections
                    .values()
                    .flat_map(|one| one.channels.clone());
                let subscribed: BTreeSet<String> = channels.collect();
                let board = Board {
                    subscribed: &subscribed,
                    calls: RefCell::default(),
                };
                let before = refuses.map(|_| rules.clone());
                let mut answers = Vec::new();
                for one in &asked {
                    if one.policy.is_some() {
                        state.policy = one.policy.clone();
                    }
                    // A release tells its tolerance, not the policy that it comes from.
                    let policy = match one.request {
                        Request::Release { .. } => state.policy.as_ref(),
                        _ => one.policy.as_ref(),
                    };
                    if is_bundle && !one.goes_with_others(rules) {
                        answers.push(Value::Nil);
                        continue;
                    }
                    let scene = one.scene(now.millis(), &run, policy, &board);
                    let reply = rules.apply(&one.request, &scene);
                    if let Some(key) = one.touches(&reply) {
                        effects.touched.insert(key.as_str().into());
                    }
                    answers.push(match reply {
                        Reply::Held(None) => Value::Nil,
                        reply => rulebook::write(reply),
                    });
                }
                // Which of its changes a rule makes first it does not say: all are refused.
                if let Some(before) = before.filter(|before| before != rules) {
                    *rules = before;
                    let refusal = Refusal::Writes.of(b"SET");
                    return refusal.unwrap_or(Value::Nil);
                }
                for (channel, message) in board.calls.into_inner() {
                    publish(&channel, &message);
                }
                match is_bundle {
                    true => Value::Array(answers),
                    false => answers.remove(0),
                }
            }
        };
        for key in effects.touched {
            invalidate(state, &key, pushes);
        }
        answer
    }

    fn run_name(&self, state: &State) -> String {
        let hex = format!("{:02x}{:06x}", self.node, state.runs);
        format!("{}{}", hex.repeat(5), hex.repeat(5))
    }

    fn info(&self, state: &State) -> String {
        let run = self.run_name(state);
        let (id, replication) = run.split_at(40);
        format!(
            "# Server\r\nredis_version:7.0.15\r\nrun_id:{id}\r\n# Memory\r\nmaxmemory:0\r\n\
             # Replication\r\nrole:master\r\nmaster_replid:{replication}\r\n"
        )
    }

    /// What servers do ten times a second: drop what has run out, and tell.
    pub(crate) fn tick(&self, save: bool) {
        let now = self.now();
        let mut state = self.lock();
        if !state.up {
            return;
        }
        if save {
            state.saved = state.memory.clone();
        }
        let tracked: Vec<_> = state.tracked.keys().cloned().collect();
        let gone: Vec<_> = match &mut state.memory {
            Memory::Scripts(store) => store.sweep(now),
            Memory::Rules(rules) => {
                let name = |key: &[u8]| Key::new(String::from_utf8_lossy(key).into_owned());
                let is_there = |rules: &NodeState, key: &[u8]| rules.get(&name(key)).is_some();
                // Redis tells of what goes, not of what is not there.
                let there = tracked.into_iter().filter(|key| is_there(rules, key));
                let there: Vec<_> = there.collect();
                rules.sweep(now.millis());
                let gone = there.into_iter().filter(|key| !is_there(rules, key));
                gone.collect()
            }
        };
        let mut pushes = Vec::new();
        for key in gone {
            invalidate(&mut state, &key, &mut pushes);
        }
        for (to, push) in pushes {
            self.send(&state, to, &push);
        }
    }

    /// Dies: connections break, and what is under way is lost.
    pub(crate) fn crash(&self) {
        let mut state = self.lock();
        state.up = false;
        for connection in std::mem::take(&mut state.connections).into_values() {
            connection.wire.reset(true);
        }
        state.tracked.clear();
        state.scripts.clear();
    }

    pub(crate) fn restart(&self, comeback: Comeback) {
        let mut state = self.lock();
        if state.up {
            return;
        }
        state.up = true;
        state.runs += 1;
        match comeback {
            Comeback::Kept => {}
            Comeback::RolledBack => state.memory = state.saved.clone(),
            Comeback::Emptied => state.memory = state.memory.emptied(),
        }
        state.saved = state.memory.clone();
    }

    /// Breaks one of the connections, some ways for so many milliseconds.
    pub(crate) fn break_one(&self, which: usize, how: Break, length: u64) {
        let mut state = self.lock();
        let Some(id) = state
            .connections
            .keys()
            .nth(which % state.connections.len().max(1))
            .copied()
        else {
            return;
        };
        let wire = &state.connections[&id].wire;
        match how {
            Break::Mute => wire.fall_mute(),
            Break::Stall => wire.stall(Instant::now() + Duration::from_millis(length)),
            Break::Replies => wire.reset(false),
            Break::Both => {
                wire.reset(true);
                state.connections.remove(&id);
            }
        }
    }

    pub(crate) fn forget_scripts(&self) {
        self.lock().scripts.clear();
    }

    /// Refuses to do something from now on, or does all again.
    pub(crate) fn refuse(&self, what: Option<Refusal>) {
        self.lock().refuses = what;
    }

    /// Loses a key, as by eviction or a stranger's DEL.
    pub(crate) fn lose(&self, key: &str) {
        let mut state = self.lock();
        let gone = match &mut state.memory {
            Memory::Scripts(store) => store.delete(key.as_bytes()),
            Memory::Rules(rules) => {
                let key = Key::new(key);
                let there = rules.get(&key).is_some();
                rules.delete(&key);
                there
            }
        };
        let mut pushes = Vec::new();
        if gone {
            invalidate(&mut state, key.as_bytes(), &mut pushes);
        }
        for (to, push) in pushes {
            self.send(&state, to, &push);
        }
    }

    /// The locks and queues that it still has, of those with these keys.
    pub(crate) fn left(&self, keys: &[String]) -> Vec<String> {
        self.tick(false);
        match &self.lock().memory {
            Memory::Scripts(store) => store.passing(),
            Memory::Rules(rules) => {
                let mut left = Vec::new();
                for key in keys.iter().map(|key| Key::new(key.as_str())) {
                    left.extend(rules.get(&key).map(|_| key.to_string()));
                    let queue = rules.queue(&key).filter(|queue| !queue.is_empty());
                    left.extend(queue.map(|_| format!("queue of {key}")));
                }
                left
            }
        }
    }
}

impl Memory {
    fn empty(kind: Kind) -> Self {
        match kind {
            Kind::Scripts => Self::Scripts(Store::default()),
            Kind::Rules => Self::Rules(NodeState::default()),
        }
    }

    fn emptied(&self) -> Self {
        match self {
            Self::Scripts(_) => Self::empty(Kind::Scripts),
            Self::Rules(_) => Self::empty(Kind::Rules),
        }
    }
}

/// How a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// Replies vanish, and nobody is told.
    Mute,
    /// Requests are held up, and only those over this connection.
    Stall,
    /// Closed; replies are lost, requests still arrive.
    Replies,
    /// Closed; all that is under way is lost.
    Both,
}

/// Tells those who want to know that something has happened to a key.
fn invalidate(state: &mut State, key: &[u8], pushes: &mut Vec<(u64, Value)>) {
    for id in state.tracked.remove(key).into_iter().flatten() {
        let keys = Value::Array(vec![Value::text(key)]);
        pushes.push((id, Value::Push(vec![Value::text("invalidate"), keys])));
    }
}

/// The hash that the client library computes is not ours to choose.
fn redis_hash(script: &str) -> String {
    redlatch::sim::script_hash(script)
}
