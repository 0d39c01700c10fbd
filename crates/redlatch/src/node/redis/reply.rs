//! Redis values as replies.

use std::slice;
use std::time::Duration;

use redis::Value;
use redlatch_core::{Ballot, GuardView, Holder, Key, News, Reply, Request};

use crate::node::{NodeError, NodeErrorKind};

/// What a server answered to a request.
pub(super) fn reply(request: &Request, value: Value) -> Result<Reply, NodeError> {
    let plain = matches!(request, Request::Acquire { ballot: None, .. });
    let words = match &value {
        Value::Okay if plain => return Ok(Reply::Granted),
        Value::Nil if plain => return Ok(Reply::Held(None)),
        Value::Array(words) => words,
        word => slice::from_ref(word),
    };
    parse(words).ok_or_else(|| {
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
        (b"KEPT", []) => Reply::Kept,
        (b"QUEUED", [first, holder @ ..]) => Reply::Queued {
            first: number(first)? == 1,
            holder: match holder {
                [] => None,
                holder => Some(parse_holder(holder)?),
            },
        },
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

/// What SCAN answers: where to go on, and the keys that can be those of locks.
pub(super) fn page(value: &Value) -> Result<(Option<String>, Vec<Key>), NodeError> {
    let parse = || {
        let Value::Array(parts) = value else {
            return None;
        };
        let [cursor, Value::Array(keys)] = parts.as_slice() else {
            return None;
        };
        let cursor = std::str::from_utf8(text(cursor)?).ok()?.to_owned();
        // A key that is no text is no lock of ours.
        let key = |value: &Value| Some(Key::new(std::str::from_utf8(text(value)?).ok()?));
        let keys = keys.iter().filter_map(key).collect();
        Some(((cursor != "0").then_some(cursor), keys))
    };
    parse().ok_or_else(|| NodeError::new(NodeErrorKind::Confused, "it can't list its keys"))
}

/// The keys that an invalidation is about; nothing when it is about all of them.
pub(super) fn touched(data: &[Value]) -> Option<Vec<Key>> {
    let [Value::Array(keys)] = data else {
        return None;
    };
    let key = |value: &Value| Some(Key::new(std::str::from_utf8(text(value)?).ok()?));
    Some(keys.iter().filter_map(key).collect())
}

/// What a node called us for: the lock, and what about it.
pub(super) fn called(data: &[Value]) -> Option<(Key, News)> {
    let [_, message] = data else { return None };
    let (news, key) = std::str::from_utf8(text(message)?)
        .ok()?
        .split_at_checked(1)?;
    let (key, news) = match news {
        "T" => (key, News::YourTurn),
        "F" => {
            let (above, key) = key.split_once(' ')?;
            (key, News::First(Ballot::new(above.parse().ok()?)))
        }
        "G" => {
            let (number, key) = key.split_once(' ')?;
            (key, News::Granted(number.parse().ok()?))
        }
        _ => return None,
    };
    Some((Key::new(key), news))
}
