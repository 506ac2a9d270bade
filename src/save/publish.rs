//! Stage beside the target, then rename: the files of a save appear together or not at all.
//!
//! New files are written into a staging folder in the target's directory. When all are complete,
//! and flushed to the disk where that was requested, they are renamed into place, the model last. An
//! old model whose weights file is about to be replaced is moved away first. So a crash at any point
//! leaves the old files, the new files, or no model file and a staging folder that holds both; it
//! never leaves an old model beside new weights. When a rename fails, those before it are undone.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use crate::error::{Error, ErrorKind, Result};
use crate::parallel;
use crate::save::leftovers::staging_prefix;
use crate::save::listing::Listing;
use crate::save::lock::FolderLock;
use crate::save::options::SaveOptions;
use crate::save::statistics::timed;

/// How many new files stay open until they are flushed; others are opened again.
const MOST_OPEN: usize = 8;
/// More threads than this do not flush faster.
const MAX_THREADS: usize = 4;

/// The error of a folder in which no staging folder can be made. The error of `tempfile` names a path
/// that the user does not know, so only its kind is shown.
fn cannot_write(folder: &Path, error: io::Error) -> Error {
    let plain = io::Error::from(error.kind());
    Error::io(folder, plain).because("cannot write in this folder")
}

/// A staging folder, with `new` files in it and a place for the `old` ones.
pub(crate) struct Staging {
    directory: PathBuf,
    /// As the caller gave it, for messages.
    directory_given: PathBuf,
    /// The permissions of the model that is replaced.
    model_mode: Option<u32>,
    /// The first of the new files, still open. Closed before the folder is removed: a network file system keeps what
    /// is open.
    open: Mutex<HashMap<String, File>>,
    folder: TempDir,
    /// Marks the folder as in use.
    _lock: FolderLock,
    names: Vec<String>,
    /// The files in the target's directory before the first of them is written.
    there: Listing,
    /// How long files were written and flushed.
    pub(crate) writing: Duration,
    pub(crate) flushing: Duration,
    /// How long lazy weights were made for them, as the caller tells.
    pub(crate) producing: Duration,
    options: SaveOptions,
}

impl Staging {
    /// A new staging folder in `directory`, named after the model.
    pub(crate) fn new(
        directory_given: &Path,
        model_name: &str,
        options: &SaveOptions,
    ) -> Result<Self> {
        let fail = |e| Error::io(directory_given, e);
        // Absolute: the current directory may change before the files are published.
        let directory = std::path::absolute(directory_given).map_err(fail)?;
        let (folder, lock) = loop {
            let folder = tempfile::Builder::new()
                .prefix(&staging_prefix(model_name))
                .tempdir_in(&directory)
                .map_err(|error| cannot_write(directory_given, error))?;
            // Another save may have removed the folder before it was locked.
            if let Some(lock) = FolderLock::of_new(folder.path()) {
                break (folder, lock);
            }
        };
        let model_mode = mode_of(&directory.join(model_name));
        let (options, names) = (options.clone(), Vec::new());
        let directory_given = directory_given.to_path_buf();
        let (writing, flushing) = (Duration::ZERO, Duration::ZERO);
        let staging = Self {
            directory,
            directory_given,
            model_mode,
            folder,
            _lock: lock,
            names,
            there: Listing::default(),
            open: Mutex::default(),
            writing,
            flushing,
            producing: Duration::ZERO,
            options,
        };
        fs::create_dir(staging.new_files()).map_err(fail)?;
        fs::create_dir(staging.old_files()).map_err(fail)?;
        Ok(staging)
    }

    fn new_files(&self) -> PathBuf {
        self.folder.path().join("new")
    }

    fn old_files(&self) -> PathBuf {
        self.folder.path().join("old")
    }

