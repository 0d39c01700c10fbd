//! Who holds a lock, seen over all nodes.

use std::sync::Arc;
use std::time::Duration;

use redlatch_core::{Ballot, Fence, Holder, Key, Owner, Reply, Request, Round};

use tokio::time::Instant;

use crate::attempt::Parking;
use crate::driver::{Driver, Refusal};
use crate::error::{Error, Result, Timeout};
use crate::waiting::Watch;

/// Who holds a lock: what most of the nodes that have it say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The holder's value and what is left of it, on the node where it lives longest.
    pub holder: Holder,
    /// How many nodes have it for this holder.
    pub on_nodes: usize,
    /// How many nodes there are.
    pub nodes: usize,
}

impl Inspection {
    /// What the holder says about itself.
    pub fn owner(&self) -> Owner {
        self.holder.owner()
    }

    /// How long the lock stays held unless it is renewed or released; nothing
    /// when its key never expires.
    pub fn remaining(&self) -> Option<Duration> {
        self.holder.remaining
    }

    /// The highest fence that was granted in the lock's slot, hand-overs inside
    /// a process not counted: the holder's own, or that of another lock that
    /// shares the slot. Nothing when the node knows of none, as for plain locks
    /// and those of strangers.
    pub fn fence(&self) -> Option<u64> {
        let ballot = self.holder.ballot;
        (ballot > Ballot::default()).then(|| Fence::of(ballot).number())
    }

    /// Whether the holder has a quorum. Without one it is about to win or to
    /// give up, or part of what it left behind is still there.
    pub fn has_quorum(&self) -> bool {
        self.on_nodes >= Round::quorum(self.nodes)
    }
}

pub(crate) async fn inspect(
    driver: &Driver,
    name: &Arc<str>,
    key: Key,
) -> Result<Option<Inspection>> {
    let (answered, replies, failures) = driver.ask_all(Request::Inspect { key }).await;
    if !driver.is_quorum(answered) {
        return Err(Error::NoQuorum(driver.no_quorum(name, failures)));
    }
    let holders = replies.into_iter().filter_map(|reply| match reply {
        Reply::Holder(holder) => Some(holder),
        _ => None,
    });
    Ok(count(holders, driver.nodes().len()))
}

/// Waits until no holder has a quorum.
pub(crate) async fn wait_until_free(
    driver: &Driver,
    name: &Arc<str>,
    key: Key,
    timeout: Option<Duration>,
) -> Result<()> {
    let begin = Instant::now();
    let deadline = timeout.and_then(|timeout| begin.checked_add(timeout));
    let mut watch = Watch::new(driver, &key);
    loop {
        let held = inspect(driver, name, key.clone()).await?;
        let Some(held) = held.filter(Inspection::has_quorum) else {
            return Ok(());
        };
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Error::Timeout(Box::new(Timeout {
                name: name.clone(),
                waited: begin.elapsed(),
                holder: Some(held.holder),
            })));
        }
        watch.refused(&[Refusal {
            node: 0,
            holder: Some(held.holder),
            first: None,
            kept: false,
        }]);
        watch.until_worth_trying(deadline, Parking::Never).await;
    }
}

/// The holder that most nodes name; of equals, the one that stays longest.
pub(crate) fn count(holders: impl Iterator<Item = Holder>, nodes: usize) -> Option<Inspection> {
    let mut found: Vec<Inspection> = Vec::new();
    for holder in holders {
        let same = found
            .iter_mut()
            .find(|other| other.holder.value == holder.value);
        match same {
            Some(same) => {
                same.on_nodes += 1;
                if life(&holder) > life(&same.holder) {
                    same.holder = holder;
                }
            }
            None => found.push(Inspection {
                holder,
                on_nodes: 1,
                nodes,
            }),
        }
    }
    found
        .into_iter()
        .max_by_key(|inspection| (inspection.on_nodes, life(&inspection.holder)))
}

fn life(holder: &Holder) -> Duration {
    holder.remaining.unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(value: &str, millis: u64) -> Holder {
        Holder {
            value: Some(value.into()),
            remaining: Some(Duration::from_millis(millis)),
            ballot: Ballot::default(),
        }
    }

    #[test]
    fn the_holder_on_most_nodes_is_named() {
        let holders = [holder("A", 900), holder("B", 10), holder("B", 700)];
        let seen = count(holders.into_iter(), 5).unwrap();
        assert_eq!(seen.holder, holder("B", 700));
        assert_eq!(seen.on_nodes, 2);
        assert!(!seen.has_quorum());
    }

    #[test]
    fn nobody_holds_a_lock_that_no_node_has() {
        assert_eq!(count(std::iter::empty(), 3), None);
    }
}
