//! A real Redis held against the rules in Rust: every reply, and all that is stored.

mod steps;
mod stored;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::Discriminant;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind};
use redlatch_core::rules::{Guard, Stored};
use redlatch_core::{
    Ballot, Ballots, Key, News, NodeState, Policy, Reply, Request, Scene, Switchboard, Ticket,
    Token, Ttl, fence,
};
use redlatch_testkit::RedisServer;
use tokio::sync::mpsc;

pub(in crate::node) use self::steps::requests;
use self::steps::{Step, steps};
use self::stored::{
    StoredQueue, clock, coarse, parked_text, queue_key, rounded, seconds, stored_guard,
    stored_queue,
};
use super::dialect::{Dialect, Form, Kind};
use super::server;
use super::wire::{self, Before};
use crate::node::Charter;

/// So long that no case sees the end of one.
const TURN: Duration = Duration::from_secs(1800);

/// The longest ttl: in a quarantine of an hour and more, seconds don't matter.
const MAX_TTL: u64 = 3600;

const CHANNEL: &str = "redlatch:__call:";
const GONE: &str = "redlatch:__call:3";

/// Remembers who was called.
#[derive(Debug, Default)]
struct Board(RefCell<Vec<String>>);

impl Switchboard for Board {
    fn call(&self, client: &str, key: &Key, news: News) -> bool {
        let news = match news {
            News::Granted(number) => format!("G{number} "),
            News::First(above) => format!("F{} ", above.number()),
            _ => "T".to_owned(),
        };
        let reached = client != GONE;
        if reached {
            self.0.borrow_mut().push(format!("{client} {news}{key}"));
        }
        reached
    }
}

#[test]
fn scripts_on_redis_do_what_the_rules_say() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = RedisServer::builder().append_only().start();
    let mut runner = TestRunner::new(Config {
        cases: 250,
        failure_persistence: None,
        ..Config::default()
    });
    let cases = (steps(), any::<bool>(), any::<bool>());
    let together = RefCell::default();
    let result = runner.run(&cases, |(steps, guarded, hinted)| {
        server.command(&["FLUSHALL"]);
        runtime.block_on(async {
            let mut pair = Pair::new(&server, guarded, hinted, &together).await;
            for step in steps {
                pair.step(step).await?;
                pair.compare_state()?;
            }
            Ok(())
        })
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    // Granted, held, too low, released and extended.
    assert_eq!(together.into_inner().len(), 5);
}

/// The real thing and the reference, side by side.
struct Pair<'a> {
    server: &'a RedisServer,
    connection: MultiplexedConnection,
    /// Whether the client tells the server which run it believes it is.
    hinted: bool,
    run: Arc<str>,
    rules: NodeState,
    guarded: bool,
    policy: Option<Policy>,
    /// The ballots that were sent under each token; 0 for a plain lock.
    sent: BTreeMap<(Key, String), BTreeSet<Ballot>>,
    /// What those are told who can be called.
    calls: mpsc::UnboundedReceiver<PushInfo>,
    listener: MultiplexedConnection,
    /// What was answered to those that went together.
    together: &'a RefCell<HashSet<Discriminant<Reply>>>,
    /// The server's clock when this began; the reference stands still there.
    begin: u64,
    began: Instant,
}

impl<'a> Pair<'a> {
    async fn new(
        server: &'a RedisServer,
        guarded: bool,
        hinted: bool,
        together: &'a RefCell<HashSet<Discriminant<Reply>>>,
    ) -> Self {
        let (connection, run) = connect(server).await;
        let (listener, calls) = listen(server).await;
        Self {
            server,
            connection,
            calls,
            listener,
            hinted,
            run,
            rules: NodeState::default(),
            guarded,
            policy: guarded.then(|| policy(0)),
            sent: BTreeMap::new(),
            together,
            begin: clock(server),
            began: Instant::now(),
        }
    }