    /// Has `write` create and fill the files that will be published as `names`, the model last.
    pub(crate) fn write<'n>(
        &mut self,
        names: impl IntoIterator<Item = &'n str>,
        write: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let names: Vec<_> = names.into_iter().map(str::to_owned).collect();
        self.there = Listing::of(&self.directory, names.len());
        let mut writing = self.writing;
        timed(&mut writing, || write(self))?;
        self.writing = writing;
        self.names.extend(names);
        Ok(())
    }

    /// Creates the file that will be published as `name`. It gets the mode of the file that it replaces, or
    /// else of the replaced model, so that new weights are not more accessible than the model was. Where
    /// neither exists, the umask decides.
    pub(crate) fn create(&self, name: &str) -> Result<NewFile> {
        let (staged, path) = (self.new_files().join(name), self.directory.join(name));
        let fail = |error| Error::io(&staged, error);
        let file = File::create_new(&staged).map_err(fail)?;
        let replaced = self.there.may_have(name).then(|| mode_of(&path)).flatten();
        if let Some(mode) = replaced.or(self.model_mode) {
            set_mode(&file, mode).map_err(fail)?;
        }
        if self.options.sync {
            self.keep_open(name, &file);
        }
        Ok(NewFile { file, staged, path })
    }

    /// Keeps the file open until it is flushed, if only few are, so that no error of the disk is missed.
    fn keep_open(&self, name: &str, file: &File) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() < MOST_OPEN
            && let Ok(file) = file.try_clone()
        {
            open.insert(name.to_owned(), file);
        }
    }

    /// Waits until all files are on the disk, where that was requested.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if !self.options.sync {
            return Ok(());
        }
        let open = std::mem::take(&mut self.open).into_inner();
        let open = open.unwrap_or_else(PoisonError::into_inner);
        let mut flushing = self.flushing;
        timed(&mut flushing, || {
            parallel::for_each(parallel::cores(MAX_THREADS), self.names.iter(), |name| {
                let staged = self.new_files().join(name);
                let flushed = match open.get(name) {
                    Some(file) => file.sync_all(),
                    None => open_again(&staged).and_then(|file| file.sync_all()),
                };
                flushed.map_err(|error| Error::io(&staged, error))
            })
        })?;
        self.flushing = flushing;
        Ok(())
    }

    /// Renames every file into place in the order of creation; the model is the last one. Locks keep
    /// other saves from renaming files in this folder and in `others`; `look_again` runs under the
    /// locks, before the first rename.
    ///
    /// On an error the old files are in place and the staging folder is removed, with two exceptions:
    /// where the last flush fails the new files are in place, and where renames cannot be undone the
    /// staging folder is kept and named in the error. A staging folder that cannot be removed is returned
    /// as a warning.
    pub(crate) fn publish(
        self,
        mut others: Vec<PathBuf>,
        look_again: impl FnOnce() -> Result<()>,
    ) -> Result<Option<Error>> {
        let sync = self.options.sync;
        let directory = OpenDirectory::new(&self.directory, sync)?;
        if sync {
            OpenDirectory::new(&self.new_files(), true)?.sync()?;
            OpenDirectory::new(self.folder.path(), true)?.sync()?;
        }
        others.push(self.directory.clone());
        let _locks = FolderLock::wait_for_all(&others, &self.options)?;
        look_again()?;
        let flush = || if sync { directory.sync() } else { Ok(()) };
        if let Err(failure) = rename_all(self.renames(), flush) {
            let Failure { error, undone } = failure;
            return Err(if undone { error } else { self.keep(error) });
        }
        flush()?;
        Ok(self.remove())
    }

    /// Removes the staging folder, or returns a warning that it cannot be removed.
    fn remove(self) -> Option<Error> {
        let path = self.folder.path().to_path_buf();
        let error = self.folder.close().err().filter(|e| e.kind() != io::ErrorKind::NotFound)?;
        let said = "the save is done, but its staging folder cannot be removed";
        Some(Error::io(path, error).because(said))
    }

    /// The renames that publish the files, in three phases: old files away, new weights, the new model.
    /// After any number of them the directory has the old model with its weights, no model, or the new
    /// model with its weights.
    fn renames(&self) -> [Vec<Rename>; 3] {
        let (new, old) = (self.new_files(), self.old_files());
        let (model, weights) = match self.names.split_last() {
            Some((model, weights)) => (Some(model), weights),
            None => (None, &[][..]),
        };
        let listing = Listing::of(&self.directory, self.names.len());
        let there = |name: &String| {
            listing.may_have(name) && self.directory.join(name).symlink_metadata().is_ok()
        };
        // Where no weights file is replaced, one rename replaces the old model.
        let replaces_weights = weights.iter().any(there);
        let replaces_model =
            !replaces_weights && self.options.overwrite && model.is_some_and(there);
        // Otherwise the old model goes first and the new one comes last.
        let moves_away = replaces_weights && self.options.overwrite;
        let replaced = self.names.iter().rev().filter(|name| moves_away && there(name));
        let shown = |name: &str| self.directory_given.join(name);
        let away = replaced.map(|name| Rename::new(&self.directory, &old, name, shown(name)));
        let staged = |name: &String| Rename::new(&new, &self.directory, name, shown(name));
        let replacing = |name: &String| Rename { replaces: replaces_model, ..staged(name) };
        let model = model.into_iter().map(replacing).collect();
        [away.collect(), weights.iter().map(staged).collect(), model]
    }

    /// Keeps the staging folder, which holds files that could not be moved back, and names it in the error.
    fn keep(self, error: Error) -> Error {
        let kept = self.folder.keep();
        let reason = format!("{error}; the files are kept in `{}`", kept.display());
        Error::new(error.kind(), reason)
    }
}

