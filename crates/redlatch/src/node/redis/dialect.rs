//! Requests as Redis commands.

mod bundle;

use std::sync::{Arc, LazyLock};

use redis::{Cmd, Script};
use redlatch_core::{Ballot, GuardOrder, Key, Policy, Request, Ticket, Token, Ttl, fence};

pub(super) use self::bundle::{Bundle, Kind, MOST};
use super::packed::{Args, Optional, Packed};
use crate::node::Charter;

/// A rule that takes more than one command, with the hash that Redis knows it by.
struct Rule {
    text: &'static str,
    script: LazyLock<Script>,
}

/// A rule from its files. Those that stand in front of several begin with what
/// their keys and arguments are called here.
macro_rules! rule {
    ($(where $names:literal;)? $($file:literal),+) => {{
        const TEXT: &str = concat!($($names, "\n",)? $(include_str!(concat!("scripts/", $file))),+);
        Rule { text: TEXT, script: LazyLock::new(|| Script::new(TEXT)) }
    }};
}

/// ACQUIRE, which begins with these files.
macro_rules! acquire {
    ($($begin:tt)+) => {
        rule!(
            $($begin)+,
            "queue.lua", "join.lua", "acquire.lua", "call.lua", "turn.lua", "grant.lua"
        )
    };
}

static ACQUIRE: Rule = acquire!(
    where "local fence, slot, expected, longest = KEYS[3], ARGV[1], ARGV[5], ARGV[6]";
    "guard.lua",
    "ballot.lua",
    "about.lua",
    "quick.lua"
);
static ACQUIRE_PLAIN: Rule = acquire!("plain.lua");
static EXTEND: Rule = rule!("extend.lua");
static EXTEND_GUARDED: Rule = rule!(
    where "local fence, slot, expected, longest = KEYS[2], nil, ARGV[3], ARGV[4]";
    "guard.lua",
    "extend.lua"
);
static RELEASE: Rule = rule!("release.lua", "queue.lua", "call.lua", "pass_on.lua");
static FORCE: Rule = rule!(
    where "local fence, slot, expected, longest = KEYS[2], ARGV[1], ARGV[3], ARGV[4]";
    "guard.lua",
    "ballot.lua",
    "force.lua"
);
static BUNDLE: Rule = rule!("about.lua", "bundle.lua");
static INSPECT: Rule = rule!("inspect.lua");
static INIT: Rule = rule!("init.lua");

/// What a new connection loads: all that is needed without delay.
static LOADED: [&Rule; 6] = [
    &ACQUIRE,
    &ACQUIRE_PLAIN,
    &EXTEND,
    &EXTEND_GUARDED,
    &RELEASE,
    &BUNDLE,
];

/// For how many milliseconds the scripts keep a free lock for the first who waits,
/// unless they are told otherwise.
const USUAL_TURN: u64 = 200;

/// What is the same in all requests over one connection.
#[derive(Clone, Debug)]
pub(super) struct Dialect {
    /// What stands before a lock's key in that of its queue.
    queue: Arc<str>,
    /// The key of the slots' ballots and the guard.
    fence: Arc<str>,
    policy: Option<Policy>,
    /// The guard as it is expected to be; empty when it is off.
    expected: Arc<str>,
    /// For how many milliseconds a free lock is kept for the first who waits.
    turn: u64,
    /// Whether the client can be called over this connection. If not, a place in
    /// a queue is of no use to it.
    calls: bool,
}

impl Dialect {
    /// The run is that of the very server process that the connection leads to;
    /// empty when it may lead to another one without our knowing.
    pub(super) fn new(charter: &Charter, run: &str, calls: bool) -> Self {
        let prefix = &charter.service_prefix;
        let policy = charter.policy.clone();
        Self {
            queue: format!("{prefix}__queue:").into(),
            fence: fence_key(prefix).into(),
            expected: policy
                .as_ref()
                .map_or_else(Arc::default, |policy| expected(run, policy)),
            policy,
            turn: u64::try_from(charter.turn.as_millis()).unwrap_or(u64::MAX),
            calls,
        }
    }
}

