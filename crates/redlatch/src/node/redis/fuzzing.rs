//! What is parsed, as functions that take any bytes: for the fuzzer, and for a
//! test that runs them for a short time. They panic when something is wrong.

use std::fmt::Display;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::Value;
use redlatch_core::rules::Stored;
use redlatch_core::{Holder, Key, NodeState, Reply, Request, Scene, Token, Ttl, Vote, keeps};

use super::address::{Address, Tls};
use super::line::Frames;
use super::{checkup, reply, server, wire};
use crate::guard::Exported;
use crate::keys::KeyScheme;
use crate::node::{Facts, NodeError, Pattern};

/// Made once: it reads the system's certificates.
static TLS: LazyLock<Tls> = LazyLock::new(Tls::default);

/// A name, and what is done with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("node_url", node_url),
    ("stream", stream),
    ("script_reply", script_reply),
    ("push", push),
    ("server_info", server_info),
    ("scan_page", scan_page),
    ("glob", glob),
    ("stranger", stranger),
    ("token", token),
];

/// The password in a URL that this library would use, if there is one.
pub fn password_in(url: &str) -> Option<String> {
    let address = Address::parse(url, &TLS).ok()?;
    let password = address.login().password().map(str::to_owned);
    password.filter(|password| !password.is_empty())
}

