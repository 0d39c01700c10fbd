//! What is under way on a line: what is still to be sent, and who waits for answers.

use std::collections::VecDeque;
use std::sync::Arc;

use redis::{RedisError, ServerErrorKind, Value};
use redlatch_core::Request;
use tokio::sync::oneshot;

use super::End;
use crate::node::redis::dialect::{Bundle, Dialect, Form, Kind, MOST};

/// After a bundle to which the server had nothing but an error to say, so many requests
/// go by themselves.
const UNBUNDLED: u32 = 1000;

/// After a request that the script for many could not answer, as when somebody waits for
/// the lock, so many about that lock go by themselves: it costs them a round trip more.
const SHY: u8 = 15;

/// How many slots are told apart for that.
const SHYNESSES: usize = 256;

#[derive(Default)]
pub(super) struct Desk {
    /// What is still to be sent.
    pub(super) out: Vec<u8>,
    /// What is to be sent after that, as one command.
    bundle: Option<Bundle<Sharer>>,
    /// For how many more requests there are no bundles.
    unbundled: u32,
    /// For how many about each slot, or one that shares its place here.
    shy: Shy,
    /// Whether the server has forgotten the script for bundles.
    forgotten: bool,
    pub(super) writer: Writer,
    /// Who waits for answers, in the order of the commands.
    pub(super) waiting: VecDeque<Waiter>,
    /// Why there will be no more answers.
    pub(super) end: Option<End>,
}

struct Shy([u8; SHYNESSES]);

impl Default for Shy {
    fn default() -> Self {
        Self([0; SHYNESSES])
    }
}

impl Shy {
    fn of(&mut self, slot: u16) -> &mut u8 {
        &mut self.0[usize::from(slot) % SHYNESSES]
    }
}

/// What the task that writes is doing.
#[derive(Default, PartialEq, Eq)]
pub(super) enum Writer {
    #[default]
    Idle,
    /// It will soon send what there is.
    Called,
    /// It is sending. Nobody else may: that would go out in between.
    Busy,
}

pub(super) enum Waiter {
    Nobody,
    One(oneshot::Sender<Result<Value, RedisError>>),
    /// One that went by itself, but might have gone with others.
    Single(Sharer),
    /// Those that went together, and their slots.
    Bundle(Vec<(u16, Sharer)>),
    Many {
        missing: usize,
        answers: Vec<Value>,
        all: oneshot::Sender<Result<Vec<Value>, RedisError>>,
    },
}

/// Waits for the answer to a request that may go with others.
pub(super) type Sharer = oneshot::Sender<Result<Share, RedisError>>;

/// What a server has answered to one request, which may have gone with others.
#[derive(Debug, PartialEq)]
pub(in crate::node::redis) enum Share {
    Answer(Value),
    /// Nothing: it must go by itself. What it asks for was not done, or may be again.
    Nothing,
}

impl Desk {
    /// How many commands and requests are under way, or wait to be.
    pub(super) fn under_way(&self) -> usize {
        self.waiting.len() + self.bundled()
    }

    /// Whether there is something to send.
    pub(super) fn has_more(&self) -> bool {
        !self.out.is_empty() || self.bundled() > 0
    }

    /// How many are to be sent as one command.
    fn bundled(&self) -> usize {
        self.bundle.as_ref().map_or(0, Bundle::len)
    }

    /// Adds what `put` writes, behind all that is there.
    pub(super) fn put<const N: usize>(
        &mut self,
        put: impl FnOnce(&mut Vec<u8>),
        waiters: [Waiter; N],
    ) {
        self.close_bundle();
        put(&mut self.out);
        self.waiting.extend(waiters);
    }

    /// Whether the server takes several requests as one command; else this time they go
    /// by themselves.
    pub(super) fn takes_bundles(&mut self) -> bool {
        let takes = self.unbundled == 0;
        self.unbundled = self.unbundled.saturating_sub(1);
        takes
    }

    /// Whether a request about a lock of this slot that comes now has others to go with,
    /// or will soon.
    pub(super) fn is_bundling(&mut self, slot: u16) -> bool {
        let shy = self.shy.of(slot);
        let is_shy = *shy > 0;
        *shy = shy.saturating_sub(1);
        self.takes_bundles() && !is_shy && self.end.is_none() && self.under_way() > 0
    }

