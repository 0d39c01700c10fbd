//! Addresses of nodes, which may hold a password.

use std::fmt;

/// The URL of a node. Shown without its password, also by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NodeUrl(String);

impl NodeUrl {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The whole of it, for the one who connects.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }

    pub(crate) fn has_password(&self) -> bool {
        self.to_string() != self.0
    }
}

impl fmt::Display for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.starts_with("sqlite:") {
            return f.write_str(&self.0);
        }
        let (scheme, rest) = match self.0.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            // No URL at all: nobody knows what it holds.
            None if self.0.contains('@') => return f.write_str("***"),
            None => ("", self.0.as_str()),
        };
        // The last one: who forgot to escape an @ or a / in a password is not
        // to see a part of it.
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let (place, query) = match place.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (place, None),
        };
        if !scheme.is_empty() {
            write!(f, "{scheme}://")?;
        }
        match user.map(|user| user.split_once(':')) {
            Some(Some((user, _))) => write!(f, "{user}:***@")?,
            Some(None) => write!(f, "{}@", user.unwrap_or_default())?,
            None => {}
        }
        f.write_str(place)?;
        match query {
            Some(query) if query.contains("pass") => f.write_str("?***"),
            Some(query) => write!(f, "?{query}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("redis://a:1/2", "redis://a:1/2"),
            ("redis://ada@a", "redis://ada@a"),
            ("redis://ada:secret@a:1", "redis://ada:***@a:1"),
            ("redis://:secret@a", "redis://:***@a"),
            ("redis://:sec/ret@x@a", "redis://:***@a"),
            ("unix:///s?pass=secret", "unix:///s?***"),
            ("unix:///s?db=1", "unix:///s?db=1"),
            ("ada:secret@a", "***"),
            ("sqlite:/home/a@b/locks.db", "sqlite:/home/a@b/locks.db"),
        ] {
            let node = NodeUrl::new(url);
            assert_eq!(node.to_string(), shown);
            assert!(!format!("{node:?}").contains("secret"));
            assert_eq!(node.has_password(), url.contains("sec"), "{url}");
        }
    }
}
