//! The library against real redis-server processes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that can't go on says so by panicking"
)]

mod acl;
mod basics;
mod blocking;
mod bundles;
mod cancel;
mod connections;
mod doctor;
mod faults;
mod fences;
mod flaky;
mod fuzz;
mod handover;
mod hostile;
mod input;
mod keeping;
mod lease;
mod listing;
mod lost_replies;
mod once;
mod owners;
mod ownership;
mod parking;
mod probing;
mod processes;
mod queueing;
mod quorum;
mod refusing;
mod restart_guard;
mod runs;
mod secrets;
mod sqlite;
mod support;
mod teardown;
mod waiting;
