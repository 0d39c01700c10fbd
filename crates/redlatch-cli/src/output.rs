//! What the command itself has to say: on stderr, so that stdout is the child's.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use redlatch::core::{Holder, Owner};
use serde_json::{Map, Value, json};
use tracing::{Event, Level, Subscriber, field::Visit};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::args::{ColorChoice, GlobalArgs};
use crate::duration;
use crate::exit_code::{ExitCode, Failure};
use crate::table::clean;

/// While a screen is shown nothing else may be written there.
static MUTED: AtomicBool = AtomicBool::new(false);

/// Where messages go, and which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    quiet: bool,
    verbose: u8,
    color: bool,
    /// Whether what goes to stdout may have colours.
    pub(crate) paint: bool,
}

impl Output {
    pub(crate) fn new(args: &GlobalArgs) -> Self {
        let wanted = || std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self {
            json: args.json,
            quiet: args.quiet,
            verbose: args.verbose,
            color: match args.color {
                ColorChoice::Auto => std::io::stderr().is_terminal() && wanted(),
                ColorChoice::Always => true,
                ColorChoice::Never => false,
            },
            paint: match args.color {
                ColorChoice::Auto => std::io::stdout().is_terminal() && wanted(),
                ColorChoice::Always => true,
                ColorChoice::Never => false,
            },
        }
    }

    /// Lets the library's own events be seen: warnings, and more with `-v`.
    pub(crate) fn start_tracing(&self) {
        let level = match (self.quiet, self.verbose) {
            (true, _) => Level::ERROR,
            (_, 0) => Level::WARN,
            (_, 1) => Level::DEBUG,
            _ => Level::TRACE,
        };
        let _ = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(std::io::stderr)
            .event_format(Events(*self))
            .try_init();
    }

    /// Says nothing of the library's events, or says them again.
    pub(crate) fn mute(is_muted: bool) {
        MUTED.store(is_muted, Ordering::Relaxed);
    }

    /// How far something has come, in one line that is written over; nothing
    /// to say takes it away. Only for people who look at a terminal.
    pub(crate) fn progress(&self, message: &str) {
        if !self.quiet && !self.json && std::io::stderr().is_terminal() {
            let _ = std::io::stderr().write_all(format!("\r\x1b[K{message}").as_bytes());
        }
    }

    /// What is good to know for those who try it out, but not every night in
    /// cron's mail: only on a terminal.
    pub(crate) fn aside(&self, message: &str) {
        if !self.json && std::io::stderr().is_terminal() {
            self.info(message);
        }
    }

    /// What is good to know; `-q` silences it.
    pub(crate) fn info(&self, message: &str) {
        if !self.quiet {
            self.write("info", message, None, Map::new());
        }
    }

    /// What may be a mistake; `-q` silences it.
    pub(crate) fn warn(&self, message: &str) {
        if !self.quiet {
            self.write("warning", message, None, Map::new());
        }
    }

    /// What nobody may overlook: `-q` does not silence it.
    pub(crate) fn notice(&self, message: &str) {
        self.write("notice", message, None, Map::new());
    }

    /// Who has the lock that is waited for.
    pub(crate) fn busy(&self, message: &str, holder: &Holder) {
        if !self.quiet {
            let more = Map::from_iter([("holder".to_owned(), describe(holder))]);
            self.write("info", message, None, more);
        }
    }

    pub(crate) fn failure(&self, failure: &Failure) {
        // `-E 0` is how one asks to be left in peace.
        if failure.code == ExitCode::Busy(0) {
            return;
        }
        let mut more = Map::new();
        more.insert("code".into(), failure.code.number().into());
        if let Some(holder) = &failure.holder {
            more.insert("holder".into(), describe(holder));
        }
        let hint = failure.hint.as_deref();
        self.write("error", &failure.message, hint, more);
    }

