//! Redis and Valkey servers as nodes.
//!
//! Only this module names the Redis client, so that it can be exchanged.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `address` | from a URL to a server's address, without a word of its password |
//! | `link` | one connection, made anew whenever it breaks or falls mute |
//! | `server` | what a server says about itself, and what makes it unfit |
//! | `wire` | requests as commands, values as replies |
//! | `borrowed` | a connection that the user brought |
//! | `scripts/` | the rules that take more than one command, in Lua |

pub(crate) mod address;
pub(crate) mod borrowed;
pub(crate) mod link;
mod server;
#[cfg(test)]
mod tests;
mod wire;
