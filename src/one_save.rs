//! Reading a model and its weights as one save left them.
//!
//! A save renames its weights files into place first and the file that names them (a model, or the
//! index of shards) last; where it replaces weights, it moves the old one of those away before. So
//! while that file is at its path, the files that it names are its own. A reader that opens it, opens
//! all the others, and then finds the same file at the path has seen one save. If not, it starts
//! again. Nothing is locked: a reader never makes a save wait.

use std::fs::File;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::directory_of;
use crate::file_identity::FileIdentity;
use crate::mmap::MmapChoice;

/// How often a reader looks before it gives up.
const LOOKS: usize = 20;

/// The longest wait for a save to finish its renames, before each new look.
const PATIENCE: Duration = Duration::from_secs(1);

/// Maps or reads the file at `path` and has `read` open whatever it names, again when a save replaced
/// the file meanwhile.
///
/// # Errors
/// [`ErrorKind::MissingFile`] when there is no such file and no save is about to put one there;
/// [`ErrorKind::Changed`] when it was replaced at every look; the error of `read` otherwise.
pub(crate) fn read_one_save<T>(
    path: &Path,
    mmap: MmapChoice,
    mut read: impl FnMut(Buffer) -> Result<T>,
) -> Result<T> {
    for _ in 0..LOOKS {
        match look(path, mmap, &mut read) {
            Look::Whole(result) => return result,
            Look::Replaced => wait_for_renames(path),
        }
    }
    let reason = format!("is being replaced: {LOOKS} looks met another file each, try again later");
    Err(Error::new(ErrorKind::Changed, reason).with_path(path))
}

enum Look<T> {
    /// Everything was read as one save left it, or an error that has another cause.
    Whole(Result<T>),
    /// The file was moved away or replaced.
    Replaced,
}

fn look<T>(path: &Path, mmap: MmapChoice, read: impl FnOnce(Buffer) -> Result<T>) -> Look<T> {
    let file = match MmapChoice::open_regular(path) {
        Err(error) if error.kind() == ErrorKind::MissingFile && reappears(path) => {
            return Look::Replaced;
        }
        Err(error) => return Look::Whole(Err(error)),
        Ok(file) => file,
    };
    // The file stays open until the end, so that no other one can get its inode.
    match identity(&file).and_then(|before| Ok((before, mmap.open(&file, path)?))) {
        Ok((before, bytes)) => {
            let result = read(bytes);
            if is_still(path, &before) { Look::Whole(result) } else { Look::Replaced }
        }
        Err(error) => Look::Whole(Err(error.with_path(path))),
    }
}

fn identity(file: &File) -> Result<FileIdentity> {
    let metadata = file.metadata().map_err(|e| Error::io("", e))?;
    Ok(FileIdentity::new(&metadata))
}

/// Whether the file at `path` is the one that was opened. One that may not be looked at any more
/// counts: a new look would fail, and says why.
fn is_still(path: &Path, before: &FileIdentity) -> bool {
    path.metadata().is_ok_and(|now| FileIdentity::new(&now) == *before)
}

/// Whether `path`, where nothing was, is there once no save is renaming files in its folder. Right after one save the
/// next may have moved the file away again, so one look is not enough.
fn reappears(path: &Path) -> bool {
    let start = Instant::now();
    (0..LOOKS).take_while(|_| start.elapsed() < PATIENCE).any(|_| {
        wait_for_renames(path);
        path.exists()
    })
}

/// Waits while a save holds the lock on the folder of `path` under which it renames files. Where
/// folders cannot be locked there is nothing to wait for, and the next look comes a moment later.
fn wait_for_renames(path: &Path) {
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    while is_locked(&directory_of(path)).unwrap_or(false) && start.elapsed() < PATIENCE {
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    thread::yield_now();
}

/// Whether a save holds the lock of `directory`.
#[cfg(unix)]
fn is_locked(directory: &Path) -> io::Result<bool> {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;
    let directory = File::open(directory)?;
    // Taken for a moment only: it goes with the descriptor.
    match rustix::io::retry_on_intr(|| flock(&directory, FlockOperation::NonBlockingLockShared)) {
        Err(Errno::WOULDBLOCK) => Ok(true),
        other => other.map(|()| false).map_err(io::Error::from),
    }
}

#[cfg(not(unix))]
fn is_locked(_: &Path) -> io::Result<bool> {
    thread::sleep(Duration::from_millis(5));
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::fs;

    #[test]
    fn a_file_that_is_replaced_while_it_is_read_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let put = |text: &str| {
            fs::write(folder.path().join("new"), text).unwrap();
            fs::rename(folder.path().join("new"), &path).unwrap();
        };
        put("1");
        let looks = Cell::new(0);
        let read = |bytes: Buffer| {
            looks.set(looks.get() + 1);
            if looks.get() < 3 {
                put(&format!("{}", looks.get() + 1));
            }
            Ok(bytes)
        };
        let bytes = read_one_save(&path, MmapChoice::never(), read).unwrap();
        assert_eq!((&bytes[..], looks.get()), (&b"3"[..], 3));
    }

    #[test]
    fn an_error_counts_only_when_the_file_is_still_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        fs::write(&path, "1").unwrap();
        let looks = Cell::new(0);
        let fails = |replace: bool| {
            looks.set(0);
            read_one_save(&path, MmapChoice::never(), |_| -> Result<()> {
                looks.set(looks.get() + 1);
                if replace {
                    fs::remove_file(&path).unwrap();
                    fs::write(&path, looks.get().to_string()).unwrap();
                }
                Err(Error::new(ErrorKind::Shape, "wrong"))
            })
            .unwrap_err()
        };
        assert_eq!((fails(false).kind(), looks.get()), (ErrorKind::Shape, 1));
        let error = fails(true);
        assert_eq!((error.kind(), looks.get()), (ErrorKind::Changed, LOOKS), "{error}");
        assert_eq!(error.path(), Some(path.as_path()));
    }

    #[test]
    fn what_is_missing_for_good_is_said_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let error = read_one_save(&folder.path().join("m"), MmapChoice::never(), Ok).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingFile);
    }

    #[test]
    #[cfg(unix)]
    fn a_model_that_is_away_during_a_save_is_waited_for() {
        use rustix::fs::{FlockOperation, flock};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let directory = File::open(folder.path()).unwrap();
        flock(&directory, FlockOperation::LockExclusive).unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(|| read_one_save(&path, MmapChoice::never(), Ok));
            thread::sleep(Duration::from_millis(30));
            fs::write(&path, "new").unwrap();
            drop(directory);
            assert_eq!(&reader.join().unwrap().unwrap()[..], b"new");
        });
    }
}
