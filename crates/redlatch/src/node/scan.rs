//! Which keys a node has, page by page.

use std::pin::Pin;

use redlatch_core::Key;

use super::NodeError;

/// A page of keys to come.
pub type Scanning = Pin<Box<dyn Future<Output = Result<Page, NodeError>> + Send>>;

/// Some of the keys that a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Those that match.
    pub keys: Vec<Key>,
    /// How many keys were looked at for it, more or less.
    pub looked_at: u64,
    /// How many keys the node has in all, those of others included; nothing
    /// when it won't say.
    pub total: Option<u64>,
    /// Where the next page begins; nothing after the last one.
    pub next: Option<String>,
}

/// Which keys are meant: a prefix that is taken literally, and a pattern for the rest.
///
/// In the pattern `*` stands for any characters, `?` for one, `[a-z]` for one
/// of these, `[^a-z]` for one of all others, and a backslash takes away the
/// meaning of what follows, as in Redis' `SCAN`. Characters are bytes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    prefix: String,
    glob: String,
}

impl Pattern {
    /// Keys that begin with `prefix` and go on as `glob` says.
    pub fn new(prefix: impl Into<String>, glob: impl Into<String>) -> Self {
        let (prefix, glob) = (prefix.into(), glob.into());
        Self { prefix, glob }
    }

    /// Whether this key is meant.
    pub fn matches(&self, key: &str) -> bool {
        let rest = key.strip_prefix(self.prefix.as_str());
        rest.is_some_and(|rest| matches(self.glob.as_bytes(), rest.as_bytes()))
    }

    /// The same as one pattern, for nodes that match by themselves.
    pub fn as_glob(&self) -> String {
        let mut glob = String::with_capacity(self.prefix.len() + self.glob.len());
        for c in self.prefix.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\') {
                glob.push('\\');
            }
            glob.push(c);
        }
        glob + &self.glob
    }
}

/// As Redis' own matching, but for the time it takes: a star that fails is
/// tried again one byte further, and only the last one is.
fn matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if glob.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, read));
            continue;
        }
        match text.get(read) {
            None => return glob[at..].iter().all(|byte| *byte == b'*'),
            Some(byte) => {
                if let Some(next) = one(&glob[at..], *byte) {
                    (at, read) = (at + next, read + 1);
                    continue;
                }
            }
        }
        match &mut star {
            None => return false,
            Some((after, tried)) => {
                *tried += 1;
                (at, read) = (*after, *tried);
            }
        }
    }
}

/// Whether the first element of the pattern stands for this byte; how long it is.
fn one(glob: &[u8], byte: u8) -> Option<usize> {
    match *glob {
        [b'?', ..] => Some(1),
        [b'[', ref class @ ..] => {
            let (is_in, length) = class_of(class, byte);
            is_in.then_some(1 + length)
        }
        [b'\\', escaped, ..] => (escaped == byte).then_some(2),
        [first, ..] => (first == byte).then_some(1),
        [] => None,
    }
}

/// Whether the byte is in a class of which the bracket was read; how long the
/// rest is. A class that is not closed ends with the pattern.
fn class_of(class: &[u8], byte: u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match class[at..] {
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                at += 2;
            }
            [b']', ..] => return (found != negated, at + 1),
            [] => return (found != negated, at),
            [from, b'-', to, ..] => {
                found |= (from.min(to)..=from.max(to)).contains(&byte);
                at += 3;
            }
            [single, ..] => {
                found |= single == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_those_of_redis() {
        let yes = [
            ("", ""),
            ("*", ""),
            ("*", "anything"),
            ("sku:*", "sku:0001"),
            ("*:0001", "sku:0001"),
            ("a*b*c", "a-b-b-c"),
            ("?x", "ax"),
            ("[a-c]1", "b1"),
            ("[c-a]1", "b1"),
            ("[^a-c]1", "d1"),
            (r"\*", "*"),
            (r"[\]]", "]"),
            ("[ab", "b"),
            ("**", "x"),
        ];
        for (glob, text) in yes {
            assert!(
                Pattern::new("p", glob).matches(&format!("p{text}")),
                "{glob} {text}"
            );
        }
        let no = [
            ("", "a"),
            ("?", ""),
            ("sku:*", "sk"),
            ("a*b*c", "a-b-b"),
            ("[^a-c]1", "b1"),
            (r"\*", "x"),
            ("a", "ab"),
            ("[ab]", ""),
        ];
        for (glob, text) in no {
            assert!(
                !Pattern::new("p", glob).matches(&format!("p{text}")),
                "{glob} {text}"
            );
        }
        assert!(!Pattern::new("p", "*").matches("q"));
    }

    #[test]
    fn a_prefix_is_taken_literally() {
        let pattern = Pattern::new("a[b]*?\\", "x*");
        assert_eq!(pattern.as_glob(), "a\\[b\\]\\*\\?\\\\x*");
        assert!(pattern.matches("a[b]*?\\xyz"));
    }

    #[test]
    fn a_hostile_pattern_takes_no_time_to_speak_of() {
        let pattern = Pattern::new("", "*a".repeat(200) + "b");
        assert!(!pattern.matches(&"a".repeat(1000)));
    }
}
