//! One connection through the proxy.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;

use rustix::net::{Shutdown, shutdown};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::lane::{Event, Lane, Rules};
use super::trap::TrapSlot;

pub(super) struct Link {
    client: TcpStream,
    requests: Lane,
    replies: Lane,
    /// Until the client or an order ends it. The server's side may outlive that, as after `mute`.
    live: Cell<bool>,
    reset: Notify,
    trap: Rc<TrapSlot>,
    /// The trap has sprung: the next reply breaks the connection instead of passing.
    lose_reply: Cell<bool>,
}

impl Link {
    pub(super) fn new(
        client: TcpStream,
        requests: &Rc<Rules>,
        replies: &Rc<Rules>,
        trap: &Rc<TrapSlot>,
    ) -> Rc<Link> {
        Rc::new(Link {
            client,
            requests: Lane::new(requests),
            replies: Lane::new(replies),
            live: Cell::new(true),
            reset: Notify::new(),
            trap: Rc::clone(trap),
            lose_reply: Cell::new(false),
        })
    }

    /// Carries bytes between the client and `upstream` until both are done.
    pub(super) async fn run(self: Rc<Self>, upstream: SocketAddr) {
        let outcome = tokio::select! {
            biased; // after an order to reset, not one byte more
            () = self.reset.notified() => Err(ErrorKind::ConnectionReset.into()),
            outcome = self.carry(upstream) => outcome,
        };
        self.live.set(false);
        if outcome.is_err() {
            // Closing then sends RST instead of FIN. If it fails, the client is gone already.
            let _ = self.client.set_zero_linger();
        }
    }

    async fn carry(&self, upstream: SocketAddr) -> io::Result<()> {
        let mute = self.requests.swallows() && self.replies.swallows();
        let server = if mute {
            Err(ErrorKind::HostUnreachable.into())
        } else {
            TcpStream::connect(upstream).await
        };
        match server {
            Ok(server) => self.carry_to(&server).await,
            // That the server refused is a reply too.
            Err(_) if self.replies.swallows() => {
                self.requests.sink(&self.client).await;
                Ok(())
            }
            Err(refused) => Err(refused),
        }
    }

    async fn carry_to(&self, server: &TcpStream) -> io::Result<()> {
        self.client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let requests = self.requests.carry(
            &self.client,
            server,
            |event| {
                if !matches!(event, Event::Bytes(_)) {
                    self.live.set(false);
                }
                event
            },
            |bytes| {
                if self.trap.springs_at(bytes) {
                    self.lose_reply.set(true);
                }
            },
        );
        let replies = self.replies.carry(
            server,
            &self.client,
            |event| {
                if self.lose_reply.get() {
                    Event::Reset
                } else {
                    event
                }
            },
            |_| {},
        );
        tokio::try_join!(requests, replies).map(|_| ())
    }

    pub(super) fn is_live(&self) -> bool {
        self.live.get()
    }

    pub(super) fn reset(&self) {
        self.live.set(false);
        self.reset.notify_one();
    }

    pub(super) fn swallow_requests(&self) {
        self.requests.swallow();
    }

    pub(super) fn swallow_replies(&self) {
        self.replies.swallow();
    }

    pub(super) fn half_close(&self) {
        // If it fails, the client is gone already.
        let _ = shutdown(&self.client, Shutdown::Write);
        self.replies.swallow();
    }
}