/// How a script is named to the server.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Hash,
    Text,
}

impl Dialect {
    /// The command that does what `request` asks for.
    pub(super) fn command(&self, request: &Request, form: Form) -> Cmd {
        let mut command = Cmd::new();
        self.write(request, form, &mut command);
        command
    }

    /// The same as it goes over the wire, behind what is in `out`.
    pub(super) fn put(&self, request: &Request, out: &mut Vec<u8>) {
        let mut command = Packed::new(out);
        self.write(request, Form::Hash, &mut command);
        command.finish();
    }

    fn write(&self, request: &Request, form: Form, call: &mut impl Args) {
        match request {
            Request::Acquire {
                key,
                token,
                ttl,
                ballot: None,
                ticket,
            } if ticket.is_none() || !self.calls => {
                call.text("SET").text(key.as_str()).text(token.as_str());
                call.text("NX").text("PX").number(ttl.millis());
            }
            Request::Acquire {
                key,
                token,
                ttl,
                ballot,
                ticket,
            } => {
                match ballot {
                    None => self.call(call, &ACQUIRE_PLAIN, form, key, Keys::Queue),
                    Some(_) => self.call(call, &ACQUIRE, form, key, Keys::All),
                }
                let policy = self.policy.as_ref().filter(|_| ballot.is_some());
                let ballot = ballot.unwrap_or_default();
                let ticket = ticket.as_ref().filter(|_| self.calls);
                let offer = Offer {
                    token,
                    ttl: *ttl,
                    ballot,
                    policy,
                    ticket,
                    born: None,
                };
                self.offer(call, key, offer);
            }
            Request::Rejoin {
                key,
                token,
                ttl,
                born,
                ballot,
            } => {
                self.call(call, &ACQUIRE, form, key, Keys::All);
                let policy = self.policy.as_ref();
                let offer = Offer {
                    token,
                    ttl: *ttl,
                    ballot: *ballot,
                    policy,
                    ticket: None,
                    born: Some(*born),
                };
                self.offer(call, key, offer);
            }
            Request::Extend {
                key,
                token,
                ttl,
                plain,
            } => {
                let is_guarded = self.policy.is_some() && !plain;
                match is_guarded {
                    true => self.call(call, &EXTEND_GUARDED, form, key, Keys::Fence),
                    false => self.call(call, &EXTEND, form, key, Keys::Lock),
                }
                call.text(token.as_str()).number(ttl.millis());
                if is_guarded {
                    self.guarded(call);
                }
            }
            Request::Release {
                key,
                token,
                ballots,
                leaves,
                unparks,
            } => {
                let keys = ballots.map_or(Keys::Queue, |_| Keys::All);
                self.call(call, &RELEASE, form, key, keys);
                call.text(token.as_str());
                let raised = ballots.map(|ballots| Optional::Highest {
                    slot: fence::slot(key),
                    ballot: ballots.highest().number(),
                    is_one: ballots.is_one(),
                });
                let tail = [
                    raised.unwrap_or(Optional::Missing),
                    ballots.map(|_| &*self.expected).into(),
                    leaves.as_deref().into(),
                    unparks.as_deref().into(),
                    self.turn(),
                ];
                call.tail(&tail);
            }
            Request::Force { key, ballot } => {
                self.call(call, &FORCE, form, key, Keys::Fence);
                call.number(fence::slot(key).into());
                call.number(ballot.number());
                self.guarded(call);
            }
            Request::Inspect { key } => {
                self.call(call, &INSPECT, form, key, Keys::Fence);
                call.number(fence::slot(key).into());
            }
            Request::Guard(order) => {
                INIT.name(form, call);
                call.number(1).text(&self.fence);
                // Who wants no guard has nothing to say about it.
                let Some(policy) = &self.policy else {
                    call.text("read");
                    return;
                };
                call.text(match order {
                    GuardOrder::Read => "read",
                    GuardOrder::AssumeFresh => "fresh",
                    GuardOrder::Reconfigure => "reconfigure",
                });
                call.text(&policy.deployment)
                    .number(policy.max_ttl.millis());
            }
        }
    }

