//! What commands answer, and how it is written to a connection.

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    Status(&'static str),
    Error(String),
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    /// Said without being asked.
    Push(Vec<Value>),
}

impl Value {
    pub(crate) fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Text(text.as_ref().to_vec())
    }

    /// As RESP3.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let head =
            |out: &mut Vec<u8>, sign, count| out.extend(format!("{sign}{count}\r\n").bytes());
        match self {
            Self::Nil => out.extend(b"_\r\n"),
            Self::Int(number) => head(out, ':', *number),
            Self::Text(text) => {
                head(out, '$', text.len() as i64);
                out.extend(text);
                out.extend(b"\r\n");
            }
            Self::Status(status) => out.extend(format!("+{status}\r\n").bytes()),
            Self::Error(error) => out.extend(format!("-{error}\r\n").bytes()),
            Self::Array(values) | Self::Push(values) => {
                let sign = if matches!(self, Self::Array(_)) {
                    '*'
                } else {
                    '>'
                };
                head(out, sign, values.len() as i64);
                values.iter().for_each(|value| value.write(out));
            }
            Self::Map(pairs) => {
                head(out, '%', pairs.len() as i64);
                for (key, value) in pairs {
                    key.write(out);
                    value.write(out);
                }
            }
        }
    }
}

impl Value {
    /// For people, and for comparing traces.
    pub(crate) fn show(&self, out: &mut String) {
        match self {
            Self::Nil => out.push_str("nil"),
            Self::Int(number) => out.push_str(&number.to_string()),
            Self::Text(text) => out.push_str(&show(text)),
            Self::Status(status) => out.push_str(status),
            Self::Error(error) => out.push_str(error),
            Self::Map(_) => out.push_str("..."),
            Self::Array(values) | Self::Push(values) => {
                for value in values {
                    value.show(out);
                    out.push(' ');
                }
            }
        }
    }
}

/// The beginning of a text: of a token all but what names this process, which
/// is another one each time, and of a script next to nothing.
pub(crate) fn show(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().next().unwrap_or_default();
    match line.split_once(" {") {
        Some((token, _)) => token.to_owned(),
        None => line.chars().take(60).collect(),
    }
}

/// Takes the next whole command out of what has come in.
pub(crate) fn take_command(input: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut at = 0;
    let mut number = |sign: u8| {
        let end = at + input[at..].windows(2).position(|two| two == b"\r\n")?;
        assert_eq!(input[at], sign, "a command is an array of strings");
        let number: usize = std::str::from_utf8(&input[at + 1..end])
            .ok()?
            .parse()
            .ok()?;
        at = end + 2;
        if sign == b'*' {
            return Some((number, 0));
        }
        let begin = at;
        at += number + 2;
        (at <= input.len()).then_some((number, begin))
    };
    let (count, _) = number(b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        words.push(number(b'$')?);
    }
    let words = words
        .into_iter()
        .map(|(length, begin)| input[begin..begin + length].to_vec());
    let words = words.collect();
    input.drain(..at);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_when_they_are_whole() {
        let whole = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPI";
        let mut input = Vec::new();
        let mut taken = Vec::new();
        for byte in whole {
            input.push(*byte);
            taken.extend(take_command(&mut input));
        }
        assert_eq!(taken, [[b"GET".to_vec(), b"k".to_vec()]]);
        input.extend(b"NG\r\n");
        assert_eq!(take_command(&mut input), Some(vec![b"PING".to_vec()]));
        assert!(input.is_empty());
    }
}
