//! The rules of the lock, and nothing else.
//!
//! This crate does no I/O, reads no clock and draws no random number: time and
//! randomness are arguments. So each rule can be checked by a table that a
//! person can read (`testdata/*.txt`), by a property test, by a model checker
//! and by a simulation, and all of them run the very code that ships.
//!
//! Most users want the `redlatch` crate, which runs these rules over real nodes.
//!
//! # Layout
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`request`] | all that is ever said to a node, and all that it answers |
//! | [`rules`] | what a node does with a request: the reference that the Lua scripts translate |
//! | [`queue`] | who waits for a lock, over all processes, as a node keeps it |
//! | [`round`] | one attempt over all nodes: replies in, verdict out |
//! | [`fence`] | ballots and fences: numbers that grow with every new holder |
//! | [`lease`] | when a lease is renewed, and when it is lost |
//! | [`validity`] | ttl, drift, and how much of a lease is left |
//! | [`instant`] | a point in time on the holder's own clock |
//! | [`token`] | what names a lease, and what it says about its owner |
//! | [`backoff`] | how long a refused contender waits before it tries again |

pub mod backoff;
pub mod fence;
pub mod instant;
pub mod lease;
pub mod queue;
pub mod request;
pub mod round;
pub mod rules;
pub mod token;
pub mod validity;

pub use backoff::Backoff;
pub use fence::{Ballot, Ballots, Fence};
pub use instant::Instant;
pub use lease::{Lease, Loss, Step, Terms};
pub use queue::{News, Parked, Switchboard, Ticket};
pub use request::{GuardOrder, GuardView, Holder, Key, Reply, Request};
pub use round::{Round, Verdict, Vote, keeps};
pub use rules::{NodeState, Policy, Scene};
pub use token::{Owner, Token};
pub use validity::Ttl;
