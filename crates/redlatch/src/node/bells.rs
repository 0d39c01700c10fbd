//! Who wants to be told when something happens to a key.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redlatch_core::Key;
use tokio::sync::oneshot;

/// The bells of one node, by key. A bell rings once.
#[derive(Debug, Default)]
pub(super) struct Bells {
    hung: Mutex<HashMap<Key, Vec<oneshot::Sender<()>>>>,
}

impl Bells {
    /// Hangs up a bell that rings when something happens to `key`.
    pub(super) fn hang(&self, key: &Key) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut hung = self.lock();
        let bells = hung.entry(key.clone()).or_default();
        // Those whose owner has left must not pile up while nothing happens.
        bells.retain(|bell| !bell.is_closed());
        bells.push(sender);
        receiver
    }

    /// Something has happened to this key.
    pub(super) fn ring(&self, key: &Key) {
        for bell in self.lock().remove(key).into_iter().flatten() {
            let _ = bell.send(());
        }
    }

    /// Something may have happened to any key.
    pub(super) fn ring_all(&self) {
        for bell in std::mem::take(&mut *self.lock()).into_values().flatten() {
            let _ = bell.send(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Vec<oneshot::Sender<()>>>> {
        self.hung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rings_for_its_own_key() {
        let bells = Bells::default();
        let (mut one, mut other) = (bells.hang(&Key::new("a")), bells.hang(&Key::new("b")));
        bells.ring(&Key::new("a"));
        assert!(one.try_recv().is_ok());
        assert!(other.try_recv().is_err());
        bells.ring_all();
        assert!(other.try_recv().is_ok());
    }

    #[test]
    fn bells_whose_owner_has_left_do_not_pile_up() {
        let bells = Bells::default();
        let key = Key::new("a");
        for _ in 0..100 {
            drop(bells.hang(&key));
        }
        assert_eq!(bells.lock()[&key].len(), 1);
        bells.ring(&key);
        assert!(bells.lock().is_empty());
    }
}
