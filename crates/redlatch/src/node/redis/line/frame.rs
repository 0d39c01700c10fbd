//! Values in what a server sends.

use redis::{PushKind, Value};

/// Nothing that we ask for is nearly as long as this, in bytes and in values.
const LONGEST: usize = 16 * 1024 * 1024;
const MOST: u64 = 64 * 1024;

/// Nor is a line, which most values are, or begin with.
const LONGEST_LINE: usize = 16 * 1024;

/// So deep are values read here; deeper ones, and rare kinds, are left to the
/// client library.
const DEPTH: u32 = 4;

/// What has come and was not yet read.
#[derive(Default)]
pub(in crate::node::redis) struct Frames {
    bytes: Vec<u8>,
    /// Where the next value begins.
    begin: usize,
    /// How far it was looked at, from there.
    seen: usize,
    /// How many values were found there, and how many are missing before it is
    /// complete.
    found: u64,
    missing: u64,
}

impl Frames {
    /// Room for so many bytes more, behind what is there.
    pub(in crate::node::redis) fn room(&mut self, more: usize) -> &mut Vec<u8> {
        if self.begin > 0 {
            self.bytes.drain(..self.begin);
            self.begin = 0;
        }
        if self.bytes.is_empty() {
            self.bytes.shrink_to(super::KEPT);
        }
        self.bytes.reserve(more);
        &mut self.bytes
    }

    /// The next value, when it is complete. The error says what is wrong with it.
    pub(in crate::node::redis) fn next(&mut self) -> Result<Option<Value>, &'static str> {
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        let frame = &self.bytes[self.begin..self.begin + length];
        let value = value(frame)?;
        self.begin += length;
        (self.seen, self.found, self.missing) = (0, 0, 0);
        Ok(Some(value))
    }

    /// How long the next value is, when it is complete. What was found complete
    /// of it is not looked at again, however slowly the rest comes.
    fn length(&mut self) -> Result<Option<usize>, &'static str> {
        if self.missing == 0 {
            self.missing = 1;
        }
        let bytes = &self.bytes[self.begin..];
        while self.missing > 0 {
            let Some((kind, line, after)) = line(&bytes[self.seen..])? else {
                return Ok(None);
            };
            let mut end = self.seen + after;
            let mut inside = 0;
            match kind {
                b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
                b'$' | b'!' | b'=' => {
                    // Fewer than none: it is null.
                    if let Ok(length) = usize::try_from(number(line)?) {
                        if length > LONGEST {
                            return Err("a text is too long");
                        }
                        end += length + 2;
                    }
                }
                b'*' | b'~' | b'>' => inside = count(line)?,
                b'%' => inside = 2 * count(line)?,
                b'|' => inside = 2 * count(line)? + 1,
                _ => return Err("a value begins with something else than its kind"),
            }
            if bytes.len() < end {
                return Ok(None);
            }
            self.seen = end;
            self.found += 1;
            self.missing += inside;
            self.missing -= 1;
            if self.found + self.missing > MOST || self.seen > LONGEST {
                return Err("a value is too long");
            }
        }
        Ok(Some(self.seen))
    }
}

/// The kind of a value, its first line, and where that ends.
type Head<'a> = (u8, &'a [u8], usize);

/// How a value begins; nothing when there is more of it to come.
fn line(bytes: &[u8]) -> Result<Option<Head<'_>>, &'static str> {
    let Some((kind, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    let head = &rest[..rest.len().min(LONGEST_LINE)];
    match head.iter().position(|&byte| byte == b'\n') {
        Some(end) => match head[..end].strip_suffix(b"\r") {
            Some(line) => Ok(Some((*kind, line, end + 2))),
            None => Err("a line ends in the wrong way"),
        },
        None if head.len() == LONGEST_LINE => Err("a line is too long"),
        None => Ok(None),
    }
}

fn number(line: &[u8]) -> Result<i64, &'static str> {
    let number = std::str::from_utf8(line).ok();
    let number = number.and_then(|line| line.parse().ok());
    number.ok_or("a number is none")
}

/// How many values follow: none in one that is null.
fn count(line: &[u8]) -> Result<u64, &'static str> {
    let count = u64::try_from(number(line)?).unwrap_or_default();
    match count > MOST {
        true => Err("a value is too long"),
        false => Ok(count),
    }
}

/// The value that `frame` holds, all of it.
fn value(frame: &[u8]) -> Result<Value, &'static str> {
    match quick(&mut &frame[..], DEPTH) {
        Some(value) => Ok(value),
        None => redis::parse_redis_value(frame).map_err(|_| "a value makes no sense"),
    }
}

