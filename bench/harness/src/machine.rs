//! Where and with what something was measured.

use std::fs;
use std::process::Command;

use crate::contenders::{self, Contender};

/// What a reader needs to know about figures: names and values.
pub(crate) fn describe(contenders: &[&Contender]) -> Vec<(String, String)> {
    let mut setting = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        setting.extend(value.map(|value| (name.to_owned(), value)));
    };
    add("Date", Some(date("%Y-%m-%d")));
    add("redlatch", Some(redlatch()));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let processor = field("/proc/cpuinfo", "model name").unwrap_or("unknown".to_owned());
    let virtual_machine = fs::read_to_string("/proc/cpuinfo")
        .is_ok_and(|info| info.split_whitespace().any(|flag| flag == "hypervisor"));
    let kind = if virtual_machine {
        ", a virtual machine"
    } else {
        ""
    };
    add(
        "Processor",
        Some(format!("{processor}, {cores} cores{kind}")),
    );
    add(
        "Memory",
        field("/proc/meminfo", "MemTotal").map(|total| gibibytes(&total)),
    );
    add("Kernel", output("uname", &["-sr"]));
    add(
        "Redis",
        output("redis-server", &["--version"]).map(|line| version(&line)),
    );
    for (language, name, program, argument) in [
        ("rust", "Rust", "rustc", "--version"),
        ("go", "Go", "go", "version"),
        ("java", "Java", "java", "-version"),
        ("node", "Node.js", "node", "--version"),
        ("python", "Python", "python3", "--version"),
        ("php", "PHP", "php", "--version"),
    ] {
        if contenders
            .iter()
            .any(|contender| contender.language == language)
        {
            add(
                name,
                output(program, &[argument]).map(|line| version(&line)),
            );
        }
    }
    let versions = contenders.iter().filter_map(|contender| {
        let version = contender.version()?;
        let name = match contender.name {
            "raw" => "redis (crate)",
            name => name,
        };
        Some(format!("{name} {version}"))
    });
    let versions: Vec<String> = versions.collect();
    add(
        "Libraries",
        (!versions.is_empty()).then(|| versions.join(", ")),
    );
    setting
}

/// Which redlatch it is: a version alone says little between two of them.
fn redlatch() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let repository = contenders::repository();
    let commit = ["-C", &repository.to_string_lossy(), "describe", "--always"];
    let git = Command::new("git").args(commit).output().ok();
    let commit = git.filter(|git| git.status.success());
    let commit = commit.map(|git| String::from_utf8_lossy(&git.stdout).trim().to_owned());
    match commit {
        Some(commit) => format!("{version}, commit {commit}"),
        None => version.to_owned(),
    }
}

/// Today or now, in UTC, as `date` writes it.
pub(crate) fn date(format: &str) -> String {
    let date = output("date", &["-u", &format!("+{format}")]);
    date.unwrap_or_else(|| std::process::id().to_string())
}

/// The first line that a program says about itself.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    // java says it on stderr.
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Some(text.lines().next()?.trim().to_owned())
}

/// The first word that looks like a version.
fn version(line: &str) -> String {
    let words = line.split([' ', '=', '"']);
    let mut words = words.map(|word| word.trim_start_matches(|c: char| c.is_ascii_alphabetic()));
    let is_version =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    words.find(is_version).unwrap_or(line).to_owned()
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn gibibytes(total: &str) -> String {
    let kibibytes = total
        .split(' ')
        .next()
        .and_then(|number| number.parse::<f64>().ok());
    let gibibytes = kibibytes.unwrap_or(0.0) / 1024.0 / 1024.0;
    format!("{gibibytes:.0} GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (line, expected) in [
            (
                "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0",
                "7.0.15",
            ),
            ("rustc 1.95.0 (59807616e 2026-04-14)", "1.95.0"),
            ("go version go1.26.8 linux/amd64", "1.26.8"),
            ("openjdk version \"17.0.15\" 2025-04-15", "17.0.15"),
            ("v20.20.2", "20.20.2"),
            ("PHP 8.2.28 (cli) (built: Mar 13 2025)", "8.2.28"),
            ("none", "none"),
        ] {
            assert_eq!(version(line), expected);
        }
    }
}
