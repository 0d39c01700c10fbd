//! A real Redis held against the rules in Rust: every reply, and all that is stored.

mod stored;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind};
use redlatch_core::rules::{Guard, Stored};
use redlatch_core::{
    Ballot, Ballots, GuardOrder, Key, News, NodeState, Policy, Request, Scene, Switchboard, Ticket,
    Token, Ttl, fence,
};
use redlatch_testkit::RedisServer;
use tokio::sync::mpsc;

use self::stored::{
    StoredQueue, clock, coarse, parked_text, queue_key, rounded, seconds, stored_guard,
    stored_queue,
};
use super::dialect::Dialect;
use super::server;
use super::wire::{self, Before};
use crate::node::Charter;

/// What may happen to a node, in steps.
#[derive(Clone, Debug)]
enum Step {
    Ask(Request),
    /// The same again, as after a lost reply.
    AskTwice(Request),
    /// A stranger writes a string.
    Put(Key, String),
    /// A stranger writes something that is not a string.
    PutList(Key),
    /// A stranger deletes the key.
    Delete(Key),
    /// The key's time is over.
    Expire(Key),
    /// The turn of the first who waits is over.
    PassTurn(Key),
    /// What is parked has been there for too long.
    PassParking(Key),
    /// The quarantine is over.
    Arm,
    /// The clock was stepped back during a quarantine.
    FarAhead,
    /// It was stepped back by so many seconds before the last quarantine, which
    /// is over.
    FloorAhead(u64),
    /// The client now names another deployment, or the first one again.
    Deployment(u8),
    /// One asks now that has the guard off, until the deployment changes.
    Unguarded,
    FlushScripts,
    FlushAll,
    Restart,
    RestartEmpty,
}

/// So long that no case sees the end of one.
const TURN: Duration = Duration::from_secs(1800);

/// The longest ttl: in a quarantine of an hour and more, seconds don't matter.
const MAX_TTL: u64 = 3600;

/// Three that can be called, and one that is gone.
fn ticket_name() -> impl Strategy<Value = Arc<str>> {
    (0..8u8).prop_map(|n| format!("{CHANNEL}{}#{}", n / 2, n % 2).into())
}

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

/// Any request, about three keys; ballots are around twenty seconds.
pub(in crate::node) fn requests() -> impl Strategy<Value = Request> {
    let key = || (0..3u8).prop_map(|n| Key::new(format!("k{n}")));
    let token = || (0..3u8).prop_map(|n| Token::parse(&format!("t{n} {{\"pid\":1}}")).unwrap());
    // Far enough apart that the time a test takes makes no difference. The
    // longest one is too long.
    let ttl = || (1..8u64).prop_map(|n| Ttl::new(Duration::from_secs(600 * n)).unwrap());
    // Around now, in half seconds that no limit falls on; made absolute later.
    let ballot = || (0..40u64).prop_map(|n| Ballot::at(n * 1000 + 500, 1 + n % 3));
    let plain = || prop::option::weighted(0.8, ballot());
    // Within the second before now, so that no clock cuts it; made absolute later.
    let ticket = || {
        let parks = prop::option::weighted(0.7, 0..100u64);
        (ticket_name(), 0..8u64, parks).prop_map(|(name, n, parks)| {
            let since = Some(Ballot::at(19_000 + 100 * n, n).number());
            Ticket { name, since, parks }
        })
    };
    let ticket_or_none = || prop::option::weighted(0.3, ticket_name());
    prop_oneof![
        12 => (key(), token(), ttl(), plain(), prop::option::weighted(0.7, ticket())).prop_map(
            |(key, token, ttl, ballot, ticket)| Request::Acquire { key, token, ttl, ballot, ticket }),
        3 => (key(), token(), ttl(), ballot(), ballot()).prop_map(
            |(key, token, ttl, born, ballot)| Request::Rejoin { key, token, ttl, born, ballot }),
        4 => (key(), token(), ttl(), any::<bool>())
            .prop_map(|(key, token, ttl, plain)| Request::Extend { key, token, ttl, plain }),
        7 => (key(), token(), plain(), ticket_or_none(), ticket_or_none()).prop_map(
            |(key, token, ballot, leaves, unparks)| {
                let ballots = ballot.map(Ballots::up_to);
                Request::Release { key, token, ballots, leaves, unparks }
            }),
        2 => (key(), ballot()).prop_map(|(key, ballot)| Request::Force { key, ballot }),
        3 => key().prop_map(|key| Request::Inspect { key }),
        1 => Just(Request::Guard(GuardOrder::Read)),
        1 => Just(Request::Guard(GuardOrder::AssumeFresh)),
        1 => prop::bool::weighted(0.2).prop_map(|change| match change {
            true => Request::Guard(GuardOrder::Reconfigure),
            false => Request::Guard(GuardOrder::AssumeFresh),
        }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || (0..3u8).prop_map(|n| Key::new(format!("k{n}")));
    let step = prop_oneof![
        60 => requests().prop_map(Step::Ask),
        8 => requests().prop_map(Step::AskTwice),
        3 => (key(), "[a-z]{0,3}").prop_map(|(key, value)| Step::Put(key, value)),
        2 => key().prop_map(Step::PutList),
        3 => key().prop_map(Step::Delete),
        6 => key().prop_map(Step::Expire),
        6 => key().prop_map(Step::PassTurn),
        2 => key().prop_map(Step::PassParking),
        8 => Just(Step::Arm),
        1 => Just(Step::FarAhead),
        2 => prop_oneof![Just(3), Just(60)].prop_map(Step::FloorAhead),
        2 => (0..4u8).prop_map(Step::Deployment),
        1 => Just(Step::Unguarded),
        2 => Just(Step::FlushScripts),
        1 => Just(Step::FlushAll),
        // These take a while, so they are rare.
        1 => (0..20u8).prop_map(|n| match n {
            0 => Step::Restart,
            1 => Step::RestartEmpty,
            _ => Step::FlushAll,
        }),
    ];
    prop::collection::vec(step, 1..80)
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
    let result = runner.run(&cases, |(steps, guarded, hinted)| {
        server.command(&["FLUSHALL"]);
        runtime.block_on(async {
            let mut pair = Pair::new(&server, guarded, hinted).await;
            for step in steps {
                pair.step(step).await?;
                pair.compare_state()?;
            }
            Ok(())
        })
    });
    result.unwrap_or_else(|error| panic!("{error}"));
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
    /// The server's clock when this began; the reference stands still there.
    begin: u64,
    began: Instant,
}

impl<'a> Pair<'a> {
    async fn new(server: &'a RedisServer, guarded: bool, hinted: bool) -> Self {
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
        let request = &self.absolute(request);
        self.note(request);
        let board = Board::default();
        let scene = Scene {
            now: self.begin,
            run: &self.run,
            policy: self.policy.as_ref(),
            turn: TURN.as_millis() as u64,
            board: &board,
        };
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
