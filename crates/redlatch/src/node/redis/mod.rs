//! Redis and Valkey servers as nodes.
//!
//! Only this module names the Redis client, so that it can be exchanged.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `address` | from a URL to a server's address, without a word of its password |
//! | `link` | one connection, made anew whenever it breaks or falls mute |
//! | `server` | what a server says about itself, and what makes it unfit |
//! | `wire` | sends requests, and reads replies |
//! | `dialect` | requests as commands |
//! | `reply` | values as replies |
//! | `checkup` | asks a server all that can be wrong with it |
//! | `borrowed` | a connection that the user brought |
//! | `fuzzing` | all that is parsed, for the fuzzer |
//! | `scripts/` | the rules that take more than one command, in Lua |

pub(crate) mod address;
pub(crate) mod borrowed;
mod checkup;
mod dialect;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub(crate) mod link;
mod reply;
mod server;
#[cfg(test)]
pub(super) mod tests;
mod wire;
