//! An exhaustive model of redlatch's lock protocol, and of the ways to get it wrong.
//!
//! It runs the rules that ship: a node in the model is a
//! [`NodeState`](redlatch_core::NodeState), a verdict comes from
//! [`Round`](redlatch_core::Round), and what is left of a lease from
//! [`Lease`](redlatch_core::Lease).
//!
//! # Layout
//!
//! | file | what it holds |
//! | --- | --- |
//! | `config` | how large a run is, and how ticks map to milliseconds |
//! | `state` | all that the model remembers at one instant |
//! | `model` | which steps there are |
//! | `client` | what a client does |
//! | `node` | what happens at a node |
//! | `force` | how an administrator takes the lock away |
//! | `variant` | the broken protocols |
//! | `reduce` | what keeps the number of states small |
//! | `mixer` | a fast hash |
//! | `properties` | what must hold |
//! | `suite` | what is checked, at which size |
//! | `check` | runs the checker |
//! | `trace` | says in words what it found |

#![forbid(unsafe_code)]

mod check;
mod client;
mod config;
mod force;
mod mixer;
mod model;
mod node;
pub mod properties;
mod reduce;
pub mod state;
pub mod suite;
mod trace;
mod variant;

pub use check::{Outcome, check, check_with};
pub use config::{Clock, Config, Crash, TICK, TTL};
pub use force::ForceRule;
pub use model::{Action, LockModel};
pub use variant::Variant;
