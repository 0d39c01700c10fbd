//! The request whose reply is to be lost.

use std::cell::RefCell;

pub(super) enum Trap {
    /// The n-th read from now on, counted from 1.
    Nth(usize),
    /// The next read that contains these bytes.
    Containing(Vec<u8>),
}

/// The trap that is set, if any. It springs once.
#[derive(Default)]
pub(super) struct TrapSlot(RefCell<Option<Trap>>);

impl TrapSlot {
    pub(super) fn set(&self, trap: Trap) {
        self.0.replace(Some(trap));
    }

    pub(super) fn clear(&self) {
        self.0.take();
    }

    /// Whether this request is the one.
    pub(super) fn springs_at(&self, request: &[u8]) -> bool {
        let springs = match &mut *self.0.borrow_mut() {
            None => false,
            Some(Trap::Nth(n)) => {
                *n -= 1;
                *n == 0
            }
            Some(Trap::Containing(text)) => {
                request.windows(text.len()).any(|window| window == *text)
            }
        };
        if springs {
            self.clear();
        }
        springs
    }
}
