//! A configuration file.
//!
//! Errors name the key and the line, never a value: it may be a password.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::exit_code::Failure;
use crate::node_url::NodeUrl;

/// The keys whose values are one text, number or yes-or-no.
const KEYS: [&str; 10] = [
    "prefix",
    "ttl",
    "node_timeout",
    "connect_timeout",
    "deployment",
    "max_ttl",
    "restart_guard",
    "root_certificate",
    "client_certificate",
    "client_key",
];

/// What a file says.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) nodes: Vec<NodeUrl>,
    texts: BTreeMap<String, String>,
}

impl File {
    /// Reads a file; nothing when there is none.
    pub(super) fn read(
        path: &Path,
        file: &dyn Fn(&Path) -> std::io::Result<String>,
    ) -> Result<Option<Self>, Failure> {
        let text = match file(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let path = path.display();
                return Err(Failure::usage(format!("can't read {path}: {error}")));
            }
        };
        let wrong = |problem: String| Failure::usage(format!("{}: {problem}", path.display()));
        Self::parse(path, &text).map(Some).map_err(wrong)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            // The error's own display would quote the line.
            let line = error
                .span()
                .map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            format!("line {line} is no TOML: {}", error.message())
        })?;
        let mut file = Self {
            path: path.to_owned(),
            nodes: Vec::new(),
            texts: BTreeMap::new(),
        };
        for (key, value) in table {
            if key == "nodes" {
                file.nodes = nodes(value)?;
            } else if KEYS.contains(&key.as_str()) {
                let text = match value {
                    Value::String(text) => text,
                    Value::Integer(number) => number.to_string(),
                    Value::Float(number) => number.to_string(),
                    Value::Boolean(yes) => yes.to_string(),
                    _ => return Err(format!("{key} must be one value")),
                };
                file.texts.insert(key, text);
            } else {
                let known = KEYS.join(", ");
                return Err(format!("{key:?} is no setting: there are nodes, {known}"));
            }
        }
        Ok(file)
    }

    /// The value of a key, as text, and the file's path.
    pub(super) fn text(&self, key: &str) -> Option<(&str, &Path)> {
        Some((self.texts.get(key)?.as_str(), &self.path))
    }
}

/// One URL, or a list.
fn nodes(value: Value) -> Result<Vec<NodeUrl>, String> {
    let wrong = || "nodes must be a list of URLs, such as [\"redis://a\"]".to_owned();
    match value {
        Value::String(url) => Ok(vec![NodeUrl::new(url)]),
        Value::Array(urls) if !urls.is_empty() => urls
            .into_iter()
            .map(|url| match url {
                Value::String(url) => Ok(NodeUrl::new(url)),
                _ => Err(wrong()),
            })
            .collect(),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<File, String> {
        File::parse(Path::new("config.toml"), text)
    }

    #[test]
    fn values_are_read_as_text() {
        let file = parse("nodes = [\"redis://a\", \"redis://b\"]\nttl = 20\nrestart_guard = true");
        let file = file.unwrap();
        assert_eq!(file.nodes.len(), 2);
        assert_eq!(file.text("ttl").unwrap().0, "20");
        assert_eq!(file.text("restart_guard").unwrap().0, "true");
        assert_eq!(file.text("prefix"), None);
    }

    #[test]
    fn errors_repeat_no_value() {
        for text in [
            "nodes = [\"redis://:secret@a\"",
            "nodes = redis://:secret@a",
            "nodes = [1, \"redis://:secret@a\"]",
            "nodes = { a = \"secret\" }",
            "node = \"redis://:secret@a\"",
            "prefix = [\"secret\"]",
            "x\ny = \"secret\"",
            "nodes = \"redis://:secret@a\"\nnodes = \"redis://:secret@a\"",
        ] {
            let error = parse(text).unwrap_err();
            assert!(!error.contains("secret"), "{text}: {error}");
        }
    }
}
