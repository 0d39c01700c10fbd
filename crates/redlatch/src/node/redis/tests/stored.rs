//! What a server has stored and answered, in a form in which the time that a test
//! takes makes no difference.

use std::collections::BTreeMap;
use std::time::Duration;

use redlatch_core::{Ballot, GuardView, Holder, Key, Parked, Reply};
use redlatch_testkit::RedisServer;

pub(super) fn queue_key(key: &Key) -> String {
    format!("redlatch:__queue:{key}")
}

/// Who waits and since when, for how many `seconds` since the beginning the
/// lock is kept for the first, and the requests that are parked.
#[derive(Debug, PartialEq)]
pub(super) struct StoredQueue {
    pub(super) places: Vec<(String, u64)>,
    pub(super) kept: Option<String>,
    pub(super) parked: BTreeMap<String, String>,
}

impl StoredQueue {
    /// The same with the times of parked requests as `seconds` since `begin`.
    pub(super) fn since(mut self, begin: u64) -> Self {
        for request in self.parked.values_mut() {
            let (last, rest) = request.split_once(' ').unwrap();
            *request = format!("{} {rest}", seconds(last.parse().unwrap(), begin));
        }
        self
    }
}

/// A parked request as the scripts store it, behind its ticket.
pub(super) fn parked_text(parked: &Parked) -> (String, String) {
    let ballot = parked.ballot.map_or(0, Ballot::number);
    let (ttl, number) = (parked.ttl.millis(), parked.number);
    let token = parked.token.as_str();
    let request = format!("{} {ballot} {ttl} {number} {token}", parked.last);
    (parked.ticket.to_string(), request)
}

pub(super) fn stored_queue(server: &RedisServer, key: &Key, begin: u64) -> StoredQueue {
    let rows = server.command(&["ZRANGE", &queue_key(key), "0", "-1", "WITHSCORES"]);
    let rows: Vec<&str> = rows.as_array().iter().map(|row| row.as_text()).collect();
    let mut queue = StoredQueue {
        places: Vec::new(),
        kept: None,
        parked: BTreeMap::new(),
    };
    for row in rows.chunks(2) {
        let score = row[1].parse::<f64>().unwrap();
        match row[0] {
            "" => queue.kept = Some(seconds(score.abs() as u64, begin)),
            row => match (row.split_once(' '), queue.places.last()) {
                (None, _) => queue.places.push((row.to_owned(), score as u64)),
                // Right behind its ticket, at the same place.
                (Some((ticket, request)), Some(noted))
                    if *noted == (ticket.to_owned(), score as u64) =>
                {
                    queue.parked.insert(ticket.to_owned(), request.to_owned());
                }
                _ => panic!("it belongs to nobody: {row}"),
            },
        }
    }
    queue
}

pub(super) fn clock(server: &RedisServer) -> u64 {
    let time = server.command(&["TIME"]);
    let [seconds, micros] = [0, 1].map(|at| time.as_array()[at].as_text());
    seconds.parse::<u64>().unwrap() * 1000 + micros.parse::<u64>().unwrap() / 1000
}

/// The fields of the guard, with its times as `seconds` since `begin`.
pub(super) fn stored_guard(server: &RedisServer, begin: u64) -> BTreeMap<String, String> {
    let fields = server.command(&["HGETALL", "redlatch:__fence"]);
    let fields: Vec<&str> = fields
        .as_array()
        .iter()
        .map(|field| field.as_text())
        .collect();
    let pairs = fields.chunks(2).filter_map(|pair| {
        let number = pair[1].parse().unwrap_or(0);
        let value = match pair[0] {
            "armed" => seconds(number, begin),
            "floor" => seconds(Ballot::new(number).millis(), begin),
            "guard" | "quarantine" => pair[1].to_owned(),
            _slot => return None,
        };
        Some((pair[0].to_owned(), value))
    });
    pairs.collect()
}

/// A time in whole seconds since `begin`. Redis' clock goes on while that of
/// the reference stands still, but all times are whole seconds from it, and no
/// case takes one.
pub(super) fn seconds(millis: u64, begin: u64) -> String {
    (millis as i64 - begin as i64).div_euclid(1000).to_string()
}

/// A ballot with its time in half seconds since a second before `begin`. One
/// in a second half was proposed, and is compared to the tie. One in a first
/// half comes from a floor, and so from the time at which that was set.
pub(super) fn coarse(ballot: Ballot, begin: u64) -> Ballot {
    let halves = (ballot.millis() + 1000 - begin % 1000) / 500;
    let tie = if halves % 2 == 1 { ballot.number() } else { 0 };
    Ballot::at(halves, tie)
}

/// The reply as it would be if no time had passed since `begin`.
pub(super) fn rounded(reply: Reply, begin: u64) -> Reply {
    let up = |left: Duration| Duration::from_secs(left.as_millis().div_ceil(1000) as u64);
    let round = |holder: Holder| Holder {
        remaining: holder.remaining.map(up),
        ballot: coarse(holder.ballot, begin),
        ..holder
    };
    match reply {
        Reply::Holder(holder) => Reply::Holder(round(holder)),
        Reply::Held(Some(holder)) => Reply::Held(Some(round(holder))),
        Reply::Queued {
            holder: Some(holder),
            first,
        } => Reply::Queued {
            holder: Some(round(holder)),
            first,
        },
        Reply::Low { seen, .. } => Reply::Low {
            seen: coarse(seen, begin),
            now: 0,
        },
        Reply::Future(_) => Reply::Future(0),
        Reply::Quarantined(left) => Reply::Quarantined(up(left)),
        Reply::ClockBehind(by) => Reply::ClockBehind(up(by)),
        Reply::Guard(Some(guard)) => Reply::Guard(Some(GuardView {
            quarantine: up(guard.quarantine),
            ..guard
        })),
        other => other,
    }
}
