//! New lines to a server: from its address to a log-in.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{ConnectionAddr, ErrorKind, RedisConnectionInfo, RedisError, Value};
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
        ConnectionAddr::Tcp(host, port) => {
            let mut found = lookup_host((host.as_str(), *port)).await?.peekable();
            if found.peek().is_none() {
                return Err(io::Error::other("its name has no address").into());
            }
            // All at once: one of them may lead nowhere, and take its time.
            let streams = found.map(|place| Box::pin(open_tcp(address, host, place)));
            let (stream, _) = select_ok(streams).await?;
            Ok(stream)
        }
        _ => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
    }
}

async fn open_tcp(address: &Address, host: &str, place: SocketAddr) -> io::Result<Stream> {
    let stream = TcpStream::connect(place).await?;
    // A lock's requests are small and must not wait.
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_AGAIN);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    address.encrypt(host, stream).await
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
) -> Result<(Line, Protocol), RedisError> {
    let line = Line::new(open().await?);
    match introduce(&line, login, Protocol::Resp3, login.username()).await {
        Err(error) if is_too_old(&error) => drop(line),
        introduced => return introduced.map(|()| (line, Protocol::Resp3)),
    }
    let line = Line::new(open().await?);
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
            Err(error) if at < logging_in => return Err(refused(error, login, protocol)),
            Err(error) => {
                let detail = error.detail().unwrap_or_default().to_owned();
                let refused = "it refuses to switch to this database";
                return Err((ErrorKind::Client, refused, detail).into());
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Why we may not log in. Servers that are too old for RESP3 have no code for
/// that, and some repeat what they don't understand, a password too.
fn refused(error: RedisError, login: &RedisConnectionInfo, protocol: Protocol) -> RedisError {
    let secret = login.password().filter(|password| !password.is_empty());
    let is_repeated = secret.is_some_and(|secret| error.to_string().contains(secret));
    let is_unclear = protocol == Protocol::Resp2 && !knows_no_users(&error);
    match is_unclear || (is_repeated && !is_too_old(&error)) {
        true => (ErrorKind::AuthenticationFailed, "the log-in was refused").into(),
        false => error,
    }
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use redis::IntoConnectionInfo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Logs in where one connection after the other answers like this, and then
    /// hangs up if it is told to. Says what was sent on each.
    async fn log_in(url: &str, servers: &[&str]) -> (Result<Protocol, RedisError>, Vec<String>) {
        let login = url.into_connection_info().unwrap();
        let (ends, streams): (Vec<_>, Vec<_>) = servers.iter().map(|_| duplex(4096)).unzip();
        let streams = Mutex::new(streams.into_iter());
        let open = async || {
            let stream = streams.lock().unwrap().next().expect("no more servers");
            Ok(Stream::Other(Box::new(stream)))
        };
        let play = ends.into_iter().zip(servers).map(|(mut end, answers)| {
            let (answers, hangs_up) = match answers.strip_suffix("EOF") {
                Some(answers) => (answers, true),
                None => (*answers, false),
            };
            async move {
                let mut sent = vec![0; 4096];
                let mut asked = String::new();
                for answer in answers.split_inclusive(';') {
                    let length = end.read(&mut sent).await.unwrap();
                    asked += &String::from_utf8_lossy(&sent[..length]);
                    end.write_all(answer.replace(';', "").as_bytes())
                        .await
                        .unwrap();
                }
                if !hangs_up {
                    let _ = end.read_to_end(&mut sent).await;
                }
                asked
            }
        });
        let played = futures_util::future::join_all(play);
        let logged_in = async {
            let result = line(&open, login.redis_settings()).await;
            // Nothing that an earlier line hears is this one's business.
            result.map(|(line, protocol)| {
                line.listen(|kind, _| panic!("it has ended: {kind:?}"));
                protocol
            })
        };
        let (result, asked) = tokio::join!(logged_in, played);
        (result, asked)
    }

    const UNKNOWN: &str = "-ERR unknown command 'HELLO'\r\n+OK\r\n+OK\r\n";

    #[tokio::test]
    async fn where_the_newer_protocol_is_unknown_the_older_one_is_spoken() {
        for end in ["", "EOF"] {
            let first = format!("{UNKNOWN}{end}");
            let (result, asked) = log_in("redis://h", &[&first, "+OK\r\n+OK\r\n"]).await;
            assert_eq!(result.unwrap(), Protocol::Resp2);
            assert!(asked[0].contains("HELLO") && !asked[1].contains("HELLO"));
        }
        let (result, asked) = log_in("redis://h", &["%0\r\n+OK\r\n+OK\r\n"]).await;
        assert_eq!(result.unwrap(), Protocol::Resp3);
        assert!(!asked[0].contains("AUTH"), "{asked:?}");
    }

    #[tokio::test]
    async fn servers_without_users_get_the_password_alone() {
        let second = "-ERR wrong number of arguments for 'auth' command\r\n+OK\r\n+OK\r\n;\
                      +OK\r\n+OK\r\n+OK\r\n";
        let (result, asked) = log_in("redis://me:s3cret@h", &[UNKNOWN, second]).await;
        assert_eq!(result.unwrap(), Protocol::Resp2);
        let auth = "*2\r\n$4\r\nAUTH\r\n$6\r\ns3cret\r\n";
        assert!(asked[1].contains(auth), "{asked:?}");
    }

    #[tokio::test]
    async fn a_refused_log_in_is_called_that_and_repeats_no_password() {
        let hello = "-ERR what is s3cret?\r\n+OK\r\n+OK\r\n";
        for servers in [
            &[hello][..],
            &[UNKNOWN, "-ERR invalid password\r\n+OK\r\n+OK\r\n"],
            &[
                UNKNOWN,
                "-ERR unknown command `AUTH`, with args beginning with: `s3cret`\r\n+OK\r\n+OK\r\n",
            ],
        ] {
            let (result, _) = log_in("redis://:s3cret@h", servers).await;
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AuthenticationFailed, "{error}");
            assert!(
                !format!("{error} {error:?}").contains("s3cret"),
                "{error:?}"
            );
        }
        let (result, _) = log_in("redis://:s3cret@h", &["-WRONGPASS no\r\n+OK\r\n+OK\r\n"]).await;
        assert_eq!(result.unwrap_err().code(), Some("WRONGPASS"));
    }

    #[tokio::test]
    async fn a_database_that_is_not_there_is_an_error() {
        let answers = "%0\r\n-ERR DB index is out of range\r\n+OK\r\n+OK\r\n";
        let (result, asked) = log_in("redis://h/99", &[answers]).await;
        let error = result.unwrap_err().to_string();
        assert!(error.contains("out of range"), "{error}");
        assert!(asked[0].contains("SELECT"), "{asked:?}");
    }
}
