//! The proxy's thread: the listener, the links, and the rules in force.

use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use rustix::net::SocketFlags;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{LocalSet, spawn_local};

use super::lane::Rules;
use super::link::Link;
use super::trap::TrapSlot;
use crate::server::Port;

/// What a control does, run between two steps of the traffic.
pub(super) type Order = Box<dyn FnOnce(&mut Relay) + Send>;

/// Carries traffic and follows orders until their sender is dropped.
pub(super) fn run(seed: Seed, orders: UnboundedReceiver<Order>) {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    LocalSet::new().block_on(&runtime, Relay::new(seed).run(orders));
}

/// What a relay is made from; the relay itself never leaves its thread.
pub(super) struct Seed {
    pub(super) upstream: SocketAddr,
    /// Stays ours while a cut has closed the listener.
    pub(super) port: Port,
}

pub(super) struct Relay {
    upstream: SocketAddr,
    port: Port,
    /// `None` while new connections are refused.
    listener: Option<TcpListener>,
    accepted: usize,
    /// Weak, because a link that has ended must close its sockets at once.
    links: Vec<Weak<Link>>,
    pub(super) requests: Rc<Rules>,
    pub(super) replies: Rc<Rules>,
    pub(super) trap: Rc<TrapSlot>,
}

impl Relay {
    fn new(seed: Seed) -> Relay {
        Relay {
            upstream: seed.upstream,
            port: seed.port,
            listener: None,
            accepted: 0,
            links: Vec::new(),
            requests: Rc::default(),
            replies: Rc::default(),
            trap: Rc::default(),
        }
    }

    async fn run(mut self, mut orders: UnboundedReceiver<Order>) {
        loop {
            tokio::select! {
                order = orders.recv() => {
                    let Some(order) = order else { return };
                    self.accept_pending();
                    order(&mut self);
                    self.requests.changed.notify_waiters();
                    self.replies.changed.notify_waiters();
                }
                client = self.accept() => self.adopt(client),
            }
        }
    }

    async fn accept(&self) -> TcpStream {
        if let Some(listener) = &self.listener
            && let Ok((client, _)) = listener.accept().await
        {
            return client;
        }
        // Refusing, or out of file descriptors: until the next order nothing changes that.
        std::future::pending().await
    }

    /// Accepts whom the kernel has connected but the runtime has not heard of yet: an order is
    /// for every client that connected before it.
    fn accept_pending(&mut self) {
        while let Some(client) = self.listener.as_ref().and_then(accept_now) {
            self.adopt(client);
        }
    }

    fn adopt(&mut self, client: TcpStream) {
        self.accepted += 1;
        let link = Link::new(client, &self.requests, &self.replies, &self.trap);
        self.links.retain(|link| link.strong_count() > 0);
        self.links.push(Rc::downgrade(&link));
        spawn_local(link.run(self.upstream));
    }
}

fn accept_now(listener: &TcpListener) -> Option<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let client = rustix::net::accept_with(listener, flags).ok()?;
    Some(TcpStream::from_std(client.into()).expect("a non-blocking stream can be adopted"))
}

/// What the orders are made of.
impl Relay {
    pub(super) fn accepted(&self) -> usize {
        self.accepted
    }

    pub(super) fn links(&self) -> impl Iterator<Item = Rc<Link>> {
        self.links.iter().filter_map(Weak::upgrade)
    }

    pub(super) fn reset_links(&mut self) {
        self.links().for_each(|link| link.reset());
    }

    pub(super) fn swallow_requests(&mut self) {
        self.requests.swallow.set(true);
        self.links().for_each(|link| link.swallow_requests());
    }

    pub(super) fn swallow_replies(&mut self) {
        self.replies.swallow.set(true);
        self.links().for_each(|link| link.swallow_replies());
    }

    pub(super) fn deafen(&mut self) {
        self.listener = None;
    }

    pub(super) fn heal(&mut self) {
        self.requests.clear();
        self.replies.clear();
        self.trap.clear();
        if self.listener.is_none() {
            let listener = self.listen();
            self.listener = Some(listener.expect("the proxy's port is reserved for it"));
        }
    }

    fn listen(&self) -> io::Result<TcpListener> {
        let listener = std::net::TcpListener::bind(self.port.address())?;
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    }
}
