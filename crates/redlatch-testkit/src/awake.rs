//! Cores that do not fall asleep.

use std::process::{Child, Command, Stdio};

/// Keeps every core awake with a process of the lowest priority, until it is dropped.
///
/// The core of a virtual machine takes longer to wake than Redis to answer, which
/// would bury what a benchmark is after.
#[derive(Debug)]
#[must_use]
pub struct Awake(Vec<Child>);

impl Awake {
    /// Starts the processes.
    ///
    /// # Panics
    ///
    /// Without `nice` and `sh`.
    pub fn start() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = |_| {
            let mut nice = Command::new("nice");
            // It ends by itself when this process is gone and its input with it.
            let script = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; \
                          kill -0 $PPID || exit; done";
            nice.args(["-n", "19", "sh", "-c", script])
                .stdin(Stdio::null());
            nice.stderr(Stdio::null()).spawn().expect("nice and sh")
        };
        Self((0..cores).map(spin).collect())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
