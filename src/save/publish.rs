//! Stage beside the target, then rename: the files of a save appear together or not at all.
//!
//! New files are written into a staging folder in the target's directory. When all are complete,
//! and on the disk where that was asked for, they are renamed into place, the model last. An old
//! model whose weights file is about to be replaced is moved away first: a crash at any point
//! leaves the old files, the new files, or no model file and a staging folder that holds both;
//! never an old model beside new weights. A rename that fails is undone with those before it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Error, ErrorKind, Result};

/// A staging folder and the files in it.
pub(crate) struct Staging {
    directory: PathBuf,
    folder: TempDir,
    names: Vec<String>,
    sync: bool,
}

impl Staging {
    /// A new staging folder in `directory`, named after the model.
    pub(crate) fn new(directory: &Path, model_name: &str, sync: bool) -> Result<Self> {
        let short: String = model_name.chars().take(48).collect();
        let folder = tempfile::Builder::new()
            .prefix(&format!(".{short}.saving-"))
            .tempdir_in(directory)
            .map_err(|e| Error::io(directory, e))?;
        let names = Vec::new();
        Ok(Self { directory: directory.to_path_buf(), folder, names, sync })
    }

    /// Creates the file that will be published as `name`, with the mode that the umask gives, and
    /// has `write` fill it.
    pub(crate) fn file(
        &mut self,
        name: &str,
        write: impl FnOnce(&File, &Path) -> Result<()>,
    ) -> Result<()> {
        let staged = self.folder.path().join(name);
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
    /// On an error everything is as it was before, and the staging folder is gone.
    pub(crate) fn publish(self) -> Result<()> {
        let old = self.folder.path().join("old");
        fs::create_dir(&old).map_err(|e| Error::io(&old, e))?;
        if self.sync {
            sync_directory(self.folder.path())?;
        }
        if let Err(failure) = rename_all(self.renames(&old)) {
            let Failure { path, error, undone } = failure;
            return Err(if undone { Error::io(path, error) } else { self.keep(&path, &error) });
        }
        if self.sync {
            sync_directory(&self.directory)?;
        }
        // The new files are in place; a staging folder that cannot be removed is only litter.
        let _ = self.folder.close();
        Ok(())
    }

    /// The renames that publish the files, in order. After any number of them there is the old
    /// model with its weights, no model, or the new model with its weights.
    fn renames(&self, old: &Path) -> Vec<(PathBuf, PathBuf)> {
        let replaced = |name: &&String| self.directory.join(name).symlink_metadata().is_ok();
        // The old model goes first and the new one comes last.
        let away = self.names.iter().rev().filter(replaced);
        let away = away.map(|name| (self.directory.join(name), old.join(name)));
        let staged = |name| (self.folder.path().join(name), self.directory.join(name));
        away.chain(self.names.iter().map(staged)).collect()
    }

    /// Leaves the staging folder in place and says so: it holds what could not be put back.
    fn keep(self, path: &Path, error: &io::Error) -> Error {
        let kept = self.folder.keep();
        let reason = format!("{error}; the files are kept in `{}`", kept.display());
        Error::new(ErrorKind::Io, reason).with_path(path)
    }
}

/// A rename that failed, and whether those before it could be undone.
struct Failure {
    path: PathBuf,
    error: io::Error,
    undone: bool,
}

fn rename_all(renames: Vec<(PathBuf, PathBuf)>) -> Result<(), Failure> {
    let mut done: Vec<(PathBuf, PathBuf)> = Vec::new();
    for (from, to) in renames {
        if let Err(error) = fs::rename(&from, &to) {
            let undone = done.into_iter().rev().try_for_each(|(from, to)| fs::rename(to, from));
            return Err(Failure { path: to, error, undone: undone.is_ok() });
        }
        done.push((from, to));
    }
    Ok(())
}

/// Makes the names in `directory` durable. Windows has no such call and needs none.
fn sync_directory(directory: &Path) -> Result<()> {
    #[cfg(unix)]
    File::open(directory).and_then(|d| d.sync_all()).map_err(|e| Error::io(directory, e))?;
    #[cfg(not(unix))]
    let _ = directory;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, staging: &mut Staging) {
        use std::io::Write;
        let fill =
            |mut file: &File, path: &Path| file.write_all(b"new").map_err(|e| Error::io(path, e));
        staging.file(name, fill).unwrap();
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
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("m.onnx"), "old").unwrap();
        fs::write(dir.path().join("m.onnx.data"), "old").unwrap();
        let mut staging = Staging::new(dir.path(), "m.onnx", true).unwrap();
        write("m.onnx.data", &mut staging);
        write("m.onnx", &mut staging);
        staging.publish().unwrap();
        assert_eq!(listing(dir.path()), pairs(&[("m.onnx", "new"), ("m.onnx.data", "new")]));
    }

    #[test]
    fn a_rename_that_fails_undoes_the_others() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.data"), "old").unwrap();
        fs::write(dir.path().join("m.onnx"), "old").unwrap();
        let mut staging = Staging::new(dir.path(), "m.onnx", false).unwrap();
        write("a.data", &mut staging);
        write("m.onnx", &mut staging);
        // The staged model disappears: the last rename fails.
        fs::remove_file(staging.folder.path().join("m.onnx")).unwrap();
        let error = staging.publish().unwrap_err();
        assert!(error.path().unwrap().ends_with("m.onnx"), "{error}");
        assert_eq!(listing(dir.path()), pairs(&[("a.data", "old"), ("m.onnx", "old")]));
    }

    #[test]
    fn a_crash_after_any_rename_never_pairs_an_old_model_with_new_weights() {
        for crash_after in 0..=4 {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("m.onnx"), "old").unwrap();
            fs::write(dir.path().join("m.onnx.data"), "old").unwrap();
            let mut staging = Staging::new(dir.path(), "m.onnx", false).unwrap();
            write("m.onnx.data", &mut staging);
            write("m.onnx", &mut staging);
            let old = staging.folder.path().join("old");
            fs::create_dir(&old).unwrap();
            let renames = staging.renames(&old);
            assert_eq!(renames.len(), 4);
            rename_all(renames.into_iter().take(crash_after).collect())
                .map_err(|f| f.error)
                .unwrap();
            let folder = staging.folder.keep();
            let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
            match (read("m.onnx").as_deref(), read("m.onnx.data").as_deref()) {
                (Some("old"), Some("old")) => assert_eq!(crash_after, 0),
                (Some("new"), Some("new")) => assert_eq!(crash_after, 4),
                (None, _) => {
                    assert_eq!(
                        listing(&old).len() + listing(dir.path()).len() + listing(&folder).len(),
                        6
                    );
                }
                pair => panic!("after {crash_after} renames: {pair:?}"),
            }
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
