//! The real binary, on real servers, with real signals and a real terminal.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that can't go on says so by panicking"
)]

mod bench;
mod doctor;
mod elect;
mod environment;
mod exclusion;
mod exit_codes;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod local;
mod looking;
mod loss;
mod nested;
mod once;
mod orphans;
mod release;
mod settings;
mod signals;
mod support;
mod terminal;
mod top;
