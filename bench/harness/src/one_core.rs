//! One core for all that is started meanwhile.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What this thread starts runs on the first of its cores, until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct OneCore(CpuSet);

impl OneCore {
    pub(crate) fn take() -> Result<Self, String> {
        let error = |error| format!("can't choose a core: {error}");
        let before = sched_getaffinity(None).map_err(error)?;
        let first = (0..CpuSet::MAX_CPU).find(|&core| before.is_set(core));
        let mut one = CpuSet::new();
        one.set(first.unwrap_or(0));
        sched_setaffinity(None, &one).map_err(error)?;
        Ok(Self(before))
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        // What could be taken can be given back.
        let _ = sched_setaffinity(None, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_started_has_one_core_and_afterwards_all() {
        let cores = || {
            let nproc = Command::new("nproc").output().expect("nproc");
            String::from_utf8_lossy(&nproc.stdout).trim().to_owned()
        };
        let all = cores();
        let one = OneCore::take().expect("there is one");
        assert_eq!(cores(), "1");
        drop(one);
        assert_eq!(cores(), all);
    }
}
