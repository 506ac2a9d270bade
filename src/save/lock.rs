//! Advisory locks on folders: saves to one folder take turns to rename their files, and a staging
//! folder that is locked belongs to a save in progress.
//!
//! Some network file systems cannot lock, and Windows has no such lock. A save then continues without
//! one, and no staging folder is known to be abandoned.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::save::options::SaveOptions;
use crate::save::progress::Waiting;

/// A lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: Option<File>,
}

/// The result of an attempt to lock.
enum Attempt {
    Locked,
    Held,
    Impossible,
}

#[cfg(unix)]
fn attempt(file: &File) -> Attempt {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::{Errno, retry_on_intr};
    match retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Attempt::Locked,
        Err(Errno::WOULDBLOCK) => Attempt::Held,
        Err(_) => Attempt::Impossible,
    }
}

#[cfg(not(unix))]
fn attempt(_: &File) -> Attempt {
    Attempt::Impossible
}

impl FolderLock {
    /// Locks `folder` where the file system can. While somebody else holds the lock, waits and reports
    /// that as `options` say.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when the lock is still held after the timeout,
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) when the callback ends the wait.
    pub(crate) fn wait(folder: &Path, options: &SaveOptions) -> Result<Self> {
        let Ok(file) = File::open(folder) else { return Ok(Self { _file: None }) };
        let begin = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            match attempt(&file) {
                Attempt::Locked => return Ok(Self { _file: Some(file) }),
                Attempt::Impossible => return Ok(Self { _file: None }),
                Attempt::Held => {}
            }
            let elapsed = begin.elapsed();
            if elapsed >= options.lock_timeout {
                return Err(held(folder, options.lock_timeout));
            }
            options.report_wait(Waiting { folder, elapsed })?;
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(4));
        }
    }

    /// Locks all of `folders` in sorted order, so that two saves cannot deadlock.
    pub(crate) fn wait_for_all(folders: &[PathBuf], options: &SaveOptions) -> Result<Vec<Self>> {
        // By their real paths: a folder that is listed twice must be locked only once.
        let real = |folder: &PathBuf| folder.canonicalize().map_err(|e| Error::io(folder, e));
        let folders: BTreeSet<_> = folders.iter().map(real).collect::<Result<_>>()?;
        folders.iter().map(|folder| Self::wait(folder, options)).collect()
    }

    /// Locks `folder` without waiting; `None` when it is locked already or cannot be locked.
    pub(crate) fn if_free(folder: &Path) -> Option<Self> {
        let file = File::open(folder).ok()?;
        matches!(attempt(&file), Attempt::Locked).then_some(Self { _file: Some(file) })
    }

    /// Locks `folder`, which was just created; `None` when another save took it for abandoned.
    pub(crate) fn of_new(folder: &Path) -> Option<Self> {
        let Ok(file) = File::open(folder) else {
            return folder.exists().then_some(Self { _file: None });
        };
        match attempt(&file) {
            Attempt::Held => None,
            Attempt::Impossible => Some(Self { _file: None }),
            // Another save may have removed the folder before it was locked.
            Attempt::Locked => folder.exists().then_some(Self { _file: Some(file) }),
        }
    }
}

fn held(folder: &Path, timeout: Duration) -> Error {
    let reason = format!(
        "another program has locked this folder (flock) for {} seconds and more",
        timeout.as_secs_f32()
    );
    Error::io(folder, std::io::Error::new(std::io::ErrorKind::WouldBlock, reason))
}
