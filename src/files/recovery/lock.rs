//! Advisory locks on folders: saves to one folder, and the recovery of saves that were killed, take
//! turns to rename files, and a staging folder that is locked belongs to a save in progress.
//!
//! Some network file systems cannot lock, and Windows has no such lock. A save then continues
//! without one, and no staging folder is known to be abandoned.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::util::cancel;
use crate::util::retry::{exists, retried};

/// A lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct FolderLock {
    /// Closing it unlocks.
    file: Option<File>,
}

/// The result of an attempt to lock.
enum Attempt {
    Locked,
    Held,
    Impossible,
}

#[derive(Clone, Copy)]
enum LockKind {
    Exclusive,
    Shared,
}

#[cfg(unix)]
fn attempt(file: &File, kind: LockKind) -> Attempt {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::{Errno, retry_on_intr};
    let operation = match kind {
        LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        LockKind::Shared => FlockOperation::NonBlockingLockShared,
    };
    match retry_on_intr(|| flock(file, operation)) {
        Ok(()) => Attempt::Locked,
        Err(Errno::WOULDBLOCK) => Attempt::Held,
        Err(_) => Attempt::Impossible,
    }
}

#[cfg(not(unix))]
fn attempt(_: &File, _: LockKind) -> Attempt {
    Attempt::Impossible
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
        shared.unwrap_or(Self { file: None })
    }

    fn poll(
        folder: &Path,
        kind: LockKind,
        timeout: Duration,
        report: impl Fn(&Path, Duration) -> Result<()>,
    ) -> Result<Self> {
        let Ok(file) = File::open(folder) else { return Ok(Self { file: None }) };
        let begin = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            match attempt(&file, kind) {
                Attempt::Locked => return Ok(Self { file: Some(file) }),
                Attempt::Impossible => return Ok(Self { file: None }),
                Attempt::Held => {}
            }
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
            let id = folder_id(folder).map_err(|error| Error::io(folder, error))?;
            distinct.insert(id, folder);
        }
        distinct.into_values().map(|folder| Self::wait(folder, timeout, &report)).collect()
    }

    /// Whether this is a lock: the file system may have none.
    pub(crate) fn is_held(&self) -> bool {
        self.file.is_some()
    }

    /// Locks `folder` without waiting; `None` when it is locked already or cannot be locked.
    pub(crate) fn if_free(folder: &Path) -> Option<Self> {
        let file = File::open(folder).ok()?;
        matches!(attempt(&file, LockKind::Exclusive), Attempt::Locked)
            .then_some(Self { file: Some(file) })
    }

    /// Locks `folder`, which was just created; `None` when another save took it for abandoned.
    pub(crate) fn of_new(folder: &Path) -> Option<Self> {
        let Ok(file) = File::open(folder) else {
            return exists(folder).then_some(Self { file: None });
        };
        match attempt(&file, LockKind::Exclusive) {
            Attempt::Held => None,
            Attempt::Impossible => Some(Self { file: None }),
            // Another save may have removed the folder before it was locked.
            Attempt::Locked => exists(folder).then_some(Self { file: Some(file) }),
        }
    }
}

/// What two paths of one folder have in common.
#[cfg(unix)]
fn folder_id(folder: &Path) -> std::io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    retried(|| folder.metadata()).map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn folder_id(folder: &Path) -> std::io::Result<PathBuf> {
    retried(|| folder.canonicalize())
}

fn held(folder: &Path, timeout: Duration) -> Error {
    let reason = format!(
        "another program has held the lock of this folder (flock) for over {} seconds",
        timeout.as_secs_f32()
    );
    Error::io(folder, std::io::Error::new(std::io::ErrorKind::WouldBlock, reason))
}
