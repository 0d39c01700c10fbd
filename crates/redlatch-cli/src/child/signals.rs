//! The signals that are passed on to the child.

use std::future::poll_fn;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exit_code::Failure;

/// Signals that are caught. What this process was told to ignore stays ignored,
/// and the child ignores it too: that is how `nohup` works.
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Catches what is passed on, and what a waiting process dies of.
    pub(crate) fn catch() -> Result<Self, Failure> {
        Self::catch_all([
            Signal::INT,
            Signal::TERM,
            Signal::HUP,
            Signal::QUIT,
            Signal::USR1,
            Signal::USR2,
        ])
    }

    /// Catches what the terminal and the shell do to stop and continue a job.
    pub(super) fn catch_job_control() -> Result<Self, Failure> {
        Self::catch_all([Signal::TSTP, Signal::CONT])
    }

    /// Catches these.
    pub(crate) fn catch_all(signals: impl IntoIterator<Item = Signal>) -> Result<Self, Failure> {
        let ignored = ignored();
        let mut streams = Vec::new();
        for signal in signals {
            let number = signal.as_raw();
            // Who ignores CONT goes on all the same, and has to know of it.
            if ignored >> (number - 1) & 1 == 1 && signal != Signal::CONT {
                continue;
            }
            let stream = unix::signal(SignalKind::from_raw(number));
            let stream = stream
                .map_err(|error| Failure::own(format!("can't catch signal {number}: {error}")))?;
            streams.push((signal, stream));
        }
        Ok(Self { streams })
    }

    /// The next signal. Cancel safe.
    pub(crate) async fn recv(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Forgets what has come so far.
    pub(super) async fn forget(&mut self) {
        use futures_util::FutureExt;
        // Lets the runtime hear of signals that have only just come.
        tokio::task::yield_now().await;
        while self.recv().now_or_never().is_some() {}
    }
}

/// The signals that this process ignores, one bit each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
