//! Who waits in this process, in the order in which they came.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redlatch_core::Key;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

/// The queues of a client, one for each lock that somebody waits for. Only the
/// head of a queue speaks to the nodes.
#[derive(Default)]
pub(crate) struct Queues {
    // tokio's mutex lets those who wait through in order, and one who leaves
    // passes on what it was given: just what a queue is to do.
    queues: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

impl Queues {
    /// Whether anybody waits for this lock.
    pub(crate) fn is_waited_for(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    /// Stands in the queue for this lock until it is our turn. Nothing when it
    /// is not before the deadline.
    ///
    /// Dropped, it leaves the queue.
    pub(crate) async fn stand(&self, key: &Key, deadline: Option<Instant>) -> Option<Head<'_>> {
        let queue = self.lock().entry(key.clone()).or_default().clone();
        // Before the place is taken, so that it is also left when this is dropped.
        let mut head = Head {
            queues: self,
            key: key.clone(),
            place: None,
        };
        let turn = queue.lock_owned();
        head.place = match deadline {
            None => Some(turn.await),
            Some(deadline) => timeout_at(deadline, turn).await.ok(),
        };
        head.place.is_some().then_some(head)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<tokio::sync::Mutex<()>>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first in the queue for a lock, until it is dropped.
pub(crate) struct Head<'a> {
    queues: &'a Queues,
    key: Key,
    place: Option<OwnedMutexGuard<()>>,
}

impl Drop for Head<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        // The next one's turn.
        self.place = None;
        // A queue that nobody stands in leaves nothing behind.
        if queues
            .get(&self.key)
            .is_some_and(|queue| Arc::strong_count(queue) == 1)
        {
            queues.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn turns_come_in_order_and_nothing_is_left_behind() {
        let queues = Arc::new(Queues::default());
        let key = Key::new("k");
        let first = queues.stand(&key, None).await.unwrap();
        assert!(queues.is_waited_for(&key));
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..10 {
            let (queues, key, order) = (queues.clone(), key.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let _head = queues.stand(&key, None).await.unwrap();
                order.lock().unwrap().push(number);
                tokio::task::yield_now().await;
            }));
            tokio::task::yield_now().await;
        }
        tasks[3].abort();
        let soon = Instant::now() + Duration::from_millis(5);
        assert!(queues.stand(&key, Some(soon)).await.is_none());
        drop(first);
        for task in tasks {
            let _ = task.await;
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        assert!(!queues.is_waited_for(&key));
        assert!(queues.lock().is_empty());
    }
}
