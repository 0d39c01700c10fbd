//! One line to a server, which many callers share.
//!
//! Commands go out in the order in which they were given, and answers come back
//! in that order. A command is on its way from the moment that it was given:
//! who gives one on an idle line sends it himself, and while others are under
//! way a task collects what is given and sends all of it at once. A second task
//! reads. Both end with the line, and the line with its last handle.

mod frame;
mod sink;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, PushKind, RedisError, RedisFuture, ServerError, Value};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

pub(super) use self::frame::Frames;
use self::sink::Sink;
pub(super) use self::sink::Stream;

/// How much is read at a time, at least.
const CHUNK: usize = 8 * 1024;

/// What a buffer may keep when it is empty: more was needed once, for many
/// requests together.
const KEPT: usize = 64 * 1024;

/// So much is sent as soon as it has come together, so that the server has
/// something to do while more is being collected.
const BATCH: usize = 4 * 1024;

/// A handle to the line. The line ends with its last handle.
#[derive(Clone)]
pub(super) struct Line(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
}

struct Shared {
    sink: Sink,
    desk: Mutex<Desk>,
    /// Told when there is something to send.
    more: Notify,
}

/// What is under way.
#[derive(Default)]
struct Desk {
    /// What is still to be sent.
    out: Vec<u8>,
    writer: Writer,
    /// Who waits for answers, in the order of the commands.
    waiting: VecDeque<Waiter>,
    /// Why there will be no more answers.
    end: Option<End>,
}

/// What the task that writes is doing.
#[derive(Default, PartialEq, Eq)]
enum Writer {
    #[default]
    Idle,
    /// It will soon send what there is.
    Called,
    /// It is sending. Nobody else may: that would go out in between.
    Busy,
}

enum Waiter {
    One(oneshot::Sender<Result<Value, RedisError>>),
    Many {
        missing: usize,
        answers: Vec<Value>,
        all: oneshot::Sender<Result<Vec<Value>, RedisError>>,
    },
}

/// Why a line has ended.
#[derive(Clone, Debug)]
enum End {
    Broken(io::ErrorKind, String),
    /// The server said so before it was asked anything.
    Refused(ServerError),
    NotRedis(&'static str),
}

impl Line {
    /// A line over `stream`. What comes unasked is for `hear`, and at last that
    /// nothing more will come.
    pub(super) fn new(
        stream: Stream,
        hear: impl Fn(PushKind, Vec<Value>) + Send + Sync + 'static,
    ) -> Self {
        let (source, sink) = stream.split();
        let shared = Arc::new(Shared {
            sink,
            desk: Mutex::default(),
            more: Notify::new(),
        });
        let reading = tokio::spawn(read(shared.clone(), source, hear)).abort_handle();
        let writing = tokio::spawn(write(shared.clone())).abort_handle();
        let tasks = [reading, writing];
        Self(Arc::new(Handle { shared, tasks }))
    }

    /// Sends the one command that `put` writes. It is sent when this returns,
    /// whether somebody waits for the answer or not.
    pub(super) fn ask(&self, put: impl FnOnce(&mut Vec<u8>)) -> Answer<Value> {
        let (answer, answered) = oneshot::channel();
        self.0.shared.send(put, Waiter::One(answer));
        Answer(answered)
    }

    /// The same for so many commands, which go out together.
    pub(super) fn ask_all(
        &self,
        count: usize,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Answer<Vec<Value>> {
        let (all, answered) = oneshot::channel();
        match count {
            0 => drop(all.send(Ok(Vec::new()))),
            missing => {
                let answers = Vec::with_capacity(count);
                let waiter = Waiter::Many {
                    missing,
                    answers,
                    all,
                };
                self.0.shared.send(put, waiter);
            }
        }
        Answer(answered)
    }
}

/// An answer to come.
pub(super) struct Answer<T>(oneshot::Receiver<Result<T, RedisError>>);

impl<T> Future for Answer<T> {
    type Output = Result<T, RedisError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(answer.unwrap_or_else(|_| Err(End::closed().error())))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, put: impl FnOnce(&mut Vec<u8>), waiter: Waiter) {
        let mut desk = self.desk();
        if let Some(end) = desk.end.clone() {
            drop(desk);
            return waiter.fail(&end);
        }
        let is_alone = desk.waiting.is_empty();
        put(&mut desk.out);
        desk.waiting.push_back(waiter);
        if (is_alone || desk.out.len() >= BATCH) && desk.writer != Writer::Busy {
            self.sink.send_now(&mut desk.out);
        }
        if !desk.out.is_empty() && desk.writer == Writer::Idle {
            desk.writer = Writer::Called;
            drop(desk);
            self.more.notify_one();
        }
    }

