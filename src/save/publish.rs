//! Stage beside the target, then rename: the files of a save appear together or not at all.
//!
//! New files are written into a staging folder in the target's directory. When all are complete,
//! and on the disk where that was asked for, they are renamed into place, the model last. An old
//! model whose weights file is about to be replaced is moved away first: a crash at any point
//! leaves the old files, the new files, or no model file and a staging folder that holds both;
//! never an old model beside new weights. A rename that fails is undone with those before it.

use std::fs::{self, File};
#[cfg(any(unix, test))]
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Error, Result};

/// A staging folder, with `new` files in it and a place for the `old` ones.
pub(crate) struct Staging {
    directory: PathBuf,
    folder: TempDir,
    names: Vec<String>,
    sync: bool,
}

impl Staging {
    /// A new staging folder in `directory`, named after the model.
    pub(crate) fn new(directory: &Path, model_name: &str, sync: bool) -> Result<Self> {
        let fail = |e| Error::io(directory, e);
        // Absolute: the current directory may change before the files are published.
        let directory = std::path::absolute(directory).map_err(fail)?;
        let folder = tempfile::Builder::new()
            .prefix(&staging_prefix(model_name))
            .tempdir_in(&directory)
            .map_err(fail)?;
        let staging = Self { directory, folder, names: Vec::new(), sync };
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

    /// Creates the file that will be published as `name`, with the mode that the umask gives, and
    /// has `write` fill it.
    pub(crate) fn file(
        &mut self,
        name: &str,
        write: impl FnOnce(&File, &Path) -> Result<()>,
    ) -> Result<()> {
        let staged = self.new_files().join(name);
        let file = File::create_new(&staged).map_err(|e| Error::io(&staged, e))?;
        write(&file, &self.directory.join(name))?;
        if self.sync {
            file.sync_all().map_err(|e| Error::io(&staged, e))?;
        }
        self.names.push(name.to_owned());
        Ok(())
    }

    /// Renames every file into place, in the order they were made: the model is the last one.
    ///
    /// On an error everything is as it was before, and the staging folder is gone; only when the
    /// names cannot be made durable the new files are in place. `check` may refuse while no other save
    /// renames files here.
    pub(crate) fn publish_if(self, check: impl FnOnce() -> Result<()>) -> Result<()> {
        let directory = OpenDirectory::new(&self.directory, self.sync)?;
        if self.sync {
            OpenDirectory::new(&self.new_files(), true)?.sync()?;
            OpenDirectory::new(self.folder.path(), true)?.sync()?;
        }
        directory.lock();
        check()?;
        let flush = || if self.sync { directory.sync() } else { Ok(()) };
        if let Err(failure) = rename_all(self.renames(), flush) {
            let Failure { error, undone } = failure;
            return Err(if undone { error } else { self.keep(error) });
        }
        flush()?;
        // The new files are in place; a staging folder that cannot be removed is only litter.
        let _ = self.folder.close();
        Ok(())
    }

    /// The renames that publish the files: old files away, new weights, the new model. After any
    /// number of them there is the old model with its weights, no model, or the new model with its
    /// weights.
    fn renames(&self) -> [Vec<Rename>; 3] {
        let (new, old) = (self.new_files(), self.old_files());
        let (model, weights) = match self.names.split_last() {
            Some((model, weights)) => (Some(model), weights),
            None => (None, &[][..]),
        };
        let there = |name: &String| self.directory.join(name).symlink_metadata().is_ok();
        // Weights that take no other's place go beside the old model, which one rename replaces.
        let replaces_weights = weights.iter().any(there);
        // Otherwise the old model goes first and the new one comes last.
        let away = self.names.iter().rev().filter(|name| replaces_weights && there(name));
        let away = away.map(|name| (self.directory.join(name), old.join(name)));
        let staged = |name| (new.join(name), self.directory.join(name));
        let model = model.into_iter().map(staged).collect();
        [away.collect(), weights.iter().map(staged).collect(), model]
    }

    /// Leaves the staging folder in place and says so: it holds what could not be put back.
    fn keep(self, error: Error) -> Error {
        let kept = self.folder.keep();
        let reason = format!("{error}; the files are kept in `{}`", kept.display());
        Error::new(error.kind(), reason)
    }
}

/// How the names of a model's staging folders begin.
pub(crate) fn staging_prefix(model_name: &str) -> String {
    let short: String = model_name.chars().take(48).collect();
    format!(".{short}.saving-")
}

/// From, and to.
type Rename = (PathBuf, PathBuf);

/// A rename that failed, and whether those before it could be undone.
struct Failure {
    error: Error,
    undone: bool,
}

/// Does the renames of each phase, and between two phases `flush`: what a power failure leaves is
/// what a crash at that point leaves.
fn rename_all(
    phases: impl IntoIterator<Item = Vec<Rename>>,
    flush: impl Fn() -> Result<()>,
) -> Result<(), Failure> {
    let mut done: Vec<Rename> = Vec::new();
    for phase in phases {
        // Nothing was renamed since the last flush, before the first phase and after an empty one.
        let flushed = if done.is_empty() || phase.is_empty() { Ok(()) } else { flush() };
        let renamed =
            flushed.and_then(|()| phase.into_iter().try_for_each(|step| rename(step, &mut done)));
        if let Err(error) = renamed {
            let undone = done.into_iter().rev().try_for_each(|(from, to)| fs::rename(to, from));
            return Err(Failure { error, undone: undone.is_ok() });
        }
    }
    Ok(())
}

fn rename((from, to): Rename, done: &mut Vec<Rename>) -> Result<()> {
    fs::rename(&from, &to).map_err(|error| Error::io(&to, error))?;
    done.push((from, to));
    Ok(())
}

/// A directory whose names are changed. Windows has neither call, and needs no flush.
struct OpenDirectory {
    #[cfg(unix)]
    file: Option<File>,
    #[cfg(unix)]
    path: PathBuf,
}

#[cfg(unix)]
impl OpenDirectory {
    /// Opens `path`: it must be possible when its names are to be made durable.
    fn new(path: &Path, sync: bool) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, e));
        let file = if sync { Some(file?) } else { file.ok() };
        Ok(Self { file, path: path.to_path_buf() })
    }

    /// Waits for other saves to this directory to finish their renames; the lock goes with `self`.
    /// Some network file systems cannot lock: there the last save wins, file by file.
    fn lock(&self) {
        use rustix::fs::{FlockOperation, flock};
        if let Some(file) = &self.file {
            let _ = rustix::io::retry_on_intr(|| flock(file, FlockOperation::LockExclusive));
        }
    }

    /// Makes the names durable, where the file system knows how.
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

    fn lock(&self) {}

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn write(name: &str, staging: &mut Staging) {
        use std::io::Write;
        let fill =
            |mut file: &File, path: &Path| file.write_all(b"new").map_err(|e| Error::io(path, e));
        staging.file(name, fill).unwrap();
    }

    /// A folder with an old model and its weights, and the new ones staged.
    fn replacing(sync: bool) -> (TempDir, Staging) {
        let dir = tempfile::tempdir().unwrap();
        let mut staging = Staging::new(dir.path(), "m.onnx", sync).unwrap();
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
        staging.publish_if(|| Ok(())).unwrap();
        assert_eq!(listing(dir.path()), pairs(&[("m.onnx", "new"), ("m.onnx.data", "new")]));
    }

    #[test]
    fn a_rename_that_fails_undoes_the_others() {
        let (dir, staging) = replacing(false);
        // The staged model disappears: the last rename fails.
        fs::remove_file(staging.new_files().join("m.onnx")).unwrap();
        let error = staging.publish_if(|| Ok(())).unwrap_err();
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
        let mut staging = Staging::new(dir.path(), "m.onnx", false).unwrap();
        write("m.onnx", &mut staging);
        drop(staging);
        assert_eq!(listing(dir.path()), pairs(&[]));
    }
}
