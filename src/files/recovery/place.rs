//! A folder whose files a switch renames, as a handle: what is renamed lies in that folder itself,
//! wherever links are put meanwhile.
//!
//! A journal and its staging folder may have come with a download. So neither the staging folder
//! nor the folders in it, nor those below the model's, are reached through a link.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use crate::files::recovery::journal::{FileKind, Mark};
use crate::util::retry::retried;

/// A folder.
#[derive(Debug)]
pub(super) struct OpenFolder {
    path: PathBuf,
    #[cfg(unix)]
    handle: std::os::fd::OwnedFd,
}

/// Whether a rename may replace a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RenameTarget {
    Free,
    Replaced,
}

/// What is said of a file that Windows neither replaces nor deletes.
pub(super) const IN_USE: &str = concat!(
    "cannot be replaced or deleted: a program may have it open or mapped, also this one, ",
    "or it is read-only: drop the containers that were loaded from it, end the programs ",
    "that read it, and try again"
);

/// What is said of an `error` by which Windows may refuse to move or to delete a file that a
/// program uses; `None` of any other one.
pub(crate) fn in_use(error: &io::Error) -> Option<&'static str> {
    const ACCESS_DENIED: i32 = 5;
    const SHARING_VIOLATION: i32 = 32;
    const USER_MAPPED_FILE: i32 = 1224;
    let codes = [ACCESS_DENIED, SHARING_VIOLATION, USER_MAPPED_FILE];
    let may_be_used = error.raw_os_error().is_some_and(|code| codes.contains(&code));
    (cfg!(windows) && may_be_used).then_some(IN_USE)
}

impl OpenFolder {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the folder at `path` below this one, with `/` between its parts; `None` where there is
    /// none.
    ///
    /// # Errors
    /// Also where a link or a file is in the place of one of the folders.
    pub(super) fn beneath(&self, path: &str) -> io::Result<Option<Self>> {
        let (first, rest) = match path.split_once('/') {
            Some((first, rest)) => (first, Some(rest)),
            None => (path, None),
        };
        let found = self.inside(first)?;
        match (found, rest) {
            (Some(found), Some(rest)) => found.beneath(rest),
            (found, _) => Ok(found),
        }
    }
}

