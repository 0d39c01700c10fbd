//! Runs the tables in `testdata/`: each line is one step, read by eye as well as by this.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redlatch_core::rules::Stored;
use redlatch_core::{
    Ballot, Ballots, GuardOrder, Holder, Instant, Key, Lease, Loss, News, NodeState, Policy, Reply,
    Request, Round, Scene, Step, Switchboard, Terms, Ticket, Token, Ttl, Verdict, Vote,
};

#[test]
fn validity_table() {
    for line in lines(include_str!("../../testdata/validity.txt")) {
        let [ttl, age, drift, validity] = numbers(line);
        let ttl = Ttl::new(Duration::from_millis(ttl)).unwrap();
        assert_eq!(ttl.drift(), Duration::from_millis(drift), "{line}");
        let left = ttl.validity(Duration::from_millis(age));
        assert_eq!(left, Duration::from_millis(validity), "{line}");
    }
}

#[test]
fn round_table() {
    let mut lines = lines(include_str!("../../testdata/round.txt")).peekable();
    let mut rounds = 0;
    while let Some(line) = lines.next() {
        let Some(nodes) = line.strip_prefix("nodes ") else {
            assert!(line.starts_with("case: "), "{line}");
            continue;
        };
        let mut round = Round::new(nodes.parse().unwrap());
        let votes = lines.next().unwrap();
        let verdicts = lines.next().unwrap();
        assert_eq!(votes.split(' ').count(), verdicts.split(' ').count());
        for (turn, (vote, verdict)) in votes.split(' ').zip(verdicts.split(' ')).enumerate() {
            let (node, letter) = vote.split_at(vote.len() - 1);
            let node = node.parse().unwrap_or(turn);
            let vote = match letter {
                "g" => Vote::Granted,
                "a" => Vote::Again,
                "r" => Vote::Refused,
                "f" => Vote::Failed,
                other => panic!("no vote: {other}"),
            };
            let expected = match verdict {
                "." => Verdict::Open,
                "W" => Verdict::Won,
                "A" => Verdict::Again,
                "R" => Verdict::Refused,
                "U" => Verdict::Unavailable,
                "M" => Verdict::Mixed,
                other => panic!("no verdict: {other}"),
            };
            assert_eq!(round.vote(node, vote), expected, "{votes} at {turn}");
        }
        rounds += 1;
    }
    assert!(rounds > 20);
}

#[test]
fn rules_table() {
    let mut node = NodeState::default();
    let mut policy = None;
    let mut run: Arc<str> = "run 0".into();
    let board = Board::default();
    for (number, line) in lines(include_str!("../../testdata/rules.txt")).enumerate() {
        let (step, expected) = line.split_once("->").unwrap_or((line, ""));
        let words: Vec<&str> = step.split_whitespace().collect();
        let now = words[0].parse().unwrap_or(0);
        match words[..] {
            ["case:", ..] => {
                (node, policy) = (NodeState::default(), None);
                board.gone.borrow_mut().clear();
            }
            ["gone", client] => {
                board.gone.borrow_mut().insert(client.into());
            }
            ["guard", max_ttl, ref name @ ..] => {
                policy = Some(Policy {
                    deployment: name.concat().into(),
                    max_ttl: ttl_of(max_ttl),
                });
            }
            [_, "restart"] => run = format!("run {number}").into(),
            [_, "forget"] => {
                run = format!("run {number}").into();
                node = NodeState::default();
            }
            [_, "put", key, value, ttl] => {
                let stored = Stored {
                    value: (value != "-").then(|| value.into()),
                    last_millisecond: ttl.parse::<u64>().ok().map(|ttl| now + ttl),
                };
                node.put(Key::new(key), stored);
            }
            [_, "del", key] => node.delete(&Key::new(key)),
            [_, ref request @ ..] => {
                let mut scene = Scene::new(now, &run, policy.as_ref());
                (scene.turn, scene.board) = (200, &board);
                let reply = node.apply(&request_of(request), &scene);
                let mut words = reply_words(&reply);
                for (client, news) in board.calls.borrow_mut().drain(..) {
                    words += &match news {
                        News::First(Ballot::MAX) => format!(", calls {client}"),
                        News::First(above) => format!(", calls {client} above {}", above.millis()),
                        News::Changed | News::Missed => panic!("no rule says so"),
                        News::YourTurn => format!(", calls {client} to take it"),
                        News::Granted(number) => format!(", calls {client}: granted {number}"),
                    };
                }
                assert_eq!(words, expected.trim(), "{line}");
            }
            [] => unreachable!("empty lines are left out"),
        }
    }
}

