//! The second kind of simulated server: `redlatch_core::rules` in place of the
//! scripts. It reads which rule a script call means and what it is asked.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redlatch_core::rules::{Guard, Policy, Scene};
use redlatch_core::{
    Ballot, Ballots, GuardOrder, Holder, Key, News, NodeState, Reply, Request, Switchboard, Ticket,
    Token, Ttl,
};

use crate::value::Value;

/// One call of a rule.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) policy: Option<Policy>,
    turn: u64,
}

/// Whether the script with this text is the one for many requests.
pub(crate) fn is_bundle(script: &str) -> bool {
    script.contains("-- BUNDLE: ")
}

/// Reads a call of the script with this text.
pub(crate) fn read(script: &str, keys: &[Vec<u8>], words: &[Vec<u8>]) -> Vec<Asked> {
    match is_bundle(script) {
        true => read_bundle(keys, words),
        false => vec![read_one(script, keys, words)],
    }
}

/// What bundle.lua is asked for, as its header says it.
fn read_bundle(keys: &[Vec<u8>], words: &[Vec<u8>]) -> Vec<Asked> {
    let text = |at: usize| std::str::from_utf8(&words[at]).unwrap_or_default();
    let number = |at: usize| text(at).parse::<u64>().unwrap_or_default();
    let (acquires, releases) = (number(2) as usize, number(3) as usize);
    let with_queue = acquires + releases;
    let locks = keys.len() - 1 - with_queue;
    let ttls = 4 + locks;
    let slots = ttls + locks - releases;
    let ballots = slots + acquires;
    assert_eq!(words.len(), ballots + acquires, "a bundle is complete");
    let each = (0..locks).map(|at| {
        let key = Key::new(String::from_utf8_lossy(&keys[1 + at]).into_owned());
        let token = token(text(4 + at));
        let request = if at < acquires {
            Request::Acquire {
                key,
                token,
                ttl: ttl(number(ttls + at)),
                ballot: Some(Ballot::new(number(ballots + at))),
                ticket: None,
            }
        } else if at < with_queue {
            // The one that its lease was granted by: nothing is to be raised.
            Request::Release {
                key,
                token,
                ballots: None,
                leaves: None,
                unparks: None,
            }
        } else {
            Request::Extend {
                key,
                token,
                ttl: ttl(number(ttls + at - releases)),
                plain: text(0).is_empty(),
            }
        };
        Asked {
            request,
            policy: policy(text(0)),
            turn: 200,
        }
    });
    each.collect()
}

/// The guard as it is expected: a run, the longest ttl, and the deployment.
fn policy(expected: &str) -> Option<Policy> {
    let mut parts = expected.splitn(3, ' ').skip(1);
    Some(Policy {
        max_ttl: ttl(parts.next()?.parse().ok()?),
        deployment: parts.next()?.into(),
    })
}

fn token(text: &str) -> Token {
    Token::parse(text).unwrap_or_else(|_| panic!("no token: {text}"))
}

fn read_one(script: &str, keys: &[Vec<u8>], words: &[Vec<u8>]) -> Asked {
    let word = |at: usize| words.get(at).map_or(&[][..], |word| word);
    let text = |at: usize| std::str::from_utf8(word(at)).unwrap_or_default();
    let number = |at: usize| text(at).parse::<u64>().unwrap_or_default();
    let key = Key::new(String::from_utf8_lossy(&keys[0]).into_owned());
    let token = |at: usize| token(text(at));
    let turn = |at: usize| text(at).parse::<u64>().unwrap_or(200);
    let is = |rule: &str| script.contains(&format!("-- {rule}: "));
    let ask = |request, expected, turn| Asked {
        request,
        policy: policy(expected),
        turn,
    };
    if is("ACQUIRE") {
        let (token, ttl) = (token(2), ttl(number(3)));
        let ballot = (keys.len() > 2).then(|| Ballot::new(number(1)));
        let request = match text(9) {
            "" => Request::Acquire {
                key,
                token,
                ttl,
                ballot,
                ticket: (!text(6).is_empty()).then(|| Ticket {
                    name: text(6).into(),
                    since: (!text(7).is_empty()).then(|| number(7)),
                    parks: (!text(8).is_empty()).then(|| number(8)),
                }),
            },
            _ => Request::Rejoin {
                key,
                token,
                ttl,
                born: Ballot::new(number(9)),
                ballot: ballot.unwrap_or_default(),
            },
        };
        ask(request, text(4), turn(10))
    } else if is("EXTEND") {
        let plain = keys.len() < 2;
        let (token, ttl) = (token(0), ttl(number(1)));
        ask(
            Request::Extend {
                key,
                token,
                ttl,
                plain,
            },
            text(2),
            0,
        )
    } else if is("RELEASE") {
        let ticket = |at: usize| (!text(at).is_empty()).then(|| text(at).into());
        let (leaves, unparks) = (ticket(3), ticket(4));
        // The slot, the ballot, and perhaps that there was no other.
        let highest = text(1).split(' ').nth(1);
        let highest = highest.map(|ballot| Ballot::new(ballot.parse().unwrap_or_default()));
        // Whether there were others makes no difference to the rules.
        let ballots = highest.map(Ballots::up_to);
        let token = token(0);
        ask(
            Request::Release {
                key,
                token,
                ballots,
                leaves,
                unparks,
            },
            text(2),
            turn(5),
        )
    } else if is("FORCE") {
        let ballot = Ballot::new(number(1));
        ask(Request::Force { key, ballot }, text(2), 0)
    } else if is("INSPECT") {
        ask(Request::Inspect { key }, "", 0)
    } else if is("INIT") {
        let order = match text(0) {
            "fresh" => GuardOrder::AssumeFresh,
            "reconfigure" => GuardOrder::Reconfigure,
            _ => GuardOrder::Read,
        };
        let expected = match words.len() {
            3 => format!(" {} {}", text(2), text(1)),
            _ => String::new(),
        };
        ask(Request::Guard(order), &expected, 0)
    } else {
        panic!("a script that is none of ours")
    }
}

