//! New lines to a server: from its address to a log-in.

use std::io;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{ConnectionAddr, ErrorKind, PushKind, RedisConnectionInfo, RedisError, Value};
use tokio::net::{TcpStream, lookup_host};

use super::address::Address;
use super::line::{Line, Stream};

/// When to find out whether a server that says nothing is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(5);

/// Which of Redis's protocols is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// In which a server can say things without being asked.
    Resp3,
    Resp2,
}

/// A stream to the server at `address`.
pub(super) async fn open(address: &Address) -> Result<Stream, RedisError> {
    match address.place() {
        ConnectionAddr::Unix(path) => open_file(path).await,
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            let mut found = lookup_host((host.as_str(), *port)).await?.peekable();
            if found.peek().is_none() {
                return Err(io::Error::other("its name has no address").into());
            }
            // All at once: one of them may lead nowhere, and take its time.
            let connects = found.map(|address| Box::pin(TcpStream::connect(address)));
            let (stream, _) = select_ok(connects).await?;
            // A lock's requests are small and must not wait.
            stream.set_nodelay(true)?;
            let keepalive = TcpKeepalive::new()
                .with_time(KEEPALIVE)
                .with_interval(KEEPALIVE_AGAIN);
            SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
            address.encrypt(host, stream).await
        }
        _ => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
    }
}

#[cfg(unix)]
async fn open_file(path: &std::path::Path) -> Result<Stream, RedisError> {
    Ok(Stream::Unix(tokio::net::UnixStream::connect(path).await?))
}

#[cfg(not(unix))]
async fn open_file(_: &std::path::Path) -> Result<Stream, RedisError> {
    let problem = "there are no sockets in files on this system";
    Err(io::Error::new(io::ErrorKind::Unsupported, problem).into())
}

/// A line on which we are logged in, over a stream that `open` makes, and which
/// protocol is spoken there: the newer one, where the server knows it.
pub(super) async fn line<F: Future<Output = Result<Stream, RedisError>>>(
    open: impl Fn() -> F,
    login: &RedisConnectionInfo,
    hear: impl Fn(PushKind, Vec<Value>) + Clone + Send + Sync + 'static,
) -> Result<(Line, Protocol), RedisError> {
    let line = Line::new(open().await?, hear.clone());
    match introduce(&line, login, Protocol::Resp3, login.username()).await {
        Err(error) if is_too_old(&error) => tracing::debug!("no RESP3 there"),
        introduced => return introduced.map(|()| (line, Protocol::Resp3)),
    }
    let line = Line::new(open().await?, hear);
    match introduce(&line, login, Protocol::Resp2, login.username()).await {
        // Before Redis 6 there were no users, only a password.
        Err(error) if knows_no_users(&error) => {
            introduce(&line, login, Protocol::Resp2, None).await?;
        }
        introduced => introduced?,
    }
    Ok((line, Protocol::Resp2))
}

async fn introduce(
    line: &Line,
    login: &RedisConnectionInfo,
    protocol: Protocol,
    user: Option<&str>,
) -> Result<(), RedisError> {
    let mut pipeline = redis::pipe();
    match (protocol, login.password()) {
        (Protocol::Resp3, password) => {
            let hello = pipeline.cmd("HELLO").arg("3");
            if let Some(password) = password {
                let user = user.unwrap_or("default");
                hello.arg("AUTH").arg(user).arg(password);
            }
        }
        (Protocol::Resp2, Some(password)) => {
            pipeline.cmd("AUTH").arg(user).arg(password);
        }
        (Protocol::Resp2, None) => {}
    }
    let logging_in = pipeline.len();
    if login.db() != 0 {
        pipeline.cmd("SELECT").arg(login.db());
    }
    let needed = pipeline.len();
    // For people who look who is connected; servers before 7.2 don't know it.
    for (field, value) in [
        ("LIB-NAME", env!("CARGO_PKG_NAME")),
        ("LIB-VER", env!("CARGO_PKG_VERSION")),
    ] {
        pipeline.cmd("CLIENT").arg("SETINFO").arg(field).arg(value);
    }
    let bytes = pipeline.get_packed_pipeline();
    let answers = line
        .ask_all(pipeline.len(), |out| out.extend(bytes))
        .await?;
    for (at, answer) in answers.into_iter().take(needed).enumerate() {
        match answer.extract_error() {
            Err(error) if at >= logging_in => {
                let detail = error.detail().unwrap_or_default().to_owned();
                let refused = "it refuses to switch to this database";
                return Err((ErrorKind::Client, refused, detail).into());
            }
            answer => answer?,
        };
    }
    Ok(())
}

fn knows_no_users(error: &RedisError) -> bool {
    let words = "wrong number of arguments for 'auth' command";
    error.detail().is_some_and(|detail| detail.contains(words))
}

/// Whether the server, or a proxy before it, speaks no RESP3.
fn is_too_old(error: &RedisError) -> bool {
    let unknown = |detail: &str| detail.contains("unknown command") && detail.contains("HELLO");
    error.code() == Some("NOPROTO") || error.detail().is_some_and(unknown)
}

impl Line {
    /// Asks to be told what is said on a channel.
    pub(super) async fn subscribe(&self, channel: &str) -> Result<(), RedisError> {
        let mut subscribe = redis::cmd("SUBSCRIBE");
        subscribe.arg(channel);
        let answer = self.ask(|out| subscribe.write_packed_command(out)).await?;
        answer.extract_error().map(drop::<Value>)
    }
}