/// Notes who is called.
#[derive(Debug, Default)]
struct Board {
    calls: RefCell<Vec<(String, News)>>,
    gone: RefCell<BTreeSet<String>>,
}

impl Switchboard for Board {
    fn call(&self, client: &str, _: &Key, news: News) -> bool {
        let reached = !self.gone.borrow().contains(client);
        if reached {
            self.calls.borrow_mut().push((client.into(), news));
        }
        reached
    }
}

fn request_of(words: &[&str]) -> Request {
    // A client that waits, or waits no longer, is named at the end.
    let named = words
        .iter()
        .position(|word| ["as", "leaves", "unparks"].contains(word));
    let unparks = words.contains(&"unparks");
    let (words, client) = match named {
        Some(at) => (&words[..at], Some(words[at + 1])),
        None => (words, None),
    };
    if words[0] == "init" {
        return Request::Guard(match words[1] {
            "read" => GuardOrder::Read,
            "fresh" => GuardOrder::AssumeFresh,
            "reconfigure" => GuardOrder::Reconfigure,
            other => panic!("no order: {other}"),
        });
    }
    let key = Key::new(words[1]);
    let token = |words: &[&str]| Token::parse(words[2]).unwrap();
    let ballot = |at: usize| words.get(at).map(|text| ballot_of(text));
    match words[0] {
        "acquire" => Request::Acquire {
            key,
            token: token(words),
            ttl: ttl_of(words[3]),
            ballot: ballot(4),
            ticket: client.map(|client| {
                let (client, since) = client.split_once('@').unwrap_or((client, ""));
                // A request that may be parked has a number.
                let (client, parks) = client.split_once('!').unwrap_or((client, ""));
                Ticket {
                    name: client.into(),
                    parks: parks.parse().ok(),
                    since: since
                        .parse()
                        .ok()
                        .map(|millis| Ballot::at(millis, 0).number()),
                }
            }),
        },
        "rejoin" => Request::Rejoin {
            key,
            token: token(words),
            ttl: ttl_of(words[3]),
            born: ballot_of(words[4]),
            ballot: ballot_of(words[5]),
        },
        "extend" => Request::Extend {
            key,
            token: token(words),
            ttl: ttl_of(words[3]),
            plain: false,
        },
        "release" => Request::Release {
            key,
            token: token(words),
            ballots: ballot(3).map(Ballots::up_to),
            leaves: client.filter(|_| !unparks).map(Into::into),
            unparks: client.filter(|_| unparks).map(Into::into),
        },
        "force" => Request::Force {
            key,
            ballot: ballot_of(words[2]),
        },
        "inspect" => Request::Inspect { key },
        other => panic!("no request: {other}"),
    }
}

fn ballot_of(text: &str) -> Ballot {
    match text.strip_suffix("+1") {
        Some(millis) => ballot_of(millis).next(),
        None => Ballot::at(text.parse().unwrap(), 0),
    }
}

fn reply_words(reply: &Reply) -> String {
    let millis = |duration: &Duration| duration.as_millis();
    match reply {
        Reply::Granted => "granted".into(),
        Reply::Held(None) => "held".into(),
        Reply::Held(Some(holder)) => format!("held {}", holder_words(holder)),
        Reply::Kept => "kept".into(),
        Reply::Queued { holder, first } => {
            let place = if *first { "first" } else { "behind" };
            let holder = holder
                .as_ref()
                .map(|holder| format!(" held {}", holder_words(holder)));
            format!("{place}{}", holder.unwrap_or_default())
        }
        Reply::Low { seen, .. } => match seen.number() & 1023 {
            0 => format!("low {}", seen.millis()),
            tie => format!("low {}+{tie}", seen.millis()),
        },
        Reply::Future(now) => format!("future {now}"),
        Reply::Extended => "extended".into(),
        Reply::Released => "released".into(),
        Reply::Missing => "missing".into(),
        Reply::Foreign => "foreign".into(),
        Reply::Forced => "forced".into(),
        Reply::Holder(holder) => holder_words(holder),
        Reply::Guard(None) => "none".into(),
        Reply::Guard(Some(guard)) => {
            format!("{} {}", guard.deployment, millis(&guard.quarantine))
        }
        Reply::Quarantined(left) => format!("quarantined {}", millis(left)),
        Reply::ClockBehind(by) => format!("clock-behind {}", millis(by)),
        Reply::Mismatch(name) => format!("mismatch {name}"),
        Reply::TtlTooLong(most) => format!("ttl-too-long {}", millis(most)),
    }
}

