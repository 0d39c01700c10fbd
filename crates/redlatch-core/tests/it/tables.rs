//! Runs the tables in `testdata/`: each line is one step, read by eye as well as by this.

use std::time::Duration;

use redlatch_core::rules::Stored;
use redlatch_core::{
    Instant, Key, Lease, Loss, NodeState, Reply, Request, Round, Step, Terms, Token, Ttl, Verdict,
    Vote,
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
                "r" => Vote::Refused,
                "f" => Vote::Failed,
                other => panic!("no vote: {other}"),
            };
            let expected = match verdict {
                "." => Verdict::Open,
                "W" => Verdict::Won,
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
    for line in lines(include_str!("../../testdata/rules.txt")) {
        if line.starts_with("case: ") {
            node = NodeState::default();
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let now: u64 = words[0].parse().unwrap();
        let key = Key::new(words[2]);
        let token = |at: usize| Token::parse(words[at]).unwrap();
        let ttl = |at: usize| Ttl::new(Duration::from_millis(words[at].parse().unwrap())).unwrap();
        let (request, expected) = match words[1] {
            "acquire" => {
                let (token, ttl) = (token(3), ttl(4));
                (Request::Acquire { key, token, ttl }, &words[5..])
            }
            "extend" => {
                let (token, ttl) = (token(3), ttl(4));
                (Request::Extend { key, token, ttl }, &words[5..])
            }
            "release" => {
                let token = token(3);
                (Request::Release { key, token }, &words[4..])
            }
            "force" => (Request::Force { key }, &words[3..]),
            "inspect" => (Request::Inspect { key }, &words[3..]),
            "put" => {
                let value = (words[3] != "-").then(|| words[3].into());
                let last_millisecond = words[4].parse::<u64>().ok().map(|ttl| now + ttl);
                node.put(
                    key,
                    Stored {
                        value,
                        last_millisecond,
                    },
                );
                continue;
            }
            other => panic!("no request: {other}"),
        };
        let reply = node.apply(&request, now);
        assert_eq!(reply_words(&reply), expected.join(" "), "{line}");
    }
}

fn reply_words(reply: &Reply) -> String {
    match reply {
        Reply::Granted => "granted".into(),
        Reply::Held => "held".into(),
        Reply::Extended => "extended".into(),
        Reply::Released => "released".into(),
        Reply::Missing => "missing".into(),
        Reply::Foreign => "foreign".into(),
        Reply::Holder(holder) => {
            let value = holder.value.as_deref().map(String::from_utf8_lossy);
            let remaining = holder.remaining.map(|left| left.as_millis().to_string());
            let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
            format!("{} {}", or_dash(value.map(Into::into)), or_dash(remaining))
        }
    }
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
