//! A TCP proxy that fails on demand.
//!
//! One thread with a tokio runtime of its own owns every socket and every rule, so a test may pause
//! its own clock. A control is a closure run on that thread, between two steps of the traffic: when
//! the call returns the rule is in force, for live connections as well as for those to come.

mod lane;
mod link;
mod relay;
mod trap;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::mpsc;

use self::relay::{Order, Relay, Seed};
use self::trap::Trap;
use crate::server::Port;

/// A network between clients and one server. It passes everything on until told otherwise.
///
/// TCP's promise holds through every fault: a byte stream arrives whole and in order, or it stops.
/// So a direction of a connection that has begun to lose bytes stays silent for as long as that
/// connection lives, also after [`heal`](Proxy::heal); a reply never answers the wrong request.
///
/// One difference to a direct connection can't be hidden: where the server refuses, the proxy has
/// already accepted, so the client sees a connection that is reset at once.
pub struct Proxy {
    port: u16,
    /// `None` only while being dropped: closing it is what ends the thread.
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// Start and look.
impl Proxy {
    /// A proxy in front of `upstream`, on a free loopback port.
    pub fn start(upstream: SocketAddr) -> Proxy {
        let seed = Seed {
            upstream,
            port: Port::reserve(),
        };
        let port = seed.port.number();
        let (orders, receiver) = mpsc::unbounded_channel();
        let thread = thread::Builder::new()
            .name(format!("proxy-{port}"))
            .spawn(move || relay::run(seed, receiver))
            .expect("a thread can be started");
        let proxy = Proxy {
            port,
            orders: Some(orders),
            thread: Some(thread),
        };
        proxy.order(Relay::heal); // which also begins to listen
        proxy
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The loopback address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// How many connections are open on the client's side.
    pub fn connections(&self) -> usize {
        self.order(|relay| relay.links().filter(|link| link.is_live()).count())
    }

    /// How many connections have been accepted so far.
    pub fn accepted(&self) -> usize {
        self.order(|relay| relay.accepted())
    }
}

/// Faults that last until [`heal`](Proxy::heal).
impl Proxy {
    /// Adds `delay` to each direction. It is latency, not a limit on throughput: what was read at
    /// t goes out at t + `delay`, in order. Bytes on their way are delayed anew, from when they
    /// were read.
    pub fn delay(&self, delay: Duration) {
        self.order(move |relay| {
            relay.requests.delay.set(delay);
            relay.replies.delay.set(delay);
        });
    }

    /// Adds `delay` from client to server only.
    pub fn delay_requests(&self, delay: Duration) {
        self.order(move |relay| relay.requests.delay.set(delay));
    }

    /// Adds `delay` from server to client only.
    pub fn delay_replies(&self, delay: Duration) {
        self.order(move |relay| relay.replies.delay.set(delay));
    }

    /// Resets every connection and refuses new ones.
    pub fn cut(&self) {
        self.order(|relay| {
            relay.deafen();
            relay.reset_links();
        });
    }

    /// Connections stay open, and new ones are accepted, but nothing passes; what is sent is lost.
    /// These connections stay mute for ever, as behind a router that forgot them.
    pub fn mute(&self) {
        self.order(|relay| {
            relay.swallow_requests();
            relay.swallow_replies();
        });
    }

    /// Nothing passes, but nothing is lost: `heal` delivers it.
    pub fn hold(&self) {
        self.order(|relay| {
            relay.requests.hold.set(true);
            relay.replies.hold.set(true);
        });
    }

    /// Requests are lost, replies pass. On these connections it stays so for ever.
    pub fn drop_requests(&self) {
        self.order(Relay::swallow_requests);
    }

    /// Requests pass, replies are lost. On these connections it stays so for ever.
    pub fn drop_replies(&self) {
        self.order(Relay::swallow_replies);
    }

    /// Resets the connection of the `n`-th read from now on, when the server has answered it: the
    /// request was carried out, and the client will never know.
    ///
    /// A small request is one read, and so is a small pipeline; the greeting of a new connection
    /// counts too. Happens once.
    pub fn cut_after_request(&self, n: usize) {
        assert!(n > 0, "the first request is number 1");
        self.order(move |relay| relay.trap.set(Trap::Nth(n)));
    }

    /// The same for the next read that contains `text`, such as a lock's name.
    pub fn lose_reply_to(&self, text: &str) {
        assert!(!text.is_empty(), "every request contains the empty text");
        let text = text.as_bytes().to_vec();
        self.order(move |relay| relay.trap.set(Trap::Containing(text)));
    }

    /// Ends every fault: listens again, delivers at once what was delayed or held, and treats new
    /// connections well. What was lost stays lost.
    pub fn heal(&self) {
        self.order(Relay::heal);
    }
}

/// Faults of the moment: they strike the connections that are live now.
impl Proxy {
    /// Resets the live connections.
    pub fn disconnect(&self) {
        self.order(Relay::reset_links);
    }

    /// Ends the server→client direction of the live connections (FIN); requests still pass.
    pub fn half_close(&self) {
        self.order(|relay| relay.links().for_each(|link| link.half_close()));
    }
}

impl Proxy {
    /// Runs `act` on the proxy's thread and waits for its result.
    fn order<T: Send + 'static>(&self, act: impl FnOnce(&mut Relay) -> T + Send + 'static) -> T {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let order: Order = Box::new(move |relay| {
            let _ = answer.send(act(relay));
        });
        self.orders
            .as_ref()
            .and_then(|orders| orders.send(order).ok())
            .and_then(|()| answered.recv().ok())
            .unwrap_or_else(|| panic!("the thread of {self:?} has panicked"))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy on {}", self.address())
    }
}
