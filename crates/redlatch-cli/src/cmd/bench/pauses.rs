//! How long this machine keeps a program waiting that wants to go on.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread sleeps; oftener would keep a core awake and be measured
/// with the rest.
const NAP: Duration = Duration::from_millis(10);

/// A thread that sleeps again and again, and notes how much too late it wakes.
/// Not a task: what this program itself does is not to count.
pub(super) struct Pauses {
    stop: Sender<()>,
    thread: JoinHandle<Duration>,
}

impl Pauses {
    pub(super) fn watch() -> Self {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            loop {
                let begin = Instant::now();
                match stopped.recv_timeout(NAP) {
                    Err(RecvTimeoutError::Timeout) => {
                        longest = longest.max(begin.elapsed().saturating_sub(NAP));
                    }
                    _ => return longest,
                }
            }
        });
        Self { stop, thread }
    }

    /// The longest one.
    pub(super) fn longest(self) -> Duration {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}
