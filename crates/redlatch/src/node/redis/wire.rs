//! Sends requests over a connection, and reads the replies.

use std::time::{Duration, Instant, SystemTime};

use redis::aio::ConnectionLike;
use redis::{ErrorKind, RedisError, Value, cmd};
use redlatch_core::{Key, Reply, Request};

use super::checkup;
use super::dialect::{Dialect, Form, Kind, MOST};
use super::line::{self, Line};
use super::reply::{self, reply};
use crate::node::{NodeError, NodeErrorKind, Page, Pattern, Probe};

/// Why the server gave no reply to a request.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The connection is gone; whether the request was carried out, nobody knows.
    Gone(NodeError),
    /// The server answered, but not with a reply.
    Error(NodeError),
}

/// What became of the same request when it was sent before, perhaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// It was not sent before.
    Unsent,
    /// It may have been carried out, perhaps by another run of the server.
    Unknown,
    /// It may have been carried out, and if so by the same run of the server.
    UnknownHere,
}

/// Sends one request and reads the reply.
pub(super) async fn send<C: ConnectionLike>(
    connection: &mut C,
    dialect: &Dialect,
    request: &Request,
    before: Before,
) -> Result<Reply, Trouble> {
    let command = dialect.command(request, Form::Hash);
    let answer = command.query_async(connection).await;
    conclude(connection, dialect, request, before, answer).await
}

/// Reads the reply in what the server answered to the command for a request, and
/// asks once more where that does not say it.
pub(super) async fn conclude<C: ConnectionLike>(
    connection: &mut C,
    dialect: &Dialect,
    request: &Request,
    before: Before,
    answer: Result<Value, RedisError>,
) -> Result<Reply, Trouble> {
    let value = match answer {
        // The server forgot its scripts: it was restarted, or told to.
        Err(error) if is_noscript(&error) => dialect
            .command(request, Form::Text)
            .query_async(connection)
            .await
            .map_err(trouble)?,
        value => value.map_err(trouble)?,
    };
    match (request, reply(request, value).map_err(Trouble::Error)?) {
        (Request::Acquire { key, token, .. }, Reply::Held(None)) if before != Before::Unsent => {
            // Held, perhaps by this very request when it was sent first.
            let held: Value = cmd("GET")
                .arg(key.as_str())
                .query_async(connection)
                .await
                .or_else(stranger)
                .map_err(trouble)?;
            match held {
                Value::BulkString(value) if value == token.as_str().as_bytes() => {
                    Ok(Reply::Granted)
                }
                _ => Ok(Reply::Held(None)),
            }
        }
        // Gone, by this very request when it was sent first: a lease that its
        // holder gives back has time left, and the server has forgotten nothing.
        (Request::Release { .. }, Reply::Missing | Reply::Foreign)
            if before == Before::UnknownHere =>
        {
            Ok(Reply::Released)
        }
        (_, reply) => Ok(reply),
    }
}

/// Looks how much longer a key is there, as [`Watched::remaining`] says it; with
/// `tell`, the server will tell this connection once when something happens to it.
///
/// Read by PTTL and never by a script, because then the server would tell of
/// every key that the script declares, the fences of all locks among them.
pub(super) async fn look<C: ConnectionLike>(
    connection: &mut C,
    key: &Key,
    tell: bool,
) -> Result<Option<Duration>, Trouble> {
    let mut pipeline = redis::pipe();
    if tell {
        pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
    }
    pipeline.cmd("PTTL").arg(key.as_str());
    let values: Vec<Result<Value, RedisError>> = pipeline
        .ignore_errors()
        .query_async(connection)
        .await
        .map_err(trouble)?;
    let mut values = values.into_iter();
    // Who counted on being told would wait in vain.
    if tell && let Some(Err(error)) = values.next() {
        return Err(trouble(error));
    }
    match values.next_back() {
        Some(Ok(Value::Int(-2))) => Ok(None),
        Some(Ok(Value::Int(left))) => Ok(Some(
            u64::try_from(left).map_or(Duration::MAX, Duration::from_millis),
        )),
        Some(Err(error)) => Err(trouble(error)),
        // Whatever it may be, it is there.
        Some(Ok(_)) | None => Ok(Some(Duration::MAX)),
    }
}

