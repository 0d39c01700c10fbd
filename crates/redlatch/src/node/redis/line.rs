//! One line to a server, which many callers share.
//!
//! Commands go out in the order in which they were given, but for requests that may go
//! with others (see `desk`), and answers come back in that order. A command is on its way from the moment that it was given, and
//! can't be taken back. One that is given on an idle line is sent there and then,
//! without a detour over a task; while others are under way a task collects what
//! is given and sends all of it at once, and of the requests among it several as one
//! command. A second task reads. Both end with the line, and the line with its last
//! handle, or when it is closed.

mod desk;
mod frame;
mod sink;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, PushKind, RedisError, RedisFuture, Value};
use redlatch_core::{Request, fence};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use self::desk::{Desk, Sharer, Waiter, Writer};
pub(super) use self::desk::{Share, is_noscript};
pub(super) use self::frame::Frames;
use self::sink::Sink;
pub(super) use self::sink::Stream;
use super::dialect::Dialect;

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
    hear: OnceLock<Hear>,
}

/// Hears what a server says without being asked, and that the line has ended.
type Hear = Box<dyn Fn(PushKind, Vec<Value>) + Send + Sync>;

/// Why a line has ended.
#[derive(Clone, Debug)]
enum End {
    Broken(String),
    NotRedis(&'static str),
}

impl Line {
    /// A line over `stream`.
    pub(super) fn new(stream: Stream) -> Self {
        let (source, sink) = stream.split();
        let shared = Arc::new(Shared {
            sink,
            desk: Mutex::default(),
            more: Notify::new(),
            hear: OnceLock::new(),
        });
        let reading = tokio::spawn(read(Closing(shared.clone()), source)).abort_handle();
        let writing = tokio::spawn(write(Closing(shared.clone()))).abort_handle();
        let tasks = [reading, writing];
        Self(Arc::new(Handle { shared, tasks }))
    }

    /// From now on, what comes unasked is for `hear`, and at last, perhaps more
    /// than once, that nothing more will come.
    pub(super) fn listen(&self, hear: impl Fn(PushKind, Vec<Value>) + Send + Sync + 'static) {
        let shared = &self.0.shared;
        let _ = shared.hear.set(Box::new(hear));
        let has_ended = shared.desk().end.is_some();
        if has_ended {
            shared.hear(PushKind::Disconnection, Vec::new());
        }
    }

    /// Ends the line at once. What was not sent yet never will be, and who waits
    /// for an answer is told.
    pub(super) fn close(&self) {
        self.0.shared.end(End::closed());
        self.0.stop();
    }

    /// Sends the one command that `put` writes. It is on its way when this
    /// returns, whether somebody waits for the answer or not.
    pub(super) fn ask(&self, put: impl FnOnce(&mut Vec<u8>)) -> Answer<Value> {
        let (answer, answered) = oneshot::channel();
        self.0.shared.send(put, [Waiter::One(answer)]);
        Answer(answered)
    }

    /// The same for a command by which the server also has something to say to
    /// others: they hear it before we have the answer.
    ///
    /// A server writes last to the client that it had something for first. So it
    /// is asked for something before: for the time, as who may lock may do.
    pub(super) fn ask_after_you(&self, put: impl FnOnce(&mut Vec<u8>)) -> Answer<Value> {
        let (answer, answered) = oneshot::channel();
        let put = |out: &mut Vec<u8>| {
            out.extend_from_slice(b"*1\r\n$4\r\nTIME\r\n");
            put(out);
        };
        let waiters = [Waiter::Nobody, Waiter::One(answer)];
        self.0.shared.send(put, waiters);
        Answer(answered)
    }

    /// Sends a request, which may go out as one with others. It is on its way, too.
    pub(super) fn ask_with_others(
        &self,
        dialect: &Arc<Dialect>,
        request: &Request,
    ) -> Answer<Share> {
        let (share, shared) = oneshot::channel();
        self.0.shared.send_with_others(dialect, request, share);
        Answer(shared)
    }

    /// Whether the server takes several requests as one command; else this time they go
    /// by themselves. For those who make such commands on their own.
    pub(super) fn takes_bundles(&self) -> bool {
        self.0.shared.desk().takes_bundles()
    }

    /// What was answered to such a command.
    pub(super) fn judge_bundle(&self, answer: &Value) {
        self.0.shared.desk().judge_bundle(answer);
    }