    /// A call of a script on the keys that it declares.
    fn call(&self, call: &mut impl Args, rule: &Rule, form: Form, key: &Key, keys: Keys) {
        let (has_queue, has_fence) = match keys {
            Keys::Lock => (false, false),
            Keys::Queue => (true, false),
            Keys::Fence => (false, true),
            Keys::All => (true, true),
        };
        rule.name(form, call);
        call.number(1 + u64::from(has_queue) + u64::from(has_fence));
        call.text(key.as_str());
        if has_queue {
            call.parts(&[self.queue.as_bytes(), key.as_str().as_bytes()]);
        }
        if has_fence {
            call.text(&self.fence);
        }
    }

    /// Adds what a lease is asked for with.
    fn offer(
        &self,
        call: &mut impl Args,
        key: &Key,
        Offer {
            token,
            ttl,
            ballot,
            policy,
            ticket,
            born,
        }: Offer<'_>,
    ) {
        call.number(fence::slot(key).into()).number(ballot.number());
        call.text(token.as_str()).number(ttl.millis());
        let tail = [
            policy.map(|_| &*self.expected).into(),
            policy.map(|policy| policy.max_ttl.millis()).into(),
            ticket.map(|ticket| &*ticket.name).into(),
            ticket.and_then(|ticket| ticket.since).into(),
            ticket.and_then(|ticket| ticket.parks).into(),
            born.map(Ballot::number).into(),
            self.turn(),
        ];
        call.tail(&tail);
    }

    /// The turn, where it is not the one that the scripts know.
    fn turn(&self) -> Optional<'static> {
        Some(self.turn).filter(|turn| *turn != USUAL_TURN).into()
    }

    /// Adds what the restart guard wants to know.
    fn guarded(&self, call: &mut impl Args) {
        if let Some(policy) = &self.policy {
            call.text(&self.expected).number(policy.max_ttl.millis());
        }
    }
}

/// What a lease is asked for with.
struct Offer<'a> {
    token: &'a Token,
    ttl: Ttl,
    ballot: Ballot,
    /// Nothing where no guard is looked at.
    policy: Option<&'a Policy>,
    ticket: Option<&'a Ticket>,
    /// For a lease that joins again.
    born: Option<Ballot>,
}

/// The key of the slots' ballots and the guard.
pub(super) fn fence_key(service_prefix: &str) -> String {
    format!("{service_prefix}__fence")
}

/// A guard as the scripts store it.
fn expected(run: &str, policy: &Policy) -> Arc<str> {
    let Policy {
        deployment,
        max_ttl,
    } = policy;
    format!("{run} {} {deployment}", max_ttl.millis()).into()
}

/// The deployment in a guard as the scripts store it.
pub(super) fn deployment(guard: &str) -> Option<&str> {
    guard.splitn(3, ' ').nth(2)
}

/// Which keys a script works on, beside the lock.
#[derive(Clone, Copy)]
enum Keys {
    Lock,
    Queue,
    Fence,
    /// The queue and the fence.
    All,
}

impl Rule {
    fn name(&self, form: Form, call: &mut impl Args) {
        match form {
            Form::Hash => call.text("EVALSHA").text(self.script.get_hash()),
            Form::Text => call.text("EVAL").text(self.text),
        };
    }
}

/// Adds commands that load the scripts which are needed without delay.
pub(super) fn load_scripts(pipeline: &mut redis::Pipeline) {
    for rule in LOADED {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(rule.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_know_the_usual_turn() {
        for (rule, argument) in [(&ACQUIRE, 11), (&ACQUIRE_PLAIN, 11), (&RELEASE, 6)] {
            let known = format!("tonumber(ARGV[{argument}] or '') or {USUAL_TURN}");
            assert!(rule.text.contains(&known), "{known}");
        }
    }
}
