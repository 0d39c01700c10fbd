//! Commands as they go over the wire.

use redis::Cmd;

/// Takes the arguments of a command, one after the other.
pub(super) trait Args {
    fn text(&mut self, text: &str) -> &mut Self;

    fn number(&mut self, number: u64) -> &mut Self;

    /// One argument of several parts.
    fn parts(&mut self, parts: &[&[u8]]) -> &mut Self;

    /// Arguments that may be missing, up to the last that is not.
    fn tail(&mut self, tail: &[Optional<'_>]) -> &mut Self {
        let is_given = |argument: &Optional<'_>| !matches!(argument, Optional::Missing);
        let count = tail.iter().rposition(is_given).map_or(0, |last| last + 1);
        for argument in &tail[..count] {
            match argument {
                Optional::Missing => self.text(""),
                Optional::Text(text) => self.text(text),
                Optional::Number(number) => self.number(*number),
                Optional::Highest {
                    slot,
                    ballot,
                    is_one,
                } => {
                    let mut digits = [[0; DIGITS]; 2];
                    let [first, second] = &mut digits;
                    let parts = [
                        decimal((*slot).into(), first),
                        b" ",
                        decimal(*ballot, second),
                        if *is_one { b" one" } else { b"" },
                    ];
                    self.parts(&parts)
                }
            };
        }
        self
    }
}

/// An argument that may be missing: it is empty then, and is not sent where nothing
/// follows.
pub(super) enum Optional<'a> {
    Missing,
    Text(&'a str),
    Number(u64),
    /// What a release raises, and whether that is the only ballot that was sent.
    Highest {
        slot: u16,
        ballot: u64,
        is_one: bool,
    },
}

impl<'a> From<Option<&'a str>> for Optional<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.filter(|text| !text.is_empty())
            .map_or(Self::Missing, Self::Text)
    }
}

impl From<Option<u64>> for Optional<'_> {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Missing, Self::Number)
    }
}

/// For the connections of others.
impl Args for Cmd {
    fn text(&mut self, text: &str) -> &mut Self {
        self.arg(text)
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.arg(number)
    }

    fn parts(&mut self, parts: &[&[u8]]) -> &mut Self {
        self.arg(parts.concat())
    }
}

/// A command, written behind what is there. It counts only once it is finished.
pub(super) struct Packed<'a> {
    out: &'a mut Vec<u8>,
    begin: usize,
    count: u64,
}

impl<'a> Packed<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        let begin = out.len();
        Self {
            out,
            begin,
            count: 0,
        }
    }

    /// Puts before the arguments how many they are.
    pub(super) fn finish(self) {
        let mut digits = [0; DIGITS];
        let count = decimal(self.count, &mut digits);
        let (begin, end) = (self.begin, self.out.len());
        let after = begin + count.len() + 3;
        self.out.resize(end + after - begin, b'*');
        self.out.copy_within(begin..end, after);
        self.out[begin] = b'*';
        self.out[begin + 1..after - 2].copy_from_slice(count);
        self.out[after - 2..after].copy_from_slice(b"\r\n");
    }
}

impl Args for Packed<'_> {
    fn text(&mut self, text: &str) -> &mut Self {
        self.parts(&[text.as_bytes()])
    }

    fn number(&mut self, number: u64) -> &mut Self {
        let mut digits = [0; DIGITS];
        self.parts(&[decimal(number, &mut digits)])
    }

    fn parts(&mut self, parts: &[&[u8]]) -> &mut Self {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut digits = [0; DIGITS];
        // All at once, so that it grows at most once.
        self.out.reserve(length + 32);
        self.out.push(b'$');
        self.out
            .extend_from_slice(decimal(length as u64, &mut digits));
        self.out.extend_from_slice(b"\r\n");
        parts
            .iter()
            .for_each(|part| self.out.extend_from_slice(part));
        self.out.extend_from_slice(b"\r\n");
        self.count += 1;
        self
    }
}

/// As many as the largest number has.
const DIGITS: usize = 20;

fn decimal(mut number: u64, digits: &mut [u8; DIGITS]) -> &[u8] {
    let mut at = DIGITS;
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn commands_are_written_as_the_client_library_writes_them(
            before in "[a-z]{0,3}",
            arguments in prop::collection::vec((any::<String>(), any::<Option<u64>>()), 1..30),
        ) {
            let fill = |args: &mut dyn FnMut(&str, Option<u64>)| {
                arguments.iter().for_each(|(text, number)| args(text, *number));
            };
            let mut theirs = Cmd::new();
            fill(&mut |text, number| {
                theirs.text(text).parts(&[text.as_bytes(), b"tail"]).tail(&[number.into(), Some(text).into()]);
            });
            let mut out = before.clone().into_bytes();
            let mut ours = Packed::new(&mut out);
            fill(&mut |text, number| {
                ours.text(text).parts(&[text.as_bytes(), b"tail"]).tail(&[number.into(), Some(text).into()]);
            });
            ours.finish();
            let mut expected = before.into_bytes();
            theirs.write_packed_command(&mut expected);
            prop_assert_eq!(out, expected);
        }
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 9, 10, 1234567890, u64::MAX] {
            assert_eq!(
                decimal(number, &mut [0; DIGITS]),
                number.to_string().as_bytes()
            );
        }
    }
}
