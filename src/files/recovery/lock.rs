//! Advisory locks on folders: saves to one folder, and the recovery of saves that were killed, take
//! turns to rename files, and a staging folder that is locked belongs to a save in progress.
//!
//! On Unix the folder itself is locked (`flock`), on Windows a file in it or beside it is open.
//! Some network file systems cannot lock. A save then continues without one, and no staging folder
//! is known to be abandoned.

mod system;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::util::cancel;
use crate::util::file_id;
use crate::util::retry::exists;

use system::{Attempt, Held, LockKind, Lockable};

/// A lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct FolderLock {
    /// Dropping it unlocks.
    held: Option<Held>,
}

impl FolderLock {
    /// Locks `folder` where the file system can. While somebody else holds the lock, waits at most
    /// for `timeout`, and calls `report` with the time that has passed.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when the lock is still held after the timeout, and
    /// the error of `report`, which ends the wait.
    pub(crate) fn wait(
        folder: &Path,
        timeout: Duration,
        report: impl Fn(&Path, Duration) -> Result<()>,
    ) -> Result<Self> {
        Self::poll(folder, LockKind::Exclusive, timeout, report)
    }

    /// Locks `folder` against renames, together with other readers, where the file system can and
    /// no save keeps the lock for as long as `timeout`.
    pub(crate) fn share(folder: &Path, timeout: Duration) -> Self {
        let shared = Self::poll(folder, LockKind::Shared, timeout, |_, _| Ok(()));
        shared.unwrap_or(Self { held: None })
    }

    fn poll(
        folder: &Path,
        kind: LockKind,
        timeout: Duration,
        report: impl Fn(&Path, Duration) -> Result<()>,
    ) -> Result<Self> {
        let Some(mut lockable) = Lockable::open(folder) else { return Ok(Self { held: None }) };
        let begin = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            lockable = match lockable.attempt(kind) {
                Attempt::Locked(held) => return Ok(Self { held: Some(held) }),
                Attempt::Impossible => return Ok(Self { held: None }),
                Attempt::Held(lockable) => lockable,
            };
            let elapsed = begin.elapsed();
            if elapsed >= timeout {
                return Err(held(folder, timeout));
            }
            cancel::check()?;
            report(folder, elapsed)?;
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(4));
        }
    }

    /// Locks all of `folders` in the order of their identities, so that two saves cannot deadlock.
    pub(crate) fn wait_for_all(
        folders: &[PathBuf],
        timeout: Duration,
        report: impl Fn(&Path, Duration) -> Result<()>,
    ) -> Result<Vec<Self>> {
        // A folder that is listed twice must be locked only once. It may be listed under two paths:
        // by way of a link, or in another case where case does not count.
        let mut distinct = BTreeMap::new();
        for folder in folders {
            let id = file_id::at(folder).map_err(|error| Error::io(folder, error))?;
            distinct.insert(id, folder);
        }
        distinct.into_values().map(|folder| Self::wait(folder, timeout, &report)).collect()
    }

    /// Whether this is a lock: the file system may have none.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Locks `folder` without waiting; `None` when it is locked already or cannot be locked.
    pub(crate) fn if_free(folder: &Path) -> Option<Self> {
        match Lockable::open(folder)?.attempt(LockKind::Exclusive) {
            Attempt::Locked(held) => Some(Self { held: Some(held) }),
            Attempt::Held(_) | Attempt::Impossible => None,
        }
    }

    /// Locks `folder`, which was just created; `None` when another save took it for abandoned.
    pub(crate) fn of_new(folder: &Path) -> Option<Self> {
        let Some(lockable) = Lockable::open(folder) else {
            return exists(folder).then_some(Self { held: None });
        };
        match lockable.attempt(LockKind::Exclusive) {
            Attempt::Held(_) => None,
            Attempt::Impossible => Some(Self { held: None }),
            // Another save may have removed the folder before it was locked.
            Attempt::Locked(held) => exists(folder).then_some(Self { held: Some(held) }),
        }
    }
}

fn held(folder: &Path, timeout: Duration) -> Error {
    let reason = format!(
        "another program has held the lock of this folder ({}) for over {} seconds",
        system::KIND,
        timeout.as_secs_f32()
    );
    Error::io(folder, std::io::Error::new(std::io::ErrorKind::WouldBlock, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the folder can be locked, and whether it can be shared.
    fn free(folder: &Path) -> (bool, bool) {
        let shared = FolderLock::share(folder, Duration::ZERO).is_held();
        (FolderLock::if_free(folder).is_some(), shared)
    }

    #[test]
    fn a_lock_is_held_by_one_or_shared() {
        let folder = tempfile::tempdir().unwrap();
        // A staging folder is locked beside itself where a lock is a file.
        let staging = folder.path().join(".m.onnx.saving-aB3xYz");
        std::fs::create_dir(&staging).unwrap();
        for path in [folder.path(), &staging] {
            assert_eq!(free(path), (true, true));
            let held = FolderLock::if_free(path).unwrap();
            assert_eq!(free(path), (false, false));
            assert!(FolderLock::of_new(path).is_none());
            let no_report = |_: &Path, _: Duration| Ok(());
            let error = FolderLock::wait(path, Duration::ZERO, no_report).unwrap_err();
            assert!(error.reason().contains("has held the lock"), "{error}");
            drop(held);
            let shared: Vec<_> = (0..3).map(|_| FolderLock::share(path, Duration::ZERO)).collect();
            assert!(shared.iter().all(FolderLock::is_held));
            assert!(FolderLock::if_free(path).is_none());
            drop(shared);
            assert_eq!(free(path), (true, true));
        }
        std::fs::remove_dir(&staging).unwrap();
        assert!(
            std::fs::read_dir(folder.path()).unwrap().next().is_none(),
            "a lock leaves nothing"
        );
        assert!(FolderLock::of_new(&staging).is_none() && FolderLock::if_free(&staging).is_none());
    }

    #[test]
    fn a_folder_that_is_named_twice_is_locked_once() {
        let folder = tempfile::tempdir().unwrap();
        let twice = [folder.path().to_path_buf(), folder.path().join(".")];
        let locks = FolderLock::wait_for_all(&twice, Duration::ZERO, |_, _| Ok(())).unwrap();
        assert!(locks.len() == 1 && locks.iter().all(FolderLock::is_held));
    }
}