#[cfg(unix)]
impl OpenFolder {
    /// Opens the folder `path`, wherever links lead.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags, open};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = retried(|| open(path, flags, Mode::empty()))?;
        Ok(Self { path: path.to_path_buf(), handle })
    }

    /// The inode of this folder.
    pub(super) fn inode(&self) -> io::Result<Option<u64>> {
        Ok(Some(retried(|| rustix::fs::fstat(&self.handle))?.st_ino))
    }

    /// Flushes the entries of this folder to the disk, where the file system can.
    pub(super) fn flush(&self) -> io::Result<()> {
        use rustix::io::Errno;
        match retried(|| rustix::fs::fsync(&self.handle)) {
            Ok(()) | Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the folder `name` in this one; `None` where there is none.
    ///
    /// # Errors
    /// Also where a link or a file has this name.
    pub(super) fn inside(&self, name: &str) -> io::Result<Option<Self>> {
        use rustix::fs::{Mode, OFlags, openat};
        use rustix::io::Errno;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match retried(|| openat(&self.handle, name, flags, Mode::empty())) {
            Ok(handle) => Ok(Some(Self { path: self.path.join(name), handle })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The mark of what is called `name` itself, a link included, and what it is; `None` where
    /// there is nothing.
    pub(super) fn mark(&self, name: impl AsRef<OsStr>) -> io::Result<Option<(Mark, FileKind)>> {
        use rustix::fs::{AtFlags, FileType, statat};
        use rustix::io::Errno;
        match retried(|| statat(&self.handle, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(stat) => {
                let kind = match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile => FileKind::File,
                    FileType::Symlink => FileKind::Link,
                    _ => FileKind::Other,
                };
                let modified =
                    i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
                let len = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
                Ok(Some((Mark { len, modified, inode: Some(stat.st_ino) }, kind)))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The inode of a file that is called `name` here and `other_name` in `other`; `None` where
    /// these are two files.
    pub(super) fn same_inode(
        &self,
        name: impl AsRef<OsStr>,
        (other, other_name): (&Self, impl AsRef<OsStr>),
    ) -> io::Result<Option<u64>> {
        use rustix::fs::{AtFlags, FileType, statat};
        use rustix::io::Errno;
        let file = |place: &Self, name: &OsStr| match retried(|| {
            statat(&place.handle, name, AtFlags::SYMLINK_NOFOLLOW)
        }) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(None),
            // A file system may give two files one number; then each has one link.
            Ok(stat) => Ok((stat.st_nlink > 1).then_some((stat.st_dev, stat.st_ino))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(io::Error::from(error)),
        };
        let first = file(self, name.as_ref())?;
        let is_same = first.is_some() && first == file(other, other_name.as_ref())?;
        Ok(first.filter(|_| is_same).map(|(_, inode)| inode))
    }

    /// Moves the file `name` to the folder `to`, where it is called `new`.
    pub(super) fn rename(
        &self,
        name: &str,
        (to, new): (&Self, &str),
        target: RenameTarget,
    ) -> io::Result<()> {
        use rustix::fs::{AtFlags, renameat, statat};
        if target == RenameTarget::Replaced {
            return Ok(retried(|| renameat(&self.handle, name, &to.handle, new))?);
        }
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        {
            use rustix::fs::{RenameFlags, renameat_with};
            use rustix::io::Errno;
            let renamed = retried(|| {
                renameat_with(&self.handle, name, &to.handle, new, RenameFlags::NOREPLACE)
            });
            match renamed {
                // Some file systems do not support this flag. The lock still excludes other saves.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
                other => return Ok(other?),
            }
        }
        let look =
            |place: &Self, name| retried(|| statat(&place.handle, name, AtFlags::SYMLINK_NOFOLLOW));
        look(self, name)?;
        match look(to, new) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => Ok(retried(|| renameat(&self.handle, name, &to.handle, new))?),
        }
    }

    /// Deletes the file `name`, if it is there.
    ///
    /// # Errors
    /// Also where a folder has this name.
    pub(super) fn delete(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        use rustix::fs::{AtFlags, unlinkat};
        use rustix::io::Errno;
        match retried(|| unlinkat(&self.handle, name.as_ref(), AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the folder `name`, if it is there and nothing is in it. Whether it is gone.
    pub(super) fn remove_empty(&self, name: &str) -> io::Result<bool> {
        use rustix::fs::{AtFlags, unlinkat};
        use rustix::io::Errno;
        match retried(|| unlinkat(&self.handle, name, AtFlags::REMOVEDIR)) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The names of all that is in this folder.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        use std::os::unix::ffi::OsStringExt;
        let mut names = Vec::new();
        for entry in retried(|| rustix::fs::Dir::read_from(&self.handle))? {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }
}

#[cfg(not(unix))]
impl OpenFolder {
    /// Opens the folder `path`, wherever links lead.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf() })
    }

    /// The inode of this folder.
    #[allow(clippy::unnecessary_wraps)] // as on Unix
    pub(super) fn inode(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Windows cannot open or flush a directory, and needs no flush.
    #[allow(clippy::unnecessary_wraps)] // as on Unix
    pub(super) fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Opens the folder `name` in this one; `None` where there is none.
    ///
    /// # Errors
    /// Also where a link or a file has this name.
    pub(super) fn inside(&self, name: &str) -> io::Result<Option<Self>> {
        let path = self.path.join(name);
        match retried(|| path.symlink_metadata()) {
            Ok(metadata) if metadata.is_dir() => Ok(Some(Self { path })),
            Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The mark of what is called `name` itself, a link included, and what it is; `None` where
    /// there is nothing.
    pub(super) fn mark(&self, name: impl AsRef<OsStr>) -> io::Result<Option<(Mark, FileKind)>> {
        match retried(|| self.path.join(name.as_ref()).symlink_metadata()) {
            Ok(metadata) => {
                let kind = match metadata.file_type() {
                    kind if kind.is_symlink() => FileKind::Link,
                    kind if kind.is_file() => FileKind::File,
                    _ => FileKind::Other,
                };
                Ok(Some((Mark::new(&metadata), kind)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Always `None`: on Windows a rename is there as a whole or not.
    #[allow(clippy::unnecessary_wraps, clippy::unused_self)] // as on Unix
    pub(super) fn same_inode(
        &self,
        _: impl AsRef<OsStr>,
        _: (&Self, impl AsRef<OsStr>),
    ) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Moves the file `name` to the folder `to`, where it is called `new`.
    pub(super) fn rename(
        &self,
        name: &str,
        (to, new): (&Self, &str),
        target: RenameTarget,
    ) -> io::Result<()> {
        let (from, to) = (self.path.join(name), to.path.join(new));
        if target == RenameTarget::Free {
            retried(|| from.symlink_metadata())?;
            if retried(|| to.symlink_metadata()).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
        }
        std::fs::rename(from, to)
    }

    /// Deletes the file `name`, if it is there.
    ///
    /// # Errors
    /// Also where a folder has this name.
    pub(super) fn delete(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match std::fs::remove_file(self.path.join(name.as_ref())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the folder `name`, if it is there and nothing is in it. Whether it is gone.
    pub(super) fn remove_empty(&self, name: &str) -> io::Result<bool> {
        match std::fs::remove_dir(self.path.join(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The names of all that is in this folder.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        retried(|| std::fs::read_dir(&self.path))?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect()
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
        let place = OpenFolder::open(folder.path()).unwrap();
        assert!(place.inside("real").unwrap().is_some() && place.inside("none").unwrap().is_none());
        assert!(place.inside("link").is_err() && place.inside("file").is_err());
        fs::create_dir(folder.path().join("real/below")).unwrap();
        for (path, found) in [
            ("real/below", Some(true)),
            ("real/none", Some(false)),
            ("none/below", Some(false)),
            ("link/below", None),
            ("file/below", None),
        ] {
            let opened = place.beneath(path).map(|place| place.is_some());
            assert_eq!(opened.ok(), found, "{path}");
        }
        let kind = |name: &str| place.mark(name).unwrap().map(|(_, kind)| kind);
        assert_eq!(
            ["link", "file", "real", "none"].map(kind),
            [Some(FileKind::Link), Some(FileKind::File), Some(FileKind::Other), None]
        );
    }

    #[test]
    fn a_name_that_is_taken_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("to")).unwrap();
        for (name, text) in [("f", "new"), ("to/f", "old")] {
            fs::write(at(name), text).unwrap();
        }
        let place = OpenFolder::open(folder.path()).unwrap();
        let to = place.inside("to").unwrap().unwrap();
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        assert_eq!(
            kind(place.rename("f", (&to, "f"), RenameTarget::Free)),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(
            kind(place.rename("g", (&to, "f"), RenameTarget::Free)),
            io::ErrorKind::NotFound
        );
        place.rename("f", (&to, "f"), RenameTarget::Replaced).unwrap();
        assert_eq!(fs::read(at("to/f")).unwrap(), b"new");
        to.rename("f", (&place, "g"), RenameTarget::Free).unwrap();
        assert!(at("g").exists() && !at("to/f").exists());
        place.delete("g").unwrap();
        place.delete("g").unwrap();
        assert!(!at("g").exists());
    }

    #[test]
    fn only_an_empty_folder_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("full/inside")).unwrap();
        let place = OpenFolder::open(folder.path()).unwrap();
        assert!(!place.remove_empty("full").unwrap());
        place.delete("full").unwrap_err();
        let full = place.inside("full").unwrap().unwrap();
        assert_eq!(full.names().unwrap(), ["inside"]);
        assert!(full.remove_empty("inside").unwrap() && full.names().unwrap().is_empty());
        assert!(place.remove_empty("full").unwrap() && place.remove_empty("full").unwrap());
    }
}
