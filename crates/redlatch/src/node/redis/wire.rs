//! Requests as Redis commands, Redis values as replies.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisError, Script, Value, cmd};
use redlatch_core::{
    Ballot, GuardOrder, GuardView, Holder, Key, Policy, Reply, Request, fence, rules,
};

use crate::node::{Charter, NodeError, NodeErrorKind};

/// A rule that takes more than one command, with the hash that Redis knows it by.
struct Rule {
    text: &'static str,
    script: LazyLock<Script>,
}

macro_rules! rule {
    ($($file:literal),+) => {{
        const TEXT: &str = concat!($(include_str!(concat!("scripts/", $file))),+);
        Rule { text: TEXT, script: LazyLock::new(|| Script::new(TEXT)) }
    }};
}

static ACQUIRE: Rule = rule!("guard.lua", "acquire.lua");
static EXTEND: Rule = rule!("extend.lua");
static EXTEND_GUARDED: Rule = rule!("guard.lua", "extend.lua");
static RELEASE: Rule = rule!("release.lua");
static FORCE: Rule = rule!("guard.lua", "force.lua");
static INSPECT: Rule = rule!("inspect.lua");
static INIT: Rule = rule!("init.lua");

/// What a new connection loads: all that is needed without delay.
static LOADED: [&Rule; 4] = [&ACQUIRE, &EXTEND, &EXTEND_GUARDED, &RELEASE];

/// What is the same in all requests over one connection.
#[derive(Clone, Debug)]
pub(super) struct Dialect {
    /// The key of the slots' ballots, and that of the guard.
    fence: Arc<str>,
    guard: Arc<str>,
    policy: Option<Policy>,
    /// The run of the very server process that the connection leads to; empty
    /// when it may lead to another one without our knowing.
    hint: Arc<str>,
}

impl Dialect {
    pub(super) fn new(charter: &Charter, hint: Arc<str>) -> Self {
        let prefix = &charter.service_prefix;
        Self {
            fence: format!("{prefix}__fence").into(),
            guard: format!("{prefix}__guard").into(),
            policy: charter.policy.clone(),
            hint,
        }
    }
}

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
    let value = match dialect
        .command(request, Form::Hash)
        .query_async(connection)
        .await
    {
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

/// Looks whether a key is there; with `tell`, the server will tell this
/// connection once when something happens to it.
///
/// Read by GET and never by a script, because then the server would tell of
/// every key that the script declares, the fences of all locks among them.
pub(super) async fn look<C: ConnectionLike>(
    connection: &mut C,
    key: &Key,
    tell: bool,
) -> Result<bool, Trouble> {
    let mut pipeline = redis::pipe();
    if tell {
        pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
    }
    pipeline.cmd("GET").arg(key.as_str());
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
        Some(Ok(value)) => Ok(value != Value::Nil),
        // A key of another type is there too.
        Some(Err(error)) if error.code() == Some("WRONGTYPE") => Ok(true),
        Some(Err(error)) => Err(trouble(error)),
        None => Ok(true),
    }
}

/// The keys that an invalidation is about; nothing when it is about all of them.
pub(super) fn touched(data: &[Value]) -> Option<Vec<Key>> {
    let [Value::Array(keys)] = data else {
        return None;
    };
    let key = |value: &Value| Some(Key::new(std::str::from_utf8(text(value)?).ok()?));
    Some(keys.iter().filter_map(key).collect())
}

/// Adds commands that load the scripts which are needed without delay.
pub(super) fn load_scripts(pipeline: &mut redis::Pipeline) {
    for rule in LOADED {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(rule.text);
    }
}

