//! What `run` and `elect` have in common: how long a lease is, and what is
//! done about its loss.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use redlatch::{Mutex, Redlatch};

use crate::args::LeaseArgs;
use crate::duration;
use crate::exit_code::Failure;
use crate::settings::Settings;

/// The time from TERM to KILL, where there is room for it.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// A lease that a command is run under.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) ttl: Duration,
    pub(super) kill_after: Duration,
}

impl Terms {
    pub(super) fn new(args: &LeaseArgs, settings: &Settings) -> Result<Self, Failure> {
        let ttl = args.ttl.unwrap_or(settings.ttl.value);
        let most = ttl / 3;
        let kill_after =
            match args.kill_after {
                None => KILL_AFTER.min(most),
                Some(given) if given <= most => given,
                Some(given) => {
                    let [given, ttl, most] = [given, ttl, most].map(duration::format);
                    return Err(Failure::usage(format!(
                    "--kill-after {given} is more than a third of the ttl of {ttl}: the command \
                     could not be ended before the lock is somebody else's"
                ))
                .hint(format!("give at most --kill-after {most}, or a longer --ttl")));
                }
            };
        Ok(Self { ttl, kill_after })
    }

    /// The lock, with this ttl and the note.
    pub(super) fn mutex(&self, latch: &Redlatch, name: &str, args: &LeaseArgs) -> Mutex {
        let mutex = latch.mutex(name).ttl(self.ttl);
        match &args.note {
            Some(note) => mutex.note(note.as_str()),
            None => mutex,
        }
    }
}

/// What people call this program: its file's name, without its arguments.
pub(super) fn program_name(program: &OsStr) -> Option<String> {
    let name = Path::new(program).file_name().unwrap_or(program);
    let name = name.to_string_lossy();
    // It goes into the token, which is to stay short.
    Some(name.chars().take(60).collect())
}
