//! What a line is made of: a stream of bytes in both directions.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::ready;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, tcp};
#[cfg(unix)]
use tokio::net::{UnixStream, unix};

/// A stream to a server.
pub(in crate::node::redis) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    /// One that only a task can write to: encrypted, or simulated.
    #[cfg_attr(
        not(any(test, feature = "simulation", feature = "tls")),
        expect(dead_code)
    )]
    Other(Box<dyn Duplex>),
}

/// Can be read from and written to.
pub(in crate::node::redis) trait Duplex:
    AsyncRead + AsyncWrite + Send + Unpin
{
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// The half that is written to. There is at most one writer at a time.
pub(super) enum Sink {
    Tcp(tcp::OwnedWriteHalf),
    #[cfg(unix)]
    Unix(unix::OwnedWriteHalf),
    Other(Mutex<Box<dyn AsyncWrite + Send + Unpin>>),
}

impl Stream {
    pub(super) fn split(self) -> (Box<dyn AsyncRead + Send + Unpin>, Sink) {
        match self {
            Self::Tcp(stream) => {
                let (source, sink) = stream.into_split();
                (Box::new(source), Sink::Tcp(sink))
            }
            #[cfg(unix)]
            Self::Unix(stream) => {
                let (source, sink) = stream.into_split();
                (Box::new(source), Sink::Unix(sink))
            }
            Self::Other(stream) => {
                let (source, sink) = tokio::io::split(stream);
                (Box::new(source), Sink::Other(Mutex::new(Box::new(sink))))
            }
        }
    }
}

impl Sink {
    /// Sends what can be sent without waiting, and takes it out of `bytes`. An
    /// error is found again by who sends the rest.
    pub(super) fn send_now(&self, bytes: &mut Vec<u8>) {
        let sent = match self {
            Self::Tcp(half) => half.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(half) => half.try_write(bytes),
            Self::Other(_) => Ok(0),
        };
        bytes.drain(..sent.unwrap_or(0));
        if bytes.is_empty() {
            bytes.shrink_to(super::KEPT);
        }
    }

    /// Sends all of it.
    pub(super) async fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = match self {
                Self::Tcp(half) => {
                    half.writable().await?;
                    half.try_write(bytes)
                }
                #[cfg(unix)]
                Self::Unix(half) => {
                    half.writable().await?;
                    half.try_write(bytes)
                }
                Self::Other(half) => {
                    poll_fn(|cx| {
                        let mut half = half.lock().unwrap_or_else(PoisonError::into_inner);
                        let sent = ready!(Pin::new(&mut **half).poll_write(cx, bytes))?;
                        Ok(sent).into()
                    })
                    .await
                }
            };
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        match self {
            Self::Other(half) => {
                poll_fn(|cx| {
                    let mut half = half.lock().unwrap_or_else(PoisonError::into_inner);
                    Pin::new(&mut **half).poll_flush(cx)
                })
                .await
            }
            _ => Ok(()),
        }
    }
}
