//! Where files are to be written, and whether they may be.
//!
//! Looked at before the first byte is written: what is there, who else needs it, and how much room
//! there is.

use std::fs::Metadata;
use std::path::{Path, PathBuf, is_separator};

use crate::byte_size::ByteSize;
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::directory_of;
use crate::save::neighbours::Needed;

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
        if path.as_os_str().as_encoded_bytes().last().is_some_and(|b| is_separator(char::from(*b)))
        {
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

    /// Refuses `files` that are not files, that may not be replaced, or that others need.
    pub(crate) fn check(&self, files: &[SavedFile], overwrite: bool) -> Result<()> {
        // Once each: another save may move them away and back meanwhile.
        let there = |file: &SavedFile| {
            let meta = self.directory.join(&file.name).symlink_metadata().ok()?;
            Some((file.name.clone(), meta))
        };
        let replaced: Vec<_> = files.iter().filter_map(there).collect();
        if replaced.is_empty() {
            return Ok(());
        }
        let needed = Needed::by_others(&self.directory, &self.name);
        let errors = replaced.iter().filter_map(|(name, meta)| {
            let (kind, reason) = self.reason_to_keep(name, meta, &needed, overwrite)?;
            Some(Error::new(kind, reason).with_path(self.directory.join(name)))
        });
        Error::join(errors.collect()).map_or(Ok(()), Err)
    }

    /// Why the file `name`, which exists, may not be replaced.
    fn reason_to_keep(
        &self,
        name: &str,
        meta: &Metadata,
        needed: &Needed,
        overwrite: bool,
    ) -> Option<(ErrorKind, String)> {
        if !meta.is_file() && !meta.is_symlink() {
            let what = if meta.is_dir() { "a directory" } else { "not a regular file" };
            return Some((ErrorKind::UnsafePath, format!("{what}: not replaced")));
        }
        if meta.is_symlink() && leads_to_a_device(&self.directory.join(name)) {
            let reason = "a link to something that is not a regular file: not replaced";
            return Some((ErrorKind::UnsafePath, reason.into()));
        }
        if !overwrite {
            return Some((ErrorKind::AlreadyExists, "exists already".into()));
        }
        if name != self.name && name.to_lowercase().ends_with(".onnx") {
            let reason = "another model: it is not replaced by weights";
            return Some((ErrorKind::AlreadyExists, reason.into()));
        }
        let user = needed.by(name)?;
        let reason = format!("`{}` refers to this file: it is not replaced", user.display());
        Some((ErrorKind::AlreadyExists, reason))
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

/// Whether the link at `path` stands for a device, a pipe or a process's own stream, such as
/// `/dev/stdout`: a save would take the link away from everybody.
fn leads_to_a_device(path: &Path) -> bool {
    let stream = std::fs::read_link(path).is_ok_and(|target| target.starts_with("/proc"));
    stream || path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}
