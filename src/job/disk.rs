//! What the files of a job ask of the system: no link is followed, and an error is no proof that
//! something is not there.

use std::fs::{self, File, FileType, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::in_use;
use crate::util::retry::retried;

/// The longest JSON file of a job, in bytes, that is read.
const LONGEST: u64 = 1 << 28;

/// A lock that is there or not, without a wait.
pub(super) type Lock = fn(&File) -> std::result::Result<(), TryLockError>;

/// Whether `lock` is had; `None` where the file system has no locks.
///
/// # Errors
/// Any other error: it is no proof that nobody else has the lock.
pub(super) fn tried(file: &File, lock: Lock) -> io::Result<Option<bool>> {
    let tried = retried(|| match lock(file) {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    });
    match tried {
        Err(error) if has_no_locks(&error) => Ok(None),
        tried => tried.map(Some),
    }
}

/// Whether the error of a lock says that the file system has none; NFS without a lock service says
/// `ENOLCK`.
fn has_no_locks(error: &io::Error) -> bool {
    #[cfg(unix)]
    let is_without =
        rustix::io::Errno::from_io_error(error).is_some_and(|it| it == rustix::io::Errno::NOLCK);
    #[cfg(not(unix))]
    let is_without = false;
    is_without || error.kind() == io::ErrorKind::Unsupported
}

/// What is at `path`, of a link the link; `None` where nothing is. A folder of another user, which
/// cannot be looked into, is an error and not gone.
pub(super) fn kind_at(path: &Path) -> Result<Option<FileType>> {
    match retried(|| fs::symlink_metadata(path)) {
        Ok(metadata) => Ok(Some(metadata.file_type())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, error)),
    }
}

/// Whether a folder, and no link to one, is at `path`.
pub(super) fn is_folder(path: &Path) -> Result<bool> {
    Ok(kind_at(path)?.is_some_and(|kind| kind.is_dir()))
}

/// Renames the folder of a job. Windows renames no folder of which a file is open, and others open
/// files of a job for moments: there it is tried for two seconds.
///
/// # Errors
/// Those of the system, with a reason where a file is open.
pub(super) fn rename_folder(from: &Path, to: &Path) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        let Err(error) = retried(|| fs::rename(from, to)) else { return Ok(()) };
        match in_use(&error) {
            None => return Err(Error::io(from, error)),
            Some(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            Some(reason) => return Err(Error::io(from, error).because(reason)),
        }
    }
}

/// `options`, which open no link.
pub(super) fn no_link(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        if let Ok(flags) = i32::try_from(flags.bits()) {
            options.custom_flags(flags);
        }
    }
    options
}

/// The text of a file of a job, links followed where `may_link`.
///
/// # Errors
/// Those of the system, [`ErrorKind::TooLarge`], and [`ErrorKind::Decode`] where it is not UTF-8.
pub(super) fn read_text(path: &Path, may_link: bool) -> Result<String> {
    let fail = |error| Error::io(path, error);
    let mut options = File::options();
    options.read(true);
    let opened = if may_link { options.open(path) } else { no_link(&mut options).open(path) };
    let mut bytes = Vec::new();
    opened.map_err(fail)?.take(LONGEST.saturating_add(1)).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > LONGEST {
        let reason = format!("is over {LONGEST} bytes, which no job has");
        return Err(Error::new(ErrorKind::TooLarge, reason).with_path(path));
    }
    String::from_utf8(bytes).map_err(|_| {
        Error::new(ErrorKind::Decode, "not a job: its text is not UTF-8").with_path(path)
    })
}

/// What is not there is removed.
pub(super) fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