/// Opens a file to flush it. Some systems flush only what is open for writing, and the file may have taken the
/// permissions of a read-only one.
fn open_again(path: &Path) -> io::Result<File> {
    File::options().write(true).open(path).or_else(|_| File::open(path))
}

/// A file that was created in a staging folder.
pub(crate) struct NewFile {
    pub(crate) file: File,
    /// Where it is.
    pub(crate) staged: PathBuf,
    /// Where it will be, for messages.
    pub(crate) path: PathBuf,
}

/// The permissions of the regular file at `path`.
#[cfg(unix)]
fn mode_of(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = path.symlink_metadata().ok().filter(fs::Metadata::is_file)?;
    Some(metadata.permissions().mode() & 0o777)
}

#[cfg(unix)]
fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn mode_of(_: &Path) -> Option<u32> {
    None
}

#[cfg(not(unix))]
fn set_mode(_: &File, _: u32) -> io::Result<()> {
    Ok(())
}

/// A file to be renamed.
struct Rename {
    from: PathBuf,
    to: PathBuf,
    /// The file of the target's folder, for messages.
    shown: PathBuf,
    /// Whether a file at `to` is replaced. Otherwise there must be none.
    replaces: bool,
}

impl Rename {
    /// Moves the file `name` from one folder to another, where no file may have that name.
    fn new(from: &Path, to: &Path, name: &str, shown: PathBuf) -> Self {
        Self { from: from.join(name), to: to.join(name), shown, replaces: false }
    }

    fn run(&self) -> Result<()> {
        let renamed = if self.replaces {
            fs::rename(&self.from, &self.to)
        } else {
            rename_to_free(&self.from, &self.to)
        };
        renamed.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let reason = "exists already: it was made while the save was running";
                Error::new(ErrorKind::AlreadyExists, reason).with_path(&self.shown)
            }
            io::ErrorKind::PermissionDenied => Error::io(&self.shown, error).because(
                "cannot be replaced: it may belong to another user, and in a folder that all users share \
                 only the owner may move a file",
            ),
            _ => Error::io(&self.shown, error),
        })
    }

    fn undo(self) -> io::Result<()> {
        rename_to_free(&self.to, &self.from)
    }
}

/// Renames a file to a name that is not taken.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Some file systems do not support this flag. The lock still excludes other saves.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            other => return other.map_err(io::Error::from),
        }
    }
    match to.symlink_metadata() {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// The error of a failed rename or flush, and whether the renames before it were undone.
struct Failure {
    error: Error,
    undone: bool,
}

/// Does the renames of each phase and calls `flush` between phases, so that a power failure leaves the
/// same files as a crash at that point.
fn rename_all(
    phases: impl IntoIterator<Item = Vec<Rename>>,
    flush: impl Fn() -> Result<()>,
) -> Result<(), Failure> {
    let mut done: Vec<Rename> = Vec::new();
    for phase in phases {
        // No flush is needed where nothing was renamed before, or where nothing is renamed next.
        let flushed = if done.is_empty() || phase.is_empty() { Ok(()) } else { flush() };
        let renamed = flushed.and_then(|()| {
            phase.into_iter().try_for_each(|step| step.run().map(|()| done.push(step)))
        });
        if let Err(error) = renamed {
            let undone = done.into_iter().rev().try_for_each(Rename::undo);
            return Err(Failure { error, undone: undone.is_ok() });
        }
    }
    Ok(())
}

/// A directory in which files are renamed. Windows cannot open or flush one, and needs no flush.
struct OpenDirectory {
    #[cfg(unix)]
    file: Option<File>,
    #[cfg(unix)]
    path: PathBuf,
}

#[cfg(unix)]
impl OpenDirectory {
    /// Opens `path`. A failure is an error only with `sync`.
    fn new(path: &Path, sync: bool) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, e));
        let file = if sync { Some(file?) } else { file.ok() };
        Ok(Self { file, path: path.to_path_buf() })
    }

    /// Makes the renames durable, where the file system supports that.
    fn sync(&self) -> Result<()> {
        let unknown = [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported];
        match self.file.as_ref().map_or(Ok(()), File::sync_all) {
            Err(error) if !unknown.contains(&error.kind()) => Err(Error::io(&self.path, error)),
            _ => Ok(()),
        }
    }
}