fn holder_words(holder: &Holder) -> String {
    let value = holder.value.as_deref().map(String::from_utf8_lossy);
    let remaining = holder.remaining.map(|left| left.as_millis().to_string());
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    format!("{} {}", or_dash(value.map(Into::into)), or_dash(remaining))
}

#[test]
fn lease_table() {
    let mut lease = None;
    for line in lines(include_str!("../../testdata/lease.txt")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["case:", ..] => lease = None,
            ["granted", ttl, ref options @ ..] => {
                let max_hold = options.iter().position(|word| *word == "max-hold");
                let terms = Terms {
                    ttl: ttl_of(ttl),
                    renewal: !options.contains(&"no-renewal"),
                    max_hold: max_hold
                        .map(|at| Duration::from_millis(options[at + 1].parse().unwrap())),
                };
                lease = Some(Lease::granted(terms, at("0"), Lease::first_length(terms)));
            }
            ["at", now, event, ref rest @ ..] => {
                let lease = lease.as_mut().expect("a case begins with granted");
                assert_eq!(
                    lease_event(lease, at(now), event, rest),
                    rest.join(" "),
                    "{line}"
                );
            }
            _ => panic!("no lease line: {line}"),
        }
    }
}

/// Does one event, and says what came of it in the words of the table.
fn lease_event(lease: &mut Lease, now: Instant, event: &str, rest: &[&str]) -> String {
    match event {
        "next" => match lease.next(now) {
            Step::Wait(wait) => format!("wait {}", wait.as_millis()),
            Step::Renew(ttl) => format!("renew {}", ttl.millis()),
            Step::Lost(Loss::Expired) => "lost expired".into(),
            Step::Lost(Loss::Taken) => "lost taken".into(),
            Step::Lost(Loss::MaxHold) => "lost max-hold".into(),
            Step::Lost(Loss::Released) => "lost released".into(),
            Step::Lost(other) => panic!("a new loss: {other:?}"),
        },
        "remaining" => lease.remaining(now).as_millis().to_string(),
        "extending" => {
            lease.extending(now);
            String::new()
        }
        "extended" => {
            let done = lease.extended(at(rest[0]), ttl_of(rest[1]), now);
            format!(
                "{} {} {}",
                rest[0],
                rest[1],
                if done { "yes" } else { "no" }
            )
        }
        "handed" => match lease.handed_on(lease.terms(), now) {
            Some(handed) => {
                *lease = handed;
                "yes".into()
            }
            None => "no".into(),
        },
        "released" => {
            lease.release();
            String::new()
        }
        "refused" => {
            lease.refused();
            String::new()
        }
        other => panic!("no event: {other}"),
    }
}

fn ttl_of(millis: &str) -> Ttl {
    Ttl::new(Duration::from_millis(millis.parse().unwrap())).unwrap()
}

fn at(time: &str) -> Instant {
    let (boot, real) = time.split_once('/').unwrap_or((time, time));
    let [boot, real] = [boot, real].map(|millis| Duration::from_millis(millis.parse().unwrap()));
    // Away from zero, so that a clock can be stepped back.
    let zero = Duration::from_secs(1_000_000);
    Instant::new(zero + boot, zero + real)
}

/// The lines of a table, without comments and empty ones.
fn lines(table: &str) -> impl Iterator<Item = &str> {
    table
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn numbers<const N: usize>(line: &str) -> [u64; N] {
    let numbers: Vec<u64> = line
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    numbers.try_into().expect("as many numbers as columns")
}
