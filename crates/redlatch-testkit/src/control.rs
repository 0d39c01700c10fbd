//! The kit's own line to a server: a blocking RESP2 client over the unix socket.
//!
//! The socket lies in the server's own directory, so whoever answers there is the server we
//! started, whatever became of its port; and it needs neither TLS nor the proxy.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::Reply;

/// Long enough for a busy machine, short enough to end a test on a frozen server.
const LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct Control {
    stream: BufReader<UnixStream>,
}

impl Control {
    pub(crate) fn connect(socket: &Path, password: Option<&str>) -> io::Result<Control> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        let mut control = Control {
            stream: BufReader::new(stream),
        };
        if let Some(password) = password {
            control.call(&["AUTH", password])?;
        }
        Ok(control)
    }

    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> io::Result<Reply> {
        self.stream.get_mut().write_all(&encode(command))?;
        self.read_reply()
    }

    fn read_reply(&mut self) -> io::Result<Reply> {
        let line = self.read_line()?;
        let (kind, rest) = line
            .split_at_checked(1)
            .ok_or_else(|| malformed("an empty line"))?;
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number(rest)?),
            "$" => match number(rest)? {
                -1 => Reply::Nil,
                length => Reply::Bulk(self.read_bulk(length as usize)?),
            },
            "*" => match number(rest)? {
                -1 => Reply::Nil,
                length => {
                    let items = (0..length).map(|_| self.read_reply());
                    Reply::Array(items.collect::<io::Result<_>>()?)
                }
            },
            _ => return Err(malformed(&line)),
        })
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(Error::new(
                ErrorKind::UnexpectedEof,
                "the server closed the connection",
            )),
        }
    }

    fn read_bulk(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    }
}

fn encode<A: AsRef<[u8]>>(command: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| malformed(text))
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("not RESP2: {what:?}"))
}
