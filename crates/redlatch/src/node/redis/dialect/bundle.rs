//! Several requests as one command.
//!
//! To call a script costs a server about as much as all that most of ours do. So what
//! comes together while a line is busy goes out as one, where it can. The script for
//! that knows only how requests mostly go: what it leaves out is asked by itself.

use std::sync::Arc;

use redlatch_core::{Ballot, Request, Token, Ttl, fence};

use super::{BUNDLE, Dialect, Form};
use crate::node::redis::packed::{Args, Packed};

/// How many go together at most: more would gain little, and the server's other
/// clients wait meanwhile.
pub(in crate::node::redis) const MOST: usize = 16;

/// Requests that are about to be sent, and who waits for the answer to each.
///
/// No two of them are about the same slot, and so none about the same lock: in which
/// order they are carried out makes no difference.
pub(in crate::node::redis) struct Bundle<W> {
    dialect: Arc<Dialect>,
    parts: Vec<Part<W>>,
}

struct Part<W> {
    kind: Kind,
    slot: u16,
    request: Request,
    waiter: W,
}

/// As what a request goes when others do, in the order in which the script takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::node::redis) enum Kind {
    /// A command that needs no script: it goes by itself, and may go before the others.
    Bare,
    Acquire,
    Release,
    Extend,
}

impl Dialect {
    /// As what this goes when others do; nothing when it asks for more than the script
    /// for many knows, and must stay in its place.
    pub(in crate::node::redis) fn kind(&self, request: &Request) -> Option<Kind> {
        match request {
            Request::Acquire {
                ticket: Some(_), ..
            } if self.calls => None,
            Request::Acquire { ballot: None, .. } => Some(Kind::Bare),
            Request::Acquire { .. } => Some(Kind::Acquire),
            Request::Release {
                ballots,
                leaves: None,
                unparks: None,
                ..
            } => {
                let is_simple = ballots.is_none_or(|ballots| ballots.is_one());
                is_simple.then_some(Kind::Release)
            }
            // That of a plain lock wants no guard looked at.
            Request::Extend { plain, .. } => {
                (!plain || self.policy.is_none()).then_some(Kind::Extend)
            }
            _ => None,
        }
    }

    /// One command for all of them, which are of kinds that can go together, and in the
    /// order of these. See bundle.lua for what stands where.
    pub(in crate::node::redis) fn put_together<'a>(
        &self,
        requests: impl Iterator<Item = &'a Request> + Clone,
        form: Form,
        out: &mut Vec<u8>,
    ) {
        let mut call = Packed::new(out);
        self.write_together(requests, form, &mut call);
        call.finish();
    }

    pub(in crate::node::redis) fn write_together<'a>(
        &self,
        requests: impl Iterator<Item = &'a Request> + Clone,
        form: Form,
        call: &mut impl Args,
    ) {
        let count = |kind| {
            let is_one = |request: &&Request| self.kind(request) == Some(kind);
            requests.clone().filter(is_one).count()
        };
        let (acquires, releases) = (count(Kind::Acquire), count(Kind::Release));
        let with_queue = acquires + releases;
        let keys = requests.clone().filter_map(Request::key);
        BUNDLE.name(form, call);
        call.number((1 + keys.clone().count() + with_queue) as u64);
        call.text(&self.fence);
        for key in keys.clone() {
            call.text(key.as_str());
        }
        for key in keys.clone().take(with_queue) {
            call.parts(&[self.queue.as_bytes(), key.as_str().as_bytes()]);
        }
        call.text(&self.expected);
        match &self.policy {
            Some(policy) => call.number(policy.max_ttl.millis()),
            None => call.text(""),
        };
        call.number(acquires as u64).number(releases as u64);
        for token in requests.clone().filter_map(token) {
            call.text(token.as_str());
        }
        for ttl in requests.clone().filter_map(ttl) {
            call.number(ttl.millis());
        }
        for key in keys.take(acquires) {
            call.number(fence::slot(key).into());
        }
        for ballot in requests.filter_map(ballot) {
            call.number(ballot.number());
        }
    }
}

impl<W> Bundle<W> {
    pub(in crate::node::redis) fn new(dialect: Arc<Dialect>) -> Self {
        let parts = Vec::new();
        Self { dialect, parts }
    }

    pub(in crate::node::redis) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether what is here has to go before one about a lock of this slot.
    pub(in crate::node::redis) fn has(&self, slot: u16) -> bool {
        self.parts.iter().any(|part| part.slot == slot)
    }

    /// Adds one about a lock of a slot that is not here yet.
    pub(in crate::node::redis) fn add(
        &mut self,
        kind: Kind,
        slot: u16,
        request: &Request,
        waiter: W,
    ) {
        self.parts.push(Part {
            kind,
            slot,
            request: request.clone(),
            waiter,
        });
    }

    /// Writes what is here behind what is in `out`: one by itself, several as one
    /// command. Says who waits for the answers, in their order and with their slots, and is
    /// empty again.
    pub(in crate::node::redis) fn close(&mut self, form: Form, out: &mut Vec<u8>) -> Vec<(u16, W)> {
        match &mut self.parts[..] {
            [] => {}
            [part] => self.dialect.put(&part.request, out),
            parts => {
                parts.sort_by_key(|part| part.kind);
                let requests = self.parts.iter().map(|part| &part.request);
                self.dialect.put_together(requests, form, out);
            }
        }
        let parts = self.parts.drain(..);
        parts.map(|part| (part.slot, part.waiter)).collect()
    }
}

fn token(request: &Request) -> Option<&Token> {
    match request {
        Request::Acquire { token, .. }
        | Request::Release { token, .. }
        | Request::Extend { token, .. } => Some(token),
        _ => None,
    }
}

fn ttl(request: &Request) -> Option<Ttl> {
    match request {
        Request::Acquire { ttl, .. } | Request::Extend { ttl, .. } => Some(*ttl),
        _ => None,
    }
}

fn ballot(request: &Request) -> Option<Ballot> {
    match request {
        Request::Acquire { ballot, .. } => *ballot,
        _ => None,
    }
}
