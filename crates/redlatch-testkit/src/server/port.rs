//! Ports that stay ours while nobody listens on them.
//!
//! A killed server must come back on the same port, and until then its clients must be refused,
//! not served by whichever server another test started there meanwhile. So a port is held by a
//! bound socket that never listens. Linux lets a second socket bind to it only when both allow
//! address reuse and neither listens: the reservation is taken *without* reuse, so that it fails
//! where anybody else has the port, and allows reuse afterwards, so that `redis-server` or the
//! proxy (which both ask for it) can listen. No moment is left for another process to slip in.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Below Linux's ephemeral range: no outgoing connection ever takes one of these.
const RANGE: Range<u16> = 20_000..32_000;

/// Where to look next. Each process starts elsewhere, so that they seldom try the same port.
static NEXT: LazyLock<AtomicU16> =
    LazyLock::new(|| AtomicU16::new(RandomState::new().hash_one(std::process::id()) as u16));

/// A loopback port that nobody else gets until this is dropped.
pub(crate) struct Port {
    number: u16,
    _reservation: OwnedFd,
}

impl Port {
    pub(crate) fn reserve() -> Port {
        RANGE
            .map(|_| NEXT.fetch_add(1, Ordering::Relaxed) % RANGE.len() as u16 + RANGE.start)
            .find_map(|number| {
                let reservation = reserve(number).ok()?;
                Some(Port {
                    number,
                    _reservation: reservation,
                })
            })
            .unwrap_or_else(|| panic!("no free loopback port in {RANGE:?}"))
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn address(&self) -> SocketAddr {
        loopback(self.number)
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn reserve(number: u16) -> rustix::io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC, // a child that inherited it would hold the port after us
        None,
    )?;
    rustix::net::bind(&socket, &loopback(number))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn reserved_port_is_given_to_nobody_else() {
        let port = Port::reserve();
        assert!(reserve(port.number).is_err());
    }

    #[test]
    fn reserved_port_refuses_until_its_owner_listens() {
        let port = Port::reserve();
        for _ in 0..3 {
            assert!(TcpStream::connect(port.address()).is_err());
            let listener = TcpListener::bind(port.address()).unwrap();
            TcpStream::connect(port.address()).unwrap();
            assert!(reserve(port.number).is_err());
            drop(listener);
        }
    }
}
