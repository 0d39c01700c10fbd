//! Who wants to be told when there is news about a lock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use redlatch_core::{Key, News};

/// The bells of one node, by the name that they hang under.
#[derive(Clone, Debug, Default)]
pub struct Bells {
    hung: Arc<Mutex<Hung>>,
}

/// In order: who is told first must not be a matter of luck.
type Hung = BTreeMap<Key, Vec<Arc<Slot>>>;

impl Bells {
    /// Hangs up a bell that rings when there is news about `key`, until it is dropped.
    pub fn hang(&self, key: &Key) -> Bell {
        let slot = Arc::<Slot>::default();
        let mut hung = self.lock();
        hung.entry(key.clone()).or_default().push(slot.clone());
        Bell {
            slot,
            bells: self.clone(),
            key: key.clone(),
        }
    }

    /// There is news about this key. Says whether anybody hears it.
    pub fn ring(&self, key: &Key, news: News) -> bool {
        let hung = self.lock();
        let slots = hung.get(key).map(Vec::as_slice).unwrap_or_default();
        slots.iter().for_each(|slot| slot.tell(news));
        !slots.is_empty()
    }

    /// Something may have happened to any key, and was not heard.
    pub fn ring_all(&self) {
        for slot in self.lock().values().flatten() {
            slot.tell(News::Missed);
        }
    }

    /// The keys for which somebody waits.
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    pub(super) fn keys(&self) -> Vec<Key> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Hung> {
        self.hung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rings when a node has news about a lock, for as long as it lives.
pub struct Bell {
    slot: Arc<Slot>,
    bells: Bells,
    key: Key,
}

impl Bell {
    /// The weightiest news since it was asked last.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<News> {
        // Registered first: what comes after the look wakes us.
        self.slot.waker.register(context.waker());
        match self.slot.lock().take() {
            Some(news) => Poll::Ready(news),
            None => Poll::Pending,
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let mut hung = self.bells.lock();
        if let Some(slots) = hung.get_mut(&self.key) {
            slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
            if slots.is_empty() {
                hung.remove(&self.key);
            }
        }
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bell").field(&self.key).finish()
    }
}

/// What one bell has to tell.
#[derive(Debug, Default)]
struct Slot {
    news: Mutex<Option<News>>,
    waker: AtomicWaker,
}

impl Slot {
    fn tell(&self, news: News) {
        let mut told = self.lock();
        *told = (*told).max(Some(news));
        drop(told);
        self.waker.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Option<News>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use redlatch_core::Ballot;

    use super::*;

    fn rung(bell: &Bell) -> Option<News> {
        match bell.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(news) => Some(news),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_bell_rings_for_its_own_key() {
        let bells = Bells::default();
        let (one, other) = (bells.hang(&Key::new("a")), bells.hang(&Key::new("b")));
        assert!(bells.ring(&Key::new("a"), News::YourTurn));
        assert_eq!(rung(&one), Some(News::YourTurn));
        assert_eq!(rung(&other), None);
        bells.ring_all();
        assert_eq!(rung(&other), Some(News::Missed));
    }

    #[test]
    fn what_came_while_nobody_listened_is_not_lost() {
        let bells = Bells::default();
        let bell = bells.hang(&Key::new("a"));
        for news in [News::First(Ballot::MAX), News::YourTurn, News::Changed] {
            bells.ring(&Key::new("a"), news);
        }
        assert_eq!(rung(&bell), Some(News::YourTurn), "the weightiest");
        assert_eq!(rung(&bell), None);
    }

    #[test]
    fn bells_whose_owner_has_left_leave_nothing_behind() {
        let bells = Bells::default();
        let key = Key::new("a");
        let bell = bells.hang(&key);
        drop(bells.hang(&key));
        assert_eq!(bells.lock()[&key].len(), 1);
        drop(bell);
        assert!(bells.lock().is_empty());
        assert!(!bells.ring(&key, News::Changed), "nobody hears it");
    }
}
