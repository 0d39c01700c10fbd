//! Requests as Redis commands.

use std::sync::{Arc, LazyLock};

use redis::{Cmd, Script};
use redlatch_core::{Ballot, GuardOrder, Key, Policy, Request, Token, Ttl, fence, rules};

use super::packed::{Args, Packed};
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

static ACQUIRE: Rule = rule!(
    where "local fence, slot, expected, longest = KEYS[3], ARGV[1], ARGV[6], ARGV[7]";
    "guard.lua",
    "ballot.lua",
    "quick.lua",
    "queue.lua",
    "turn.lua",
    "acquire.lua"
);
static ACQUIRE_PLAIN: Rule = rule!("plain.lua", "queue.lua", "turn.lua", "acquire.lua");
static EXTEND: Rule = rule!("extend.lua");
static EXTEND_GUARDED: Rule = rule!(
    where "local fence, slot, expected, longest = KEYS[2], nil, ARGV[3], ARGV[4]";
    "guard.lua",
    "extend.lua"
);
static RELEASE: Rule = rule!("release.lua", "queue.lua", "pass_on.lua");
static FORCE: Rule = rule!(
    where "local fence, slot, expected, longest = KEYS[2], ARGV[1], ARGV[3], ARGV[4]";
    "guard.lua",
    "ballot.lua",
    "force.lua"
);
static INSPECT: Rule = rule!("inspect.lua");
static INIT: Rule = rule!("init.lua");

/// What a new connection loads: all that is needed without delay.
static LOADED: [&Rule; 5] = [&ACQUIRE, &ACQUIRE_PLAIN, &EXTEND, &EXTEND_GUARDED, &RELEASE];

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
                let is_guarded = self.policy.is_some() && ballot.is_some();
                let ballot = ballot.unwrap_or_default();
                self.offer(call, key, token, *ttl, ballot);
                let ticket = ticket.as_ref().filter(|_| self.calls);
                if is_guarded {
                    self.guarded(call);
                } else if ticket.is_some() {
                    call.text("").text("");
                }
                if let Some(ticket) = ticket {
                    call.text(&ticket.name).number_if(ticket.since);
                    call.number_if(ticket.parks);
                }
            }
            Request::Rejoin {
                key,
                token,
                ttl,
                born,
                ballot,
            } => {
                self.call(call, &ACQUIRE, form, key, Keys::All);
                self.offer(call, key, token, *ttl, *ballot);
                match self.policy {
                    Some(_) => self.guarded(call),
                    None => _ = call.text("").text(""),
                }
                call.text("").text("").text("").number(born.number());
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
                call.text(token.as_str()).number(self.turn);
                if let Some(ballots) = ballots {
                    let max_ttl = self.policy.as_ref().map(|policy| policy.max_ttl);
                    call.number(fence::slot(key).into());
                    call.number(ballots.highest().number());
                    call.number(rules::tolerance(max_ttl));
                    call.text(if ballots.is_one() { "one" } else { "" });
                    call.text(&self.expected);
                }
                if leaves.is_some() || unparks.is_some() {
                    if ballots.is_none() {
                        (0..5).for_each(|_| _ = call.text(""));
                    }
                    call.text(leaves.as_deref().unwrap_or_default());
                    call.text(unparks.as_deref().unwrap_or_default());
                }
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
            call.joined(&self.queue, key.as_str());
        }
        if has_fence {
            call.text(&self.fence);
        }
    }

    /// Adds what is the same in all ways to a lease.
    fn offer(&self, call: &mut impl Args, key: &Key, token: &Token, ttl: Ttl, ballot: Ballot) {
        call.number(fence::slot(key).into()).number(ballot.number());
        call.text(token.as_str()).number(ttl.millis());
        call.number(self.turn);
    }

    /// Adds what the restart guard wants to know.
    fn guarded(&self, call: &mut impl Args) {
        if let Some(policy) = &self.policy {
            call.text(&self.expected).number(policy.max_ttl.millis());
        }
    }
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
