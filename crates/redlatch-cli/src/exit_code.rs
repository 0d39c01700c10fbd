//! How the process ends, and why.

use redlatch::{ConfigError, Error};
use rustix::process::Signal;

/// How the process ends. The numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitCode {
    Success,
    /// Not all is well.
    Unwell,
    /// The command line or a setting is wrong.
    Usage,
    /// Too few nodes could be reached; the child was not started.
    Unavailable,
    /// Somebody else had the lock for all the time that was allowed: 75, or
    /// what `-E` says.
    Busy(u8),
    /// The lock was lost, and the child was killed.
    Lost,
    /// The child ran for longer than `--max-runtime`.
    TimedOut,
    /// A failure of our own.
    Failure,
    /// The command was found but could not be run.
    CannotRun,
    /// The command was not found.
    NotFound,
    /// The child's own code.
    Child(u8),
    /// The child died of this signal: 128 and its number.
    ChildKilled(i32),
    /// This process is to die of a signal itself, so that a shell sees it: a
    /// script then stops at Ctrl-C.
    DieOf(Signal),
}

impl ExitCode {
    /// What `-E` is unless given.
    pub(crate) const BUSY: u8 = 75;

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Unwell => 1,
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::Busy(code) => code,
            Self::Lost => 79,
            Self::TimedOut => 124,
            Self::Failure => 125,
            Self::CannotRun => 126,
            Self::NotFound => 127,
            Self::Child(code) => code,
            Self::ChildKilled(signal) => 128_u8.saturating_add(u8::try_from(signal).unwrap_or(127)),
            Self::DieOf(signal) => Self::ChildKilled(signal.as_raw()).number(),
        }
    }

    /// The end of `main`.
    pub(crate) fn leave(self) -> std::process::ExitCode {
        if let Self::DieOf(signal) = self {
            let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
        }
        self.number().into()
    }
}

/// Why the process ends other than it should, and what can be done about it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: ExitCode,
    pub(crate) message: String,
    /// The next step, where there is one.
    pub(crate) hint: Option<String>,
    /// Who holds the lock, where that is the reason.
    pub(crate) holder: Option<Box<redlatch::core::Holder>>,
}

impl Failure {
    pub(crate) fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            holder: None,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, message)
    }

    pub(crate) fn own(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Failure, message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match &error {
            Error::Timeout(timeout) => Self {
                holder: timeout.holder.clone().map(Box::new),
                ..Self::new(ExitCode::Busy(ExitCode::BUSY), message)
            },
            Error::NoQuorum(_) if error.is_quarantined() => {
                Self::new(ExitCode::Unavailable, message).hint(
                    "leave out -n, or give -w more time, to wait for it; new servers are armed at \
                     once by `redlatch init`",
                )
            }
            Error::NoQuorum(_) => Self::new(ExitCode::Unavailable, message)
                .hint("see that the servers run and can be reached from here: `redlatch config` shows which are asked"),
            Error::Lost(_) => Self::new(ExitCode::Lost, message),
            Error::Config(config) => match &**config {
                // The servers are there, but of no use: the child is not started either.
                ConfigError::Node { .. } => Self::new(ExitCode::Unavailable, message),
                _ => Self::usage(message),
            },
            _ => Self::own(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_128_and_its_number() {
        assert_eq!(ExitCode::ChildKilled(15).number(), 143);
        assert_eq!(ExitCode::DieOf(Signal::INT).number(), 130);
        assert_eq!(ExitCode::ChildKilled(64).number(), 192);
    }
}
