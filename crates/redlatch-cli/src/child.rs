//! The command that a lock is held for: started, watched over, ended.
//!
//! - `start.rs`: a thread starts the child and waits for it; the helper process
//!   that becomes the child
//! - `minder.rs`: the helper process that ends the child's group when this one
//!   was killed
//! - `signals.rs`: the signals that are passed on
//! - `terminal.rs`: who may read from the terminal
//! - `supervise.rs`: what is done when, until the child has ended

mod minder;
mod signals;
mod start;
mod supervise;
mod terminal;

pub(crate) use self::signals::Signals;
pub(crate) use self::start::Ending;
pub(crate) use self::supervise::{Orders, Verdict, supervise};
pub(crate) use self::terminal::has_job_control;

/// Does the work of a helper process, and does not return, where this process
/// was started as one. Before anything else: these must be quick.
pub(crate) fn divert() {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == start::WORD => start::become_child(args),
        Some(word) if word == minder::WORD => minder::mind(args),
        _ => {}
    }
}

/// This very program, also when its file was replaced meanwhile.
fn this_program() -> std::process::Command {
    use std::os::unix::process::CommandExt;
    let program = match cfg!(target_os = "linux") {
        true => "/proc/self/exe".into(),
        false => std::env::current_exe().unwrap_or_else(|_| "redlatch".into()),
    };
    let mut command = std::process::Command::new::<std::path::PathBuf>(program);
    command.arg0("redlatch");
    command
}
