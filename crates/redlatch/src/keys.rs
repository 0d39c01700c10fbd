//! From a lock's name to the key under which nodes store it.

use redlatch_core::Key;

use crate::error::ConfigError;
use crate::node::Pattern;

/// How the key of a lock is made from its name.
///
/// Clients exclude each other when they use the same key on the same nodes,
/// whatever language they are written in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyScheme {
    /// The prefix, then the name. The default, with the prefix `redlatch:`.
    Prefix(String),
    /// The name as it is: how one meets clients that use a plain key.
    Raw,
    /// The key that Yii2's `yii\redis\Mutex` uses:
    /// `keyPrefix . md5(json_encode([class, name]))`.
    #[cfg(feature = "yii2")]
    Yii2 {
        /// The component's `keyPrefix`.
        prefix: String,
        /// The class, which takes part in the key: `yii\redis\Mutex`, also for one
        /// that extends it, unless that computes its keys itself.
        class: String,
    },
}

impl Default for KeyScheme {
    fn default() -> Self {
        Self::Prefix("redlatch:".into())
    }
}

impl KeyScheme {
    /// The scheme of Yii2's own mutex, for the component's `keyPrefix`.
    #[cfg(feature = "yii2")]
    pub fn yii2(prefix: impl Into<String>) -> Self {
        Self::Yii2 {
            prefix: prefix.into(),
            class: r"yii\redis\Mutex".into(),
        }
    }

    /// What stands before the names of the keys in which nodes keep their own books.
    pub(crate) fn service_prefix(&self) -> &str {
        match self {
            Self::Prefix(prefix) if !prefix.is_empty() => prefix,
            _ => "redlatch:",
        }
    }

    /// The key under which nodes store the lock with this name, for people who
    /// look there.
    ///
    /// # Errors
    ///
    /// When no lock can have this name: it is empty, too long or reserved.
    pub fn key(&self, name: &str) -> Result<Key, ConfigError> {
        if name.is_empty() {
            return Err(ConfigError::EmptyName);
        }
        if name.len() > MAX_NAME {
            return Err(ConfigError::NameTooLong(name.len()));
        }
        let key = match self {
            Self::Prefix(prefix) => [prefix, name].concat(),
            Self::Raw => name.to_owned(),
            #[cfg(feature = "yii2")]
            Self::Yii2 { prefix, class } => format!("{prefix}{}", yii2::digest(class, name)),
        };
        if self.is_service(name) || self.is_service(&key) {
            return Err(ConfigError::ReservedName(name.into()));
        }
        Ok(Key::new(key))
    }

    /// The keys of the locks whose names match `glob`, and of others perhaps.
    pub(crate) fn pattern(&self, glob: &str) -> Pattern {
        Pattern::new(self.prefix(), glob)
    }

    /// The name of the lock that is stored under this key; nothing when it
    /// can't be one.
    pub(crate) fn name_in<'a>(&self, key: &'a Key) -> Option<&'a str> {
        let name = key.as_str().strip_prefix(self.prefix())?;
        (!name.is_empty() && !self.is_service(key.as_str())).then_some(name)
    }

    fn prefix(&self) -> &str {
        match self {
            Self::Prefix(prefix) => prefix,
            Self::Raw => "",
            #[cfg(feature = "yii2")]
            Self::Yii2 { prefix, .. } => prefix,
        }
    }

    /// Whether nodes keep their own books under this key.
    fn is_service(&self, key: &str) -> bool {
        is_own(key) || key.strip_prefix(self.service_prefix()).is_some_and(is_own)
    }
}

/// Whether nodes keep their own books under this name.
fn is_own(name: &str) -> bool {
    name == "__fence" || name.starts_with("__queue:")
}

/// A name is meant to be read, and travels with every request.
const MAX_NAME: usize = 1024;

#[cfg(feature = "yii2")]
mod yii2 {
    use std::fmt::Write;

    use md5::{Digest, Md5};

