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
        let mut renames = Renames::default();
        if let Err((path, error)) = self.rename_all(&old, &mut renames) {
            let undone = renames.undo();
            if undone.is_err() {
                return Err(self.keep(&path, &error));
            }
            return Err(Error::io(path, error));
        }
        if self.sync {
            sync_directory(&self.directory)?;
        }
        // The new files are in place; a staging folder that cannot be removed is only litter.
        let _ = self.folder.close();
        Ok(())
    }

    fn rename_all(&self, old: &Path, renames: &mut Renames) -> Result<(), (PathBuf, io::Error)> {
        let replaced = |name: &String| self.directory.join(name).symlink_metadata().is_ok();
        // The old model goes first and the new one comes last.
        for name in self.names.iter().rev().filter(|name| replaced(name)) {
            renames.rename(self.directory.join(name), old.join(name))?;
        }
        for name in &self.names {
            renames.rename(self.folder.path().join(name), self.directory.join(name))?;
        }
        Ok(())
    }

    /// Leaves the staging folder in place and says so: it holds what could not be put back.
    fn keep(self, path: &Path, error: &io::Error) -> Error {
        let kept = self.folder.keep();
        let reason = format!("{error}; the files are kept in `{}`", kept.display());
        Error::new(ErrorKind::Io, reason).with_path(path)
    }
}

/// Renames done so far, to be undone when a later one fails.
#[derive(Default)]
struct Renames(Vec<(PathBuf, PathBuf)>);

impl Renames {
    fn rename(&mut self, from: PathBuf, to: PathBuf) -> Result<(), (PathBuf, io::Error)> {
        fs::rename(&from, &to).map_err(|e| (to.clone(), e))?;
        self.0.push((from, to));
        Ok(())
    }

    fn undo(self) -> io::Result<()> {
        self.0.into_iter().rev().try_for_each(|(from, to)| fs::rename(to, from))
    }
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
    fn staging_that_is_dropped_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut staging = Staging::new(dir.path(), "m.onnx", false).unwrap();
        write("m.onnx", &mut staging);
        drop(staging);
        assert_eq!(listing(dir.path()), pairs(&[]));
    }
}
