//! Where files are to be written: the folder, the name of the model, and the free space, which are
//! checked before the first byte is written.
//!
//! Which existing files may be replaced is decided in `folder`, by the models that need them
//! (`users`, `skim`). `publish` stages new files and switches them.

pub(in crate::save) mod access;
pub(in crate::save) mod file_names;
pub(in crate::save) mod folder;
mod held;
pub(in crate::save) mod listing;
pub(in crate::save) mod old_files;
pub(in crate::save) mod publish;
pub(in crate::save) mod same_file;
pub(in crate::save) mod shard_index;
pub(in crate::save) mod skim;
pub(in crate::save) mod users;

use std::path::{Path, PathBuf, is_separator};

use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{directory_of, refuse_nul, windows_meaning};
use crate::util::byte_size::ByteSize;
use crate::util::retry::{exists, retried};

/// A file of a saved model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SavedFile {
    /// The file's name in the model's directory; for a kept file its location, which may contain
    /// folders.
    pub name: String,
    /// The file's length in bytes.
    pub bytes: u64,
}

impl SavedFile {
    pub(crate) fn new(name: impl Into<String>, bytes: u64) -> Self {
        Self { name: name.into(), bytes }
    }
}

/// A directory, and the main file that is written there: the model, or the last file of an export.
#[derive(Debug)]
pub(crate) struct SaveTarget {
    pub(crate) directory: PathBuf,
    pub(crate) name: String,
}

impl SaveTarget {
    /// The directory of `path`, which must exist, and its file name.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        refuse_nul(path)?;
        let invalid = |reason: &str| Error::new(ErrorKind::InvalidArgument, reason).with_path(path);
        let name = path.file_name().ok_or_else(|| invalid("names no file"))?;
        // `file_name` ignores a separator or `/.` at the end. An existing folder is refused later.
        let bytes = path.as_os_str().as_encoded_bytes();
        let is_separated = bytes.last().is_some_and(|byte| is_separator(char::from(*byte)));
        if is_separated || !bytes.ends_with(name.as_encoded_bytes()) && !exists(path) {
            return Err(invalid(
                "is a folder, or one that is not there: make it first, or name a file in it",
            ));
        }
        let name = name.to_str().ok_or_else(|| invalid("the file name is not UTF-8"))?;
        if let Some(meaning) = windows_meaning(name) {
            return Err(invalid(&format!(
                "Windows takes this name for {meaning}: save under another name"
            )));
        }
        let directory = directory_of(path);
        let missing = |error: std::io::Error| {
            let is_missing = error.kind() == std::io::ErrorKind::NotFound;
            let error = Error::io(&directory, error).because("the folder to save to");
            let make = || format!("`mkdir -p {}` makes it", directory.display());
            if is_missing { error.and(&make()) } else { error }
        };
        let meta = retried(|| std::fs::metadata(&directory)).map_err(missing)?;
        if !meta.is_dir() {
            return Err(Error::new(ErrorKind::UnsafePath, "not a directory").with_path(directory));
        }
        Ok(Self { directory, name: name.to_owned() })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// The free space of the directory's file system, in bytes, where the system reports it.
    #[cfg(unix)]
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.directory).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    #[cfg(not(unix))]
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Refuses to write `bytes` bytes where less space is free.
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