    /// `md5(json_encode([class, name]))`, byte for byte as PHP does it.
    pub(super) fn digest(class: &str, name: &str) -> String {
        let json = format!("[{},{}]", php_json(class), php_json(name));
        let mut digest = String::with_capacity(32);
        for byte in Md5::digest(json) {
            let _ = write!(digest, "{byte:02x}");
        }
        digest
    }

    /// A string as PHP's `json_encode` writes it with no flags: slashes are
    /// escaped, and so is all that is not ASCII, as UTF-16.
    fn php_json(text: &str) -> String {
        let mut json = String::from('"');
        for c in text.chars() {
            match c {
                '"' => json.push_str("\\\""),
                '\\' => json.push_str("\\\\"),
                '/' => json.push_str("\\/"),
                '\u{8}' => json.push_str("\\b"),
                '\u{c}' => json.push_str("\\f"),
                '\n' => json.push_str("\\n"),
                '\r' => json.push_str("\\r"),
                '\t' => json.push_str("\\t"),
                ' '..='\u{7f}' => json.push(c),
                _ => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(json, "\\u{unit:04x}");
                    }
                }
            }
        }
        json.push('"');
        json
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// The expected digests were printed by PHP 8.2:
        /// `php -r 'echo md5(json_encode(["yii\\redis\\Mutex", $name]));'`
        #[test]
        fn digests_are_those_of_php() {
            let vectors = [
                ("stock", "bd5f101102a14d28f0bdad68adca4bc2"),
                ("a/b", "ad0aa3791602632e1ea136ac77403b31"),
                ("say \"hi\"", "5c7cfe00381dfbde5c523e48165bdfce"),
                ("back\\slash", "670c77cf4a1a818e10cfe88bce7465a6"),
                ("tab\u{9}new\u{a}line", "80c5c0e7ff3d781577af0d7df734654b"),
                ("é", "f793cfc80dc80c23727ae1815072f2da"),
                ("锁", "07c5e6a43224076bc9b0c70d894a126f"),
                ("🔒", "6c0e92d9978ff6721216fa994aa35f0a"),
                ("\u{1}\u{7f}", "ed5d25ad2d4138143bd88f7a831968cc"),
                ("a b", "25689d0daf919542259aee2a8de79858"),
            ];
            for (name, expected) in vectors {
                assert_eq!(digest(r"yii\redis\Mutex", name), expected, "{name:?}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_key_is_prefix_and_name() {
        let key = KeyScheme::default().key("sku:0001").unwrap();
        assert_eq!(key.as_str(), "redlatch:sku:0001");
        assert_eq!(KeyScheme::Raw.key("lock1").unwrap().as_str(), "lock1");
    }

    #[test]
    fn a_name_is_told_from_its_key() {
        let scheme = KeyScheme::default();
        let name = |key| scheme.name_in(&Key::new(key)).map(str::to_owned);
        assert_eq!(name("redlatch:sku:0001").as_deref(), Some("sku:0001"));
        for key in ["sku:0001", "redlatch:", "redlatch:__fence"] {
            assert_eq!(name(key), None, "{key}");
        }
        let raw = KeyScheme::Raw;
        assert_eq!(raw.name_in(&Key::new("lock1")), Some("lock1"));
        assert_eq!(raw.name_in(&Key::new("redlatch:__fence")), None);
    }

    #[test]
    fn names_that_can_not_be_locks_are_refused() {
        let scheme = KeyScheme::default();
        assert_eq!(scheme.key(""), Err(ConfigError::EmptyName));
        assert_eq!(
            scheme.key(&"x".repeat(1025)),
            Err(ConfigError::NameTooLong(1025))
        );
        for name in ["__fence", "__queue:stock"] {
            let refused = Err(ConfigError::ReservedName(name.into()));
            assert_eq!(scheme.key(name), refused);
        }
        let raw = KeyScheme::Raw.key("redlatch:__fence");
        assert!(matches!(raw, Err(ConfigError::ReservedName(_))));
        assert!(scheme.key("__fences").is_ok());
    }
}
