//! Holes of files: ranges that take no room on the disk and are read as zeros.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;

use crate::save::plan::PlannedFile;
use crate::util::retry::retried;

/// Shorter holes, in bytes, are written as zeros: a file of many of them would take a call each.
const SHORTEST: u64 = 64 << 10;

/// How many bytes of the disk a file has: fewer than its length where it has holes.
#[cfg(unix)]
pub(in crate::save) fn stored_bytes(metadata: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    metadata.blocks().saturating_mul(512).min(metadata.len())
}

#[cfg(not(unix))]
pub(in crate::save) fn stored_bytes(metadata: &Metadata) -> u64 {
    metadata.len()
}

/// How many bytes are in holes of the mapped files that the bytes of `plan` come from: at least as
/// many as the new file will have in holes.
pub(in crate::save) fn hole_bytes(plan: &PlannedFile<'_>) -> u64 {
    let mut known = HashSet::new();
    let ranges = plan.pieces.iter().filter_map(|piece| piece.initializer.file_range());
    let files = ranges.map(|range| range.path).filter(|path| known.insert(*path));
    let metadata = files.filter_map(|path| retried(|| path.metadata()).ok());
    let holes = metadata.map(|file| file.len().saturating_sub(stored_bytes(&file)));
    holes.fold(0, u64::saturating_add)
}

/// The next bytes of `file` from `at` to `end` that are no hole; an empty range at the end where
/// there are none.
#[cfg(target_os = "linux")]
pub(super) fn next_data(file: &File, at: u64, end: u64) -> io::Result<Range<u64>> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;
    let start = match retried(|| seek(file, SeekFrom::Data(at))) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(end..end),
        // This file system does not tell.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(at..end),
        Err(error) => return Err(error.into()),
    };
    let hole = retried(|| seek(file, SeekFrom::Hole(start)))?;
    Ok(start.min(end)..hole.clamp(start, end.max(start)).min(end))
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::unnecessary_wraps)] // as on Linux
pub(super) fn next_data(_: &File, at: u64, end: u64) -> io::Result<Range<u64>> {
    Ok(at..end)
}

/// As [`next_data`], with the short holes that follow.
pub(super) fn next_part(file: &File, at: u64, end: u64) -> io::Result<Range<u64>> {
    let mut part = next_data(file, at, end)?;
    while part.end < end {
        let next = next_data(file, part.end, end)?;
        if next.start.saturating_sub(part.end) >= SHORTEST || next.is_empty() {
            break;
        }
        part.end = next.end;
    }
    Ok(part)
}
