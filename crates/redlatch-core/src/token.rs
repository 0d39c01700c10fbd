//! What names a lease, and what it says about its owner.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

/// Names one lease: the plain string value of the lock's key on every node.
///
/// An id that no other lease has, then one space, then a small JSON object
/// about the owner for the people who look at the key:
/// `Zm9vYmFyYmF6cXV4Zm9vYmFyYmE {"host":"web-3","pid":4711}`.
///
/// Whoever knows the token can release the lock, so its `Debug` form and what
/// goes into logs is [`short`](Token::short).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(Arc<str>);

impl Token {
    /// A token from 20 random bytes (base64url, 27 characters) and the owner's
    /// part as [`Owner::suffix`] wrote it.
    pub fn random(bytes: [u8; 20], suffix: &str) -> Self {
        let mut text = String::with_capacity(27 + suffix.len());
        base64url(&bytes, &mut text);
        text.push_str(suffix);
        Self(text.into())
    }

    /// A token with an id of the user's own.
    ///
    /// The id must be neither empty nor longer than 128 bytes, and free of
    /// white space and control characters, so that it can be told from what follows.
    pub fn with_id(id: &str, suffix: &str) -> Result<Self, TokenError> {
        let plain = |c: char| !c.is_whitespace() && !c.is_control();
        if id.is_empty() || id.len() > 128 || !id.chars().all(plain) {
            return Err(TokenError);
        }
        Ok(Self(format!("{id}{suffix}").into()))
    }

    /// A token that was written down by another process.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let (id, _) = split(text);
        Self::with_id(id, &text[id.len()..])
    }

    /// The whole token, as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part that makes the token unique.
    pub fn id(&self) -> &str {
        split(&self.0).0
    }

    /// The first characters of the id: enough to recognise it in a log, not
    /// enough to release the lock with.
    pub fn short(&self) -> &str {
        let id = self.id();
        let end = id.char_indices().nth(6).map_or(id.len(), |(at, _)| at);
        &id[..end]
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", self.short())
    }
}

/// A text that can't be a token's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenError;

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a token's id has 1 to 128 bytes and no white space or control characters"
        )
    }
}

impl std::error::Error for TokenError {}

/// What a token says about its owner.
///
/// Anybody can write anything there: it is for people to read, never to decide by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// The machine.
    pub host: Option<String>,
    /// The process on that machine.
    pub pid: Option<u32>,
    /// The person or account it runs for.
    pub user: Option<String>,
    /// The program's name, never with its arguments: those may hold secrets.
    pub program: Option<String>,
    /// When it asked for the lease, in seconds since 1970 on its own clock.
    pub since: Option<u64>,
    /// A few words that the owner wanted to be seen.
    pub note: Option<String>,
}

impl Owner {
    /// The owner's part of a token: one space and the JSON object, or nothing
    /// where there is nothing to say.
    pub fn suffix(&self) -> String {
        let mut object = Map::new();
        if let Some(host) = &self.host {
            object.insert("host".into(), host.as_str().into());
        }
        if let Some(pid) = self.pid {
            object.insert("pid".into(), pid.into());
        }
        if let Some(user) = &self.user {
            object.insert("user".into(), user.as_str().into());
        }
        if let Some(program) = &self.program {
            object.insert("program".into(), program.as_str().into());
        }
        if let Some(since) = self.since {
            object.insert("since".into(), since.into());
        }
        if let Some(note) = &self.note {
            object.insert("note".into(), note.as_str().into());
        }
        if object.is_empty() {
            return String::new();
        }
        format!(" {}", Value::Object(object))
    }

    /// What the value of a key says about its owner; nothing at all when a
    /// stranger wrote it in a form of its own.
    pub fn read(value: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(value) else {
            return Self::default();
        };
        let Ok(Value::Object(object)) = serde_json::from_str(split(text).1) else {
            return Self::default();
        };
        let text = |name| Some(object.get(name)?.as_str()?.to_owned());
        Self {
            host: text("host"),
            pid: object
                .get("pid")
                .and_then(Value::as_u64)
                .and_then(|pid| u32::try_from(pid).ok()),
            user: text("user"),
            program: text("program"),
            since: object.get("since").and_then(Value::as_u64),
            note: text("note"),
        }
    }
}

