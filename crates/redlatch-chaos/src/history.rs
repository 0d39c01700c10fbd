//! What happened when, on one clock.

use redlatch_core::Fence;
use serde_json::{Value, json};

use crate::fault::{Kind, Reach};

/// What all processes on this machine read the same, in nanoseconds since it was booted.
pub(crate) fn clock() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// One lease, as its holder saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) lock: String,
    pub(crate) worker: u64,
    /// When the lock was asked for.
    pub(crate) asked: u64,
    /// When it was had: from here on the holder relied on it.
    pub(crate) acquired: u64,
    /// Until when the holder could rely on it: released, lost, or run out. Never later than it
    /// really was, so that an overlap is one.
    pub(crate) ended: u64,
    /// When the holder last looked and had it: a frozen one does not look.
    pub(crate) seen: u64,
    pub(crate) fence: Fence,
    /// The first characters of the token.
    pub(crate) token: String,
    pub(crate) end: End,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Released,
    Lost,
}

/// A fault, from its beginning until everything was set right again.
#[derive(Clone, Debug)]
pub(crate) struct Episode {
    pub(crate) kind: Kind,
    pub(crate) reach: Reach,
    /// Which nodes, or which workers, were hit.
    pub(crate) victims: Vec<usize>,
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

impl Hold {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "lock": self.lock, "worker": self.worker, "asked": self.asked,
            "acquired": self.acquired, "ended": self.ended, "seen": self.seen,
            "fence": self.fence.number(), "token": self.token,
            "lost": self.end == End::Lost,
        })
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let number = |name: &str| value[name].as_u64();
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        Some(Self {
            lock: text("lock")?,
            worker: number("worker")?,
            asked: number("asked")?,
            acquired: number("acquired")?,
            ended: number("ended")?,
            seen: number("seen")?,
            fence: Fence::new(number("fence")?),
            token: text("token")?,
            end: match value["lost"].as_bool()? {
                true => End::Lost,
                false => End::Released,
            },
        })
    }
}

impl Episode {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "fault": self.kind.name(), "reach": self.reach.name(), "victims": self.victims,
            "began": self.began, "ended": self.ended,
        })
    }
}
