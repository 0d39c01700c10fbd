//! What a node does with a request.
//!
//! This is the reference. The memory node runs it as it stands; the Lua scripts
//! in `redlatch` are its translation, and a property test there holds a real
//! Redis against it, reply by reply.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::request::{Holder, Key, Reply, Request};
use crate::token::Token;
use crate::validity::Ttl;

/// All that a node remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeState {
    keys: BTreeMap<Key, Stored>,
}

/// What is stored under one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    /// A string, or nothing when the key holds a value of another type.
    pub value: Option<Vec<u8>>,
    /// The last millisecond at which the key is still there; nothing when it
    /// never expires.
    pub last_millisecond: Option<u64>,
}

impl NodeState {
    /// Does what `request` asks for. `now` is the node's own clock, in milliseconds.
    pub fn apply(&mut self, request: &Request, now: u64) -> Reply {
        self.expire(request.key(), now);
        match request {
            Request::Acquire { key, token, ttl } => self.acquire(key, token, *ttl, now),
            Request::Extend { key, token, ttl } => self.extend(key, token, *ttl, now),
            Request::Release { key, token } => self.release(key, token),
            Request::Force { key } => self.force(key),
            Request::Inspect { key } => self.inspect(key, now),
        }
    }

    fn acquire(&mut self, key: &Key, token: &Token, ttl: Ttl, now: u64) -> Reply {
        match self.keys.get(key) {
            // A resend: the first reply was lost. The lease is not lengthened,
            // because its holder counts from the first request.
            Some(stored) if stored.is(token) => Reply::Granted,
            // Any type, any format: a stranger holds it too.
            Some(_) => Reply::Held,
            None => {
                let value = Some(token.as_str().as_bytes().to_vec());
                let last_millisecond = Some(now.saturating_add(ttl.millis()));
                self.keys.insert(
                    key.clone(),
                    Stored {
                        value,
                        last_millisecond,
                    },
                );
                Reply::Granted
            }
        }
    }

    fn extend(&mut self, key: &Key, token: &Token, ttl: Ttl, now: u64) -> Reply {
        match self.keys.get_mut(key) {
            // It never creates a key: the lock may have been somebody else's meanwhile.
            None => Reply::Missing,
            Some(stored) if stored.is(token) => {
                // It never shortens: an old request that was held up on its way
                // must not cut a longer lease that was granted since.
                if let Some(last) = &mut stored.last_millisecond {
                    *last = (*last).max(now.saturating_add(ttl.millis()));
                }
                Reply::Extended
            }
            Some(_) => Reply::Foreign,
        }
    }

    fn release(&mut self, key: &Key, token: &Token) -> Reply {
        match self.keys.get(key) {
            None => Reply::Missing,
            Some(stored) if stored.is(token) => {
                self.keys.remove(key);
                Reply::Released
            }
            Some(_) => Reply::Foreign,
        }
    }

    fn force(&mut self, key: &Key) -> Reply {
        match self.keys.remove(key) {
            Some(_) => Reply::Released,
            None => Reply::Missing,
        }
    }

    fn inspect(&self, key: &Key, now: u64) -> Reply {
        match self.keys.get(key) {
            None => Reply::Missing,
            Some(stored) => Reply::Holder(Holder {
                value: stored.value.clone(),
                remaining: stored
                    .last_millisecond
                    .map(|last| Duration::from_millis(last.saturating_sub(now))),
            }),
        }
    }

    /// A key lives through its last millisecond, as in Redis, so a node never
    /// forgets a lease earlier than its ttl.
    fn expire(&mut self, key: &Key, now: u64) {
        let ended = |stored: &Stored| stored.last_millisecond.is_some_and(|last| now > last);
        if self.keys.get(key).is_some_and(ended) {
            self.keys.remove(key);
        }
    }

    /// Forgets every key whose time is over. No reply depends on it: it only
    /// frees the memory of locks that nobody asks for again.
    pub fn sweep(&mut self, now: u64) {
        self.keys
            .retain(|_, stored| stored.last_millisecond.is_none_or(|last| now <= last));
    }

    /// Stores something as a stranger would, without a look at what was there.
    pub fn put(&mut self, key: Key, stored: Stored) {
        self.keys.insert(key, stored);
    }

    /// What is stored under `key`, also when its time is over.
    pub fn get(&self, key: &Key) -> Option<&Stored> {
        self.keys.get(key)
    }

    /// How many keys are stored.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Stored {
    fn is(&self, token: &Token) -> bool {
        self.value.as_deref() == Some(token.as_str().as_bytes())
    }
}