    /// Adds a request, to go with those that are there and those that come until all is
    /// sent. Whether as many are together now as may be.
    ///
    /// It may overtake others, but none that is about the same lock.
    pub(super) fn put_with_others(
        &mut self,
        dialect: &Arc<Dialect>,
        kind: Kind,
        slot: u16,
        request: &Request,
        sharer: Sharer,
    ) -> bool {
        if self.bundle.as_ref().is_some_and(|bundle| bundle.has(slot)) {
            self.close_bundle();
        }
        if kind == Kind::Bare {
            dialect.put(request, &mut self.out);
            self.waiting.push_back(Waiter::Single(sharer));
            return false;
        }
        let new = || Bundle::new(dialect.clone());
        let bundle = self.bundle.get_or_insert_with(new);
        bundle.add(kind, slot, request, sharer);
        let is_full = bundle.len() == MOST;
        if is_full {
            self.close_bundle();
        }
        is_full
    }

    /// Puts what is to go together behind all else, and nothing is added to it any more.
    pub(super) fn close_bundle(&mut self) {
        let is_there = |bundle: &&mut Bundle<Sharer>| bundle.len() > 0;
        let Some(bundle) = self.bundle.as_mut().filter(is_there) else {
            return;
        };
        // Who may not load scripts may call them by their text.
        let form = match self.forgotten {
            true => Form::Text,
            false => Form::Hash,
        };
        let mut sharers = bundle.close(form, &mut self.out);
        self.waiting.push_back(match sharers.len() {
            1 => sharers
                .pop()
                .map_or(Waiter::Nobody, |(_, sharer)| Waiter::Single(sharer)),
            _ => Waiter::Bundle(sharers),
        });
    }

    /// Finds who waits for which answer, in the order in which they came. One that
    /// nobody asked for is left.
    pub(super) fn hand_out(
        &mut self,
        answers: &mut Vec<Value>,
        ready: &mut Vec<(Waiter, Value)>,
    ) -> Option<Value> {
        for answer in answers.drain(..) {
            let answer = match self.waiting.front_mut() {
                None => return Some(answer),
                Some(Waiter::Many {
                    missing, answers, ..
                }) => {
                    answers.push(answer);
                    *missing -= 1;
                    if *missing > 0 {
                        continue;
                    }
                    Value::Nil
                }
                Some(Waiter::Bundle(sharers)) => {
                    for ((slot, _), answer) in sharers.iter().zip(each(&answer)) {
                        if *answer == Value::Nil {
                            *self.shy.of(*slot) = SHY;
                        }
                    }
                    self.judge_bundle(&answer);
                    answer
                }
                Some(_) => answer,
            };
            ready.extend(self.waiting.pop_front().map(|waiter| (waiter, answer)));
        }
        None
    }

    /// Whether bundles are of use, by what the server has answered to one.
    pub(super) fn judge_bundle(&mut self, answer: &Value) {
        match answer {
            Value::Array(_) => self.forgotten = false,
            answer if is_noscript(answer) => self.forgotten = true,
            _ => self.unbundled = UNBUNDLED,
        }
    }
}

impl Waiter {
    /// Whoever asked may have stopped waiting.
    pub(super) fn receive(self, answer: Value) {
        match self {
            Self::Nobody => {}
            Self::One(one) => drop(one.send(Ok(answer))),
            Self::Single(one) => drop(one.send(Ok(Share::Answer(answer)))),
            Self::Bundle(sharers) => share(answer, sharers),
            Self::Many { answers, all, .. } => drop(all.send(Ok(answers))),
        }
    }

    pub(super) fn fail(self, end: &End) {
        match self {
            Self::Nobody => {}
            Self::One(one) => drop(one.send(Err(end.error()))),
            Self::Single(one) => drop(one.send(Err(end.error()))),
            Self::Bundle(sharers) => sharers.into_iter().for_each(|(_, sharer)| {
                drop(sharer.send(Err(end.error())));
            }),
            Self::Many { all, .. } => drop(all.send(Err(end.error()))),
        }
    }
}

/// The answers to those that went together; none after an error.
fn each(answer: &Value) -> &[Value] {
    match answer {
        Value::Array(answers) => answers,
        _ => &[],
    }
}

/// Gives everyone its own answer of those to a bundle.
fn share(answer: Value, sharers: Vec<(u16, Sharer)>) {
    let mut answers = match answer {
        Value::Array(answers) => answers.into_iter(),
        _ => Vec::new().into_iter(),
    };
    for (_, sharer) in sharers {
        let share = match answers.next() {
            None | Some(Value::Nil) => Share::Nothing,
            Some(answer) => Share::Answer(answer),
        };
        let _ = sharer.send(Ok(share));
    }
}

/// Whether the server has forgotten a script, or never knew it.
pub(in crate::node::redis) fn is_noscript(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}
