//! Says on stderr what runs, and how long it will take.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How far a run is.
pub(crate) struct Progress {
    begin: Instant,
    /// All steps, and how many of them were begun.
    steps: usize,
    step: usize,
    /// What all steps would take by our estimates, and those that are done.
    whole: f64,
    done: f64,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new(steps: usize, whole: f64) -> Self {
        Self {
            begin: Instant::now(),
            steps,
            step: 0,
            whole,
            done: 0.0,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Says that the next step begins.
    pub(crate) fn begin(&mut self, what: &str) {
        self.step += 1;
        let left = left(self.begin.elapsed(), self.done, self.whole);
        let line = format!(
            "[{}/{}] {what}; {} left",
            self.step,
            self.steps,
            minutes(left)
        );
        self.say(&line, "");
    }

    /// Counts a step that was to take so long.
    pub(crate) fn end(&mut self, estimate: f64) {
        self.done += estimate;
    }

    /// Says something that stays on the screen.
    pub(crate) fn note(&self, what: &str) {
        self.say(what, "\n");
    }

    pub(crate) fn finish(&self) {
        let took = self.begin.elapsed();
        self.note(&format!("measured in {}", minutes(took)));
    }

    fn say(&self, line: &str, end: &str) {
        let mut err = std::io::stderr().lock();
        // A terminal shows one line that changes; a log has them all.
        let _ = match self.terminal {
            true => write!(err, "\r\x1b[K{line}{end}"),
            false => writeln!(err, "{line}"),
        };
        let _ = err.flush();
    }
}

/// What is left, if estimates go on to be as wrong as they were.
fn left(elapsed: Duration, done: f64, whole: f64) -> Duration {
    // Too little is done to correct them.
    let pace = if done < 5.0 {
        1.0
    } else {
        elapsed.as_secs_f64() / done
    };
    Duration::from_secs_f64(((whole - done) * pace).max(0.0))
}

/// A time to the second.
pub(crate) fn minutes(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds / 60 {
        0 => format!("{seconds} s"),
        minutes => format!("{minutes} min {} s", seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_corrected_by_what_was_seen() {
        let seconds = Duration::from_secs;
        assert_eq!(left(seconds(0), 0.0, 60.0), seconds(60));
        assert_eq!(left(seconds(20), 10.0, 60.0), seconds(100));
        assert_eq!(left(seconds(99), 60.0, 60.0), seconds(0));
        assert_eq!(minutes(seconds(59)), "59 s");
        assert_eq!(minutes(seconds(61)), "1 min 1 s");
    }
}
