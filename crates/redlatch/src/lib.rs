//! Distributed locks on Redis that a careful engineer can trust.
//!
//! A lock is held by a lease, on one Redis server or on a quorum of several
//! independent ones. The lease is renewed while its guard lives, released when
//! it is dropped, and the holder hears of a loss *before* its validity ends.
//! Every holder has a [fence](Lease::fence), by which a resource can refuse one
//! that was paused and comes too late.
//!
//! ```
//! # async fn example() -> redlatch::Result<()> {
//! use std::time::Duration;
//! use redlatch::Redlatch;
//!
//! let latch = Redlatch::builder()
//!     .nodes(["redis://a", "redis://b", "redis://c"])
//!     .build()
//!     .await?;
//!
//! let stock = latch.mutex("sku:0001");
//! let guard = stock.lock_timeout(Duration::from_secs(3)).await?;
//! // … the work that must not be done by two …
//! guard.ensure_held()?;
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! Who knows `tokio::sync` knows most of this: [`Mutex::lock`], [`Mutex::try_lock`],
//! guards that unlock when dropped. What a lock over machines has beside that is
//! a deadline, and so [`Lease::remaining`], [`Lease::ensure_held`], [`Lease::lost`]
//! and [`Lease::fence`].
//!
//! With several nodes a [restart guard](Builder::restart_guard) keeps out those
//! that may have forgotten leases. New servers wait as well, until they are
//! armed by [`Admin::assume_fresh`].
//!
//! # Features
//!
//! All off by default: `blocking` (the same API for code without async), `tls`
//! (`rediss://` nodes), `sqlite` (locks between the processes of one machine,
//! in a file), `yii2` (the key scheme of Yii2's mutex).
//!
//! # Layout
//!
//! Kinds of lock (`mutex`) are thin over one engine: `attempt` asks the nodes
//! by way of `driver` with ballots from `proposals`, `keeper` and `renewal`
//! renew, `reaper` releases, `admin` looks after the nodes; `node` talks to the
//! servers. The rules themselves are in the crate [`redlatch_core`].

/// Whether the simulation has planted this mistake. Never outside of it.
#[cfg(feature = "simulation")]
macro_rules! planted {
    ($bug:ident) => {
        crate::sim::is_planted(crate::sim::Bug::$bug)
    };
}
#[cfg(not(feature = "simulation"))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

mod admin;
mod attempt;
#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod clock;
mod config;
mod contend;
mod doctor;
mod driver;
mod error;
mod force;
mod guard;
mod inspect;
mod keeper;
mod keys;
mod lease;
mod list;
mod mutex;
pub mod node;
mod owner;
mod probe;
mod proposals;
mod random;
mod reaper;
mod recipes;
mod renewal;
mod run;
mod settings;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod sim;
mod stragglers;
mod waiting;

pub use admin::{Admin, NodeStatus};
pub use client::Redlatch;
pub use clock::{Clock, SystemClock};
pub use config::Builder;
pub use doctor::{Finding, Verdict};
pub use error::{ConfigError, Error, Loss, Lost, NoQuorum, Result, Timeout};
pub use guard::{Exported, Guard};
pub use inspect::Inspection;
pub use keys::KeyScheme;
pub use lease::Lease;
pub use list::{Listed, Listing, Progress};
pub use mutex::Mutex;
pub use node::memory::MemoryNode;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use node::redis::fuzzing;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub use node::sqlite::SqliteNode;
pub use owner::Owner;
pub use probe::NodeView;
pub use recipes::once::Once;
pub use redlatch_core as core;
pub use run::RunError;

/// The README's programs compile: rustdoc tries them.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So do those of the guide for operators.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/operations.md")]
struct Operations;
