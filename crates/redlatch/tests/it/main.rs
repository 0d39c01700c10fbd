//! The library against real redis-server processes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that can't go on says so by panicking"
)]

mod basics;
mod blocking;
mod connections;
mod input;
mod keeping;
mod owners;
mod processes;
mod runs;
mod secrets;
mod support;
mod teardown;