    async fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let server = self.server;
        match step {
            Step::Ask(request) => self.ask(&request).await?,
            Step::AskTwice(request) => {
                self.ask(&request).await?;
                self.ask(&request).await?;
            }
            Step::AskTogether(requests) => self.ask_together(&requests).await?,
            Step::Put(key, value) => {
                server.command(&["SET", key.as_str(), &value]);
                self.put(key, Some(value.into_bytes()));
            }
            Step::PutList(key) => {
                server.command(&["DEL", key.as_str()]);
                server.command(&["RPUSH", key.as_str(), "x"]);
                self.put(key, None);
            }
            Step::Delete(key) => {
                server.command(&["DEL", key.as_str()]);
                self.rules.delete(&key);
            }
            Step::Expire(key) => {
                server.command(&["PEXPIREAT", key.as_str(), "1"]);
                self.rules.delete(&key);
            }
            Step::PassTurn(key) => {
                let queue = queue_key(&key);
                server.command(&["ZADD", &queue, "XX", "-1", ""]);
                self.rules.let_turn_pass(&key);
            }
            Step::PassParking(key) => {
                let queue = queue_key(&key);
                let stored = stored_queue(server, &key, self.begin);
                for (ticket, request) in stored.parked {
                    let (_, rest) = request.split_once(' ').unwrap();
                    let place = stored.places.iter().find(|(noted, _)| *noted == ticket);
                    let place = place.unwrap().1.to_string();
                    server.command(&["ZREM", &queue, &format!("{ticket} {request}")]);
                    let passed = format!("{ticket} 1 {rest}");
                    server.command(&["ZADD", &queue, &place, &passed]);
                }
                self.rules.let_parking_pass(&key);
            }
            Step::Arm => self.set_armed(self.begin - 1000),
            Step::FarAhead => self.set_armed(self.begin + 100 * MAX_TTL * 1000),
            Step::FloorAhead(seconds) => {
                self.set_armed(self.begin - 1000);
                self.set_floor(self.begin + seconds * 1000);
            }
            Step::Deployment(number) => {
                self.policy = self.guarded.then(|| policy(number / 3));
            }
            Step::Unguarded => self.policy = None,
            Step::FlushScripts => {
                server.command(&["SCRIPT", "FLUSH"]);
            }
            Step::FlushAll => {
                server.command(&["FLUSHALL"]);
                self.rules = NodeState::default();
            }
            Step::Restart => {
                server.restart();
                (self.connection, self.run) = connect(server).await;
                (self.listener, self.calls) = listen(server).await;
            }
            Step::RestartEmpty => {
                server.restart_empty();
                self.rules = NodeState::default();
                (self.connection, self.run) = connect(server).await;
                (self.listener, self.calls) = listen(server).await;
            }
        }
        Ok(())
    }

    fn put(&mut self, key: Key, value: Option<Vec<u8>>) {
        let last_millisecond = None;
        let stored = Stored {
            value,
            last_millisecond,
        };
        self.rules.put(key, stored);
    }

    fn set_armed(&mut self, armed: u64) {
        let Some(guard) = self.rules.guard().cloned() else {
            return;
        };
        let text = armed.to_string();
        self.server
            .command(&["HSET", "redlatch:__fence", "armed", &text]);
        self.rules.set_guard(Some(Guard { armed, ..guard }));
        self.set_floor(armed);
    }

    fn set_floor(&mut self, millis: u64) {
        let Some(guard) = self.rules.guard().cloned() else {
            return;
        };
        let floor = Ballot::at(millis, 0);
        let text = floor.number().to_string();
        self.server
            .command(&["HSET", "redlatch:__fence", "floor", &text]);
        self.rules.set_guard(Some(Guard { floor, ..guard }));
    }

    async fn ask(&mut self, request: &Request) -> Result<(), TestCaseError> {
        let request = self.absolute(request);
        self.note(&request);
        self.ask_absolute(&request).await
    }

    async fn ask_absolute(&mut self, request: &Request) -> Result<(), TestCaseError> {
        let board = Board::default();
        let scene = scene(self.begin, &self.run, self.policy.as_ref(), &board);
        let expected = rounded(self.rules.apply(request, &scene), self.begin);
        let charter = charter(self.policy.clone());
        let hint = if self.hinted { &*self.run } else { "" };
        let dialect = Dialect::new(&charter, hint, true);
        let reply = wire::send(&mut self.connection, &dialect, request, Before::Unknown).await;
        let reply = rounded(reply.unwrap(), self.begin);
        // The reference's clock stands still: give up before it matters.
        prop_assume!(self.began.elapsed() < Duration::from_millis(400));
        prop_assert_eq!(reply, expected.clone(), "{:?}", request);
        let called = self.called().await;
        prop_assert_eq!(called, board.0.into_inner(), "{:?}", request);
        // The same in a batch: idempotent, and by way of other code.
        if let Request::Extend { .. } | Request::Inspect { .. } = request {
            let requests = vec![request.clone(); 2];
            let replies = wire::send_all(&mut self.connection, &dialect, &requests).await;
            for reply in replies.unwrap() {
                prop_assert_eq!(
                    rounded(reply.unwrap(), self.begin),
                    expected.clone(),
                    "{:?}",
                    request
                );
            }
        }
        Ok(())
    }

    /// Sends them as one command, as far as they can go so, and those by themselves that
    /// were not answered.
    async fn ask_together(&mut self, requests: &[Request]) -> Result<(), TestCaseError> {
        let charter = charter(self.policy.clone());
        let hint = if self.hinted { &*self.run } else { "" };
        let dialect = Dialect::new(&charter, hint, true);
        let mut together: Vec<Request> = Vec::new();
        for request in requests {
            let request = self.absolute(request);
            let is_there = |other: &Request| other.key() == request.key();
            let is_simple = dialect.kind(&request) > Some(Kind::Bare);
            if is_simple && !together.iter().any(is_there) {
                self.note(&request);
                together.push(request);
            }
        }
        together.sort_by_key(|request| dialect.kind(request));
        let mut command = redis::Cmd::new();
        // By its text, since it may have been forgotten.
        dialect.write_together(together.iter(), Form::Text, &mut command);
        let answers: Vec<redis::Value> = command.query_async(&mut self.connection).await.unwrap();
        prop_assume!(self.began.elapsed() < Duration::from_millis(400));
        prop_assert_eq!(answers.len(), together.len());
        let mut left = Vec::new();
        for (request, answer) in together.iter().zip(answers) {
            if answer == redis::Value::Nil {
                left.push(request);
                continue;
            }
            let board = Board::default();
            let scene = scene(self.begin, &self.run, self.policy.as_ref(), &board);
            let expected = self.rules.apply(request, &scene);
            let reply = super::reply::reply(request, answer).unwrap();
            let [reply, expected] = [reply, expected].map(|reply| rounded(reply, self.begin));
            prop_assert_eq!(&reply, &expected, "{:?} of {:?}", request, together);
            // Where somebody waits it is left to others.
            prop_assert_eq!(board.0.into_inner(), Vec::<String>::new());
            let kind = std::mem::discriminant(&reply);
            self.together.borrow_mut().insert(kind);
        }
        // What was not answered was not done either.
        self.compare_state()?;
        for request in left {
            self.ask_absolute(request).await?;
        }
        Ok(())
    }

    /// Who was called since this was asked last, and for what.
    async fn called(&mut self) -> Vec<String> {
        // What was pushed before the answer to this has been received with it.
        let () = redis::cmd("PING")
            .query_async(&mut self.listener)
            .await
            .unwrap();
        let mut called = Vec::new();
        while let Ok(push) = self.calls.try_recv() {
            if let (PushKind::Message, [channel, message]) = (push.kind, &push.data[..]) {
                let [channel, message] = [channel, message]
                    .map(|word| redis::from_redis_value::<String>(word.clone()).unwrap());
                called.push(format!("{channel} {message}"));
            }
        }
        called
    }

    /// The request with its ballots moved from twenty seconds to now.
    fn absolute(&self, request: &Request) -> Request {
        let moved = |ballot: Ballot| {
            let millis = self.begin - 20_000 + ballot.millis();
            Ballot::at(millis, ballot.number())
        };
        let mut request = request.clone();
        match &mut request {
            Request::Acquire { ballot, ticket, .. } => {
                *ballot = ballot.map(moved);
                if let Some(Ticket { since, .. }) = ticket {
                    *since = since.map(|since| moved(Ballot::new(since)).number());
                }
            }
            Request::Release {
                key,
                token,
                ballots: Some(ballots),
                ..
            } => {
                let highest = moved(ballots.highest());
                *ballots = match self.only_one_for(key, token) {
                    Some(only) if highest.number() % 2 == 0 => Ballots::one(only),
                    _ => Ballots::up_to(highest),
                };
            }
            Request::Force { ballot, .. } => *ballot = moved(*ballot),
            Request::Rejoin { born, ballot, .. } => {
                (*born, *ballot) = (moved(*born), moved(*ballot));
            }
            _ => {}
        }
        request
    }

    /// Remembers which ballot is sent, and under which token.
    fn note(&mut self, request: &Request) {
        let (key, token, ballot) = match request {
            Request::Acquire {
                key, token, ballot, ..
            } => (key, token, ballot.unwrap_or_default()),
            Request::Rejoin {
                key, token, ballot, ..
            } => (key, token, *ballot),
            _ => return,
        };
        let lease = (key.clone(), token.as_str().to_owned());
        self.sent.entry(lease).or_default().insert(ballot);
    }

    /// The ballot that was sent under this token, when it is the only one.
    fn only_one_for(&self, key: &Key, token: &Token) -> Option<Ballot> {
        let sent = self.sent.get(&(key.clone(), token.as_str().to_owned()))?;
        let only = *sent.first()?;
        (sent.len() == 1 && only != Ballot::default()).then_some(only)
    }

    /// Compares all that is stored.
    fn compare_state(&self) -> Result<(), TestCaseError> {
        prop_assume!(self.began.elapsed() < Duration::from_millis(400));
        for number in 0..3 {
            let key = Key::new(format!("k{number}"));
            let is_string = self.server.command(&["TYPE", key.as_str()]).as_text() == "string";
            let value = is_string.then(|| self.server.get(key.as_str())).flatten();
            let expected = self.rules.get(&key).and_then(|stored| stored.value.clone());
            prop_assert_eq!(value, expected);
            let slot = fence::slot(&key);
            let stored = self
                .server
                .command(&["HGET", "redlatch:__fence", &slot.to_string()]);
            let stored = (!stored.is_nil()).then(|| stored.as_text().parse().unwrap());
            let stored = stored.map(|number| coarse(Ballot::new(number), self.begin));
            let ballot = self.rules.ballot(slot);
            let ballot = ballot.map(|ballot| coarse(ballot, self.begin));
            prop_assert_eq!(stored, ballot);
            let lives = self.server.command(&["PTTL", &queue_key(&key)]);
            prop_assert!(lives.as_int() != -1, "a queue that never runs out");
            let stored = stored_queue(self.server, &key, self.begin);
            let queue = self.rules.queue(&key).cloned().unwrap_or_default();
            let places = queue
                .places()
                .map(|(place, client)| (client.to_owned(), place));
            let expected = StoredQueue {
                places: places.collect(),
                kept: queue.kept().map(|kept| seconds(kept, self.begin)),
                parked: queue.parked().map(parked_text).collect(),
            };
            prop_assert_eq!(stored.since(self.begin), expected.since(self.begin));
        }
        let stored = stored_guard(self.server, self.begin);
        let expected = self.rules.guard().map_or(BTreeMap::new(), |guard| {
            let fields = [
                (
                    "guard",
                    format!(
                        "{} {} {}",
                        guard.run,
                        guard.max_ttl.millis(),
                        guard.deployment
                    ),
                ),
                ("quarantine", guard.quarantine.to_string()),
                ("armed", seconds(guard.armed, self.begin)),
                ("floor", seconds(guard.floor.millis(), self.begin)),
            ];
            fields.map(|(name, value)| (name.to_owned(), value)).into()
        });
        prop_assert_eq!(stored, expected);
        Ok(())
    }
}

