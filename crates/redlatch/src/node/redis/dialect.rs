//! Requests as Redis commands.

use std::sync::{Arc, LazyLock};

use redis::{Cmd, Script};
use redlatch_core::{Ballot, GuardOrder, Key, Policy, Request, Ticket, Token, Ttl, fence, rules};

use super::packed::{Args, Packed};
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
                    Some(_) => self.call(call, &ACQUIRE, form, key, Keys::Guard),
                }
                let ballot = ballot.unwrap_or_default();
                let offer = Offer { token, ttl, ballot };
                let ticket = ticket.as_ref().filter(|_| self.calls);
                self.offer(call, key, &offer, None, ticket);
                self.guarded(call);
            }
            Request::Rejoin {
                key,
                token,
                ttl,
                born,
                ballot,
            } => {
                self.call(call, &ACQUIRE, form, key, Keys::Guard);
                let ballot = *ballot;
                let offer = Offer { token, ttl, ballot };
                self.offer(call, key, &offer, Some(born.number()), None);
                self.guarded(call);
            }
            Request::Extend {
                key,
                token,
                ttl,
                plain,
            } => {
                let is_guarded = self.policy.is_some() && !plain;
                match is_guarded {
                    true => self.call(call, &EXTEND_GUARDED, form, key, Keys::Guard),
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
                ballot,
                leaves,
            } => {
                let keys = ballot.map_or(Keys::Queue, |_| Keys::Guard);
                self.call(call, &RELEASE, form, key, keys);
                call.number(self.turn).text(token.as_str());
                if leaves.is_some() || ballot.is_some() {
                    call.text(leaves.as_deref().unwrap_or_default());
                }
                if let Some(ballot) = ballot {
                    let max_ttl = self.policy.as_ref().map(|policy| policy.max_ttl);
                    call.number(fence::slot(key).into());
                    call.number(ballot.number());
                    call.number(rules::tolerance(max_ttl));
                    self.guarded(call);
                }
            }
            Request::Force { key, ballot } => {
                self.call(call, &FORCE, form, key, Keys::Guard);
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
                call.number(1).text(&self.guard);
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
        let keys = match keys {
            Keys::Lock => 1,
            Keys::Queue => 2,
            Keys::Guard if self.policy.is_none() => 3,
            Keys::Fence => 3,
            Keys::Guard => 4,
        };
        rule.name(form, call);
        call.number(keys).text(key.as_str());
        if keys > 1 {
            call.joined(&self.queue, key.as_str());
        }
        if keys > 2 {
            call.text(&self.fence);
        }
        if keys > 3 {
            call.text(&self.guard);
        }
    }

    /// Adds what is the same in all ways to a lease.
    fn offer(
        &self,
        call: &mut impl Args,
        key: &Key,
        offer: &Offer<'_>,
        born: Option<u64>,
        ticket: Option<&Ticket>,
    ) {
        let Offer { token, ttl, ballot } = offer;
        call.number(fence::slot(key).into()).number(ballot.number());
        call.text(token.as_str()).number(ttl.millis());
        call.number_if(born).number(self.turn);
        call.text(ticket.map_or("", |ticket| &ticket.name));
        call.number_if(ticket.and_then(|ticket| ticket.since));
        call.number_if(ticket.and_then(|ticket| ticket.parks));
    }

    /// Adds what the restart guard wants to know.
    fn guarded(&self, call: &mut impl Args) {
        if let Some(policy) = &self.policy {
            call.text(&self.hint).text(&policy.deployment);
            call.number(policy.max_ttl.millis());
        }
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
