//! One direction of a link.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

/// What is in force for all lanes of one direction.
#[derive(Default)]
pub(super) struct Rules {
    pub(super) delay: Cell<Duration>,
    pub(super) hold: Cell<bool>,
    /// Whether new lanes swallow; those that exist have been told one by one.
    pub(super) swallow: Cell<bool>,
    /// Wakes the lanes that wait for their time.
    pub(super) changed: Notify,
}

impl Rules {
    pub(super) fn clear(&self) {
        self.delay.take();
        self.hold.take();
        self.swallow.take();
    }
}

/// Something that came in, to be passed on in its turn.
pub(super) enum Event {
    Bytes(Vec<u8>),
    /// The sender is done (FIN).
    Finish,
    /// The connection broke (RST).
    Reset,
}

pub(super) struct Lane {
    rules: Rc<Rules>,
    /// Never unset: a stream with a hole in it would be worse than one that stops.
    swallow: Cell<bool>,
}

impl Lane {
    pub(super) fn new(rules: &Rc<Rules>) -> Lane {
        Lane {
            rules: Rc::clone(rules),
            swallow: rules.swallow.clone(),
        }
    }

    pub(super) fn swallow(&self) {
        self.swallow.set(true);
    }

    pub(super) fn swallows(&self) -> bool {
        self.swallow.get()
    }

    /// Moves bytes until the sender is done, or fails when both ends should see a broken
    /// connection. `arrives` sees each event as it comes in and may change it; `leaves` sees the
    /// bytes that are about to be passed on.
    pub(super) async fn carry(
        &self,
        from: &TcpStream,
        to: &TcpStream,
        arrives: impl Fn(Event) -> Event,
        leaves: impl Fn(&[u8]),
    ) -> io::Result<()> {
        // Reading never waits for writing: that makes a delay latency.
        let (queue, mut queued) = mpsc::unbounded_channel();
        let read = async move {
            loop {
                let event = arrives(read(from).await);
                let last = !matches!(event, Event::Bytes(_));
                // The other half of this very function listens.
                let _ = queue.send((Instant::now(), event));
                if last {
                    return Ok(());
                }
            }
        };
        let write = async {
            while let Some((read_at, event)) = queued.recv().await {
                self.until_due(read_at).await;
                match event {
                    _ if self.swallows() => {}
                    Event::Bytes(bytes) => {
                        leaves(&bytes);
                        self.write(to, &bytes).await?;
                    }
                    Event::Finish => shutdown(to, Shutdown::Write)?,
                    Event::Reset => return Err(ErrorKind::ConnectionReset.into()),
                }
            }
            Ok(())
        };
        tokio::try_join!(read, write).map(|_| ())
    }

    /// Reads and forgets, until the sender is done.
    pub(super) async fn sink(&self, from: &TcpStream) {
        while let Event::Bytes(_) = read(from).await {}
    }

    async fn until_due(&self, read_at: Instant) {
        loop {
            // Made before the rules are looked at, so that no change is missed.
            let changed = self.rules.changed.notified();
            let due = read_at + self.rules.delay.get();
            if self.swallows() {
                return;
            } else if self.rules.hold.get() {
                changed.await;
            } else if due <= Instant::now() {
                return;
            } else {
                tokio::select! {
                    () = changed => {}
                    () = sleep_until(due) => {}
                }
            }
        }
    }

    async fn write(&self, to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() && !self.swallows() {
            match to.try_write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => to.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

async fn read(from: &TcpStream) -> Event {
    let mut buffer = [0; 16 * 1024];
    loop {
        if from.readable().await.is_err() {
            return Event::Reset;
        }
        match from.try_read(&mut buffer) {
            Ok(0) => return Event::Finish,
            Ok(n) => return Event::Bytes(buffer[..n].to_vec()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return Event::Reset,
        }
    }
}
