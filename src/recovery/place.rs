//! A folder whose files a switch renames, as a handle: what is renamed lies in that folder itself, wherever links are
//! put meanwhile.
//!
//! A journal and its staging folder may have come with a download. So neither the staging folder nor the folders in it are
//! reached through a link.

use std::io;
use std::path::{Path, PathBuf};

use crate::recovery::journal::Mark;

/// A folder.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    #[cfg(unix)]
    handle: std::os::fd::OwnedFd,
}

/// Whether a rename may replace a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Free,
    Replaced,
}

impl Place {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(unix)]
impl Place {
    /// Opens the folder `path`, wherever links lead.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags, open};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = open(path, flags, Mode::empty())?;
        Ok(Self { path: path.to_path_buf(), handle })
    }

    /// Opens the folder `name` in this one; `None` where there is none.
    ///
    /// # Errors
    /// Also where a link or a file has this name.
    pub(super) fn inside(&self, name: &str) -> io::Result<Option<Self>> {
        use rustix::fs::{Mode, OFlags, openat};
        use rustix::io::Errno;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => Ok(Some(Self { path: self.path.join(name), handle })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The mark of the file `name` itself, a link included; `None` where there is none.
    pub(super) fn mark(&self, name: &str) -> io::Result<Option<Mark>> {
        use rustix::fs::{AtFlags, FileType, statat};
        use rustix::io::Errno;
        match statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let kind = FileType::from_raw_mode(stat.st_mode);
                let nanos =
                    i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
                Ok(Some(Mark {
                    len: u64::try_from(stat.st_size).unwrap_or(u64::MAX),
                    modified: nanos,
                    is_file: kind.is_file(),
                }))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves the file `name` to the folder `to`.
    pub(super) fn rename(&self, name: &str, to: &Self, target: Target) -> io::Result<()> {
        use rustix::fs::{AtFlags, renameat, statat};
        if target == Target::Replaced {
            return Ok(renameat(&self.handle, name, &to.handle, name)?);
        }
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        {
            use rustix::fs::{RenameFlags, renameat_with};
            use rustix::io::Errno;
            match renameat_with(&self.handle, name, &to.handle, name, RenameFlags::NOREPLACE) {
                // Some file systems do not support this flag. The lock still excludes other saves.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
                other => return Ok(other?),
            }
        }
        let is_there = |place: &Self| statat(&place.handle, name, AtFlags::SYMLINK_NOFOLLOW);
        is_there(self)?;
        match is_there(to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => Ok(renameat(&self.handle, name, &to.handle, name)?),
        }
    }

    /// Deletes the file `name`, if it is there.
    pub(super) fn delete(&self, name: &str) -> io::Result<()> {
        use rustix::fs::{AtFlags, unlinkat};
        use rustix::io::Errno;
        match unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(not(unix))]
impl Place {
    /// Opens the folder `path`, wherever links lead.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf() })
    }

    /// Opens the folder `name` in this one; `None` where there is none.
    ///
    /// # Errors
    /// Also where a link or a file has this name.
    pub(super) fn inside(&self, name: &str) -> io::Result<Option<Self>> {
        let path = self.path.join(name);
        match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => Ok(Some(Self { path })),
            Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The mark of the file `name` itself, a link included; `None` where there is none.
    pub(super) fn mark(&self, name: &str) -> io::Result<Option<Mark>> {
        match self.path.join(name).symlink_metadata() {
            Ok(metadata) => Ok(Some(Mark::new(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Moves the file `name` to the folder `to`.
    pub(super) fn rename(&self, name: &str, to: &Self, target: Target) -> io::Result<()> {
        let (from, to) = (self.path.join(name), to.path.join(name));
        if target == Target::Free {
            from.symlink_metadata()?;
            if to.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
        }
        std::fs::rename(from, to)
    }

    /// Deletes the file `name`, if it is there.
    pub(super) fn delete(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_is_not_reached_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("real")).unwrap();
        symlink("real", folder.path().join("link")).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let place = Place::open(folder.path()).unwrap();
        assert!(place.inside("real").unwrap().is_some() && place.inside("none").unwrap().is_none());
        assert!(place.inside("link").is_err() && place.inside("file").is_err());
        assert!(!place.mark("link").unwrap().unwrap().is_file);
        assert!(place.mark("file").unwrap().unwrap().is_file);
    }

    #[test]
    fn a_name_that_is_taken_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("to")).unwrap();
        for (name, text) in [("f", "new"), ("to/f", "old")] {
            fs::write(at(name), text).unwrap();
        }
        let place = Place::open(folder.path()).unwrap();
        let to = place.inside("to").unwrap().unwrap();
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(place.rename("f", &to, Target::Free)), io::ErrorKind::AlreadyExists);
        assert_eq!(kind(place.rename("g", &to, Target::Free)), io::ErrorKind::NotFound);
        place.rename("f", &to, Target::Replaced).unwrap();
        assert_eq!(fs::read(at("to/f")).unwrap(), b"new");
        to.rename("f", &place, Target::Free).unwrap();
        place.delete("f").unwrap();
        place.delete("f").unwrap();
        assert!(!at("f").exists());
    }
}
