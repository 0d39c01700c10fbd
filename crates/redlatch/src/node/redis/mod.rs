//! Redis and Valkey servers as nodes.
//!
//! Only this module names the `redis` crate, which reads URLs, knows the values
//! that servers send, and lets users bring connections of their own. Our own
//! connections are lines (see `line`): they send without a detour over a task,
//! and what comes together goes out together.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `address` | from a URL to a server's address, without a word of its password |
//! | `dial` | new lines to a server: from its address to a log-in |
//! | `line` | one line to a server, which many callers share |
//! | `link` | one connection, made anew whenever it breaks or falls mute |
//! | `server` | what a server says about itself, and what makes it unfit |
//! | `wire` | sends requests, and reads replies |
//! | `dialect` | requests as commands |
//! | `packed` | commands as they go over the wire |
//! | `reply` | values as replies |
//! | `patience` | how long an answer is waited for |
//! | `checkup` | asks a server all that can be wrong with it |
//! | `borrowed` | a connection that the user brought |
//! | `fuzzing` | all that is parsed, for the fuzzer |
//! | `scripts/` | the rules that take more than one command, in Lua |

pub(crate) mod address;
pub(crate) mod borrowed;
mod checkup;
mod dial;
mod dialect;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod line;
pub(crate) mod link;
mod packed;
mod patience;
mod reply;
mod server;
#[cfg(test)]
pub(super) mod tests;
mod wire;