/// How long the server takes for an answer. TIME is as little work as PING, says
/// one thing more, and every user of a node has the right to it.
pub(super) async fn probe<C: ConnectionLike>(connection: &mut C) -> Result<Probe, Trouble> {
    let (begin, asked) = (Instant::now(), SystemTime::now());
    let answer = cmd("TIME").query_async::<(u64, u64)>(connection).await;
    let (seconds, micros) = answer.map_err(trouble)?;
    let mut probe = Probe::new(begin.elapsed());
    probe.clock_ahead = checkup::ahead(asked, SystemTime::now(), seconds, micros);
    Ok(probe)
}

/// How many keys a server looks at before others get their turn.
const PAGE: u64 = 1000;

/// Some of the keys that match, and where to go on.
pub(super) async fn scan<C: ConnectionLike>(
    connection: &mut C,
    pattern: &Pattern,
    after: Option<&str>,
) -> Result<Page, Trouble> {
    let mut pipeline = redis::pipe();
    let scan = pipeline.cmd("SCAN").arg(after.unwrap_or("0"));
    scan.arg("MATCH").arg(pattern.as_glob());
    scan.arg("COUNT").arg(PAGE);
    if after.is_none() {
        // Only to say how far it has come: done without where it is not allowed.
        pipeline.cmd("DBSIZE");
    }
    let values: Vec<Result<Value, RedisError>> = pipeline
        .ignore_errors()
        .query_async(connection)
        .await
        .map_err(trouble)?;
    let mut values = values.into_iter();
    let scanned = values.next().unwrap_or(Ok(Value::Nil)).map_err(trouble)?;
    let total = values.next().and_then(Result::ok);
    let total = total.and_then(|total| redis::from_redis_value::<u64>(total).ok());
    let (next, keys) = reply::page(&scanned).map_err(Trouble::Error)?;
    Ok(Page {
        keys,
        looked_at: PAGE,
        total,
        next,
    })
}

/// Sends many requests in one go; the replies come in their order.
pub(super) async fn send_all<C: ConnectionLike>(
    connection: &mut C,
    dialect: &Dialect,
    requests: &[Request],
) -> Result<Vec<Result<Reply, NodeError>>, Trouble> {
    let answers = pipeline(connection, dialect, requests, Form::Hash).await;
    conclude_all(connection, dialect, requests, answers).await
}

/// The same over a line of ours: several go as one command, where they can. (Then there
/// may be a second round, in the time that all of them have.)
pub(super) async fn send_over(
    line: &mut Line,
    dialect: &Dialect,
    requests: &[Request],
) -> Result<Vec<Result<Reply, NodeError>>, Trouble> {
    let asked = ask_together(line, dialect, requests).await;
    let answers = asked.map_err(trouble)?;
    let is_left = |(_, answer): &(_, &Value)| **answer == Value::Nil;
    let left = requests.iter().zip(&answers).filter(is_left);
    let left: Vec<Request> = left.map(|(request, _)| request.clone()).collect();
    let put = |out: &mut Vec<u8>| left.iter().for_each(|request| dialect.put(request, out));
    let again = line.ask_all(left.len(), put).await;
    let each = |answers: Vec<_>| answers.into_iter().map(Value::extract_error).collect();
    let again = conclude_all(line, dialect, &left, again.map(each)).await?;
    let mut again = again.into_iter();
    let conclude = |(request, answer)| match answer {
        Value::Nil => again.next().unwrap_or_else(|| reply(request, Value::Nil)),
        answer => reply(request, answer),
    };
    Ok(requests.iter().zip(answers).map(conclude).collect())
}

/// The answers to those of many requests that can go as one command; nil for the others.
///
/// In which order they are carried out makes no difference: they are of one kind, and not
/// of the one that asks for locks.
async fn ask_together(
    line: &Line,
    dialect: &Dialect,
    requests: &[Request],
) -> Result<Vec<Value>, RedisError> {
    let mut each = vec![Value::Nil; requests.len()];
    let kind = requests.iter().find_map(|request| dialect.kind(request));
    let can_go = |(_, request): &(_, &Request)| dialect.kind(request) == kind;
    let together: Vec<_> = requests.iter().enumerate().filter(can_go).collect();
    let is_of_use = matches!(kind, Some(Kind::Release | Kind::Extend)) && together.len() > 1;
    if !is_of_use || !line.takes_bundles() {
        return Ok(each);
    }
    let bundles = together.chunks(MOST);
    let ask = |form| {
        line.ask_all(bundles.len(), |out| {
            for bundle in bundles.clone() {
                let requests = bundle.iter().map(|(_, request)| *request);
                dialect.put_together(requests, form, out);
            }
        })
    };
    let mut answers = ask(Form::Hash).await?;
    if answers.iter().any(line::is_noscript) {
        answers = ask(Form::Text).await?;
    }
    for (bundle, answer) in bundles.zip(answers) {
        line.judge_bundle(&answer);
        if let Value::Array(answers) = answer {
            for ((at, _), answer) in bundle.iter().zip(answers) {
                each[*at] = answer;
            }
        }
    }
    Ok(each)
}