    /// Takes what is to be sent. Whether there is anything.
    async fn collect(&self, bytes: &mut Vec<u8>) -> bool {
        let is_alone = self.desk().waiting.len() < 2;
        if !is_alone {
            // Answers come in bunches: those who have just got theirs may have
            // more to send.
            tokio::task::yield_now().await;
        }
        let mut desk = self.desk();
        std::mem::swap(bytes, &mut desk.out);
        desk.writer = match bytes.is_empty() {
            true => Writer::Idle,
            false => Writer::Busy,
        };
        !bytes.is_empty()
    }

    /// Hands out answers, in the order in which they came.
    fn answer(&self, answers: &mut Vec<Value>) -> Result<(), End> {
        let mut ready = Vec::with_capacity(answers.len());
        let mut desk = self.desk();
        for answer in answers.drain(..) {
            let Some(first) = desk.waiting.front_mut() else {
                return Err(match answer {
                    Value::ServerError(error) => End::Refused(error),
                    _ => End::NotRedis("it answers what it was not asked"),
                });
            };
            if let Waiter::Many {
                missing, answers, ..
            } = first
            {
                answers.push(answer);
                *missing -= 1;
                if *missing == 0 {
                    ready.extend(desk.waiting.pop_front().map(|waiter| (waiter, Value::Nil)));
                }
            } else {
                ready.extend(desk.waiting.pop_front().map(|waiter| (waiter, answer)));
            }
        }
        drop(desk);
        // Not under the lock, for which those who go on now would have to wait.
        for (waiter, answer) in ready {
            // Whoever asked may have stopped waiting.
            match waiter {
                Waiter::One(one) => drop(one.send(Ok(answer))),
                Waiter::Many { answers, all, .. } => drop(all.send(Ok(answers))),
            }
        }
        Ok(())
    }

    /// Tells everybody that there will be no more answers.
    fn end(&self, end: End) {
        let mut desk = self.desk();
        let end = desk.end.get_or_insert(end).clone();
        let waiting = std::mem::take(&mut desk.waiting);
        desk.out = Vec::new();
        drop(desk);
        waiting.into_iter().for_each(|waiter| waiter.fail(&end));
    }
}

impl Waiter {
    fn fail(self, end: &End) {
        match self {
            Self::One(one) => drop(one.send(Err(end.error()))),
            Self::Many { all, .. } => drop(all.send(Err(end.error()))),
        }
    }
}

impl End {
    fn closed() -> Self {
        Self::Broken(
            io::ErrorKind::BrokenPipe,
            "the connection was closed".into(),
        )
    }

    fn error(&self) -> RedisError {
        match self {
            Self::Broken(kind, words) => io::Error::new(*kind, words.clone()).into(),
            Self::Refused(error) => error.clone().into(),
            Self::NotRedis(words) => (redis::ErrorKind::Parse, *words).into(),
        }
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.kind(), error.to_string())
    }
}

/// Reads until there is no more, or until it makes no sense.
async fn read(
    shared: Arc<Shared>,
    source: impl AsyncRead + Unpin,
    hear: impl Fn(PushKind, Vec<Value>),
) {
    let closing = Closing(&shared);
    let Err(end) = try_read(&shared, source, &hear).await;
    shared.end(end);
    drop(closing);
    hear(PushKind::Disconnection, Vec::new());
}

/// Nobody waits for answers that nobody will read: also when the task is
/// dropped, with its runtime.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.end(End::closed());
    }
}

async fn try_read(
    shared: &Shared,
    mut source: impl AsyncRead + Unpin,
    hear: &impl Fn(PushKind, Vec<Value>),
) -> Result<std::convert::Infallible, End> {
    let mut frames = Frames::default();
    let mut answers = Vec::new();
    loop {
        let room = frames.room(CHUNK);
        if source.read_buf(room).await? == 0 {
            let closed = io::ErrorKind::UnexpectedEof;
            return Err(End::Broken(closed, "the server hung up".into()));
        }
        while let Some(value) = frames.next().map_err(End::NotRedis)? {
            match value {
                // The answer to SUBSCRIBE comes as if it were unasked.
                Value::Push { kind, data } if kind != PushKind::Subscribe => {
                    // What came before it is heard before it.
                    shared.answer(&mut answers)?;
                    hear(kind, data);
                }
                answer => answers.push(answer),
            }
        }
        shared.answer(&mut answers)?;
    }
}

/// Sends what is given while other things are under way.
async fn write(shared: Arc<Shared>) {
    let mut bytes = Vec::new();
    loop {
        shared.more.notified().await;
        while shared.collect(&mut bytes).await {
            if let Err(error) = shared.sink.send(&bytes).await {
                return shared.end(error.into());
            }
            bytes.clear();
            bytes.shrink_to(KEPT);
            shared.desk().writer = Writer::Called;
        }
    }
}

/// For all that is not in a hurry.
impl ConnectionLike for Line {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move { self.ask(|out| cmd.write_packed_command(out)).await })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        _: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let bytes = pipeline.get_packed_pipeline();
            self.ask_all(count, |out| out.extend(bytes)).await
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}
