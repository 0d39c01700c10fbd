//! Takes a lock away from whoever holds it.

use std::sync::Arc;
use std::time::Duration;

use redlatch_core::{Key, Reply, Request};

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::node::NodeError;
use crate::proposals::Proposals;

/// How often another ballot is proposed before it is given up.
const ROUNDS: usize = 5;

/// How much longer than a node may take all of them may: together that is less than
/// every quarantine.
const WINDOW: Duration = Duration::from_secs(1);

/// Takes the lock away on a quorum of nodes at least; true when somebody had it.
///
/// It is done when a quorum has accepted the *same* ballot. One of those nodes
/// has granted the lease, so the ballot is above that of the lease on all of
/// them: what of the lease is still on its way is refused there, and no quorum
/// is left for it. All of that must have taken less than a quarantine, by our own clock:
/// a node that took the lock away and forgot about it since must not be counted.
pub(crate) async fn force(
    driver: &Driver,
    proposals: &Proposals,
    name: &Arc<str>,
    key: Key,
) -> Result<bool> {
    let mut held = false;
    let mut ballot = proposals.next(driver.now());
    for round in 1.. {
        let key = key.clone();
        let limit = driver.node_timeout();
        let sent = driver.now();
        let mut votes = driver.ask(Request::Force { key, ballot }, limit);
        let mut done = 0;
        while let Some((_, answer)) = votes.next().await {
            held |= matches!(answer, Ok(Reply::Released));
            done += usize::from(matches!(answer, Ok(Reply::Released | Reply::Missing)));
        }
        if driver.is_quorum(done) {
            if driver.now().since(sent) < limit.saturating_add(WINDOW) {
                return Ok(held);
            }
            let late = |node| (node, NodeError::timed_out(limit));
            let late = (0..driver.nodes().len()).map(late).collect();
            return Err(Error::NoQuorum(driver.no_quorum(name, late)));
        }
        if votes.again().is_empty() || round == ROUNDS {
            return Err(Error::NoQuorum(
                driver.no_quorum(name, votes.into_failures()),
            ));
        }
        let mut highest = None;
        for reply in votes.again() {
            let ours = driver.now().unix_millis();
            match reply {
                Reply::Low { seen, now } => {
                    highest = highest.max(Some(seen.next()));
                    proposals.learn(ours, *now);
                }
                Reply::Future(now) => proposals.learn(ours, *now),
                _ => {}
            }
        }
        let fresh = proposals.next(driver.now());
        ballot = highest.map_or(fresh, |highest| highest.max(fresh));
    }
    unreachable!("it returns in one of the rounds")
}
