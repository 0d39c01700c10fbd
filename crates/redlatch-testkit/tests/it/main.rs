//! The kit against real servers: what the other crates' tests rely on.

#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, but not in what they share"
)]

mod fleet;
mod life;
mod proxy;
mod server;
mod support;
mod tls;
