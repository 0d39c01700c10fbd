//! What processes use, by what `/proc` says.

use std::fs;
use std::time::Duration;

/// The processor time that a process has used, all threads together.
pub(crate) fn cpu(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let second = rustix::param::clock_ticks_per_second();
    let ticks = Duration::from_secs_f64(ticks(&stat)? as f64 / second as f64);
    // Ticks are of 10 ms; what threads say is exact, but ends with the thread.
    Some(threads(pid).unwrap_or_default().max(ticks))
}

/// The processor time of the threads that a process has now.
fn threads(pid: u32) -> Option<Duration> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        // One that has just ended is not there to be read.
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat"));
        let text = text.unwrap_or_default();
        nanoseconds += text.split(' ').next()?.parse().unwrap_or(0);
    }
    Some(Duration::from_nanos(nanoseconds))
}

/// The user's and the system's ticks in a line of `/proc/PID/stat`.
fn ticks(stat: &str) -> Option<u64> {
    // The program's name may have spaces and brackets in it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The memory that a process has, in bytes.
pub(crate) fn memory(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let line = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 1 0 99 1 1";
        assert_eq!(ticks(line), Some(175));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn this_process_has_memory() {
        assert!(memory(std::process::id()).is_some_and(|bytes| bytes > 100_000));
        let used = cpu(std::process::id());
        assert!(used.is_some_and(|used| used > Duration::ZERO));
    }
}
