//! One connection to a server, made anew whenever it breaks or falls mute.
//!
//! A task of its own does the connecting, so that no call is held up by it for
//! longer than the call's own limit. While the server is known to be out of
//! reach, calls fail at once; while the first new connection after a break is
//! being made, they wait for it.

mod connecting;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{PushKind, RedisError, Value};
use redlatch_core::{Key, News, Request};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::address::Address;
use super::checkup;
use super::dial::{self, Protocol};
use super::dialect::Dialect;
use super::line::{Line, Share, Stream};
use super::patience;
use super::reply;
use super::server::Server;
use super::wire::{self, Before, Trouble};
use crate::node::{
    Bell, Bells, Call, CallAll, Charter, Examining, Node, NodeError, NodeErrorKind, Pattern,
    Probing, Ready, Scanning, Watched, Watching,
};

/// So many time-outs in a row, without one answer between them, and the
/// connection is taken for mute.
const MUTE_AFTER: u32 = 3;

/// A Redis server as a node.
#[derive(Debug)]
pub(crate) struct Link {
    shared: Arc<Shared>,
    connector: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    address: Address,
    #[cfg(feature = "simulation")]
    dial: Option<crate::sim::Dial>,
    state: Mutex<State>,
    /// Told when the state changes. Those who wait for a connection go on in
    /// the order in which they came, so that a release still follows its acquire.
    changed: Notify,
    charter: Charter,
    /// Who wants to be told when something happens to a key.
    bells: Bells,
    /// Time-outs in a row.
    silence: AtomicU32,
    /// Whether the server called us because a lock was handed on to us, and we
    /// have given none back since.
    was_called: AtomicBool,
    /// The number of the newest connection that is known to be of no more use.
    broken: watch::Sender<u64>,
}

#[derive(Clone, Debug)]
enum State {
    /// A connection is being made, and there is hope.
    Connecting,
    Up(Arc<Live>),
    /// The last try failed; the next one comes by itself.
    Down(NodeError),
    /// There will be no more connections.
    Ended,
}

/// A connection that works, as far as is known.
#[derive(Debug)]
struct Live {
    number: u64,
    line: Line,
    server: Server,
    dialect: Arc<Dialect>,
}

impl Link {
    /// A link to the server at `address`; it starts to connect at once.
    pub(crate) fn new(address: Address, charter: Charter) -> Self {
        Self::start(Shared::new(address, charter))
    }

    /// The same over connections that `dial` makes.
    #[cfg(feature = "simulation")]
    pub(crate) fn dialed(address: Address, charter: Charter, dial: crate::sim::Dial) -> Self {
        Self::start(Shared {
            dial: Some(dial),
            ..Shared::new(address, charter)
        })
    }

    fn start(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        let connector = tokio::spawn(connecting::keep_connected(shared.clone())).abort_handle();
        Self { shared, connector }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.connector.abort();
    }
}

impl Node for Link {
    fn enlist(&mut self, _: Charter) {
        // It was made with it.
    }

    fn name(&self) -> &str {
        self.shared.address.name()
    }

    fn is_silent(&self) -> bool {
        self.shared.silence.load(Ordering::Relaxed) > 0
    }

    fn call(&self, request: Request, limit: Duration) -> Call {
        let mut turn = self.turn(limit);
        Box::pin(async move {
            loop {
                let live = turn.live().await?;
                if turn.overtakes(std::slice::from_ref(&request)) {
                    turn.shared.give_up(live.number);
                    turn.spend(&live);
                    continue;
                }
                let before = turn.before(&live);
                let mut line = live.line.clone();
                let sent = async {
                    let dialect = &live.dialect;
                    let put = |out: &mut Vec<u8>| dialect.put(&request, out);
                    let answer = match turn.shared.hands_on(&request) {
                        true => line.ask_after_you(put).await,
                        false => match line.ask_with_others(dialect, &request).await {
                            Ok(Share::Answer(answer)) => Ok(answer),
                            Ok(Share::Nothing) => line.ask(put).await,
                            Err(error) => Err(error),
                        },
                    };
                    let answer = answer.and_then(Value::extract_error);
                    wire::conclude(&mut line, dialect, &request, before, answer).await
                };
                let answer = patience::until(turn.deadline, pin!(sent)).await;
                if let Some(result) = turn.judge(live.number, answer) {
                    return result;
                }
                turn.spend(&live);
            }
        })
    }

