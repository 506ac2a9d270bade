//! A directory as a handle that files are opened beneath, with links or without, by what the system
//! offers.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::util::file_id;
use crate::util::retry::retried;

/// Why a file was not opened.
#[derive(Debug)]
pub(super) enum Refusal {
    /// A symbolic link is on the way to it, and none may be.
    Link,
    /// A file with other names (hard links).
    OtherNames,
    /// Links lead out of the directories, to this path.
    Outside(PathBuf),
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub(super) type Opened = std::result::Result<File, Refusal>;

#[derive(Debug)]
pub(super) struct Root {
    /// As it was given.
    pub(super) path: PathBuf,
    #[cfg(unix)]
    descriptor: std::os::fd::OwnedFd,
}

impl Root {
    /// Opens the directory `path`; the empty path is the current directory.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let metadata = retried(|| std::fs::metadata(path)).map_err(|e| Error::io(path, e))?;
        if !metadata.is_dir() {
            return Err(Error::new(ErrorKind::InvalidArgument, "not a directory").with_path(path));
        }
        Ok(Self {
            path: path.to_path_buf(),
            #[cfg(unix)]
            descriptor: unix::directory(path).map_err(|e| Error::io(path, e))?,
        })
    }

    /// The path of `target`, which has no links, from this directory; `None` where it is not
    /// inside.
    pub(super) fn inside<'a>(&self, target: &'a Path) -> io::Result<Option<&'a Path>> {
        Ok(target.strip_prefix(retried(|| self.path.canonicalize())?).ok())
    }
}

#[cfg(unix)]
mod unix {
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::path::Component;

    use rustix::fs::{AtFlags, FileType, Mode, OFlags, open, openat, statat};
    #[cfg(target_os = "linux")]
    use rustix::io::Errno;

    use super::{File, Opened, Path, Refusal, Root, io, retried};

    /// How files are opened. Opening a FIFO must not wait for its writer.
    const FILE: OFlags =
        OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

    /// A descriptor to open files beneath, which on Linux needs no permission to list the
    /// directory.
    #[cfg(target_os = "linux")]
    const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    #[cfg(not(target_os = "linux"))]
    const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

    pub(super) fn directory(path: &Path) -> io::Result<OwnedFd> {
        Ok(retried(|| open(path, DIRECTORY, Mode::empty()))?)
    }

    #[cfg(target_os = "linux")]
    impl Root {
        /// Opens what is beneath the directory, also where links lead there; `None` where links
        /// lead out, and where the kernel cannot tell.
        pub(crate) fn open_beneath(&self, location: &Path) -> io::Result<Option<File>> {
            use rustix::fs::ResolveFlags;
            match self.openat2(location, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS) {
                Ok(file) => Ok(Some(file)),
                // An absolute link is refused also where it leads inside. A folder may have been
                // moved meanwhile.
                Err(Errno::XDEV | Errno::AGAIN) => Ok(None),
                // Kernels before 5.6 and some sandboxes do not have `openat2`.
                Err(Errno::NOSYS | Errno::PERM) => Ok(None),
                Err(error) => Err(error.into()),
            }
        }

        /// Opens what is at `location`, where no link is on the way.
        pub(crate) fn open_without_links(&self, location: &Path) -> Opened {
            use rustix::fs::ResolveFlags;
            match self.openat2(location, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
                Ok(file) => Ok(file),
                Err(Errno::LOOP) => Err(Refusal::Link),
                Err(Errno::AGAIN | Errno::NOSYS | Errno::PERM) => self.open_step_by_step(location),
                Err(error) => Err(Refusal::Io(error.into())),
            }
        }

        fn openat2(
            &self,
            location: &Path,
            resolve: rustix::fs::ResolveFlags,
        ) -> rustix::io::Result<File> {
            retried(|| {
                rustix::fs::openat2(&self.descriptor, location, FILE, Mode::empty(), resolve)
            })
            .map(File::from)
        }
    }

    #[cfg(not(target_os = "linux"))]
    impl Root {
        /// Opens what is beneath the directory, also where links lead there; `None` where that
        /// cannot be told.
        #[allow(clippy::unused_self, clippy::unnecessary_wraps)] // as on Linux
        pub(crate) fn open_beneath(&self, _: &Path) -> io::Result<Option<File>> {
            Ok(None)
        }

        /// Opens what is at `location`, where no link is on the way.
        pub(crate) fn open_without_links(&self, location: &Path) -> Opened {
            self.open_step_by_step(location)
        }
    }

    impl Root {
        /// Opens what is at `location`, wherever links lead.
        pub(crate) fn open_anywhere(&self, location: &Path) -> io::Result<File> {
            Ok(retried(|| openat(&self.descriptor, location, FILE, Mode::empty()))?.into())
        }

        /// As `open_without_links`, one component after the other. `location` has no `..`.
        pub(crate) fn open_step_by_step(&self, location: &Path) -> Opened {
            let mut parts = location
                .components()
                .filter_map(|part| match part {
                    Component::Normal(part) => Some(Path::new(part)),
                    _ => None,
                })
                .peekable();
            let mut folder: Option<OwnedFd> = None;
            while let Some(part) = parts.next() {
                let at = folder.as_ref().map_or(self.descriptor.as_fd(), AsFd::as_fd);
                if parts.peek().is_none() {
                    return open_component(at, part, FILE).map(File::from);
                }
                folder = Some(open_component(at, part, DIRECTORY)?);
            }
            Err(Refusal::Io(io::ErrorKind::NotFound.into()))
        }
    }

    fn open_component(
        at: BorrowedFd<'_>,
        name: &Path,
        flags: OFlags,
    ) -> std::result::Result<OwnedFd, Refusal> {
        // The error for a link differs among systems.
        let is_link = || {
            retried(|| statat(at, name, AtFlags::SYMLINK_NOFOLLOW))
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink())
        };
        match retried(|| openat(at, name, flags | OFlags::NOFOLLOW, Mode::empty())) {
            Ok(file) => Ok(file),
            Err(_) if is_link() => Err(Refusal::Link),
            Err(error) => Err(Refusal::Io(error.into())),
        }
    }
}

#[cfg(not(unix))]
impl Root {
    /// Opens what is beneath the directory, also where links lead there; `None` where that cannot
    /// be told.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)] // as on Linux
    pub(super) fn open_beneath(&self, _: &Path) -> io::Result<Option<File>> {
        Ok(None)
    }

    /// Opens what is at `location`, where no link is on the way. It is looked at before and after
    /// the file is opened: a link that was there only in between leads to another file than that
    /// of the path.
    pub(super) fn open_without_links(&self, location: &Path) -> Opened {
        let on_the_way = || location.ancestors().filter(|part| !part.as_os_str().is_empty());
        let has_link =
            || on_the_way().any(|part| crate::util::retry::is_link(&self.path.join(part)));
        if has_link() {
            return Err(Refusal::Link);
        }
        let file = self.open_anywhere(location)?;
        let opened = file_id::of(&file, &retried(|| file.metadata())?);
        let there = file_id::of_entry(&self.path.join(location)).ok();
        if has_link() || opened != there { Err(Refusal::Link) } else { Ok(file) }
    }

    /// Opens what is at `location`, wherever links lead.
    pub(super) fn open_anywhere(&self, location: &Path) -> io::Result<File> {
        let path = self.path.join(location);
        let metadata = retried(|| std::fs::metadata(&path))?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        File::open(path)
    }
}

/// Whether the open `file`, of which `metadata` were read, has several names.
pub(super) fn has_other_names(file: &File, metadata: &Metadata) -> bool {
    file_id::name_count(file, metadata) > 1
}
