//! For the simulation in this repository (`redlatch-sim`), and nothing else:
//! no promise is made about any of it.
//!
//! All is kept for one thread: a simulation runs in one, and several may run
//! side by side. Where nothing was set, the library is what it always is.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

/// What connections are made of.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection to come.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Makes a connection to a simulated server.
#[derive(Clone)]
pub struct Dial(Arc<dyn Fn() -> Dialing + Send + Sync>);

impl Dial {
    /// Connections come from `dial`.
    pub fn new(dial: impl Fn() -> Dialing + Send + Sync + 'static) -> Self {
        Self(Arc::new(dial))
    }

    pub(crate) fn dial(&self) -> Dialing {
        (self.0)()
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}

/// A known mistake, to see that the simulation finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A lease is counted from its last reply, and what is left is not looked at.
    SkipValidity,
    /// A quorum is counted over the nodes that answered.
    QuorumOfAnswers,
    /// A release is sent over another connection than its acquire, and its
    /// ballot, which makes up for that when it overtakes it, is left out.
    ReleaseOvertakes,
    /// An attempt that is cancelled or not won gives nothing back.
    NoCancelRelease,
    /// A lost lease is handed to the next in the process.
    HandOverLost,
    /// Who stops waiting does not pass on what it was called for.
    WakeUpLost,
}

thread_local! {
    static RANDOM: Cell<Option<u64>> = const { Cell::new(None) };
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// From here on this thread draws its random numbers from `seed`.
pub fn seed(seed: u64) {
    RANDOM.set(Some(seed));
}

/// From here on this thread asks the operating system again.
pub fn unseed() {
    RANDOM.set(None);
}

/// From here on the library makes this mistake on this thread.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

pub(crate) fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Fills `bytes`, unless no seed was set. The generator is splitmix64.
pub(crate) fn fill(bytes: &mut [u8]) -> bool {
    let Some(mut state) = RANDOM.get() else {
        return false;
    };
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        chunk.copy_from_slice(&mixed.to_le_bytes()[..chunk.len()]);
    }
    RANDOM.set(Some(state));
    true
}

/// The hash by which a server knows this script.
pub fn script_hash(text: &str) -> String {
    redis::Script::new(text).get_hash().to_owned()
}
