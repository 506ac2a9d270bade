//! [`FileIdentity`]: whether a file is still the one that was read.
//!
//! A path may lead to another file by now, and a file may have other bytes. What the system says of
//! a file tells: its device and inode, its length and its times.
//!
//! Windows says volume and index in the place of device and inode, and only one of the two times.
//!
//! It tells for certain only where the times are older than the tick of the clock that gave them: a
//! later write could get the same ones, and a new file the inode of one that was deleted. So
//! code that keeps an identity for later asks [`is_settled`](FileIdentity::is_settled) first, and
//! compares bytes where it is not, or holds the file open or mapped, so that no other one gets its
//! inode.

use std::fs::{File, Metadata};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::util::file_id::{self, FileId};

/// Distinguishes a file from another that replaced it, and from the same file with other bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    len: u64,
    modified: Option<SystemTime>,
    /// `None` where the system does not tell it.
    inode: Option<FileId>,
    /// Seconds and nanoseconds of the time that programs cannot set.
    #[cfg(unix)]
    changed: (i64, i64),
}

/// The coarsest time stamp of a common file system.
const TICK: Duration = Duration::from_secs(2);
/// The coarsest one of a system whose file systems tell nanoseconds: it may look at the clock only
/// so often.
#[cfg(unix)]
const FINE_TICK: Duration = Duration::from_millis(20);
/// Coarse times are multiples of this.
#[cfg(unix)]
const COARSE: u32 = 1_000_000;

impl FileIdentity {
    /// The identity of the open `file`, of which `metadata` were read.
    pub fn of(file: &File, metadata: &Metadata) -> Self {
        Self::new(metadata, file_id::of(file, metadata))
    }

    /// The identity of the file at `path`, where links lead from there, of which `metadata` were
    /// read.
    #[cfg(unix)]
    pub fn at(_: &Path, metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self::new(metadata, Some((metadata.dev(), metadata.ino())))
    }

    /// The identity of the file at `path`, where links lead from there, of which `metadata` were
    /// read. Another file that takes its place meanwhile has none of these times.
    #[cfg(not(unix))]
    pub fn at(path: &Path, metadata: &Metadata) -> Self {
        Self::new(metadata, file_id::at(path).ok())
    }

    fn new(metadata: &Metadata, inode: Option<FileId>) -> Self {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt;
        let identity = Self {
            len: metadata.len(),
            modified: metadata.modified().ok(),
            inode,
            #[cfg(unix)]
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        #[cfg(debug_assertions)]
        #[cfg(unix)]
        let identity = coarse::seen(identity);
        identity
    }

    /// Whether `other` is the same file with the same length, not written to since. Its names and
    /// permissions may have changed: a hard link changes one of its times. For a file that is
    /// mapped, so that its inode is its own, and whose map shows what is written to it.
    pub fn has_the_bytes_of(&self, other: &Self) -> bool {
        let known = |identity: &Self| (identity.inode, identity.len, identity.modified);
        known(self) == known(other)
    }

    /// The length of the file in bytes.
    #[allow(clippy::len_without_is_empty)] // no collection
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether a write to the file after `now` is certain to change its times. It is not while the
    /// next write can still get the time stamp of the last one. A program may have set the time of
    /// modification to an old one, but not the other, whose digits also say how coarse the clock
    /// is.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let is_older = |time: Option<SystemTime>, tick| {
            let age = time.and_then(|time| now.duration_since(time).ok());
            age.is_some_and(|age| age > tick)
        };
        is_older(self.modified, TICK)
            && self.changed().is_none_or(|(changed, tick)| is_older(Some(changed), tick))
    }

    /// The time that programs cannot set, and how long other writes may get it.
    #[cfg(unix)]
    fn changed(&self) -> Option<(SystemTime, Duration)> {
        let (seconds, nanos) = self.changed;
        let since = Duration::new(seconds.try_into().ok()?, nanos.try_into().ok()?);
        let tick = if since.subsec_nanos().is_multiple_of(COARSE) { TICK } else { FINE_TICK };
        Some((SystemTime::UNIX_EPOCH.checked_add(since)?, tick))
    }

    #[cfg(not(unix))]
    #[allow(clippy::unused_self)] // as on Unix
    fn changed(&self) -> Option<(SystemTime, Duration)> {
        None
    }
}