/// A guard as the scripts store it.
pub(crate) fn stored_guard(guard: &Guard) -> Value {
    let (run, max_ttl) = (&guard.run, guard.max_ttl.millis());
    Value::text(format!("{run} {max_ttl} {}", guard.deployment))
}

/// What `SET key token NX PX ttl` asks for.
pub(crate) fn set(words: &[Vec<u8>]) -> Request {
    let text = |at: usize| String::from_utf8_lossy(&words[at]).into_owned();
    let token = Token::parse(&text(2)).unwrap_or_else(|_| panic!("no token: {}", text(2)));
    Request::Acquire {
        key: Key::new(text(1)),
        token,
        ttl: ttl(text(5).parse().unwrap_or_default()),
        ballot: None,
        ticket: None,
    }
}

impl Asked {
    pub(crate) fn scene<'a>(
        &self,
        now: u64,
        run: &'a Arc<str>,
        policy: Option<&'a Policy>,
        board: &'a Board<'_>,
    ) -> Scene<'a> {
        Scene {
            turn: self.turn,
            board,
            ..Scene::new(now, run, policy)
        }
    }

    /// The lock, if something has happened to it.
    pub(crate) fn touches(&self, reply: &Reply) -> Option<&Key> {
        let touches = matches!(reply, Reply::Granted | Reply::Extended | Reply::Released);
        self.request.key().filter(|_| touches)
    }

    /// Whether this is answered when it comes with others. A release does not tell its
    /// ballot there, nor anyone the turn.
    pub(crate) fn goes_with_others(&self, node: &NodeState) -> bool {
        let is_free = |key| node.queue(key).is_none_or(|queue| queue.is_empty());
        match &self.request {
            Request::Acquire { key, .. } => is_free(key),
            Request::Release { key, token, .. } => {
                let value = node.get(key).and_then(|stored| stored.value.as_deref());
                is_free(key) && value == Some(token.as_str().as_bytes())
            }
            _ => true,
        }
    }
}

/// Calls those who are subscribed, once the rule is done.
#[derive(Debug)]
pub(crate) struct Board<'a> {
    pub(crate) subscribed: &'a BTreeSet<String>,
    pub(crate) calls: RefCell<Vec<(String, String)>>,
}

impl Switchboard for Board<'_> {
    fn call(&self, client: &str, key: &Key, news: News) -> bool {
        let word = match news {
            News::Granted(number) => format!("G{number} "),
            News::First(above) => format!("F{} ", above.number()),
            _ => "T".to_owned(),
        };
        self.calls
            .borrow_mut()
            .push((client.to_owned(), format!("{word}{key}")));
        self.subscribed.contains(client)
    }
}

/// A reply as the scripts would give it.
pub(crate) fn write(reply: Reply) -> Value {
    let word = |word: &str| Value::text(word);
    let millis = |time: Duration| Value::Int(time.as_millis() as i64);
    let int = |number: u64| Value::Int(number as i64);
    match reply {
        Reply::Granted => word("GRANTED"),
        Reply::Extended => word("EXTENDED"),
        Reply::Released => word("RELEASED"),
        Reply::Missing => word("MISSING"),
        Reply::Foreign => word("FOREIGN"),
        Reply::Forced => word("FORCED"),
        Reply::Kept => word("KEPT"),
        Reply::Held(None) => Value::Nil,
        Reply::Held(Some(holder)) => with_holder(vec![word("HELD")], holder),
        Reply::Holder(holder) => with_holder(vec![word("HOLDER")], holder),
        Reply::Queued { holder, first } => {
            let words = vec![word("QUEUED"), Value::Int(i64::from(first))];
            match holder {
                None => Value::Array(words),
                Some(holder) => with_holder(words, holder),
            }
        }
        Reply::Low { seen, now } => Value::Array(vec![word("LOW"), int(seen.number()), int(now)]),
        Reply::Future(now) => Value::Array(vec![word("FUTURE"), int(now)]),
        Reply::Guard(None) => Value::Array(vec![word("GUARD")]),
        Reply::Guard(Some(view)) => Value::Array(vec![
            word("GUARD"),
            Value::text(view.deployment),
            millis(view.quarantine),
        ]),
        Reply::Quarantined(left) => Value::Array(vec![word("QUARANTINED"), millis(left)]),
        Reply::ClockBehind(by) => Value::Array(vec![word("CLOCK_BEHIND"), millis(by)]),
        Reply::Mismatch(name) => Value::Array(vec![word("MISMATCH"), Value::text(name)]),
        Reply::TtlTooLong(most) => Value::Array(vec![word("TTL_TOO_LONG"), millis(most)]),
    }
}

fn with_holder(mut words: Vec<Value>, holder: Holder) -> Value {
    words.push(holder.value.map_or(Value::Nil, Value::Text));
    words.push(Value::Int(
        holder.remaining.map_or(-1, |left| left.as_millis() as i64),
    ));
    words.push(Value::Int(holder.ballot.number() as i64));
    Value::Array(words)
}

fn ttl(millis: u64) -> Ttl {
    Ttl::new(Duration::from_millis(millis)).unwrap_or_else(|error| panic!("{error}"))
}