#[cfg(not(unix))]
impl OpenDirectory {
    fn new(_: &Path, _: bool) -> Result<Self> {
        Ok(Self {})
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, staging: &mut Staging) {
        use std::io::Write;
        let fill = |staging: &Staging| {
            let NewFile { mut file, path, .. } = staging.create(name)?;
            file.write_all(b"new").map_err(|e| Error::io(path, e))
        };
        staging.write([name], fill).unwrap();
        staging.flush().unwrap();
    }

    /// A folder with an old model and its weights, and the new ones staged.
    fn replacing(sync: bool) -> (TempDir, Staging) {
        let dir = tempfile::tempdir().unwrap();
        let options = SaveOptions::new().sync(sync);
        let mut staging = Staging::new(dir.path(), "m.onnx", &options).unwrap();
        for name in ["m.onnx.data", "m.onnx"] {
            fs::write(dir.path().join(name), "old").unwrap();
            write(name, &mut staging);
        }
        (dir, staging)
    }

    fn listing(dir: &Path) -> Vec<(String, String)> {
        let read = |entry: io::Result<fs::DirEntry>| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap_or_else(|_| "(folder)".into()))
        };
        let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(read).collect();
        all.sort();
        all
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn files_are_replaced_together() {
        let (dir, staging) = replacing(true);
        assert!(staging.publish(Vec::new(), || Ok(())).unwrap().is_none());
        assert_eq!(listing(dir.path()), pairs(&[("m.onnx", "new"), ("m.onnx.data", "new")]));
    }

    #[test]
    fn a_rename_that_fails_undoes_the_others() {
        let (dir, staging) = replacing(false);
        // The staged model disappears: the last rename fails.
        fs::remove_file(staging.new_files().join("m.onnx")).unwrap();
        let error = staging.publish(Vec::new(), || Ok(())).unwrap_err();
        assert!(error.path().unwrap().ends_with("m.onnx"), "{error}");
        assert_eq!(listing(dir.path()), pairs(&[("m.onnx", "old"), ("m.onnx.data", "old")]));
    }

    #[test]
    fn a_crash_after_any_rename_never_pairs_an_old_model_with_new_weights() {
        for crash_after in 0..=4 {
            let (dir, staging) = replacing(false);
            let (old, new) = (staging.old_files(), staging.new_files());
            let renames: Vec<_> = staging.renames().into_iter().flatten().collect();
            assert_eq!(renames.len(), 4);
            let steps = renames.into_iter().take(crash_after).map(|step| vec![step]);
            rename_all(steps, || Ok(())).map_err(|f| f.error).unwrap();
            let _ = staging.folder.keep();
            let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
            match (read("m.onnx").as_deref(), read("m.onnx.data").as_deref()) {
                (Some("old"), Some("old")) => assert_eq!(crash_after, 0),
                (Some("new"), Some("new")) => assert_eq!(crash_after, 4),
                (None, _) => {
                    let folders = [old.as_path(), new.as_path(), dir.path()];
                    let count: usize = folders.iter().map(|folder| listing(folder).len()).sum();
                    assert_eq!(count, 5, "four files and the staging folder");
                }
                pair => panic!("after {crash_after} renames: {pair:?}"),
            }
        }
    }

    #[test]
    fn a_flush_that_fails_between_renames_undoes_them() {
        for fail_at in 1..=2 {
            let (dir, staging) = replacing(false);
            let flushes = std::cell::Cell::new(0);
            let flush = || {
                flushes.set(flushes.get() + 1);
                if flushes.get() == fail_at { Err(Error::new(ErrorKind::Io, "no")) } else { Ok(()) }
            };
            let failure = rename_all(staging.renames(), flush).unwrap_err();
            assert!(failure.undone);
            drop(staging);
            assert_eq!(listing(dir.path()), pairs(&[("m.onnx", "old"), ("m.onnx.data", "old")]));
        }
    }

    #[test]
    fn staging_that_is_dropped_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut staging = Staging::new(dir.path(), "m.onnx", &SaveOptions::new()).unwrap();
        write("m.onnx", &mut staging);
        drop(staging);
        assert_eq!(listing(dir.path()), pairs(&[]));
    }
}
