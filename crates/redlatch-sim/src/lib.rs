//! The real client over simulated servers: one seed decides everything.
//!
//! Not published. The library itself runs, connections and all, on a paused
//! clock; only the sockets are not there. The servers answer in Redis's
//! protocol, and run the shipped Lua scripts or `redlatch_core::rules`. What
//! clients see is written down and held against what is promised.
//!
//! # Layout
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`run`](simulate) | one simulation, from its seed to what came of it |
//! | `plan` | what a seed stands for, and which mistakes can be planted |
//! | `workload`, `faults` | what clients do, and what goes wrong |
//! | `world` | the true time, paths, clocks, the trace |
//! | `network` | connections: late, in part, or not at all |
//! | `server` | a Redis server: commands, tracking, calls, crashes |
//! | `store`, `lua` | its memory, and the scripts as Redis runs them |
//! | `rulebook` | the same by the rules in Rust |
//! | [`history`], [`check`] | what clients saw, and the rules that it must keep |

pub mod check;
mod faults;
pub mod history;
mod lua;
mod network;
mod plan;
mod random;
mod rulebook;
mod run;
mod server;
mod store;
mod value;
mod workload;
mod world;

pub use plan::{Faults, Kind, Planted, Scene, Setup, Workload};
pub use run::{Outcome, simulate};