    /// Sends so many commands, which go out one after the other.
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
                self.0.shared.send(put, [waiter]);
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

impl Handle {
    fn stop(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
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

    fn send<const N: usize>(&self, put: impl FnOnce(&mut Vec<u8>), waiters: [Waiter; N]) {
        let mut desk = self.desk();
        if let Some(end) = desk.end.clone() {
            drop(desk);
            return waiters.into_iter().for_each(|waiter| waiter.fail(&end));
        }
        let is_alone = desk.under_way() == 0;
        desk.put(put, waiters);
        self.see_to_it(desk, is_alone);
    }

    fn send_with_others(&self, dialect: &Arc<Dialect>, request: &Request, sharer: Sharer) {
        let kind = dialect.kind(request);
        let slot = request.key().map_or(0, fence::slot);
        let mut desk = self.desk();
        match kind.filter(|_| desk.is_bundling(slot)) {
            Some(kind) => {
                let is_full = desk.put_with_others(dialect, kind, slot, request, sharer);
                self.see_to_it(desk, is_full);
            }
            None => {
                drop(desk);
                let put = |out: &mut Vec<u8>| dialect.put(request, out);
                self.send(put, [Waiter::Single(sharer)]);
            }
        }
    }

    /// Sees to it that what is on the desk is sent: now, if it can be, or by the task
    /// that writes.
    fn see_to_it(&self, mut desk: MutexGuard<'_, Desk>, now: bool) {
        if (now || desk.out.len() >= BATCH) && desk.writer != Writer::Busy {
            self.sink.send_now(&mut desk.out);
        }
        if desk.has_more() && desk.writer == Writer::Idle {
            desk.writer = Writer::Called;
            drop(desk);
            self.more.notify_one();
        }
    }

    /// Takes what is to be sent. Whether there is anything.
    async fn collect(&self, bytes: &mut Vec<u8>) -> bool {
        let is_alone = self.desk().under_way() < 2;
        if !is_alone {
            // Answers come in bunches: those who have just got theirs may have
            // more to send.
            tokio::task::yield_now().await;
        }
        let mut desk = self.desk();
        desk.close_bundle();
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
        let unasked = self.desk().hand_out(answers, &mut ready);
        // Not under the lock, for which those who go on now would have to wait.
        for (waiter, answer) in ready {
            waiter.receive(answer);
        }
        match unasked {
            None => Ok(()),
            // Why it hangs up, before it was asked anything.
            Some(Value::ServerError(error)) => {
                Err(End::Broken(RedisError::from(error).to_string()))
            }
            Some(_) => Err(End::NotRedis("it answers what it was not asked")),
        }
    }

    fn hear(&self, kind: PushKind, data: Vec<Value>) {
        if let Some(hear) = self.hear.get() {
            hear(kind, data);
        }
    }

    /// Tells everybody that there will be no more answers.
    fn end(&self, end: End) {
        let mut desk = self.desk();
        if desk.end.is_some() {
            return;
        }
        desk.end = Some(end.clone());
        desk.close_bundle();
        let waiting = std::mem::take(&mut desk.waiting);
        desk.out = Vec::new();
        drop(desk);
        waiting.into_iter().for_each(|waiter| waiter.fail(&end));
        self.hear(PushKind::Disconnection, Vec::new());
    }
}

impl End {
    fn closed() -> Self {
        Self::Broken("the connection was closed".into())
    }

    fn error(&self) -> RedisError {
        match self {
            // Of a kind by which everybody knows that it is gone for good.
            Self::Broken(words) => io::Error::new(io::ErrorKind::BrokenPipe, words.clone()).into(),
            Self::NotRedis(words) => (redis::ErrorKind::Parse, *words).into(),
        }
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Goes with the tasks of a line: without either, nobody must wait for answers.
/// They may be dropped with their runtime.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.end(End::closed());
    }
}

/// Reads until there is no more, or until it makes no sense.
async fn read(line: Closing, source: impl AsyncRead + Unpin) {
    let Err(end) = try_read(&line.0, source).await;
    line.0.end(end);
}

async fn try_read(
    shared: &Shared,
    mut source: impl AsyncRead + Unpin,
) -> Result<std::convert::Infallible, End> {
    let mut frames = Frames::default();
    let mut answers = Vec::new();
    loop {
        if source.read_buf(frames.room(CHUNK)).await? == 0 {
            return Err(End::Broken("the server hung up".into()));
        }
        let nonsense = loop {
            match frames.next() {
                Ok(None) => break None,
                // The answer to SUBSCRIBE comes as if it were unasked.
                Ok(Some(Value::Push { kind, data })) if kind != PushKind::Subscribe => {
                    // What came before it is heard before it.
                    shared.answer(&mut answers)?;
                    shared.hear(kind, data);
                }
                Ok(Some(answer)) => answers.push(answer),
                Err(problem) => break Some(End::NotRedis(problem)),
            }
        };
        shared.answer(&mut answers)?;
        if let Some(end) = nonsense {
            return Err(end);
        }
    }
}

/// Sends what is given while other things are under way.
async fn write(line: Closing) {
    let shared = &line.0;
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
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let bytes = pipeline.get_packed_pipeline();
            let all = self.ask_all(offset + count, |out| out.extend(bytes));
            Ok(all.await?.split_off(offset))
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}
