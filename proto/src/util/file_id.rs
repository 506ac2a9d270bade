//! Which file of a system a path or a handle leads to: its volume and its number there, and how
//! many names it has. On Unix the metadata of a file have them, on Windows only its handle.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

use crate::util::retry::retried;

/// The volume of a file and its number there: device and inode, or serial number and file index.
pub type FileId = (u64, u64);

/// The id of the file at `path`, where links lead from there.
pub fn at(path: &Path) -> io::Result<FileId> {
    system::at(path)
}

/// The id of what is at `path`, of a link the link.
pub fn of_entry(path: &Path) -> io::Result<FileId> {
    system::of_entry(path)
}

/// The id of the open `file`, of which `metadata` were read; `None` where the system does not tell.
pub fn of(file: &File, metadata: &Metadata) -> Option<FileId> {
    system::of(file, metadata)
}

/// How many names the open `file` has, of which `metadata` were read.
pub fn name_count(file: &File, metadata: &Metadata) -> u64 {
    system::name_count(file, metadata)
}

/// How many names the file at `path` has, where links lead from there, of which `metadata` were
/// read; `None` where the system does not tell.
pub fn name_count_at(path: &Path, metadata: &Metadata) -> Option<u64> {
    system::name_count_at(path, metadata)
}

#[cfg(unix)]
mod system {
    use std::os::unix::fs::MetadataExt;

    use super::{File, FileId, Metadata, Path, io, retried};

    fn id(metadata: &Metadata) -> FileId {
        (metadata.dev(), metadata.ino())
    }

    pub(super) fn at(path: &Path) -> io::Result<FileId> {
        retried(|| path.metadata()).map(|metadata| id(&metadata))
    }

    pub(super) fn of_entry(path: &Path) -> io::Result<FileId> {
        retried(|| path.symlink_metadata()).map(|metadata| id(&metadata))
    }

    #[allow(clippy::unnecessary_wraps)] // as on Windows
    pub(super) fn of(_: &File, metadata: &Metadata) -> Option<FileId> {
        Some(id(metadata))
    }

    pub(super) fn name_count(_: &File, metadata: &Metadata) -> u64 {
        metadata.nlink()
    }

    #[allow(clippy::unnecessary_wraps)] // as on Windows
    pub(super) fn name_count_at(_: &Path, metadata: &Metadata) -> Option<u64> {
        Some(metadata.nlink())
    }
}

#[cfg(windows)]
mod system {
    use std::os::windows::fs::OpenOptionsExt;

    use winapi_util::file::{Information, information};

    use super::{File, FileId, Metadata, Path, io, retried};

    /// Reads metadata alone, which no other program can forbid by how it opened the file.
    const FILE_READ_ATTRIBUTES: u32 = 0x80;
    /// Opens folders too.
    const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;
    /// Opens a link itself.
    const FILE_FLAG_OPEN_REPARSE_POINT: u32 = 0x0020_0000;

    fn open(path: &Path, flags: u32) -> io::Result<File> {
        let mut options = File::options();
        options.access_mode(FILE_READ_ATTRIBUTES).custom_flags(FILE_FLAG_BACKUP_SEMANTICS | flags);
        retried(|| options.open(path))
    }

    fn id(file: &File) -> io::Result<FileId> {
        let found = information(file)?;
        // Some servers number no files: all would be one.
        if found.file_index() == 0 {
            let reason =
                "this file system gives its files no numbers: one cannot be told from another";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        Ok((found.volume_serial_number(), found.file_index()))
    }

    pub(super) fn at(path: &Path) -> io::Result<FileId> {
        id(&open(path, 0)?)
    }

    pub(super) fn of_entry(path: &Path) -> io::Result<FileId> {
        id(&open(path, FILE_FLAG_OPEN_REPARSE_POINT)?)
    }

    pub(super) fn of(file: &File, _: &Metadata) -> Option<FileId> {
        id(file).ok()
    }

    pub(super) fn name_count(file: &File, _: &Metadata) -> u64 {
        information(file).map_or(1, |found: Information| found.number_of_links())
    }

    pub(super) fn name_count_at(path: &Path, _: &Metadata) -> Option<u64> {
        let found = open(path, 0).and_then(information).ok()?;
        Some(found.number_of_links())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_id_by_each_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            std::fs::write(path(name), "same").unwrap();
        }
        std::fs::hard_link(path("a"), path("linked")).unwrap();
        let open = |name: &str| {
            let file = File::open(path(name)).unwrap();
            let metadata = file.metadata().unwrap();
            (of(&file, &metadata), name_count(&file, &metadata))
        };
        for (name, is_a, names) in [("a", true, 2), ("linked", true, 2), ("b", false, 1)] {
            assert_eq!(at(&path(name)).unwrap() == at(&path("a")).unwrap(), is_a, "{name}");
            assert_eq!(at(&path(name)).unwrap(), of_entry(&path(name)).unwrap(), "{name}");
            assert_eq!(open(name), (at(&path(name)).ok(), names), "{name}");
            let metadata = path(name).symlink_metadata().unwrap();
            assert_eq!(name_count_at(&path(name), &metadata), Some(names), "{name}");
        }
        assert_eq!(at(folder.path()).unwrap(), at(&path(".")).unwrap());
        assert_eq!(at(&path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::rename(path("a"), path("moved")).unwrap();
        assert_eq!(at(&path("moved")).unwrap(), at(&path("linked")).unwrap());
    }
}
