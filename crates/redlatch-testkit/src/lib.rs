//! What redlatch's tests stand on: real `redis-server` processes and a network that fails on demand.
//!
//! Everything blocks and nothing needs a runtime, so it can be called from a plain test and from
//! inside a tokio test alike, also one with a paused clock. What goes wrong panics, with a message
//! that says what and where: in a test there is nobody to hand an error to.
//!
//! ```
//! use redlatch_testkit::{Fleet, Reply};
//!
//! let fleet = Fleet::start(3);
//! assert_eq!(fleet[0].command(&["SET", "k", "v"]), Reply::Text("OK".into()));
//!
//! let proxies = fleet.proxies(); // clients connect to `proxies[i].url()`
//! proxies[1].cut();
//! fleet[2].kill();
//! ```
//!
//! Linux only: it reads `/proc` and relies on how Linux shares out ports. Elsewhere the crate is
//! empty, so that what needs no server can still be built and run there.
//!
//! # Layout
//!
//! | file | what |
//! | --- | --- |
//! | `server.rs` | [`RedisServer`]: start, kill, restart, freeze, ask |
//! | `server/builder.rs` | [`Builder`]: the command line of a server, and its first start |
//! | `server/process.rs` | the process, and the watchdog that ends it when the test is gone |
//! | `server/watchdog.sh` | the watchdog itself |
//! | `server/clock.c` | preloaded into a server whose clock is to be moved |
//! | `server/port.rs` | ports that stay reserved while nobody listens |
//! | `control.rs` | a small blocking RESP2 client over the server's unix socket |
//! | `reply.rs` | [`Reply`] |
//! | `fleet.rs` | [`Fleet`]: several independent servers |
//! | `tls.rs` | [`TlsServer`]: the same behind TLS, with its own authority |
//! | `awake.rs` | [`Awake`]: cores that do not fall asleep, for benchmarks |
//! | `hostile.rs` | [`HostileServer`]: answers with wrong types, garbage, floods, or not at all |
//! | `worker.rs` | [`Worker`]: a client process of its own |
//! | `dice.rs` | [`Dice`]: random numbers from a seed |
//! | `fuzz.rs` | [`fuzz`]: a fuzz target for a short time, without a fuzzer |
//! | `proxy.rs` | [`Proxy`]: the controls of the fault proxy |
//! | `proxy/relay.rs` | its thread: the listener, the links, the rules in force |
//! | `proxy/link.rs` | one connection through it, made of two lanes |
//! | `proxy/lane.rs` | one direction of a link: delay, hold, swallow |
//! | `proxy/trap.rs` | the request whose reply is to be lost |

#![cfg(target_os = "linux")]

mod awake;
mod control;
mod dice;
mod fleet;
mod fuzz;
mod hostile;
mod proxy;
mod reply;
mod server;
mod tls;
mod worker;

pub use awake::Awake;
pub use dice::Dice;
pub use fleet::Fleet;
pub use fuzz::fuzz;
pub use hostile::{HostileServer, Manner};
pub use proxy::Proxy;
pub use reply::Reply;
pub use server::{Builder, RedisServer};
pub use tls::{Identity, TlsServer};
pub use worker::Worker;