/// The same as [`conclude`] for many requests that were sent in one go.
pub(super) async fn conclude_all<C: ConnectionLike>(
    connection: &mut C,
    dialect: &Dialect,
    requests: &[Request],
    answers: Result<Vec<Result<Value, RedisError>>, RedisError>,
) -> Result<Vec<Result<Reply, NodeError>>, Trouble> {
    let mut answers = answers.map_err(trouble)?;
    let forgot = |answer: &Result<Value, RedisError>| answer.as_ref().is_err_and(is_noscript);
    if answers.iter().any(forgot) {
        // Every request may be repeated: each is idempotent for its token.
        let again = pipeline(connection, dialect, requests, Form::Text).await;
        answers = again.map_err(trouble)?;
    }
    Ok(requests
        .iter()
        .zip(answers)
        .map(|(request, answer)| reply(request, answer.map_err(node_error)?))
        .collect())
}

async fn pipeline<C: ConnectionLike>(
    connection: &mut C,
    dialect: &Dialect,
    requests: &[Request],
    form: Form,
) -> Result<Vec<Result<Value, RedisError>>, RedisError> {
    let mut pipeline = redis::Pipeline::with_capacity(requests.len());
    for request in requests {
        pipeline.add_command(dialect.command(request, form));
    }
    pipeline.ignore_errors().query_async(connection).await
}

fn is_noscript(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// A key of another type is a stranger's, not an error.
fn stranger(error: RedisError) -> Result<Value, RedisError> {
    match error.code() {
        Some("WRONGTYPE") => Ok(Value::Nil),
        _ => Err(error),
    }
}

fn trouble(error: RedisError) -> Trouble {
    let gone = error.is_unrecoverable_error();
    let error = node_error(error);
    match gone {
        true => Trouble::Gone(error),
        false => Trouble::Error(error),
    }
}

/// What Redis 7.0 says when a script calls a command that its user may not.
fn is_denied_in_script(detail: &str) -> bool {
    detail.contains("user executing the script can't")
}

/// The same in our words. There is no password in it: what comes of a log-in has
/// been looked at (see `dial`). Keys and values of ours are not secret.
pub(super) fn node_error(error: RedisError) -> NodeError {
    let (kind, advice) = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH")) => (
            NodeErrorKind::Denied,
            "check the user name and the password in its URL",
        ),
        (_, Some("NOPERM")) => (NodeErrorKind::Denied, "grant it to this user"),
        // A script's error has no code of its own for this.
        _ if error.detail().is_some_and(is_denied_in_script) => (
            NodeErrorKind::Denied,
            "grant this user what docs/operations.md lists",
        ),
        (_, Some("READONLY")) => (
            NodeErrorKind::Server,
            "this is a replica; a node must be a master",
        ),
        (_, Some("LOADING")) => (NodeErrorKind::Server, "it is still reading its data"),
        (_, Some("OOM")) => (
            NodeErrorKind::Server,
            "raise maxmemory, or free some of its memory",
        ),
        (_, Some("MISCONF")) => (NodeErrorKind::Server, "mend its persistence"),
        (ErrorKind::Parse, _) => (
            NodeErrorKind::NotRedis,
            "what answers there is not a Redis server",
        ),
        (ErrorKind::Io, _) => (NodeErrorKind::Unreachable, ""),
        (ErrorKind::UnexpectedReturnType, _) => (NodeErrorKind::Confused, ""),
        _ => (NodeErrorKind::Server, ""),
    };
    let gap = if advice.is_empty() { "" } else { ": " };
    NodeError::new(kind, format!("{error}{gap}{advice}"))
}