fn scene<'a>(
    now: u64,
    run: &'a Arc<str>,
    policy: Option<&'a Policy>,
    board: &'a Board,
) -> Scene<'a> {
    Scene {
        now,
        run,
        policy,
        turn: TURN.as_millis() as u64,
        board,
    }
}

pub(in crate::node) fn policy(number: u8) -> Policy {
    Policy {
        deployment: format!("deployment-{number}").into(),
        max_ttl: Ttl::new(Duration::from_secs(MAX_TTL + 600 * u64::from(number))).unwrap(),
    }
}

async fn connect(server: &RedisServer) -> (MultiplexedConnection, Arc<str>) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let greeted = server::greet(&mut connection, &charter(None)).await;
    (connection, greeted.unwrap().run)
}

/// A connection on which those hear who can be called.
async fn listen(
    server: &RedisServer,
) -> (MultiplexedConnection, mpsc::UnboundedReceiver<PushInfo>) {
    let url = format!("{}?protocol=resp3", server.url());
    let client = redis::Client::open(url).unwrap();
    let (sender, calls) = mpsc::unbounded_channel();
    let config = redis::AsyncConnectionConfig::new().set_push_sender(sender);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connection.await.unwrap();
    for n in 0..3 {
        connection.subscribe(format!("{CHANNEL}{n}")).await.unwrap();
    }
    (connection, calls)
}

fn charter(policy: Option<Policy>) -> Charter {
    Charter {
        policy,
        service_prefix: "redlatch:".into(),
        strict: false,
        client: "".into(),
        turn: TURN,
    }
}