/// A clock of two seconds, that of FAT, for tests of a thread. Builds without debug assertions do
/// not have it; the tests of the crates above do.
#[cfg(debug_assertions)]
#[cfg(unix)]
pub(crate) mod coarse {
    use std::cell::Cell;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::{FileIdentity, TICK};

    thread_local! {
        static IS_COARSE: Cell<bool> = const { Cell::new(false) };
    }

    /// The result of `run`, all within one tick of a coarse clock, which gives all files the times
    /// that they get.
    pub fn within_a_tick<T>(mut run: impl FnMut() -> T) -> T {
        IS_COARSE.set(true);
        let result = loop {
            let (now, mut begin) = (SystemTime::now(), tick(SystemTime::now()));
            // What `run` asserts holds within one tick: most of one has to be left for it.
            let gone = now.duration_since(begin).unwrap_or_default();
            if gone > TICK / 4 {
                // The system's clock for files may be some milliseconds behind.
                let behind = Duration::from_millis(50);
                std::thread::sleep(TICK.saturating_sub(gone).saturating_add(behind));
                begin = tick(SystemTime::now());
            }
            let result = run();
            if tick(SystemTime::now()) == begin {
                break result;
            }
        };
        IS_COARSE.set(false);
        result
    }

    /// The begin of the tick that `time` is in. No file is older than the clock's zero here.
    fn tick(time: SystemTime) -> SystemTime {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        UNIX_EPOCH + Duration::from_secs(seconds - seconds % TICK.as_secs())
    }

    pub(super) fn seen(mut identity: FileIdentity) -> FileIdentity {
        if IS_COARSE.get() {
            let tick_of = |seconds: i64| seconds - seconds % TICK.as_secs().cast_signed();
            identity.modified = identity.modified.map(tick);
            identity.changed = (tick_of(identity.changed.0), 0);
        }
        identity
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn at(modified: u64, changed: (i64, i64)) -> FileIdentity {
        let modified = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(modified));
        FileIdentity { len: 8, modified, inode: Some((1, 2)), changed }
    }

    #[test]
    fn an_identity_is_settled_when_both_times_are_older_than_a_tick() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        for (modified, changed, settled) in [
            (97, (97, 0), true),
            (98, (97, 0), false),
            (97, (98, 0), false),
            // As `cp -p` and `touch -d` leave a file that was written just now.
            (10, (99, 0), false),
            (10, (99, 980_000_000), false),
            (10, (101, 1), false),
            // A clock that tells nanoseconds does not stand still for so long.
            (10, (99, 979_999_999), true),
            (10, (99, 980_000_001), false),
            (101, (97, 0), false),
            (97, (-1, 0), true),
        ] {
            assert_eq!(at(modified, changed).is_settled(now), settled, "{modified} {changed:?}");
        }
    }

    #[test]
    fn what_a_file_is_known_by() {
        let own = at(10, (20, 0));
        let with = |change: &dyn Fn(&mut FileIdentity)| {
            let mut other = own.clone();
            change(&mut other);
            (own == other, own.has_the_bytes_of(&other))
        };
        assert_eq!(with(&|_| {}), (true, true));
        assert_eq!(with(&|other| other.len = 9), (false, false));
        assert_eq!(with(&|other| other.modified = None), (false, false));
        assert_eq!(with(&|other| other.inode = Some((1, 3))), (false, false));
        assert_eq!(with(&|other| other.inode = Some((2, 2))), (false, false));
        // A new name or other permissions.
        assert_eq!(with(&|other| other.changed = (21, 0)), (false, true));
    }
}
