//! How a folder is locked by what the system offers.
//!
//! Unix locks the folder itself. Windows cannot, and opens a file that no other program may open
//! meanwhile, and that the system deletes when it is closed, also when the process is killed: in
//! the folder, or beside one that has to be empty to be removed.

use std::fs::File;

#[cfg(unix)]
pub(super) use unix::{KIND, Lockable};
#[cfg(windows)]
pub(super) use windows::{KIND, Lockable};

#[derive(Clone, Copy)]
pub(super) enum LockKind {
    Exclusive,
    Shared,
}

/// A lock; closing it unlocks.
#[derive(Debug)]
pub(super) struct Held {
    _file: File,
}

/// The result of an attempt to lock.
pub(super) enum Attempt {
    Locked(Held),
    /// By another one: what the next attempt is made with.
    Held(Lockable),
    Impossible,
}

#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::path::Path;

    use super::{Attempt, Held, LockKind};

    /// What messages call such a lock.
    pub(in crate::files::recovery::lock) const KIND: &str = "flock";

    /// A folder that is open to be locked.
    pub(in crate::files::recovery::lock) struct Lockable(File);

    impl Lockable {
        pub(in crate::files::recovery::lock) fn open(folder: &Path) -> Option<Self> {
            File::open(folder).ok().map(Self)
        }

        pub(in crate::files::recovery::lock) fn attempt(self, kind: LockKind) -> Attempt {
            use rustix::fs::{FlockOperation, flock};
            use rustix::io::{Errno, retry_on_intr};
            let operation = match kind {
                LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
                LockKind::Shared => FlockOperation::NonBlockingLockShared,
            };
            match retry_on_intr(|| flock(&self.0, operation)) {
                Ok(()) => Attempt::Locked(Held { _file: self.0 }),
                Err(Errno::WOULDBLOCK) => Attempt::Held(self),
                Err(_) => Attempt::Impossible,
            }
        }
    }
}

#[cfg(windows)]
mod windows {
    use std::fs::File;
    use std::io;
    use std::os::windows::fs::OpenOptionsExt;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::{Attempt, Held, LockKind};
    use crate::files::recovery::names::lock_path;
    use crate::util::retry::retried;

    pub(in crate::files::recovery::lock) const KIND: &str = "a file in it that is open";

    const GENERIC_READ: u32 = 0x8000_0000;
    const GENERIC_WRITE: u32 = 0x4000_0000;
    const DELETE: u32 = 0x0001_0000;
    const FILE_SHARE_READ: u32 = 1;
    const FILE_SHARE_DELETE: u32 = 4;
    const FILE_ATTRIBUTE_HIDDEN: u32 = 2;
    const FILE_FLAG_DELETE_ON_CLOSE: u32 = 0x0400_0000;
    const ERROR_SHARING_VIOLATION: i32 = 32;

    /// How often a lock that may not be opened and is not there is tried again: where it is not
    /// that of a holder who closes it, the folder cannot be written.
    const TRIES: usize = 20;
    const PAUSE: Duration = Duration::from_millis(2);

    /// A folder to be locked.
    pub(in crate::files::recovery::lock) struct Lockable {
        file: PathBuf,
    }

    impl Lockable {
        pub(in crate::files::recovery::lock) fn open(folder: &Path) -> Option<Self> {
            let is_folder = retried(|| folder.metadata()).is_ok_and(|found| found.is_dir());
            is_folder.then(|| Self { file: lock_path(folder) })
        }

        pub(in crate::files::recovery::lock) fn attempt(self, kind: LockKind) -> Attempt {
            for _ in 0..TRIES {
                match self.open_file(kind) {
                    Ok(file) => return Attempt::Locked(Held { _file: file }),
                    Err(error) if self.is_held(&error) => return Attempt::Held(self),
                    // Its last holder has closed it since: then it was gone a moment later.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        std::thread::sleep(PAUSE);
                    }
                    Err(_) => return Attempt::Impossible,
                }
            }
            Attempt::Impossible
        }

        fn open_file(&self, kind: LockKind) -> io::Result<File> {
            let (access, share) = match kind {
                LockKind::Exclusive => (GENERIC_READ | GENERIC_WRITE | DELETE, 0),
                // Each of those that share it deletes the file when it closes it.
                LockKind::Shared => (GENERIC_READ | DELETE, FILE_SHARE_READ | FILE_SHARE_DELETE),
            };
            // Without `write` no file is made, whatever the access is.
            let mut options = File::options();
            options
                .write(true)
                .create(true)
                .access_mode(access)
                .share_mode(share)
                .attributes(FILE_ATTRIBUTE_HIDDEN)
                .custom_flags(FILE_FLAG_DELETE_ON_CLOSE);
            options.open(&self.file)
        }

        /// Whether another program has the lock. After the first of those that share it has closed
        /// the file, nobody may open it until all have.
        fn is_held(&self, error: &io::Error) -> bool {
            error.raw_os_error() == Some(ERROR_SHARING_VIOLATION)
                || error.kind() == io::ErrorKind::PermissionDenied
                    && retried(|| self.file.symlink_metadata()).is_ok()
        }
    }
}
