//! Reading a model and its weights as one save left them.
//!
//! A save that was killed between its renames is completed or undone first. A save puts its weights
//! files in place before the file that names them, which is a model or the index of shards; where
//! it replaces weights, it first moves the old model or index away. So while that file is at its
//! path, the files that it names are its own. A reader that opens it, opens all the others, and
//! then finds the same file at the path has seen one save. If not, it starts again. The first looks
//! lock nothing, so that a reader does not make a save wait; later ones share the lock under which
//! saves rename files, so that a reader beside busy writers does not look in vain.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::buffer::MmapChoice;
use crate::buffers::FileIdentity;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{directory_of, refuse_nul};
use crate::files::recovery::{FolderLock, interrupted, is_journaled, linked, recover_for_reading};
use crate::util::retry::{exists, retried};

/// How often a reader looks before it gives up.
const LOOKS: usize = 20;

/// After so many looks the reader locks the folder, shared with other readers, while it looks.
const LOOKS_WITHOUT_LOCK: usize = 4;

/// The longest wait for that lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

/// The longest wait for a save to finish its renames, before each new look.
const PATIENCE: Duration = Duration::from_secs(1);

/// What was read, and what the reader is to be told.
pub(crate) struct OneSave<T> {
    pub(crate) value: T,
    /// A save that was interrupted was completed or undone, or that was not possible.
    pub(crate) warning: Option<Error>,
}

/// Maps or reads the file at `path` and has `read` open whatever it names, again when a save
/// replaced the file meanwhile. A save that was interrupted is completed or undone before.
///
/// # Errors
/// [`ErrorKind::MissingFile`] when there is no such file and no save is about to put one there;
/// [`ErrorKind::Changed`] when it was replaced at every look; [`ErrorKind::InvalidArgument`] for a
/// path with a NUL byte; the error of `read` otherwise.
pub(crate) fn read_one_save<T>(
    path: &Path,
    mmap: MmapChoice,
    mut read: impl FnMut(Buffer) -> Result<T>,
) -> Result<OneSave<T>> {
    refuse_nul(path)?;
    let mut warning = None;
    for number in 0..LOOKS {
        let recovered = recover(path)?;
        let failed =
            recovered.as_ref().filter(|recovered| !recovered.is_done).map(|r| r.said.clone());
        warning = recovered.map(|recovered| recovered.said).or(warning);
        let _lock = (number >= LOOKS_WITHOUT_LOCK)
            .then(|| FolderLock::share(&real_directory(path), LOCK_PATIENCE));
        match look(path, mmap, &mut read) {
            Look::Whole(Ok(value)) => return Ok(OneSave { value, warning }),
            Look::Whole(Err(error)) => {
                return Err(match failed {
                    Some(failed) => error.and(&failed.to_string()),
                    None if error.kind() == ErrorKind::MissingFile && is_away(path) => {
                        interrupted(path)
                    }
                    None => error,
                });
            }
            Look::Replaced => wait_for_renames(path, PATIENCE),
        }
    }
    let reason =
        format!("is being replaced: each of {LOOKS} reads found another file; try again later");
    Err(Error::new(ErrorKind::Changed, reason).with_path(path))
}

/// What came of an interrupted save, and what the user is told.
struct Recovered {
    is_done: bool,
    said: Error,
}

/// Completes or undoes a save of the model at `path` that was interrupted.
///
/// # Errors
/// When there is no model without recovery. Where the model is there, it has its own weights.
fn recover(path: &Path) -> Result<Option<Recovered>> {
    let error = match recover_for_reading(path) {
        Ok(recovered) => {
            let done = |said| Recovered { is_done: true, said };
            return Ok(recovered.map(|recovered| done(recovered.warning())));
        }
        Err(error) => error,
    };
    if exists(path) { Ok(Some(Recovered { is_done: false, said: error })) } else { Err(error) }
}

/// Whether the model at `path` is not there because a save has moved it away.
fn is_away(path: &Path) -> bool {
    !exists(path) && is_journaled(path)
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
    let metadata = retried(|| file.metadata()).map_err(|e| Error::io("", e))?;
    Ok(FileIdentity::of(file, &metadata))
}

/// Whether the file at `path` is the one that was opened. One that may not be looked at any more
/// counts: a new look would fail, and says why.
fn is_still(path: &Path, before: &FileIdentity) -> bool {
    retried(|| path.metadata()).is_ok_and(|now| FileIdentity::at(path, &now) == *before)
}

/// Whether `path`, where nothing was, is there once no save is renaming files in its folder. Right
/// after one save the next may have moved the file away again, so one look is not enough.
fn reappears(path: &Path) -> bool {
    let start = Instant::now();
    // A save that has announced itself is waited for, however long the disk takes.
    let patience = if is_journaled(path) { LOCK_PATIENCE } else { PATIENCE };
    (0..LOOKS).take_while(|_| start.elapsed() < patience).any(|_| {
        wait_for_renames(path, patience);
        exists(path)
    })
}

/// Waits while a save holds the lock on the folder of `path` under which it renames files. Where
/// folders cannot be locked there is nothing to wait for, and the next look comes a moment later.
fn wait_for_renames(path: &Path, patience: Duration) {
    drop(FolderLock::share(&real_directory(path), patience));
    thread::yield_now();
}

/// The folder that has the file at `path`, where links lead from there.
fn real_directory(path: &Path) -> PathBuf {
    linked(path).last().map_or_else(|| directory_of(path), |path| directory_of(&path))
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
        let bytes = read_one_save(&path, MmapChoice::never(), read).unwrap().value;
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
            .err()
            .unwrap()
        };
        assert_eq!((fails(false).kind(), looks.get()), (ErrorKind::Shape, 1));
        let error = fails(true);
        assert_eq!((error.kind(), looks.get()), (ErrorKind::Changed, LOOKS), "{error}");
        assert_eq!(error.path(), Some(path.as_path()));
    }

    #[test]
    fn what_is_missing_for_good_is_said_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let error = read_one_save(&folder.path().join("m"), MmapChoice::never(), Ok).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::MissingFile);
    }

    #[test]
    fn a_model_that_is_away_during_a_save_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let lock = FolderLock::if_free(folder.path()).unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(|| read_one_save(&path, MmapChoice::never(), Ok));
            thread::sleep(Duration::from_millis(30));
            fs::write(&path, "new").unwrap();
            drop(lock);
            assert_eq!(&reader.join().unwrap().unwrap().value[..], b"new");
        });
    }
}
