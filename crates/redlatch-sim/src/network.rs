//! Connections: streams of bytes in order, that arrive late, in part, or not.
//!
//! As TCP does it: within a connection nothing is reordered. What a client has
//! written before it gave a connection up still arrives, perhaps after what it
//! sent over the next one.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use redlatch::sim::{Dial, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::server::Server;
use crate::world::World;

/// Bytes, and when they arrive if nothing holds them up.
pub(crate) type Chunk = (Instant, Vec<u8>);

/// How a client reaches a node.
pub(crate) fn dial(world: &Arc<World>, client: usize, server: &Arc<Server>) -> Dial {
    let (world, server) = (world.clone(), server.clone());
    Dial::new(move || {
        let (world, server) = (world.clone(), server.clone());
        Box::pin(async move {
            world.shake_hands(client, server.node).await;
            if !server.is_up() {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Ok(Box::new(connect(&world, client, &server)) as Box<dyn Stream>)
        })
    })
}

/// The server's end of a connection.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) client: usize,
    node: usize,
    out: UnboundedSender<Chunk>,
    up: AbortHandle,
    down: AbortHandle,
    mute: Arc<AtomicBool>,
    /// Until when requests over this connection are held up.
    stalled: Arc<Mutex<Option<Instant>>>,
}

impl Wire {
    pub(crate) fn send(&self, world: &World, bytes: Vec<u8>) {
        // Nobody receives it when the client has gone.
        let _ = self
            .out
            .send((world.arrival(self.client, self.node), bytes));
    }

    /// From now on no reply arrives, and nobody is told.
    pub(crate) fn fall_mute(&self) {
        self.mute.store(true, Ordering::Relaxed);
    }

    /// Requests over this connection arrive late, as when a packet was lost;
    /// those over another one do not.
    pub(crate) fn stall(&self, until: Instant) {
        *lock(&self.stalled) = Some(until);
    }

    /// The client finds the connection closed, and all replies are lost. What
    /// it has sent may still arrive.
    pub(crate) fn reset(&self, requests_too: bool) {
        self.down.abort();
        if requests_too {
            self.up.abort();
        }
    }
}

fn connect(world: &Arc<World>, client: usize, server: &Arc<Server>) -> Line {
    let (requests, mut sent) = unbounded_channel::<Chunk>();
    let (out, mut answered) = unbounded_channel::<Chunk>();
    let (replies, received) = unbounded_channel();
    let node = server.node;
    let id = server.next_connection();
    let mute = Arc::<AtomicBool>::default();
    let stalled = Arc::<Mutex<Option<Instant>>>::default();
    let (up_world, up_server, up_stalled) = (world.clone(), server.clone(), stalled.clone());
    let up = tokio::spawn(async move {
        let mut input = Vec::new();
        while let Some((arrival, bytes)) = sent.recv().await {
            sleep_until(arrival).await;
            let until = *lock(&up_stalled);
            if let Some(until) = until {
                sleep_until(until).await;
            }
            up_world.pass(client, node, true).await;
            input.extend(bytes);
            up_server.receive(id, &mut input);
        }
        up_server.hang_up(id);
    });
    let (down_world, down_mute) = (world.clone(), mute.clone());
    let down = tokio::spawn(async move {
        while let Some((arrival, bytes)) = answered.recv().await {
            sleep_until(arrival).await;
            down_world.pass(client, node, false).await;
            if !down_mute.load(Ordering::Relaxed) && replies.send(bytes).is_err() {
                break;
            }
        }
    });
    server.accept(
        id,
        Wire {
            client,
            node,
            out,
            up: up.abort_handle(),
            down: down.abort_handle(),
            mute,
            stalled,
        },
    );
    Line {
        world: world.clone(),
        client,
        node,
        requests,
        received,
        rest: Vec::new(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The client's end of a connection.
struct Line {
    world: Arc<World>,
    client: usize,
    node: usize,
    requests: UnboundedSender<Chunk>,
    received: UnboundedReceiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            match ready!(self.received.poll_recv(context)) {
                Some(bytes) => self.rest = bytes,
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = buffer.remaining().min(self.rest.len());
        buffer.put_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let arrival = self.world.arrival(self.client, self.node);
        Poll::Ready(match self.requests.send((arrival, bytes.to_vec())) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
