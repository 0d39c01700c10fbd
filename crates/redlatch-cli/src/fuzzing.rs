//! What the command parses, as functions that take any bytes: for the fuzzer,
//! and for a test that runs them for a short time. They panic when something is
//! wrong.
//!
//! Whoever sees `s3cret` in what is shown has seen a password.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use clap::Parser;
use redlatch::Exported;
use redlatch::fuzzing::password_in;

use crate::args::{Args, GlobalArgs};
use crate::cmd;
use crate::duration;
use crate::exit_code::{ExitCode, Failure};
use crate::hold;
use crate::node_url::NodeUrl;
use crate::settings::{Settings, Surroundings};

/// A name, and what is done with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("duration", duration),
    ("cli_arguments", arguments),
    ("cli_node_url", node_url),
    ("cli_outer_lock", outer_lock),
    ("cli_settings", settings),
];

const SECRET: &str = "s3cret";

/// A length of time as somebody wrote it.
pub fn duration(data: &[u8]) {
    match duration::parse(&String::from_utf8_lossy(data)) {
        Ok(length) => {
            assert!(!duration::spoken(length).is_empty());
            let written = duration::format(length);
            assert_eq!(duration::parse(&written), Ok(length), "{written}");
        }
        Err(problem) => assert!(!problem.is_empty() && !problem.contains(SECRET)),
    }
}

/// Words on the command line, with a zero byte between two of them.
pub fn arguments(data: &[u8]) {
    let words = data.split(|byte| *byte == 0);
    let words = words.map(|word| OsString::from_vec(word.to_vec()));
    let args = match Args::try_parse_from([OsString::from("redlatch")].into_iter().chain(words)) {
        Ok(args) => args,
        Err(error) => {
            assert!(!error.render().to_string().is_empty());
            let code = crate::usage_code(&error);
            let is_help = code == ExitCode::Success;
            assert!(is_help || code == ExitCode::Usage, "{code:?}");
            return;
        }
    };
    let bare = Surroundings {
        variable: &|_| None,
        file: &|_| Err(ErrorKind::NotFound.into()),
    };
    let settings = match Settings::resolve_in(&bare, &args.global) {
        Ok(settings) => settings,
        Err(failure) => {
            let mut nodes = args.global.nodes.iter();
            let is_secret = nodes.any(|node| is_told_in_password(node, data));
            assert!(
                !is_secret || !failure.message.contains(SECRET),
                "{failure:?}"
            );
            return refused(&failure);
        }
    };
    for node in &settings.nodes.value {
        let password = password_in(node.secret());
        assert_eq!(password, None, "taken from the command line");
    }
    if let Err(failure) = cmd::check(&args.command, &settings) {
        refused(&failure);
    }
}

/// The address of a node: what the library takes for a password is one here too.
pub fn node_url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let url = NodeUrl::new(&*text);
    let shown = format!("{url} {url:?}");
    let has_password = password_in(&text).is_some();
    assert!(!has_password || url.has_password(), "{text:?}: {shown}");
    let is_secret = is_told_in_password(&text, data);
    assert!(!is_secret || !shown.contains(SECRET), "{shown}");
}

/// What an outer `redlatch` has put into the environment, or somebody else: the
/// lock, its token, its fence, and those around it; a zero byte between two.
pub fn outer_lock(data: &[u8]) {
    let mut pieces = data.split(|byte| *byte == 0);
    let mut next = || {
        let piece = pieces.next()?;
        String::from_utf8(piece.to_vec()).ok()
    };
    let [lock, token, fence, others] = [next(), next(), next(), next()];
    let outer = hold::outer(|name| match name {
        hold::LOCK => lock.clone(),
        hold::TOKEN => token.clone(),
        hold::FENCE => fence.clone(),
        hold::OUTER => others.clone(),
        _ => None,
    });
    for (_, token, fence) in &outer {
        let _ = Exported::new(token, *fence);
    }
}

/// A configuration file, and behind it variables, with a zero byte before each:
/// `REDLATCH_TTL=5s`.
pub fn settings(data: &[u8]) {
    let mut pieces = data.split(|byte| *byte == 0);
    let file = pieces.next().unwrap_or_default();
    let variables: Vec<(&[u8], &[u8])> = pieces
        .filter_map(|piece| {
            let at = piece.iter().position(|byte| *byte == b'=')?;
            Some((&piece[..at], &piece[at + 1..]))
        })
        .collect();
    let variable = |name: &str| {
        let mut variables = variables.iter();
        let (_, value) = variables.find(|(known, _)| *known == name.as_bytes())?;
        Some(OsString::from_vec(value.to_vec()))
    };
    let read = |path: &Path| match path.starts_with("/etc") {
        true => String::from_utf8(file.to_vec())
            .map_err(|_| std::io::Error::from(ErrorKind::InvalidData)),
        false => Err(ErrorKind::NotFound.into()),
    };
    let surroundings = Surroundings {
        variable: &variable,
        file: &read,
    };
    match Settings::resolve_in(&surroundings, &GlobalArgs::default()) {
        Ok(settings) => {
            let [table, json] = [false, true].map(|json| cmd::config::shown(&settings, json));
            let shown = format!("{table}{json}{settings:?}");
            let mut nodes = settings.nodes.value.iter();
            let is_secret = nodes.any(|node| is_told_in_password(node.secret(), data));
            assert!(!is_secret || !shown.contains(SECRET), "{shown}");
        }
        Err(failure) => {
            refused(&failure);
            let message = &failure.message;
            let is_key = message.contains("is no setting");
            assert!(is_key || !message.contains(SECRET), "{message:?}");
        }
    }
}

/// Whether the secret is in this URL's password, and nowhere else in the input.
fn is_told_in_password(url: &str, data: &[u8]) -> bool {
    let told = data.windows(SECRET.len());
    let told = told.filter(|at| *at == SECRET.as_bytes()).count();
    told == 1 && password_in(url).is_some_and(|password| password.contains(SECRET))
}

/// What is wrong is told, and is the user's to mend.
fn refused(failure: &Failure) {
    assert_eq!(failure.code, ExitCode::Usage, "{failure:?}");
    assert!(!failure.message.is_empty());
}
