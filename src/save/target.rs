//! Where files are to be written: the folder, the name of the model, and how much room there is.
//!
//! Looked at before the first byte is written. What is there already and may be replaced is left to
//! `folder`.

use std::path::{Path, PathBuf, is_separator};

use crate::byte_size::ByteSize;
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::directory_of;

/// A file of a saved model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedFile {
    /// Its name, in the model's directory; of a kept file its location, which may name a folder.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

impl SavedFile {
    pub(crate) fn new(name: impl Into<String>, bytes: u64) -> Self {
        Self { name: name.into(), bytes }
    }
}

/// A directory, and the file in it that the others belong to: the model, or the last of several.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) directory: PathBuf,
    pub(crate) name: String,
}

impl Target {
    /// The directory, which has to be there, and file name of `path`.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let invalid = |reason: &str| Error::new(ErrorKind::InvalidArgument, reason).with_path(path);
        let name = path.file_name().ok_or_else(|| invalid("names no file"))?;
        // `file_name` passes over a separator or `/.` at the end; a folder that is there is refused later.
        let bytes = path.as_os_str().as_encoded_bytes();
        let is_separated = bytes.last().is_some_and(|byte| is_separator(char::from(*byte)));
        if is_separated || !bytes.ends_with(name.as_encoded_bytes()) && !path.exists() {
            return Err(invalid("names a directory"));
        }
        let name = name.to_str().ok_or_else(|| invalid("the file name is not UTF-8"))?;
        let directory = directory_of(path);
        let missing = |e| Error::io(&directory, e).because("the folder to save to");
        let meta = std::fs::metadata(&directory).map_err(missing)?;
        if !meta.is_dir() {
            return Err(Error::new(ErrorKind::UnsafePath, "not a directory").with_path(directory));
        }
        Ok(Self { directory, name: name.to_owned() })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// The free space of the directory's file system, in bytes, where it says.
    #[cfg(unix)]
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.directory).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    #[cfg(not(unix))]
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Refuses to write `bytes` where fewer are free.
    pub(crate) fn check_space(&self, bytes: u64) -> Result<()> {
        match self.free_bytes() {
            Some(free) if free < bytes => {
                let reason = format!("needs {}, {} free", ByteSize(bytes), ByteSize(free));
                Err(Error::new(ErrorKind::NoSpace, reason).with_path(&self.directory))
            }
            _ => Ok(()),
        }
    }
}
