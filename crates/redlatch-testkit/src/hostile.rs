//! A server that means harm, or is broken beyond what a server should be.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How a [`HostileServer`] behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As a Redis server that has nothing to say: `OK` to everything.
    Polite,
    /// It reads and never answers.
    Mute,
    /// It hangs up on everybody at once.
    HangsUp,
    /// It lets everybody in, and hangs up when a connection is ready.
    LetsIn,
    /// It answers with bytes that mean nothing.
    Garbage,
    /// It answers with values of every type but the one that is asked for.
    WrongTypes,
    /// It says that half a gigabyte follows, and sends the beginning.
    HugeText,
    /// It says that ten million values follow, and sends them one after the other.
    HugeArray,
    /// It answers with arrays in arrays in arrays.
    Nested,
    /// It sends the first half of an answer.
    Half,
    /// It answers twice.
    Twice,
    /// It says that keys have changed and that it is our turn, again and again.
    Pushes,
}

/// A TCP server that speaks some Redis, and behaves as it is told.
///
/// It stops when it is dropped.
#[derive(Debug)]
pub struct HostileServer {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    manner: Mutex<Manner>,
    /// The key that it talks about without being asked.
    key: String,
    connections: AtomicUsize,
    stopped: AtomicBool,
}

impl HostileServer {
    /// A server that behaves so; what it says without being asked is about `key`.
    pub fn start(manner: Manner, key: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            manner: Mutex::new(manner),
            key: key.to_owned(),
            connections: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.stopped.load(Ordering::Relaxed) {
                    break;
                }
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                let shared = accepting.clone();
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Self { port, shared }
    }

    /// Where to find it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// From now on it behaves so.
    pub fn behave(&self, manner: Manner) {
        *self.shared.lock() = manner;
    }

    /// How many connections were made to it.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // The listener's thread has to wake up to see it.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Manner> {
        self.manner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn manner(&self) -> Manner {
        *self.lock()
    }

    /// Speaks to one client until either has had enough.
    fn serve(&self, stream: TcpStream) -> Option<()> {
        if self.manner() == Manner::HangsUp {
            return None;
        }
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).ok()?;
        stream.set_write_timeout(limit).ok()?;
        stream.set_nodelay(true).ok()?;
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut writer = stream;
        for answered in 0.. {
            let command = read_command(&mut reader)?;
            if self.stopped.load(Ordering::Relaxed) {
                return None;
            }
            let name = command.first()?.to_ascii_uppercase();
            let greeting = match &name[..] {
                b"HELLO" => Some("%1\r\n+server\r\n+redis\r\n".to_owned()),
                b"INFO" => Some("$13\r\nrole:master\r\n\r\n".to_owned()),
                b"SUBSCRIBE" => {
                    let channel = String::from_utf8_lossy(command.get(1)?).into_owned();
                    let length = channel.len();
                    Some(format!(
                        ">3\r\n+subscribe\r\n${length}\r\n{channel}\r\n:1\r\n"
                    ))
                }
                b"CLIENT" | b"PING" | b"SCRIPT" => Some("+OK\r\n".to_owned()),
                _ => None,
            };
            match (self.manner(), greeting) {
                (Manner::HangsUp, _) => return None,
                (Manner::LetsIn, greeting) => {
                    writer.write_all(greeting?.as_bytes()).ok()?;
                    if name == b"SUBSCRIBE" {
                        return None;
                    }
                }
                (Manner::Mute, _) => {}
                (Manner::Garbage, _) => writer.write_all(&garbage(answered)).ok()?,
                (_, Some(greeting)) => writer.write_all(greeting.as_bytes()).ok()?,
                (manner, None) => self.answer(manner, answered, &mut writer)?,
            }
        }
        None
    }

    /// Answers what is not part of the greeting.
    fn answer(&self, manner: Manner, answered: usize, writer: &mut TcpStream) -> Option<()> {
        let text = match manner {
            Manner::WrongTypes => wrong_type(answered).to_owned(),
            Manner::HugeText => format!("${}\r\n{}", 512 << 20, "x".repeat(100_000)),
            Manner::HugeArray => {
                writer.write_all(b"*10000000\r\n").ok()?;
                let values = "$1\r\nx\r\n".repeat(1000);
                for _ in 0..10_000 {
                    writer.write_all(values.as_bytes()).ok()?;
                    if self.stopped.load(Ordering::Relaxed) {
                        return None;
                    }
                }
                String::new()
            }
            Manner::Nested => "*1\r\n".repeat(100_000),
            Manner::Half => "*3\r\n+HELD\r\n$5\r\nab".to_owned(),
            Manner::Twice => "+GRANTED\r\n+GRANTED\r\n".to_owned(),
            Manner::Pushes => {
                self.push(writer)?;
                "+GRANTED\r\n".to_owned()
            }
            _ => "+OK\r\n".to_owned(),
        };
        writer.write_all(text.as_bytes()).ok()
    }

    fn push(&self, writer: &mut TcpStream) -> Option<()> {
        let key = &self.key;
        let length = key.len();
        let changed = format!(">2\r\n+invalidate\r\n*1\r\n${length}\r\n{key}\r\n");
        let all = ">2\r\n+invalidate\r\n_\r\n";
        let turn = format!(
            ">3\r\n+message\r\n+channel\r\n${}\r\nT{key}\r\n",
            length + 1
        );
        let strange = ">1\r\n+nobody knows\r\n>0\r\n>2\r\n+message\r\n:7\r\n";
        let flood = format!("{changed}{all}{turn}{strange}").repeat(1000);
        writer.write_all(flood.as_bytes()).ok()
    }
}

/// A command as clients send it: an array of strings.
fn read_command(reader: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let count = read_number(reader, b'*')?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; read_number(reader, b'$')? + 2];
            reader.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            Some(word)
        })
        .collect()
}

fn read_number(reader: &mut impl BufRead, mark: u8) -> Option<usize> {
    let mut line = Vec::new();
    reader.take(64).read_until(b'\n', &mut line).ok()?;
    let number = line.strip_prefix(&[mark])?.trim_ascii();
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Bytes that follow from `number` and mean nothing.
fn garbage(number: usize) -> Vec<u8> {
    let mut state = number as u32 | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..4096).map(|_| next()).collect()
}

fn wrong_type(number: usize) -> &'static str {
    const ANSWERS: [&str; 14] = [
        ":7\r\n",
        ":-9223372036854775808\r\n",
        "_\r\n",
        ",inf\r\n",
        "#t\r\n",
        "%1\r\n+a\r\n+b\r\n",
        "*0\r\n",
        "*2\r\n+LOW\r\n+many\r\n",
        "*4\r\n+HELD\r\n:1\r\n:2\r\n:3\r\n",
        "*3\r\n+LOW\r\n:-1\r\n:-1\r\n",
        "*2\r\n+QUARANTINED\r\n:9223372036854775807\r\n",
        "*2\r\n+FUTURE\r\n:9223372036854775807\r\n",
        "*4\r\n+HELD\r\n_\r\n:9223372036854775807\r\n:9223372036854775807\r\n",
        "-STRANGE it is not what you think\r\n",
    ];
    ANSWERS[number % ANSWERS.len()]
}
