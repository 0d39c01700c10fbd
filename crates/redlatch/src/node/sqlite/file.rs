//! Where the file is: its directory, its file system, and what can be wrong with it.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rustix::fs::{FileType, Mode, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

use crate::node::{NodeError, NodeErrorKind};

/// The file in which a node keeps its books.
#[derive(Clone, Debug)]
pub(super) struct BookFile {
    path: PathBuf,
}

/// Tells a file from the one that took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl BookFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file and its directory where they are missing, and refuses
    /// places where processes of other machines may come by.
    ///
    /// The file is never opened here: when a process closes any handle of a
    /// file, the system drops all locks that the process has on it, those of
    /// SQLite among them.
    pub(super) fn prepare(&self) -> Result<(), NodeError> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory);
        made.map_err(|error| self.unusable("the file's directory can't be made", &error))?;
        let system = rustix::fs::statfs(directory).map_err(|error| {
            self.unusable("the file's system can't be looked at", &error.into())
        })?;
        // The type differs between architectures; the number has 32 bits on all.
        if let Some(system) = foreign_file_system(system.f_type as u32) {
            return Err(NodeError::new(
                NodeErrorKind::Misconfigured,
                format!(
                    "the file is on {system}, which other machines may share, and its locks hold \
                     on one machine only: give a path on a local disk"
                ),
            ));
        }
        // What it holds opens locks: nobody else's business, unless the owner says so.
        let mode = Mode::RUSR | Mode::WUSR;
        let made = rustix::fs::mknodat(rustix::fs::CWD, &self.path, FileType::RegularFile, mode, 0);
        match made {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(self.unusable("the file can't be made", &error.into())),
        }
    }

    /// Which file is there now; nothing when there is none.
    pub(super) fn identity(&self) -> Option<Identity> {
        let metadata = fs::metadata(&self.path).ok()?;
        Some(Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    /// Lets other processes know that something was freed: those who watch the
    /// file's attributes are told.
    pub(super) fn touch(&self) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        let flags = rustix::fs::AtFlags::empty();
        if let Err(error) = rustix::fs::utimensat(rustix::fs::CWD, &self.path, &times, flags) {
            tracing::debug!(file = %self.path.display(), %error, "waiters were not told");
        }
    }

    /// What SQLite found wrong, in our words.
    pub(super) fn trouble(&self, error: &rusqlite::Error) -> NodeError {
        use rusqlite::ErrorCode::{
            CannotOpen, DatabaseBusy, DatabaseCorrupt, DatabaseLocked, DiskFull, NotADatabase,
            PermissionDenied, ReadOnly, SystemIoFailure,
        };
        let (kind, detail) = match error.sqlite_error_code() {
            Some(DatabaseBusy | DatabaseLocked) => (
                NodeErrorKind::TimedOut,
                format!(
                    "the file is locked by another process for too long: `fuser {}` says by \
                     which; nothing but redlatch should open it",
                    self.path.display()
                ),
            ),
            Some(DiskFull) => (
                NodeErrorKind::Storage,
                "no space is left for the file: free some, or give a path on another disk".into(),
            ),
            Some(ReadOnly | CannotOpen | PermissionDenied) => (
                NodeErrorKind::Storage,
                format!(
                    "the file can't be written ({error}): let this user write it and its \
                     directory, or give another path"
                ),
            ),
            Some(DatabaseCorrupt | NotADatabase) => (
                NodeErrorKind::Storage,
                "the file is damaged, or is none of redlatch: stop the programs that use it, move \
                 it away together with its -wal and -shm, and start them again, or give another \
                 path"
                    .into(),
            ),
            Some(SystemIoFailure) => (
                NodeErrorKind::Storage,
                format!(
                    "the file can't be read or written ({error}): see whether the disk is full or \
                     broken"
                ),
            ),
            _ => (
                NodeErrorKind::Storage,
                format!("the file can't be used: {error}"),
            ),
        };
        NodeError::new(kind, detail)
    }

    fn unusable(&self, what: &str, error: &io::Error) -> NodeError {
        NodeError::new(
            NodeErrorKind::Storage,
            format!("{what} ({error}): let this user write there, or give another path"),
        )
    }

    /// An error for a file that is well, but not for us.
    pub(super) fn foreign(&self, problem: &str) -> NodeError {
        NodeError::new(NodeErrorKind::Misconfigured, format!("the file {problem}"))
    }
}

/// Whether the error is one that passes when the other process is done.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// The name of a file system that other machines may share: on those, boot ids
/// and clocks differ, and file locks can't be relied on. FUSE is among them
/// because nobody can say what is behind it.
fn foreign_file_system(number: u32) -> Option<&'static str> {
    let name = match number {
        0x0000_6969 => "NFS",
        0xff53_4d42 | 0xfe53_4d42 | 0x0000_517b => "a Windows share (SMB)",
        0x0102_1997 => "9P",
        0x6573_5546 => "FUSE",
        0x00c3_6400 => "Ceph",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x2003_0528 => "OrangeFS",
        0x786f_4256 | 0xbacb_acbc | 0x7c7c_6673 => "a folder of the host machine",
        _ => return None,
    };
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        assert_eq!(foreign_file_system(0x6969), Some("NFS"));
        assert_eq!(
            foreign_file_system(0xff53_4d42),
            Some("a Windows share (SMB)")
        );
        // ext4, tmpfs, btrfs, xfs, overlayfs, zfs
        for local in [
            0xef53,
            0x0102_1994,
            0x9123_683e,
            0x5846_5342,
            0x794c_7630,
            0x2fc1_2fc1,
        ] {
            assert_eq!(foreign_file_system(local), None);
        }
    }

    #[test]
    fn a_missing_directory_is_made_for_this_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = BookFile::new(directory.path().join("a/b/locks.db"));
        file.prepare().unwrap();
        file.prepare().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&directory.path().join("a/b")), 0o700);
        assert_eq!(mode(file.path()), 0o600);
    }
}
