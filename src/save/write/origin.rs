//! Bytes that the system copies from one file to another.
//!
//! A weight of a mapped file need not pass through this process: the kernel copies ranges between
//! files, and file systems that share extents (XFS, btrfs) write almost nothing then. A map keeps
//! no descriptor, so the file is opened again by its path, and used only if it still is the file
//! that was mapped. Whatever cannot be copied is written from the map.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::buffer::Buffer;
use crate::buffers::FileIdentity;
use crate::util::retry::retried;

/// Offsets in both files must have the same distance from a multiple of this for extents to be
/// shared.
const BLOCK: u64 = 4096;
/// Fewer bytes are written from the map, which is faster than opening a file.
const LEAST: usize = 256 << 10;
/// The longest padding, in bytes, that is copied along with what it separates.
const LONGEST_PADDING: usize = 64 << 10;
/// How many files are open at a time.
const MOST_OPEN: usize = 8;

/// A range of a mapped file, and where it goes.
pub(super) struct Run {
    pub(super) bytes: Buffer,
    /// The offset of its first byte in the new file.
    pub(super) at: u64,
    /// The offset of its first byte in the mapped file.
    offset: u64,
}

impl Run {
    /// `bytes`, which go to the offset `at`; `None` if they are not in a mapped file.
    pub(super) fn new(bytes: &Buffer, at: u64) -> Option<Self> {
        let offset = bytes.file_range()?.range.start;
        Some(Self { bytes: bytes.clone(), at, offset })
    }

    /// Adds `bytes`, which go to the offset `at`, if they follow in both files at the same
    /// distance, and the bytes between are zero as they have to be in the new file.
    pub(super) fn extend(&mut self, bytes: &Buffer, at: u64) -> bool {
        let Some(joined) = self.bytes.joined(bytes) else { return false };
        let padding = joined.span().checked_sub(self.bytes.span().saturating_add(bytes.span()));
        let follows = self.at.checked_add((joined.span() - bytes.span()) as u64) == Some(at);
        let Some(padding) = padding.filter(|len| follows && *len <= LONGEST_PADDING) else {
            return false;
        };
        let end = self.bytes.span();
        let zero = joined
            .get(end..end.saturating_add(padding))
            .is_some_and(|padding| padding.iter().all(|b| *b == 0));
        if zero {
            self.bytes = joined;
        }
        zero
    }

    /// Whether a file system could share the extents of the run.
    pub(super) fn is_shareable(&self) -> bool {
        self.offset % BLOCK == self.at % BLOCK
    }

    /// How many bytes come before the first block of the new file that could be shared.
    pub(super) fn before_block(&self) -> usize {
        let head = usize::try_from(self.at.next_multiple_of(BLOCK).saturating_sub(self.at));
        let head = head.unwrap_or(0).min(self.bytes.span());
        if self.is_shareable() { head } else { 0 }
    }
}

/// The files that are copied from.
#[derive(Default)]
pub(super) struct Origins(Mutex<HashMap<FileIdentity, Option<Arc<File>>>>);

impl Origins {
    /// The mapped file of `bytes`, open, and their offset in it; `None` where it is not worth it,
    /// or another file took its place.
    pub(super) fn open(&self, bytes: &Buffer) -> Option<(Arc<File>, u64)> {
        bytes.file_range().filter(|_| bytes.span() >= LEAST)?;
        let (place, identity) = bytes.source()?;
        Some((self.open_file(place.path, identity)?, place.range.start))
    }

    fn open_file(&self, path: &Path, identity: &FileIdentity) -> Option<Arc<File>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(identity) {
            return file.clone();
        }
        if open.len() >= MOST_OPEN {
            open.clear();
        }
        let file = open_again(path, identity).map(Arc::new);
        open.insert(identity.clone(), file.clone());
        file
    }
}

/// Opens the file at `path` if it is the one of this identity, unchanged.
fn open_again(path: &Path, identity: &FileIdentity) -> Option<File> {
    let is_the_same = |now: &FileIdentity| identity.has_the_bytes_of(now);
    // Also looked at before it is opened: opening a FIFO would wait for its writer.
    let metadata = retried(|| std::fs::metadata(path)).ok()?;
    is_the_same(&FileIdentity::at(path, &metadata)).then_some(())?;
    let file = File::open(path).ok()?;
    let metadata = retried(|| file.metadata()).ok()?;
    is_the_same(&FileIdentity::of(&file, &metadata)).then_some(file)
}