/// Sends many requests in one go; the replies come in their order.
pub(super) async fn send_all<C: ConnectionLike>(
    connection: &mut C,
    dialect: &Dialect,
    requests: &[Request],
) -> Result<Vec<Result<Reply, NodeError>>, Trouble> {
    let values = pipeline(connection, dialect, requests, Form::Hash).await?;
    let forgot = |value: &Result<Value, RedisError>| value.as_ref().is_err_and(is_noscript);
    let values = match values.iter().any(forgot) {
        // Every request may be repeated: each is idempotent for its token.
        true => pipeline(connection, dialect, requests, Form::Text).await?,
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
    dialect: &Dialect,
    requests: &[Request],
    form: Form,
) -> Result<Vec<Result<Value, RedisError>>, Trouble> {
    let mut pipeline = redis::Pipeline::with_capacity(requests.len());
    for request in requests {
        pipeline.add_command(dialect.command(request, form));
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

impl Dialect {
    /// The command that does what `request` asks for.
    fn command(&self, request: &Request, form: Form) -> Cmd {
        match request {
            Request::Acquire {
                key,
                token,
                ttl,
                ballot: None,
            } => {
                let mut set = cmd("SET");
                set.arg(key.as_str()).arg(token.as_str());
                set.arg("NX").arg("PX").arg(ttl.millis());
                set
            }
            Request::Acquire {
                key,
                token,
                ttl,
                ballot: Some(ballot),
            } => {
                let mut call = self.call(&ACQUIRE, form, key, Keys::Guard);
                call.arg(token.as_str()).arg(ttl.millis());
                call.arg(fence::slot(key)).arg(ballot.number()).arg("");
                self.guarded(call)
            }
            Request::Rejoin {
                key,
                token,
                ttl,
                born,
                ballot,
            } => {
                let mut call = self.call(&ACQUIRE, form, key, Keys::Guard);
                call.arg(token.as_str()).arg(ttl.millis());
                call.arg(fence::slot(key))
                    .arg(ballot.number())
                    .arg(born.number());
                self.guarded(call)
            }
            Request::Extend {
                key,
                token,
                ttl,
                plain,
            } => {
                let (rule, keys) = match self.policy {
                    Some(_) if !plain => (&EXTEND_GUARDED, Keys::Guard),
                    _ => (&EXTEND, Keys::Lock),
                };
                let mut call = self.call(rule, form, key, keys);
                call.arg(token.as_str()).arg(ttl.millis());
                match keys {
                    Keys::Guard => self.guarded(call),
                    _ => call,
                }
            }
            Request::Release { key, token, ballot } => {
                let keys = ballot.map_or(Keys::Lock, |_| Keys::Fence);
                let mut call = self.call(&RELEASE, form, key, keys);
                call.arg(token.as_str());
                if let Some(ballot) = ballot {
                    let max_ttl = self.policy.as_ref().map(|policy| policy.max_ttl);
                    call.arg(fence::slot(key)).arg(ballot.number());
                    call.arg(rules::tolerance(max_ttl));
                }
                call
            }
            Request::Force { key, ballot } => {
                let mut call = self.call(&FORCE, form, key, Keys::Guard);
                call.arg(fence::slot(key)).arg(ballot.number());
                self.guarded(call)
            }
            Request::Inspect { key } => {
                let mut call = self.call(&INSPECT, form, key, Keys::Fence);
                call.arg(fence::slot(key));
                call
            }
            Request::Guard(order) => {
                let mut call = INIT.start(form);
                call.arg(1).arg(&*self.guard);
                // Who wants no guard has nothing to say about it.
                let Some(policy) = &self.policy else {
                    call.arg("read");
                    return call;
                };
                call.arg(match order {
                    GuardOrder::Read => "read",
                    GuardOrder::AssumeFresh => "fresh",
                    GuardOrder::Reconfigure => "reconfigure",
                });
                call.arg(&*policy.deployment).arg(policy.max_ttl.millis());
                call
            }
        }
    }

    /// A call of a script on the keys that it declares.
    fn call(&self, rule: &Rule, form: Form, key: &Key, keys: Keys) -> Cmd {
        let mut call = rule.start(form);
        let keys = match keys {
            Keys::Lock => 1,
            Keys::Guard if self.policy.is_none() => 2,
            Keys::Fence => 2,
            Keys::Guard => 3,
        };
        let names = [key.as_str(), &*self.fence, &*self.guard];
        call.arg(keys).arg(&names[..keys]);
        call
    }

    /// Adds what the restart guard wants to know.
    fn guarded(&self, mut call: Cmd) -> Cmd {
        if let Some(policy) = &self.policy {
            call.arg(&*self.hint).arg(&*policy.deployment);
            call.arg(policy.max_ttl.millis());
        }
        call
    }
}

/// Which keys a script works on, beside the lock.
#[derive(Clone, Copy)]
enum Keys {
    Lock,
    Fence,
    /// The fence, and the guard when it is on.
    Guard,
}

impl Rule {
    fn start(&self, form: Form) -> Cmd {
        let mut command;
        match form {
            Form::Hash => {
                command = cmd("EVALSHA");
                command.arg(self.script.get_hash());
            }
            Form::Text => {
                command = cmd("EVAL");
                command.arg(self.text);
            }
        }
        command
    }
}

fn reply(request: &Request, value: Value) -> Result<Reply, NodeError> {
    let plain = matches!(request, Request::Acquire { ballot: None, .. });
    let words = match value {
        Value::Okay if plain => return Ok(Reply::Granted),
        Value::Nil if plain => return Ok(Reply::Held(None)),
        Value::Array(words) => words,
        word => vec![word],
    };
    parse(&words).ok_or_else(|| {
        NodeError::new(
            NodeErrorKind::Confused,
            "it gave an answer that none of our scripts gives",
        )
    })
}

/// The reply that a script gave: a word, and what belongs to it.
fn parse(words: &[Value]) -> Option<Reply> {
    let (word, rest) = words.split_first()?;
    let reply = match (text(word)?, rest) {
        (b"GRANTED", []) => Reply::Granted,
        (b"EXTENDED", []) => Reply::Extended,
        (b"RELEASED", []) => Reply::Released,
        (b"MISSING", []) => Reply::Missing,
        (b"FOREIGN", []) => Reply::Foreign,
        (b"FORCED", []) => Reply::Forced,
        (b"HELD", holder) => Reply::Held(Some(parse_holder(holder)?)),
        (b"HOLDER", holder) => Reply::Holder(parse_holder(holder)?),
        (b"GUARD", []) => Reply::Guard(None),
        (b"GUARD", [deployment, left]) => Reply::Guard(Some(GuardView {
            deployment: String::from_utf8_lossy(text(deployment)?).into_owned(),
            quarantine: millis(left)?,
        })),
        (b"LOW", [seen, now]) => Reply::Low {
            seen: Ballot::new(number(seen)?),
            now: number(now)?,
        },
        (b"FUTURE", [now]) => Reply::Future(number(now)?),
        (b"QUARANTINED", [left]) => Reply::Quarantined(millis(left)?),
        (b"CLOCK_BEHIND", [by]) => Reply::ClockBehind(millis(by)?),
        (b"TTL_TOO_LONG", [most]) => Reply::TtlTooLong(millis(most)?),
        (b"MISMATCH", [name]) => Reply::Mismatch(String::from_utf8_lossy(text(name)?).into_owned()),
        _ => return None,
    };
    Some(reply)
}

fn parse_holder(words: &[Value]) -> Option<Holder> {
    let [value, left, ballot] = words else {
        return None;
    };
    let value = match value {
        Value::Nil => None,
        value => Some(text(value)?.to_vec()),
    };
    let Value::Int(left) = left else { return None };
    Some(Holder {
        value,
        // Negative: it never expires.
        remaining: u64::try_from(*left).ok().map(Duration::from_millis),
        ballot: Ballot::new(number(ballot)?),
    })
}

fn text(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(text) => Some(text),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn millis(value: &Value) -> Option<Duration> {
    number(value).map(Duration::from_millis)
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

/// The same in our words. Servers and the client library put no password into
/// their errors; keys and values of ours are not secret.
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