/// The URL of a node.
pub fn node_url(data: &[u8]) {
    let url = String::from_utf8_lossy(data);
    match Address::parse(&url, &TLS) {
        Ok(address) => {
            assert!(!address.name().is_empty());
            assert!(address.is_same_server(&address));
            // A password is what stands before the host; elsewhere it is a name.
            let authority = url.split_once("://").map_or("", |(_, rest)| rest);
            let authority = authority.split(['/', '?', '#']).next();
            let host = authority.and_then(|authority| authority.rsplit_once('@'));
            if host.is_some() && url.matches("s3cret").count() == 1 {
                let shown = format!("{address:?}");
                let named = host.is_some_and(|(login, _)| !login.contains("s3cret"));
                assert!(named || !shown.contains("s3cret"), "{shown}");
            }
        }
        Err(error) => {
            assert!(!error.is_empty());
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}

/// What a server sends: the same values come of it in pieces of any length, the
/// first byte, and as the client library reads them.
pub fn stream(data: &[u8]) {
    let (piece, data) = data.split_first().unwrap_or((&0, data));
    let read = |piece: usize| {
        let (mut frames, mut values) = (Frames::default(), Vec::new());
        for piece in data.chunks(piece) {
            frames.room(piece.len()).extend(piece);
            loop {
                match frames.next() {
                    Ok(Some(value)) => values.push(value),
                    Ok(None) => break,
                    Err(problem) => return (values, Some(problem)),
                }
            }
        }
        (values, None)
    };
    let whole = read(data.len().max(1));
    let shown = |values: &[Value]| format!("{values:?}");
    let pieces = read(usize::from(*piece) + 1);
    assert_eq!(shown(&whole.0), shown(&pieces.0));
    assert_eq!(whole.1, pieces.1);
    // Theirs takes some of what can't come from a server, and says no to more.
    if let (Ok(value), Some(first)) = (redis::parse_redis_value(data), whole.0.first()) {
        assert_eq!(shown(&[value]), shown(std::slice::from_ref(first)));
    }
}

/// What a server answers, as it comes over the wire, to every kind of request.
pub fn script_reply(data: &[u8]) {
    let value = match redis::parse_redis_value(data) {
        Ok(value) => value,
        Err(error) => return fit_for_a_log(wire::node_error(error)),
    };
    for request in requests() {
        let value = match value.clone().extract_error() {
            Ok(value) => value,
            Err(error) => return fit_for_a_log(wire::node_error(error)),
        };
        match reply::reply(&request, value) {
            Err(error) => fit_for_a_log(error),
            Ok(reply) => {
                let _ = (Vote::from(&reply), format!("{reply:?}"));
                if let Some(error) = NodeError::in_reply(&reply) {
                    fit_for_a_log(error);
                }
                if let Reply::Held(Some(holder)) | Reply::Holder(holder) = &reply {
                    fit_to_print(holder.owner());
                }
            }
        }
    }
}

/// What a server says without being asked.
pub fn push(data: &[u8]) {
    if let Ok(Value::Push { data, .. } | Value::Array(data)) = redis::parse_redis_value(data) {
        let _ = (reply::touched(&data), reply::called(&data));
    }
}

/// What a server says of itself.
pub fn server_info(data: &[u8]) {
    let info = String::from_utf8_lossy(data);
    if let Err(error) = server::examine(&info) {
        fit_for_a_log(error);
    }
    checkup::read_info(&info, &mut Facts::default());
}

/// A page of keys, as the server lists them.
pub fn scan_page(data: &[u8]) {
    let Ok(value) = redis::parse_redis_value(data) else {
        return;
    };
    match reply::page(&value) {
        Ok((next, keys)) => {
            assert_ne!(next.as_deref(), Some("0"), "it would begin anew for ever");
            for key in keys {
                let name = KeyScheme::default().name_in(&key).map(str::to_owned);
                assert!(name.is_none_or(|name| key.as_str().ends_with(&name)));
            }
        }
        Err(error) => fit_for_a_log(error),
    }
}

/// A pattern and a key, with a zero byte between them. What is a literal name
/// matches itself, and a star whatever there is.
pub fn glob(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (glob, key) = text.split_once('\0').unwrap_or((&text, ""));
    let matched = Pattern::new("p:", glob).matches(&format!("p:{key}"));
    assert!(matched || !glob.chars().all(|c| c == '*') || glob.is_empty());
    assert!(Pattern::new(glob, "*").matches(&format!("{glob}{key}")));
    let is_literal = !glob.contains(['*', '?', '[', '\\']);
    assert!(!is_literal || matched == (glob == key), "{glob:?} {key:?}");
}

/// The value of a key that a stranger wrote: held like any other, never ours.
pub fn stranger(data: &[u8]) {
    let holder = Holder {
        value: Some(data.to_vec()),
        remaining: None,
        ballot: Default::default(),
    };
    fit_to_print(holder.owner());
    fit_to_print(format!("{holder:?}").replace('\\', ""));
    if let Some(token) = holder.token() {
        assert_eq!(token.as_str().as_bytes(), data);
    }
    assert!(!keeps(data, 0, [Some(data)].into_iter()));

    let (mut node, run) = (NodeState::default(), Arc::from("run"));
    let stored = Stored {
        value: Some(data.to_vec()),
        last_millisecond: None,
    };
    node.put(key(), stored.clone());
    for request in requests() {
        if matches!(request, Request::Force { .. }) {
            continue; // The one that takes away what is anybody's.
        }
        let reply = node.apply(&request, &Scene::new(1_800_000_000_000, &run, None));
        let granted = matches!(reply, Reply::Granted | Reply::Extended | Reply::Released);
        assert!(
            !granted || data == TOKEN.as_bytes(),
            "{request:?}: {reply:?}"
        );
        node.put(key(), stored.clone());
    }
}

/// A token that another process has exported.
pub fn token(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let parsed = Token::parse(&text);
    assert_eq!(Exported::new(&text, 1).is_ok(), parsed.is_ok());
    if let Ok(token) = parsed {
        assert_eq!(token.as_str(), text);
        assert!(!token.id().is_empty() && token.id().starts_with(token.short()));
        assert_eq!(Token::parse(token.as_str()).as_ref(), Ok(&token));
        fit_to_print(format!("{token:?}"));
    }
}

/// What goes into a log is one line that can be read, whatever the server said.
fn fit_for_a_log(error: NodeError) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 500, "{text:?}");
    fit_to_print(text);
}

/// What goes to a terminal does not move its cursor.
fn fit_to_print(text: impl Display) {
    let text = text.to_string();
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

const TOKEN: &str = "4711";

fn key() -> Key {
    Key::new("redlatch:job")
}

/// One of each kind.
fn requests() -> Vec<Request> {
    let key = key();
    let Ok(token) = Token::parse(TOKEN) else {
        return Vec::new();
    };
    let Ok(ttl) = Ttl::new(Duration::from_secs(10)) else {
        return Vec::new();
    };
    let acquire = |ballot| Request::Acquire {
        key: key.clone(),
        token: token.clone(),
        ttl,
        ballot,
        ticket: None,
    };
    vec![
        acquire(None),
        acquire(Some(redlatch_core::Ballot::at(1_800_000_000_000, 0))),
        Request::Extend {
            key: key.clone(),
            token: token.clone(),
            ttl,
            plain: false,
        },
        Request::Release {
            key: key.clone(),
            token,
            ballots: None,
            leaves: None,
            unparks: None,
        },
        Request::Inspect { key },
        Request::Guard(redlatch_core::GuardOrder::Read),
    ]
}
