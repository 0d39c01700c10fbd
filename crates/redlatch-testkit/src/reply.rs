//! What a server answered.

use std::fmt;

/// A RESP2 reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The null bulk string or the null array.
    Nil,
    /// An integer.
    Int(i64),
    /// A simple string, such as `OK`.
    Text(String),
    /// A bulk string: what is stored in a key.
    Bulk(Vec<u8>),
    /// An array.
    Array(Vec<Reply>),
    /// An error, with its code: `WRONGTYPE Operation against …`.
    Error(String),
}

impl Reply {
    /// The integer; panics on anything else.
    #[track_caller]
    pub fn as_int(&self) -> i64 {
        match self {
            Reply::Int(int) => *int,
            other => panic!("expected an integer, the server answered: {other}"),
        }
    }

    /// The string, simple or bulk; panics on anything else and on bytes that aren't UTF-8.
    #[track_caller]
    pub fn as_text(&self) -> &str {
        match self {
            Reply::Text(text) => text,
            Reply::Bulk(bytes) => std::str::from_utf8(bytes)
                .unwrap_or_else(|_| panic!("expected UTF-8, the server answered: {self}")),
            other => panic!("expected a string, the server answered: {other}"),
        }
    }

    /// The elements; panics on anything but an array.
    #[track_caller]
    pub fn as_array(&self) -> &[Reply] {
        match self {
            Reply::Array(items) => items,
            other => panic!("expected an array, the server answered: {other}"),
        }
    }

    /// Whether there was nothing there.
    pub fn is_nil(&self) -> bool {
        matches!(self, Reply::Nil)
    }

    /// Whether the server refused.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }
}

/// As `redis-cli` shows it, on one line.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Nil => f.write_str("(nil)"),
            Reply::Int(int) => write!(f, "(integer) {int}"),
            Reply::Text(text) => f.write_str(text),
            Reply::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Reply::Error(error) => write!(f, "(error) {error}"),
            Reply::Array(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{item}")?;
                }
                f.write_str("]")
            }
        }
    }
}