    fn write(&self, level: &str, message: &str, hint: Option<&str>, mut more: Map<String, Value>) {
        let text = if self.json {
            more.insert("level".into(), level.into());
            more.insert("message".into(), message.into());
            if let Some(hint) = hint {
                more.insert("hint".into(), hint.into());
            }
            format!("{}\n", Value::Object(more))
        } else {
            // Names and paths may be in it, whoever chose them.
            let mut text = format!("{} {}\n", self.label(level), clean(message));
            if let Some(hint) = hint {
                text.push_str(&format!("  {}\n", clean(hint)));
            }
            text
        };
        // In one go, so that lines of several processes don't mix; and who has
        // closed stderr does not want to hear of it.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    fn label(&self, level: &str) -> String {
        let (word, color) = match level {
            "error" => ("error: ", "31"),
            "warning" => ("warning: ", "33"),
            "notice" => ("", "33"),
            _ => ("", "2"),
        };
        match self.color {
            true => format!("\x1b[{color}mredlatch: {}\x1b[0m", word.trim_end()),
            false => format!("redlatch: {}", word.trim_end()),
        }
        .trim_end()
        .to_owned()
    }
}

/// Writes to stdout. Who closes it early, as `head` does, is no failure.
pub(crate) fn print(text: &[u8]) -> Result<(), Failure> {
    match std::io::stdout().write_all(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::own(format!("can't write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Asks on the terminal, where there is one. Without one, `hint` says how to go on.
pub(crate) fn confirm(question: &str, hint: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        let problem = "this needs a yes, and there is no terminal to ask for one";
        return Err(Failure::usage(problem).hint(hint));
    }
    let _ = std::io::stderr().write_all(format!("{question} [y/N] ").as_bytes());
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|error| Failure::own(format!("can't read the answer: {error}")))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Who holds a lock, in words: `host web-3, pid 4711, user ada, program backup,
/// since 12 s ago, for another 28 s unless renewed`.
pub(crate) fn held_by(holder: &Holder) -> String {
    let owner = holder.owner();
    let mut text = match owner.to_string() {
        text if text.is_empty() => "another client".to_owned(),
        text => text,
    };
    if let Some(age) = owner.since.and_then(age) {
        text.push_str(&format!(", since {} ago", duration::spoken(age)));
    }
    match holder.remaining {
        Some(left) => {
            let left = duration::spoken(left);
            text.push_str(&format!(", for another {left} unless renewed"));
        }
        None => text.push_str(", and its key never expires"),
    }
    text
}

pub(crate) fn describe(holder: &Holder) -> Value {
    describe_owner(&holder.owner(), holder.remaining)
}

pub(crate) fn describe_owner(owner: &Owner, remaining: Option<Duration>) -> Value {
    json!({
        "host": owner.host,
        "pid": owner.pid,
        "user": owner.user,
        "program": owner.program,
        "note": owner.note,
        "since": owner.since,
        "remaining_ms": remaining.map(|left| left.as_millis() as u64),
    })
}

/// How long ago that was; nothing when the clocks disagree.
pub(crate) fn age(since: u64) -> Option<Duration> {
    let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since))?;
    let age = SystemTime::now().duration_since(since).ok()?;
    // That time is in whole seconds: more would be made up.
    Some(Duration::from_secs(age.as_secs()))
}

/// Events of the library in the form of our own messages.
struct Events(Output);

impl<S, N> FormatEvent<S, N> for Events
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if MUTED.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut words = Words::default();
        event.record(&mut words);
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            _ => "debug",
        };
        if self.0.json {
            words.fields.insert("level".into(), level.into());
            words.fields.insert("message".into(), words.message.into());
            return writeln!(writer, "{}", Value::Object(words.fields));
        }
        write!(writer, "{} {}", self.0.label(level), words.message)?;
        for (at, (name, value)) in words.fields.iter().enumerate() {
            let gap = if at == 0 { ": " } else { ", " };
            let value = value.as_str().unwrap_or_default();
            write!(writer, "{gap}{name} {value}")?;
        }
        writeln!(writer)
    }
}

#[derive(Default)]
struct Words {
    message: String,
    fields: Map<String, Value>,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.message = value,
            name => {
                self.fields.insert(name.into(), value.into());
            }
        }
    }

    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.fields.insert(field.name().into(), value.into());
    }
}
