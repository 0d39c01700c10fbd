//! One attempt: ask all nodes, keep the lease when it is won, and give
//! everything back when it is not.

use std::sync::Arc;

use redlatch_core::{Key, Request, Terms, Token, Verdict};

use crate::driver::Driver;
use crate::error::NoQuorum;
use crate::lease::Cell;
use crate::node::{NodeError, NodeErrorKind};
use crate::reaper::{Orphan, Reaper, Unkept};
use crate::stragglers::Stragglers;

/// What came of an attempt.
pub(crate) enum Attempt {
    /// The lease is ours. Requests to slow nodes may still be under way.
    Won(Arc<Cell>, Option<Stragglers>),
    /// Somebody else has the lock.
    Busy,
    /// Too few nodes answered in time.
    Unavailable(Box<NoQuorum>),
}

/// Tries once to acquire the lock under a token that was never used before.
///
/// Dropped at any point, it releases on every node.
pub(crate) async fn attempt(
    driver: &Driver,
    reaper: &Reaper,
    name: &Arc<str>,
    key: &Key,
    token: Token,
    terms: Terms,
) -> Attempt {
    let ttl = redlatch_core::Lease::first_length(terms);
    let (key, orphan) = (key.clone(), Orphan::new(key, &token, ttl));
    // Declared before the votes, so dropped after them: first what was not yet
    // sent is withdrawn, then the release goes out behind what was.
    let unkept = Unkept::new(reaper, orphan);
    let sent = driver.now();
    let request = Request::Acquire { key, token, ttl };
    let mut votes = driver.ask(&request, driver.limit(ttl));
    match votes.verdict().await {
        Verdict::Won => {
            let mut lease = redlatch_core::Lease::granted(terms, sent, ttl);
            if lease.remaining(driver.now()).is_zero() {
                let slow = NodeError::new(
                    NodeErrorKind::TimedOut,
                    format!("a quorum granted the lock, but too late for a ttl of {ttl}"),
                );
                return Attempt::Unavailable(driver.no_quorum(name, vec![(0, slow)]));
            }
            unkept.forget();
            let stragglers = reaper.finish(votes);
            let Request::Acquire { key, token, .. } = request else {
                unreachable!("it was made above")
            };
            let clock = driver.clock().clone();
            Attempt::Won(
                Cell::new(name.clone(), key, token, clock, lease),
                stragglers,
            )
        }
        Verdict::Unavailable | Verdict::Open => {
            Attempt::Unavailable(driver.no_quorum(name, votes.into_failures()))
        }
        Verdict::Refused | Verdict::Mixed => {
            if votes.round().is_refused_by_all() {
                // No node has anything of this token, and none ever will.
                unkept.forget();
            }
            Attempt::Busy
        }
    }
}
