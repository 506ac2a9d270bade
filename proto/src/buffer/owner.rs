//! [`Owner`]: the memory of buffers, and the files that it holds.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;

use crate::buffer::file_identity::FileIdentity;
use crate::buffer::map_budget::Slot;
use crate::buffer::zeroed::AnonymousMap;

/// One reference count; see [`Buffer::fork`](crate::Buffer::fork).
pub(super) struct Root {
    pub(super) owner: Arc<Owner>,
    /// The file that the memory holds completely, if any. Memory may hold several files: then each
    /// has a root.
    pub(super) file: Option<Arc<SourceFile>>,
}

/// Memory, which is freed with the last buffer of it.
pub(super) struct Owner {
    pub(super) memory: Memory,
    /// The part of the memory that is in use: all of it, except padding for alignment at both ends.
    pub(super) used: Range<usize>,
}

/// The file that memory was mapped or read from.
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) identity: FileIdentity,
    /// Where in the memory the file begins.
    pub(super) start: usize,
    /// Whether an equal identity proves that the file still holds these bytes. This is false for a
    /// copy that was read so soon after a write that a later write could leave the same times.
    pub(super) settled: bool,
}

/// What the memory belongs to.
pub(super) enum Memory {
    Vec(Vec<u8>),
    Map { map: Mmap, _slot: Slot },
    Anonymous(AnonymousMap),
    Bytes(Bytes),
    Foreign(Box<dyn AsRef<[u8]> + Send + Sync>),
}

impl Owner {
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Vec(vec) => vec,
            Memory::Map { map, .. } => map,
            Memory::Anonymous(map) => map,
            Memory::Bytes(bytes) => bytes,
            Memory::Foreign(owner) => (**owner).as_ref(),
        }
    }
}

/// A whole file that was read into a part of a [`BufferMut`](super::BufferMut).
#[derive(Debug)]
pub struct FileInMemory {
    /// The bytes of the memory.
    pub range: Range<usize>,
    /// The path by which it was opened.
    pub path: PathBuf,
    /// The file's identity, and whether an equal one later proves that it still holds these bytes.
    pub identity: Option<(FileIdentity, bool)>,
}
