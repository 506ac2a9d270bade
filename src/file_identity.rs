//! [`FileIdentity`]: whether a file is still the one that was read.
//!
//! A path may lead to another file by now, and a file may have other bytes. What the system says of a file
//! tells: its device and inode, its length and its times. Nothing here opens a file.

use std::fs::Metadata;
use std::time::{Duration, SystemTime};

/// Distinguishes a file from another that replaced it, and from the same file with other bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    len: u64,
    modified: Option<SystemTime>,
    #[cfg(unix)]
    inode: (u64, u64),
    /// Seconds and nanoseconds of the time that programs cannot set.
    #[cfg(unix)]
    changed: (i64, i64),
}

/// The coarsest time stamp of a common file system.
const TICK: Duration = Duration::from_secs(2);

impl FileIdentity {
    pub(crate) fn new(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt;
        Self {
            len: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            inode: (metadata.dev(), metadata.ino()),
            #[cfg(unix)]
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether `other` is the same file with the same length, not written to since. Its names and
    /// permissions may have changed: a hard link changes one of its times.
    pub(crate) fn has_the_bytes_of(&self, other: &Self) -> bool {
        #[cfg(unix)]
        let same_file = self.inode == other.inode;
        #[cfg(not(unix))]
        let same_file = true;
        same_file && (self.len, self.modified) == (other.len, other.modified)
    }

    /// The length of the file in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether a write to the file after `now` is certain to change its times. It is not while the next
    /// write can still get the time stamp of the last one.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        let age = self.modified.and_then(|modified| now.duration_since(modified).ok());
        age.is_some_and(|age| age > TICK)
    }
}