    fn call_all(&self, requests: Vec<Request>, limit: Duration) -> CallAll {
        let mut turn = self.turn(limit);
        Box::pin(async move {
            let result = loop {
                let live = match turn.live().await {
                    Ok(live) => live,
                    Err(error) => break Err(error),
                };
                if turn.overtakes(&requests) {
                    turn.shared.give_up(live.number);
                    turn.spend(&live);
                    continue;
                }
                let mut line = live.line.clone();
                let sent = async {
                    let dialect = &live.dialect;
                    wire::send_over(&mut line, dialect, &requests).await
                };
                let answer = patience::until(turn.deadline, pin!(sent)).await;
                if let Some(result) = turn.judge(live.number, answer) {
                    break result;
                }
                turn.spend(&live);
            };
            result.unwrap_or_else(|error| vec![Err(error); requests.len()])
        })
    }

    fn watch(&self, key: Key, limit: Duration) -> Watching {
        let mut turn = self.turn(limit);
        Box::pin(async move {
            loop {
                let live = turn.live().await?;
                let told = live.server.tells;
                let mut line = live.line.clone();
                let sent = wire::look(&mut line, &key, told);
                let answer = patience::until(turn.deadline, pin!(sent)).await;
                if let Some(result) = turn.judge(live.number, answer) {
                    let remaining = result?;
                    return Ok(Watched { remaining, told });
                }
                turn.spend(&live);
            }
        })
    }

    fn listen(&self, key: &Key) -> Option<Bell> {
        // Also while there is no connection: it rings when there is one again.
        Some(self.shared.bells.hang(key))
    }

    fn scan(&self, pattern: Pattern, after: Option<String>, limit: Duration) -> Scanning {
        let mut turn = self.turn(limit);
        Box::pin(async move {
            loop {
                let live = turn.live().await?;
                let mut line = live.line.clone();
                let sent = wire::scan(&mut line, &pattern, after.as_deref());
                let answer = patience::until(turn.deadline, pin!(sent)).await;
                if let Some(result) = turn.judge(live.number, answer) {
                    return result;
                }
                turn.spend(&live);
            }
        })
    }

    fn probe(&self, limit: Duration) -> Probing {
        let mut turn = self.turn(limit);
        Box::pin(async move {
            loop {
                let live = turn.live().await?;
                let mut line = live.line.clone();
                let sent = wire::probe(&mut line);
                let answer = patience::until(turn.deadline, pin!(sent)).await;
                if let Some(result) = turn.judge(live.number, answer) {
                    return result;
                }
                turn.spend(&live);
            }
        })
    }

    fn examine(&self, limit: Duration) -> Examining {
        let shared = self.shared.clone();
        Box::pin(async move {
            // Over a connection of its own, because there is none to a server
            // that is not fit to be a node.
            let work = async {
                let opened = dial::line(|| shared.stream(), shared.address.login());
                let (mut line, protocol) = opened.await.map_err(wire::node_error)?;
                let charter = &shared.charter;
                let mut facts = checkup::examine(&mut line, charter, true).await?;
                if let Some(lacks) = facts.lacks.as_mut()
                    && protocol == Protocol::Resp3
                    && let Err(error) = line.subscribe(&checkup::channel(charter)).await
                {
                    lacks.extend(checkup::missing("+subscribe", &error, charter));
                    lacks.dedup();
                }
                facts.encrypted = shared.address.is_encrypted();
                Ok(facts)
            };
            let timed_out = || Err(NodeError::timed_out(limit));
            timeout(limit, work).await.unwrap_or_else(|_| timed_out())
        })
    }

    fn ready(
        &self,
        limit: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Ready, NodeError>> + Send>> {
        let mut turn = self.turn(limit);
        Box::pin(async move {
            let run = turn.live().await?.server.run.clone();
            let identity = (!run.is_empty()).then(|| run.to_string());
            Ok(Ready { identity })
        })
    }
}

impl Link {
    fn turn(&self, limit: Duration) -> Turn {
        Turn {
            shared: self.shared.clone(),
            limit,
            deadline: patience::deadline(limit),
            spent: 0,
            first: None,
        }
    }
}

/// One call, over as many connections as its time allows.
struct Turn {
    shared: Arc<Shared>,
    limit: Duration,
    deadline: Instant,
    /// The number of the last connection that broke under this call.
    spent: u64,
    /// The run of the server behind the first connection that broke under this
    /// call; empty when it is not known.
    first: Option<Arc<str>>,
}

impl Turn {
    /// A connection that has not broken under this call, as soon as there is one.
    async fn live(&mut self) -> Result<Arc<Live>, NodeError> {
        // Mostly there is one, and nothing to listen for.
        if let Some(found) = self.look() {
            return found;
        }
        let mut changed = pin!(self.shared.changed.notified());
        loop {
            // Listen first, then look: a change between the two would be missed.
            changed.as_mut().enable();
            if let Some(found) = self.look() {
                return found;
            }
            if timeout_at(self.deadline, changed.as_mut()).await.is_err() {
                return Err(NodeError::timed_out(self.limit));
            }
            changed.set(self.shared.changed.notified());
        }
    }

