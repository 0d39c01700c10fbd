//! Requests of a decided round that nobody waits for any more.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::stream::Stream;

use crate::driver::Answers;

/// Requests that are still under way: they go on so that the lease ends up on
/// all nodes, until somebody [stops](Stragglers::stop) them.
#[derive(Clone)]
pub(crate) struct Stragglers {
    slot: Arc<Mutex<Slot>>,
}

#[derive(Default)]
struct Slot {
    answers: Option<Answers>,
    waker: Option<Waker>,
}

impl Stragglers {
    pub(crate) fn new(answers: Answers) -> Self {
        let answers = Some(answers);
        let waker = None;
        let slot = Arc::new(Mutex::new(Slot { answers, waker }));
        Self { slot }
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has not been sent is not sent any more: a release may follow.
    pub(crate) fn stop(&self) {
        let mut slot = self.lock();
        slot.answers = None;
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }
}

impl Future for Stragglers {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut slot = self.lock();
        let Some(answers) = &mut slot.answers else {
            return Poll::Ready(());
        };
        loop {
            match Pin::new(&mut *answers).poll_next(cx) {
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => {
                    slot.answers = None;
                    return Poll::Ready(());
                }
                Poll::Pending => {
                    slot.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }
}