/// The first value of `bytes`, if it is of the kinds that are common.
fn quick(bytes: &mut &[u8], depth: u32) -> Option<Value> {
    let (kind, line, after) = line(bytes).ok()??;
    *bytes = &bytes[after..];
    let text = || Some(std::str::from_utf8(line).ok()?.to_owned());
    let value = match kind {
        b'+' if line == b"OK" => Value::Okay,
        b'+' => Value::SimpleString(text()?),
        b':' => Value::Int(number(line).ok()?),
        b'_' => Value::Nil,
        b'$' => match usize::try_from(number(line).ok()?) {
            Err(_) => Value::Nil,
            Ok(length) => {
                let (text, rest) = bytes.split_at_checked(length)?;
                *bytes = rest.strip_prefix(b"\r\n")?;
                Value::BulkString(text.to_vec())
            }
        },
        b'*' if number(line).ok()? < 0 => Value::Nil,
        b'*' | b'>' => {
            let inside = depth.checked_sub(1)?;
            let count = count(line).ok()?;
            let mut values = Vec::new();
            for _ in 0..count {
                values.push(quick(bytes, inside)?);
            }
            match kind {
                b'*' => Value::Array(values),
                _ => push(values)?,
            }
        }
        _ => return None,
    };
    Some(value)
}

/// What a server says without being asked, if it is one of the things that ours say.
fn push(mut data: Vec<Value>) -> Option<Value> {
    let kind = match data.first()? {
        Value::BulkString(kind) => match &kind[..] {
            b"message" => PushKind::Message,
            b"invalidate" => PushKind::Invalidate,
            b"subscribe" => PushKind::Subscribe,
            _ => return None,
        },
        _ => return None,
    };
    data.remove(0);
    Some(Value::Push { kind, data })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A value as a server sends it.
    fn sent() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            "[a-zA-Z ]{0,9}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            "[A-Z]{1,9} [a-z ]{0,9}".prop_map(|text| format!("-{text}\r\n").into_bytes()),
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| {
                let head = format!("${}\r\n", bytes.len()).into_bytes();
                [&head, &bytes[..], b"\r\n"].concat()
            }),
            Just(b"$-1\r\n".to_vec()),
            Just(b"*-1\r\n".to_vec()),
            Just(b"_\r\n".to_vec()),
            Just(b"#t\r\n".to_vec()),
            Just(b",1.5\r\n".to_vec()),
            Just(b"+OK\r\n".to_vec()),
        ];
        leaf.prop_recursive(8, 64, 6, |inside| {
            let inside = prop::collection::vec(inside, 0..6);
            (inside, 0..4usize).prop_map(|(mut values, kind)| {
                let (kind, count) = match kind {
                    0 => ('*', values.len()),
                    1 => ('~', values.len()),
                    2 => {
                        values.truncate(values.len() / 2 * 2);
                        ('%', values.len() / 2)
                    }
                    _ => {
                        values.insert(0, b"$7\r\nmessage\r\n".to_vec());
                        ('>', values.len())
                    }
                };
                let head = format!("{kind}{count}\r\n").into_bytes();
                [head, values.concat()].concat()
            })
        })
    }

    proptest! {
        #[test]
        fn values_are_read_as_the_client_library_reads_them(
            values in prop::collection::vec(sent(), 0..8),
            piece in 1..50usize,
        ) {
            let expected = values.iter().map(|value| redis::parse_redis_value(value).unwrap());
            let expected: Vec<Value> = expected.collect();
            let mut frames = Frames::default();
            let mut read = Vec::new();
            for piece in values.concat().chunks(piece) {
                frames.room(1).extend(piece);
                while let Some(value) = frames.next().unwrap() {
                    read.push(value);
                }
            }
            prop_assert_eq!(read, expected);
            prop_assert_eq!(frames.room(1).len(), 0);
        }
    }

    fn problem(bytes: &[u8]) -> &'static str {
        let mut frames = Frames::default();
        frames.room(1).extend(bytes);
        loop {
            match frames.next() {
                Ok(Some(_)) => {}
                Ok(None) => return "none so far",
                Err(problem) => return problem,
            }
        }
    }

    #[test]
    fn what_would_never_end_is_found_early() {
        let long = format!("*{}\r\n", MOST + 1);
        assert_eq!(problem(long.as_bytes()), "a value is too long");
        let text = format!("${}\r\n", LONGEST + 1);
        assert_eq!(problem(text.as_bytes()), "a text is too long");
        let nested = b"*65000\r\n".repeat(2);
        assert_eq!(problem(&nested), "a value is too long");
        let wide = [b"*1000\r\n".to_vec(), b"*1\r\n_\r\n".repeat(40_000)].concat();
        assert_eq!(problem(&wide[..]), "none so far");
        let wider = [
            &b"*1000\r\n"[..],
            b"*60000\r\n",
            &b"_\r\n".repeat(60_000),
            b"*9000\r\n",
        ];
        assert_eq!(problem(&wider.concat()), "a value is too long");
        let line = vec![b'+'; LONGEST_LINE + 1];
        assert_eq!(problem(&line), "a line is too long");
        assert_eq!(problem(&line[..9]), "none so far");
        let deep = [b"*1\r\n".repeat(200), b":1\r\n".to_vec()].concat();
        assert_eq!(problem(&deep), "a value makes no sense");
    }
}
