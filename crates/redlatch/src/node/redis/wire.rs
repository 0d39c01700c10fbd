//! Requests as Redis commands, Redis values as replies.

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisError, Script, Value, cmd};
use redlatch_core::request::Holder;
use redlatch_core::{Reply, Request};

use crate::node::{NodeError, NodeErrorKind};

static EXTEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/extend.lua")));
static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/release.lua")));
static INSPECT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/inspect.lua")));

/// The text of every script, to be loaded with a new connection.
pub(super) const SCRIPTS: [&str; 3] = [
    include_str!("scripts/extend.lua"),
    include_str!("scripts/release.lua"),
    include_str!("scripts/inspect.lua"),
];

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
    request: &Request,
    before: Before,
) -> Result<Reply, Trouble> {
    let value = match command(request, Form::Hash).query_async(connection).await {
        // The server forgot its scripts: it was restarted, or told to.
        Err(error) if is_noscript(&error) => command(request, Form::Text)
            .query_async(connection)
            .await
            .map_err(trouble)?,
        value => value.map_err(trouble)?,
    };
    match (request, reply(request, value).map_err(Trouble::Error)?) {
        (Request::Acquire { key, token, .. }, Reply::Held) if before != Before::Unsent => {
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
                _ => Ok(Reply::Held),
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

/// Makes a new connection ready: loads the scripts, and asks the server who it
/// is. A user may lack the right to either and can lock all the same.
pub(super) async fn prepare<C: ConnectionLike>(
    connection: &mut C,
) -> Result<Option<String>, NodeError> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("PING").cmd("INFO").arg("server");
    for script in SCRIPTS {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(script);
    }
    let answers: Vec<Result<Value, RedisError>> = pipeline
        .ignore_errors()
        .query_async(connection)
        .await
        .map_err(node_error)?;
    let mut answers = answers.into_iter();
    // Without a log-in, where one is asked for, everything fails from here on.
    if let Some(Err(error)) = answers.next()
        && error.code() == Some("NOAUTH")
    {
        return Err(node_error(error));
    }
    let info = answers.next().and_then(Result::ok);
    let info = info.and_then(|info| redis::from_redis_value::<String>(info).ok());
    Ok(info.as_deref().and_then(run_id))
}

/// What INFO says about which server process this is.
fn run_id(info: &str) -> Option<String> {
    let id = info.lines().find_map(|line| line.strip_prefix("run_id:"))?;
    Some(id.trim().to_owned())
}

/// Sends many requests in one go; the replies come in their order.
pub(super) async fn send_all<C: ConnectionLike>(
    connection: &mut C,
    requests: &[Request],
) -> Result<Vec<Result<Reply, NodeError>>, Trouble> {
    let values = pipeline(connection, requests, Form::Hash).await?;
    let forgot = |value: &Result<Value, RedisError>| value.as_ref().is_err_and(is_noscript);
    let values = match values.iter().any(forgot) {
        // Every request may be repeated: each is idempotent for its token.
        true => pipeline(connection, requests, Form::Text).await?,
        false => values,
    };
    Ok(requests
        .iter()
        .zip(values)
        .map(|(request, value)| reply(request, value.map_err(node_error)?))
        .collect())
}

async fn pipeline<C: ConnectionLike>(
    connection: &mut C,
    requests: &[Request],
    form: Form,
) -> Result<Vec<Result<Value, RedisError>>, Trouble> {
    let mut pipeline = redis::Pipeline::with_capacity(requests.len());
    for request in requests {
        pipeline.add_command(command(request, form));
    }
    pipeline
        .ignore_errors()
        .query_async(connection)
        .await
        .map_err(trouble)
}

/// How a script is named to the server.
#[derive(Clone, Copy)]
enum Form {
    Hash,
    Text,
}

/// The command that does what `request` asks for.
fn command(request: &Request, form: Form) -> Cmd {
    let script = |script: &Script, text| match form {
        Form::Hash => start("EVALSHA", script.get_hash()),
        Form::Text => start("EVAL", text),
    };
    match request {
        Request::Acquire { key, token, ttl } => {
            let mut set = start("SET", key.as_str());
            set.arg(token.as_str())
                .arg("NX")
                .arg("PX")
                .arg(ttl.millis());
            set
        }
        Request::Extend { key, token, ttl } => {
            let mut call = script(&EXTEND, SCRIPTS[0]);
            call.arg(1).arg(key.as_str()).arg(token.as_str());
            call.arg(ttl.millis());
            call
        }
        Request::Release { key, token } => {
            let mut call = script(&RELEASE, SCRIPTS[1]);
            call.arg(1).arg(key.as_str()).arg(token.as_str());
            call
        }
        Request::Force { key } => start("DEL", key.as_str()),
        Request::Inspect { key } => {
            let mut call = script(&INSPECT, SCRIPTS[2]);
            call.arg(1).arg(key.as_str());
            call
        }
    }
}

fn start(name: &str, argument: &str) -> Cmd {
    let mut command = cmd(name);
    command.arg(argument);
    command
}

fn reply(request: &Request, value: Value) -> Result<Reply, NodeError> {
    match (request, &value) {
        (Request::Acquire { .. }, Value::Okay) => return Ok(Reply::Granted),
        (Request::Acquire { .. }, Value::Nil) => return Ok(Reply::Held),
        (Request::Force { .. }, Value::Int(0)) => return Ok(Reply::Missing),
        (Request::Force { .. }, Value::Int(1)) => return Ok(Reply::Released),
        (Request::Inspect { .. }, Value::Array(fields)) => {
            if let [
                value @ (Value::BulkString(_) | Value::Nil),
                Value::Int(left),
            ] = &fields[..]
            {
                return Ok(Reply::Holder(holder(value, *left)));
            }
        }
        _ => {}
    }
    let word = match &value {
        Value::BulkString(word) => &word[..],
        Value::SimpleString(word) => word.as_bytes(),
        _ => b"",
    };
    match (request, word) {
        (Request::Extend { .. }, b"EXTENDED") => Ok(Reply::Extended),
        (Request::Release { .. }, b"RELEASED") => Ok(Reply::Released),
        (Request::Extend { .. } | Request::Release { .. }, b"FOREIGN") => Ok(Reply::Foreign),
        (
            Request::Extend { .. } | Request::Release { .. } | Request::Inspect { .. },
            b"MISSING",
        ) => Ok(Reply::Missing),
        _ => Err(NodeError::new(
            NodeErrorKind::Confused,
            "it gave an answer that no Redis server gives",
        )),
    }
}

fn holder(value: &Value, left: i64) -> Holder {
    let value = match value {
        Value::BulkString(value) => Some(value.clone()),
        _ => None,
    };
    let remaining = u64::try_from(left).ok().map(Duration::from_millis);
    Holder { value, remaining }
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

/// The same in our words. Servers and the client library put no password into
/// their errors; keys and values of ours are not secret.
pub(super) fn node_error(error: RedisError) -> NodeError {
    let (kind, advice) = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH")) => (
            NodeErrorKind::Denied,
            "check the user name and the password in its URL",
        ),
        (_, Some("NOPERM")) => (NodeErrorKind::Denied, "grant it to this user"),
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
