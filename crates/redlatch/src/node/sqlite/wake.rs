//! Tells those who wait when another process has freed something.
//!
//! After each release the file's times are set, and whoever watches its
//! attributes (inotify) is told. It is done after the commit, so who is told
//! finds the lock free; a process that is killed between the two is like one
//! that died with the lock: those who wait look again when its lease ends.
//! Nobody is told of acquisitions and renewals, and a process in which nobody
//! waits has no watch.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// Receives when the file was touched or replaced.
pub(super) struct Doorbell {
    events: AsyncFd<OwnedFd>,
}

impl Doorbell {
    /// A bell at the file; nothing when the system has no more of them.
    pub(super) fn new(path: &Path) -> Option<Self> {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        watch(&events, path).ok()?;
        #[expect(
            deprecated,
            reason = "what makes it unsound, a type that changes its descriptor, OwnedFd does not do"
        )]
        let events = AsyncFd::new(events).ok()?;
        Some(Self { events })
    }

    /// Waits until it rings.
    pub(super) async fn rung(&self, path: &Path) {
        // Another file may be there by now. It is the same watch if not.
        let _ = watch(self.events.get_ref(), path);
        let Ok(mut ready) = self.events.readable().await else {
            return std::future::pending().await;
        };
        let mut buffer = [0; 1024];
        while rustix::io::read(&self.events, &mut buffer).is_ok_and(|read| read > 0) {}
        ready.clear_ready();
    }
}

fn watch(events: &OwnedFd, path: &Path) -> Result<(), Errno> {
    let flags = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
    inotify::add_watch(events, path, flags).map(drop)
}