/// `host web-3, pid 4711, user ada, program backup (nightly report)`, or an
/// empty string.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        if let Some(host) = &self.host {
            write!(f, "host {}", host.escape_debug())?;
            gap = ", ";
        }
        if let Some(pid) = self.pid {
            write!(f, "{gap}pid {pid}")?;
            gap = ", ";
        }
        if let Some(user) = &self.user {
            write!(f, "{gap}user {}", user.escape_debug())?;
            gap = ", ";
        }
        if let Some(program) = &self.program {
            write!(f, "{gap}program {}", program.escape_debug())?;
            gap = ", ";
        }
        if let Some(note) = &self.note {
            let gap = if gap.is_empty() { "" } else { " " };
            write!(f, "{gap}({})", note.escape_debug())?;
        }
        Ok(())
    }
}

fn split(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

/// Appends `bytes` in base64url without padding (RFC 4648, section 5).
///
/// Not inlined, where the loop would be written out for 20 bytes: between two locks the
/// processor has forgotten the code, and to read it takes longer than to run it.
#[inline(never)]
fn base64url(bytes: &[u8], text: &mut String) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for chunk in bytes.chunks(3) {
        let byte = |i| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digits = [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift & 63) as usize]);
        // Four at once: one by one takes three times as long.
        let digits = str::from_utf8(&digits[..=chunk.len()]);
        text.push_str(digits.expect("the alphabet is ASCII"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner {
            host: Some("web-3".into()),
            pid: Some(4711),
            note: Some("say \"hi\"".into()),
            ..Owner::default()
        }
    }

    #[test]
    fn base64url_matches_the_rfc_vectors() {
        let encode = |bytes: &[u8]| {
            let mut text = String::new();
            base64url(bytes, &mut text);
            text
        };
        let vectors = ["", "Zg", "Zm8", "Zm9v", "Zm9vYg", "Zm9vYmE", "Zm9vYmFy"];
        for (length, expected) in vectors.iter().enumerate() {
            assert_eq!(encode(&b"foobar"[..length]), *expected);
        }
        assert_eq!(encode(&[0xfb, 0xff, 0xbf]), "-_-_");
    }

    #[test]
    fn a_token_is_its_id_then_a_space_then_json() {
        let token = Token::random([0; 20], &owner().suffix());
        assert_eq!(token.id(), "A".repeat(27));
        assert_eq!(Owner::read(token.as_str().as_bytes()), owner());
        assert_eq!(
            token.as_str(),
            format!(
                r#"{} {{"host":"web-3","note":"say \"hi\"","pid":4711}}"#,
                token.id()
            )
        );
    }

    #[test]
    fn an_owner_can_say_who_and_what_and_since_when() {
        let full = Owner {
            user: Some("ada".into()),
            program: Some("backup".into()),
            since: Some(1_789_000_000),
            ..owner()
        };
        let token = Token::random([0; 20], &full.suffix());
        assert_eq!(Owner::read(token.as_str().as_bytes()), full);
        let expected = r#"host web-3, pid 4711, user ada, program backup (say \"hi\")"#;
        assert_eq!(full.to_string(), expected);
    }

    #[test]
    fn debug_shows_only_the_beginning() {
        let token = Token::random([7; 20], &owner().suffix());
        assert_eq!(format!("{token:?}"), "Token(BwcHBw…)");
    }

    #[test]
    fn a_stranger_has_no_owner() {
        for value in [
            "",
            "1",
            "uuid-1234",
            "x {",
            "x [1]",
            "x {\"pid\":-1}",
            "a b c",
        ] {
            assert_eq!(Owner::read(value.as_bytes()), Owner::default(), "{value}");
        }
        assert_eq!(Owner::read(&[0xff, 0xfe]), Owner::default());
    }

    #[test]
    fn ids_of_the_users_own_are_checked() {
        assert_eq!(Token::with_id("", ""), Err(TokenError));
        assert_eq!(Token::with_id("a b", ""), Err(TokenError));
        assert_eq!(Token::with_id("a\n", ""), Err(TokenError));
        assert_eq!(Token::with_id(&"x".repeat(129), ""), Err(TokenError));
        assert_eq!(Token::with_id("42", " {}").unwrap().id(), "42");
    }

    #[test]
    fn a_hostile_note_can_not_write_to_the_terminal() {
        let owner = Owner {
            note: Some("\u{1b}[2J".into()),
            ..Owner::default()
        };
        assert_eq!(owner.to_string(), "(\\u{1b}[2J)");
    }
}
