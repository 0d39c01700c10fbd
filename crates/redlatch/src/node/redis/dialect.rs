//! Requests as Redis commands.

use std::sync::{Arc, LazyLock};

use redis::{Cmd, RedisWrite, Script};
use redlatch_core::{Ballot, GuardOrder, Key, Policy, Request, Ticket, Token, Ttl, fence, rules};

use crate::node::Charter;

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

static ACQUIRE: Rule = rule!(
    "guard.lua",
    "ballot.lua",
    "quick.lua",
    "queue.lua",
    "turn.lua",
    "acquire.lua"
);
static ACQUIRE_PLAIN: Rule = rule!(
    "plain.lua",
    "quick.lua",
    "queue.lua",
    "turn.lua",
    "acquire.lua"
);
static EXTEND: Rule = rule!("extend.lua");
static EXTEND_GUARDED: Rule = rule!("guard.lua", "extend.lua");
static RELEASE: Rule = rule!("release.lua", "queue.lua", "pass_on.lua");
static FORCE: Rule = rule!("guard.lua", "ballot.lua", "force.lua");
static INSPECT: Rule = rule!("inspect.lua");
static INIT: Rule = rule!("init.lua");

/// How many bytes the arguments of a call have, beside the script and the lock's
/// key and token: enough for most, so that nothing has to grow.
const BYTES: usize = 256;

/// What a new connection loads: all that is needed without delay.
static LOADED: [&Rule; 5] = [&ACQUIRE, &ACQUIRE_PLAIN, &EXTEND, &EXTEND_GUARDED, &RELEASE];

/// What is the same in all requests over one connection.
#[derive(Clone, Debug)]
pub(super) struct Dialect {
    /// What stands before a lock's key in that of its queue.
    queue: Arc<str>,
    /// The key of the slots' ballots, and that of the guard.
    fence: Arc<str>,
    guard: Arc<str>,
    policy: Option<Policy>,
    /// For how many milliseconds a free lock is kept for the first who waits.
    turn: u64,
    /// The run of the very server process that the connection leads to; empty
    /// when it may lead to another one without our knowing.
    hint: Arc<str>,
    /// Whether the client can be called over this connection. If not, a place in
    /// a queue is of no use to it.
    calls: bool,
}

impl Dialect {
    pub(super) fn new(charter: &Charter, hint: Arc<str>, calls: bool) -> Self {
        let prefix = &charter.service_prefix;
        Self {
            queue: format!("{prefix}__queue:").into(),
            fence: format!("{prefix}__fence").into(),
            guard: format!("{prefix}__guard").into(),
            policy: charter.policy.clone(),
            turn: u64::try_from(charter.turn.as_millis()).unwrap_or(u64::MAX),
            hint,
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
        match request {
            Request::Acquire {
                key,
                token,
                ttl,
                ballot: None,
                ticket,
            } if ticket.is_none() || !self.calls => {
                let mut set = Cmd::with_capacity(6, BYTES);
                set.arg("SET").arg(key.as_str()).arg(token.as_str());
                set.arg("NX").arg("PX").arg(ttl.millis());
                set
            }
            Request::Acquire {
                key,
                token,
                ttl,
                ballot,
                ticket,
            } => {
                let mut call = match ballot {
                    None => self.call(&ACQUIRE_PLAIN, form, key, Keys::Queue),
                    Some(_) => self.call(&ACQUIRE, form, key, Keys::Guard),
                };
                let ballot = ballot.unwrap_or_default();
                let offer = Offer { token, ttl, ballot };
                let ticket = ticket.as_ref().filter(|_| self.calls);
                self.offer(&mut call, key, &offer, "", ticket);
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
                let ballot = *ballot;
                let offer = Offer { token, ttl, ballot };
                self.offer(&mut call, key, &offer, born.number(), None);
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
            Request::Release {
                key,
                token,
                ballot,
                leaves,
            } => {
                let keys = ballot.map_or(Keys::Queue, |_| Keys::Guard);
                let mut call = self.call(&RELEASE, form, key, keys);
                call.arg(self.turn).arg(token.as_str());
                call.arg(leaves.as_deref().unwrap_or_default());
                if let Some(ballot) = ballot {
                    let max_ttl = self.policy.as_ref().map(|policy| policy.max_ttl);
                    call.arg(fence::slot(key)).arg(ballot.number());
                    call.arg(rules::tolerance(max_ttl));
                    call = self.guarded(call);
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
                let mut call = INIT.start(form, 8, BYTES);
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
        let keys: usize = match keys {
            Keys::Lock => 1,
            Keys::Queue => 2,
            Keys::Guard if self.policy.is_none() => 3,
            Keys::Fence => 3,
            Keys::Guard => 4,
        };
        // A renewal says little, and a hundred thousand are said at once.
        let mut call = match keys {
            1 => rule.start(form, 6, key.as_str().len() + BYTES / 2),
            _ => rule.start(form, 20, 2 * key.as_str().len() + BYTES),
        };
        call.arg(keys).arg(key.as_str());
        if keys > 1 {
            call.write_arg_fmt(format_args!("{}{key}", self.queue));
        }
        for name in [&*self.fence, &*self.guard]
            .into_iter()
            .take(keys.saturating_sub(2))
        {
            call.arg(name);
        }
        call
    }

    /// Adds what is the same in all ways to a lease.
    fn offer(
        &self,
        call: &mut Cmd,
        key: &Key,
        offer: &Offer<'_>,
        born: impl redis::ToRedisArgs,
        ticket: Option<&Ticket>,
    ) {
        let Offer { token, ttl, ballot } = offer;
        call.arg(fence::slot(key)).arg(ballot.number());
        call.arg(token.as_str()).arg(ttl.millis()).arg(born);
        call.arg(self.turn);
        match ticket {
            None => call.arg("").arg("").arg(""),
            Some(Ticket { name, since, parks }) => {
                call.arg(&**name);
                for number in [since, parks] {
                    match number {
                        None => call.arg(""),
                        Some(number) => call.arg(*number),
                    };
                }
                call
            }
        };
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

/// A lease that a node is asked for.
struct Offer<'a> {
    token: &'a Token,
    ttl: &'a Ttl,
    ballot: Ballot,
}

/// Which keys a script works on, beside the lock.
#[derive(Clone, Copy)]
enum Keys {
    Lock,
    Queue,
    /// The queue and the fence.
    Fence,
    /// The queue, the fence, and the guard when it is on.
    Guard,
}

impl Rule {
    /// With room for so many arguments, and so many bytes beside the script.
    fn start(&self, form: Form, arguments: usize, bytes: usize) -> Cmd {
        let (name, script) = match form {
            Form::Hash => ("EVALSHA", self.script.get_hash()),
            Form::Text => ("EVAL", self.text),
        };
        let mut command = Cmd::with_capacity(arguments, script.len() + bytes);
        command.arg(name).arg(script);
        command
    }
}

/// Adds commands that load the scripts which are needed without delay.
pub(super) fn load_scripts(pipeline: &mut redis::Pipeline) {
    for rule in LOADED {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(rule.text);
    }
}
