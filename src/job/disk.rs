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
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(Error::io(path, error)),
    }
}

/// Whether a folder, and no link to one, is at `path`.
pub(super) fn is_folder(path: &Path) -> Result<bool> {
    Ok(kind_at(path)?.is_some_and(|kind| kind.is_dir()))
}

/// The result of `call`, which reads, renames or deletes something of a job that ends. Windows
/// refuses that while a program has it open, and others open files of a job for moments: there the
/// call is made again for half a second.
pub(super) fn when_free<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + Duration::from_millis(500);
    loop {
        match retried(&mut call) {
            Err(error) if is_refused(&error) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(2));
            }
            result => return result,
        }
    }
}

/// Whether Windows may refuse a call only as long as a program has something open: a folder has a
/// deleted file until then.
fn is_refused(error: &io::Error) -> bool {
    let is_not_empty = cfg!(windows) && error.kind() == io::ErrorKind::DirectoryNotEmpty;
    in_use(error).is_some() || is_not_empty
}

/// The error of a job in the folder at `path` that cannot be ended, with a reason where Windows
/// refuses it.
pub(super) fn not_ended(path: &Path, error: io::Error) -> Error {
    const REASON: &str = "a program has a file of this job open, or you may not change it: end that program, and try again";
    let is_refused = is_refused(&error);
    let error = Error::io(path, error);
    if is_refused { error.because(REASON) } else { error }
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

/// Whether `error` says that nothing is there. Wine says that a name in a folder that is being
/// removed is not one.
pub(super) fn is_absent(error: &io::Error) -> bool {
    const INVALID_NAME: i32 = 123;
    let is_no_name = cfg!(windows) && error.raw_os_error() == Some(INVALID_NAME);
    error.kind() == io::ErrorKind::NotFound || is_no_name
}

/// What is not there is removed.
pub(super) fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if is_absent(&error) => Ok(()),
        removed => removed,
    }
}
