//! Who takes part, and what each of them can do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::limited;

/// One way to lock, in a program of its own.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    /// Its directory under `bench/contenders`.
    pub(crate) language: &'static str,
    /// Whether it can lock over several nodes.
    pub(crate) several_nodes: bool,
    /// How many leases it is asked to keep alive; 0: it does not renew by itself.
    pub(crate) leases: usize,
    /// Whether one process can have several tasks. If not, each is a process.
    pub(crate) tasks: bool,
    /// Which package it is, and in which file of its directory its version is pinned.
    pub(crate) package: Option<(&'static str, &'static str)>,
}

/// The floor that all others are measured against.
pub(crate) const FLOOR: &str = "raw";

/// The floor of going from process to process in turn, for processes of one task.
pub(crate) const TURNS: &str = "raw-turns";

/// What comes with Redis; the harness itself runs it.
pub(crate) const REDIS_BENCHMARK: &str = "redis-benchmark";

/// One that can do what most can.
const ORDINARY: Contender = Contender {
    name: "",
    language: "",
    several_nodes: false,
    leases: 0,
    tasks: true,
    package: None,
};

/// In the order of the tables.
pub(crate) const ALL: &[Contender] = &[
    Contender {
        name: "redlatch-fenced",
        language: "rust",
        several_nodes: true,
        leases: 100_000,
        ..ORDINARY
    },
    Contender {
        name: "redlatch-plain",
        language: "rust",
        several_nodes: true,
        leases: 100_000,
        ..ORDINARY
    },
    Contender {
        name: FLOOR,
        language: "rust",
        several_nodes: true,
        leases: 100_000,
        package: Some(("name = \"redis\"", "../../../Cargo.lock")),
        ..ORDINARY
    },
    Contender {
        name: TURNS,
        language: "rust",
        ..ORDINARY
    },
    Contender {
        name: REDIS_BENCHMARK,
        ..ORDINARY
    },
    Contender {
        name: "rslock",
        language: "rust",
        several_nodes: true,
        package: Some(("name = \"rslock\"", "../../../Cargo.lock")),
        ..ORDINARY
    },
    Contender {
        name: "redsync",
        language: "go",
        several_nodes: true,
        package: Some(("github.com/go-redsync/redsync/v4", "go.mod")),
        ..ORDINARY
    },
    Contender {
        name: "redislock",
        language: "go",
        package: Some(("github.com/bsm/redislock", "go.mod")),
        ..ORDINARY
    },
    // A goroutine a lease.
    Contender {
        name: "rueidislock",
        language: "go",
        leases: 10_000,
        package: Some(("github.com/redis/rueidis ", "go.mod")),
        ..ORDINARY
    },
    Contender {
        name: "redisson-lock",
        language: "java",
        leases: 10_000,
        package: Some(("<artifactId>redisson</artifactId>", "pom.xml")),
        ..ORDINARY
    },
    Contender {
        name: "redisson-fair",
        language: "java",
        package: Some(("<artifactId>redisson</artifactId>", "pom.xml")),
        ..ORDINARY
    },
    Contender {
        name: "node-redlock",
        language: "node",
        several_nodes: true,
        package: Some(("redlock\"", "package.json")),
        ..ORDINARY
    },
    Contender {
        name: "redis-py",
        language: "python",
        package: Some(("\nredis==", "requirements.txt")),
        ..ORDINARY
    },
    // A thread a lease.
    Contender {
        name: "python-redis-lock",
        language: "python",
        leases: 1_000,
        package: Some(("python-redis-lock==", "requirements.txt")),
        ..ORDINARY
    },
    Contender {
        name: "php-loop",
        language: "php",
        tasks: false,
        ..ORDINARY
    },
];

/// The contender of this name.
pub(crate) fn find(name: &str) -> Option<&'static Contender> {
    ALL.iter().find(|contender| contender.name == name)
}

impl Contender {
    pub(crate) fn is_redlatch(&self) -> bool {
        self.name.starts_with("redlatch")
    }

    /// Whether it is redlatch, or a floor that it is measured against.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_redlatch() || [FLOOR, TURNS].contains(&self.name)
    }

    pub(crate) fn directory(&self) -> PathBuf {
        repository().join("bench/contenders").join(self.language)
    }

    /// The program that starts it.
    pub(crate) fn program(&self) -> PathBuf {
        self.directory().join("start")
    }

    /// The version that is pinned in its directory.
    pub(crate) fn version(&self) -> Option<String> {
        let (package, file) = self.package?;
        let text = std::fs::read_to_string(self.directory().join(file)).ok()?;
        version_after(&text, package)
    }
}

/// The first thing that looks like a version after `package`.
fn version_after(text: &str, package: &str) -> Option<String> {
    let text = format!("\n{text}");
    let rest = &text[text.find(package)? + package.len()..];
    let begin = rest.find(|character: char| character.is_ascii_digit())?;
    let is_part = |character: char| character.is_ascii_alphanumeric() || ".-+".contains(character);
    let version = rest[begin..]
        .split(|character| !is_part(character))
        .next()?;
    Some(version.to_owned())
}

/// Where this repository is: the contenders are built and started in it.
pub(crate) fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// How long it may take to build a contender with all that it needs, downloads included.
const PREPARE_LIMIT: Duration = Duration::from_secs(900);

/// Builds what is needed for a language. The error says what is missing.
pub(crate) fn prepare(contender: &Contender) -> Result<(), String> {
    if contender.name == REDIS_BENCHMARK {
        let mut version = Command::new(REDIS_BENCHMARK);
        return limited::output(version.arg("--version"), PREPARE_LIMIT).map(drop);
    }
    let program = contender.directory().join("prepare");
    if !program.exists() {
        return Err(format!(
            "there is no bench/contenders/{}/prepare",
            contender.language
        ));
    }
    let output = limited::output(&mut Command::new(&program), PREPARE_LIMIT)?;
    if output.status.success() {
        return Ok(());
    }
    let words = output.stderr.lines().rev();
    let last = words.map(str::trim).find(|line| !line.is_empty());
    Err(last.unwrap_or("it could not be prepared").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_every_kind_of_file() {
        let found = |text, package| version_after(text, package).unwrap_or_default();
        let lock = "[\n \"rslock\",\n 1.0 ]\nname = \"rslock\"\nversion = \"0.10.0\"\n";
        assert_eq!(found(lock, "name = \"rslock\""), "0.10.0");
        let go = "require (\n\tgithub.com/go-redsync/redsync/v4 v4.16.0\n)";
        assert_eq!(found(go, "github.com/go-redsync/redsync/v4"), "4.16.0");
        let pom = "<artifactId>redisson</artifactId>\n  <version>4.1.0</version>";
        assert_eq!(found(pom, "<artifactId>redisson</artifactId>"), "4.1.0");
        let node = r#"{"redlock": "5.0.0-beta.2"}"#;
        assert_eq!(found(node, "redlock\""), "5.0.0-beta.2");
        let python = "hiredis==3.5.0\nredis==7.1.0 \\\n";
        assert_eq!(found(python, "\nredis=="), "7.1.0");
        assert_eq!(found("redis==7.1.0", "\nredis=="), "7.1.0");
        assert_eq!(version_after("nothing", "redis=="), None);
    }

    #[test]
    fn names_are_unique() {
        for contender in ALL {
            let same = ALL.iter().filter(|other| other.name == contender.name);
            assert_eq!(same.count(), 1, "{}", contender.name);
        }
    }
}