    /// A connection that has not broken under this call, or why there will be
    /// none; nothing while one is being made.
    fn look(&self) -> Option<Result<Arc<Live>, NodeError>> {
        match &*self.shared.state() {
            State::Up(live) if live.number > self.spent => Some(Ok(live.clone())),
            State::Down(error) => Some(Err(error.clone())),
            State::Ended => {
                let gone = "the runtime that this client was built on has ended";
                Some(Err(NodeError::new(NodeErrorKind::Unreachable, gone)))
            }
            State::Up(_) | State::Connecting => None,
        }
    }

    /// Whether it is sent over the next connection, by a planted mistake.
    fn overtakes(&self, requests: &[Request]) -> bool {
        let is_release = |request: &Request| matches!(request, Request::Release { .. });
        planted!(ReleaseOvertakes) && self.spent == 0 && requests.iter().any(is_release)
    }

    /// What is known of this call's request, about to be sent over `live`.
    fn before(&self, live: &Live) -> Before {
        let run = Some(&live.server.run).filter(|run| !run.is_empty());
        match self.spent {
            0 => Before::Unsent,
            _ if run.is_some() && self.first.as_ref() == run => Before::UnknownHere,
            _ => Before::Unknown,
        }
    }

    /// This connection broke, and the reply with it, if there was one.
    fn spend(&mut self, live: &Live) {
        if self.spent == 0 {
            self.first = Some(live.server.run.clone());
        }
        self.spent = live.number;
    }

    /// The result of the call by what a connection answered; nothing when it is
    /// to be repeated on the next connection.
    fn judge<T>(
        &self,
        number: u64,
        answer: Result<Result<T, Trouble>, Elapsed>,
    ) -> Option<Result<T, NodeError>> {
        match answer {
            Ok(Ok(answer)) => {
                self.shared.is_heard();
                Some(Ok(answer))
            }
            Ok(Err(Trouble::Error(error))) => {
                self.shared.is_heard();
                Some(Err(error))
            }
            Ok(Err(Trouble::Gone(error))) => {
                tracing::debug!(node = self.shared.address.name(), %error, "connection broke");
                self.shared.give_up(number);
                None
            }
            Err(_) => {
                if self.shared.silence.fetch_add(1, Ordering::Relaxed) + 1 >= MUTE_AFTER {
                    self.shared.give_up(number);
                }
                Some(Err(NodeError::timed_out(self.limit)))
            }
        }
    }
}

impl Shared {
    fn new(address: Address, charter: Charter) -> Self {
        Self {
            address,
            #[cfg(feature = "simulation")]
            dial: None,
            state: Mutex::new(State::Connecting),
            changed: Notify::new(),
            charter,
            bells: Bells::default(),
            silence: AtomicU32::new(0),
            was_called: AtomicBool::new(false),
            broken: watch::Sender::new(0),
        }
    }

    /// A new stream to the server.
    async fn stream(&self) -> Result<Stream, RedisError> {
        #[cfg(feature = "simulation")]
        if let Some(dial) = &self.dial {
            return Ok(Stream::Other(Box::new(dial.dial().await?)));
        }
        dial::open(&self.address).await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.state() = state;
        self.changed.notify_waiters();
    }

    /// The server has answered.
    fn is_heard(&self) {
        // What all threads read is written only when it changes.
        if self.silence.load(Ordering::Relaxed) > 0 {
            self.silence.store(0, Ordering::Relaxed);
        }
    }

    /// What the server says without being asked, and that it hung up.
    fn hear(&self, number: u64, kind: PushKind, data: Vec<Value>) {
        match kind {
            PushKind::Disconnection => {
                self.give_up(number);
                self.bells.ring_all();
            }
            PushKind::Invalidate => match reply::touched(&data) {
                Some(keys) => keys.iter().for_each(|key| {
                    self.bells.ring(key, News::Changed);
                }),
                None => self.bells.ring_all(),
            },
            PushKind::Message => {
                if let Some((key, news)) = reply::called(&data) {
                    if matches!(news, News::Granted(_)) {
                        self.was_called.store(true, Ordering::Relaxed);
                    }
                    self.bells.ring(&key, news);
                }
            }
            _ => {}
        }
    }

    /// Whether this is likely to hand a lock on to somebody else: where locks come
    /// from others, others wait for them.
    fn hands_on(&self, request: &Request) -> bool {
        matches!(request, Request::Release { .. })
            && self.was_called.load(Ordering::Relaxed)
            && self.was_called.swap(false, Ordering::Relaxed)
    }

    /// Tells the connector that the connection with this number is of no more use.
    fn give_up(&self, number: u64) {
        self.broken.send_if_modified(|broken| {
            let newer = number > *broken;
            *broken = number.max(*broken);
            newer
        });
    }
}
