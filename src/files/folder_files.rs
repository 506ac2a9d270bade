//! [`FolderFiles`]: the weights files of an ordinary folder as a source, read when they are needed.
//!
//! A model may have more files than a process may have open, so few of them are open at a time. A
//! file that is opened again has to be the one that was there before.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::buffers::{self, FileIdentity};
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{Directory, PathPolicy};
use crate::files::file_source::{FileSource, WeightFile};
use crate::util::retry::retried;

/// How many files are open at a time, besides those that are being read.
const FEW: usize = 8;

/// The weights files of a folder, for sources that add something to it: a cache, a cipher, a log.
///
/// Where nothing is added, [`Container::load`](crate::Container::load) of a path does more: it maps
/// files on request, and a save keeps weights where they are. A [`Directory`] converts.
///
/// ```
/// use onnx_container::load::{FileSource, FolderFiles, PathPolicy};
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("w.bin"), b"weights")?;
/// let files = FolderFiles::new(folder.path(), PathPolicy::default())?;
///
/// let mut end = [0; 2];
/// files.open("w.bin")?.read_at(5, &mut end)?;
/// assert_eq!(&end, b"ts");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FolderFiles(Arc<Opened>);

impl FolderFiles {
    /// Those of the directory `path`, where links may lead as `policy` says.
    ///
    /// # Errors
    /// Those of [`Directory::with_policy`].
    pub fn new(path: impl AsRef<Path>, policy: PathPolicy) -> Result<Self> {
        Directory::with_policy(path, policy).map(Self::from)
    }
}

impl From<Directory> for FolderFiles {
    fn from(directory: Directory) -> Self {
        Self(Arc::new(Opened { directory, recent: Mutex::default() }))
    }
}

impl FileSource for FolderFiles {
    fn open(&self, location: &str) -> Result<Arc<dyn WeightFile>> {
        let identity = identity(&*self.0.file(location)?);
        let identity =
            identity.map_err(|error| error.with_path(self.0.directory.join(location)))?;
        let (files, location) = (Arc::clone(&self.0), location.to_owned());
        Ok(Arc::new(FolderFile { files, location, identity }))
    }
}

/// One of the files.
struct FolderFile {
    files: Arc<Opened>,
    location: String,
    identity: FileIdentity,
}

impl WeightFile for FolderFile {
    fn len(&self) -> u64 {
        self.identity.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let file = self.files.file(&self.location)?;
        if !self.identity.has_the_bytes_of(&identity(&file)?) {
            let reason = "the file was replaced or written to since it was opened";
            return Err(Error::new(ErrorKind::Changed, reason));
        }
        Ok(buffers::read_at(&file, out, offset)?)
    }

    fn describe(&self) -> PathBuf {
        self.files.directory.join(&self.location)
    }
}

fn identity(file: &File) -> Result<FileIdentity> {
    Ok(FileIdentity::of(file, &retried(|| file.metadata())?))
}

/// The files of one directory.
#[derive(Debug)]
struct Opened {
    directory: Directory,
    /// Those that were read last, by their locations.
    recent: Mutex<VecDeque<(String, Arc<File>)>>,
}

impl Opened {
    /// The file at `location`, opened again where others were read since.
    ///
    /// # Errors
    /// Those of [`Directory::open_file`].
    fn file(&self, location: &str) -> Result<Arc<File>> {
        if let Some(file) = self.find(location) {
            return Ok(file);
        }
        let file = Arc::new(self.directory.open_file(location)?);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back((location.to_owned(), Arc::clone(&file)));
        // Closed after the lock is free, unless somebody reads it.
        let closed = if recent.len() > FEW { recent.pop_front() } else { None };
        drop(recent);
        drop(closed);
        Ok(file)
    }

    fn find(&self, location: &str) -> Option<Arc<File>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.iter().find(|(name, _)| name == location).map(|(_, file)| Arc::clone(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_files_are_open_however_many_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..30).map(|number| format!("{number:02}")).collect();
        for name in &names {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let source = FolderFiles::new(folder.path(), PathPolicy::default()).unwrap();
        let files: Vec<_> = names.iter().map(|name| source.open(name).unwrap()).collect();
        for (file, name) in files.iter().zip(&names).chain(files.iter().zip(&names).rev()) {
            let mut bytes = [0; 2];
            file.read_at(0, &mut bytes).unwrap();
            assert_eq!((&bytes[..], file.len()), (name.as_bytes(), 2));
            assert_eq!(file.describe(), folder.path().join(name));
            assert!(source.0.recent.lock().unwrap().len() <= FEW);
        }
        let opened = &source.0;
        assert!(Arc::ptr_eq(&opened.file("00").unwrap(), &opened.file("00").unwrap()));
        assert_eq!(source.open("none").err().unwrap().kind(), ErrorKind::MissingFile);
    }

    #[test]
    fn a_file_that_was_replaced_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w");
        std::fs::write(&path, "old").unwrap();
        let source = FolderFiles::new(folder.path(), PathPolicy::default()).unwrap();
        let file = source.open("w").unwrap();
        std::fs::write(folder.path().join("new"), "longer").unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        // Still open, so the old one is read.
        let mut bytes = [0; 3];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"old");
        source.0.recent.lock().unwrap().clear();
        assert_eq!(file.read_at(0, &mut bytes).unwrap_err().kind(), ErrorKind::Changed);
    }
}
