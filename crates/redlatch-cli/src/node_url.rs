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

    /// Whether it may hold one: in doubt it does.
    pub(crate) fn has_password(&self) -> bool {
        self.shown().1
    }

    /// What may be seen of it, and whether anything may not.
    fn shown(&self) -> (String, bool) {
        if self.0.starts_with("sqlite:") {
            return (self.0.clone(), false);
        }
        let Some((scheme, rest)) = self.0.split_once("://") else {
            // No URL at all: nobody knows what it holds.
            return match self.0.contains('@') {
                true => ("***".into(), true),
                false => (self.0.clone(), false),
            };
        };
        // The last one: who forgot to escape an @ or a / in a password is not
        // to see a part of it. A path to a socket has no user before it.
        let login = match scheme.ends_with("unix") {
            true => None,
            false => rest.rsplit_once('@'),
        };
        let (user, place) = match login {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let (user, has_password) = match user.map(|user| user.split_once(':')) {
            Some(Some((user, _))) => (format!("{user}:***@"), true),
            Some(None) => (format!("{}@", user.unwrap_or_default()), false),
            None => (String::new(), false),
        };
        let (place, query) = match place.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (place, None),
        };
        let (query, has_more) = match query {
            None => (String::new(), false),
            Some(query) if query.split('&').all(is_harmless) => (format!("?{query}"), false),
            Some(_) => ("?***".to_owned(), true),
        };
        let shown = format!("{scheme}://{user}{place}{query}");
        (shown, has_password || has_more)
    }
}

/// Whether this part of a query is known to be no password. There are many ways
/// to write that one: `pass=`, `p%61ss=`.
fn is_harmless(pair: &str) -> bool {
    let (name, _) = pair.split_once('=').unwrap_or((pair, ""));
    matches!(name, "" | "db" | "user" | "protocol")
}

impl fmt::Display for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown().0)
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
            ("unix:///s?pass=sec@ret", "unix:///s?***"),
            ("unix:///s?db=1&p%61ss=secret", "unix:///s?***"),
            ("redis+unix:///a@b?user=ada", "redis+unix:///a@b?user=ada"),
            ("redis://a?protocol=resp3", "redis://a?protocol=resp3"),
            ("ada:secret@a", "***"),
            ("sqlite:/home/a@b/locks.db", "sqlite:/home/a@b/locks.db"),
        ] {
            let node = NodeUrl::new(url);
            assert_eq!(node.to_string(), shown);
            assert!(!format!("{node:?}").contains("secret"));
            assert_eq!(node.has_password(), url.contains("sec"), "{url}");
        }
        assert!(NodeUrl::new("redis://:***@a").has_password());
    }
}
