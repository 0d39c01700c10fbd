//! Waiting for a lock that somebody else has.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `queue` | who waits in this process, in order; only the first speaks to nodes |
//! | `watch` | when it is worth another attempt |
//! | `contended` | which locks others wanted too when we gave them back |

mod contended;
mod queue;
mod watch;

pub(crate) use queue::{LONGEST_REST, Place, Queues, Rest, Turn, Wish};
pub(crate) use watch::{Event, Watch};
