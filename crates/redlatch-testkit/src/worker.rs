//! A client process of its own: the program that runs, started again.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal};

/// A process of this very program, which was told by its arguments, `worker` and
/// a plan, what to do. It is killed when this is dropped.
pub struct Worker {
    child: Child,
    /// Closed to end the worker in good order.
    orders: Option<ChildStdin>,
}

impl Worker {
    /// Starts a worker. `hear` is given each line that it prints, until it says
    /// that it has heard enough.
    ///
    /// # Panics
    ///
    /// When this program can't be started.
    #[track_caller]
    pub fn start(plan: &str, mut hear: impl FnMut(String) -> bool + Send + 'static) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["worker", plan])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the parent: with it, all of them end.
            .process_group(0)
            .spawn()
            .expect("this program, again");
        let orders = child.stdin.take();
        let stdout = child.stdout.take().expect("piped");
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            while lines.next().is_some_and(&mut hear) {}
        });
        Self { child, orders }
    }

    /// To be called first by the worker itself: from now on it ends with its
    /// parent, also when that is killed and when the worker is stopped then.
    pub fn end_with_parent() {
        let parent = rustix::process::getppid();
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux has it");
        if rustix::process::getppid() != parent {
            std::process::exit(1);
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops it where it is.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("the worker is our child");
    }

    /// Tells the worker to give back what it holds, and to end.
    pub fn dismiss(&mut self) {
        self.orders = None;
    }

    /// Waits until the worker has ended, as it was told to.
    ///
    /// # Panics
    ///
    /// When it ended otherwise.
    pub fn finish(mut self) {
        self.dismiss();
        let status = self.child.wait().expect("the worker is our child");
        assert!(status.success(), "a worker ended with {status}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
