//! Shared immutable bytes that keep their owner alive and know which file they are from.
//!
//! Weights are gigabytes, so they are passed around as slices of the memory that holds them: a
//! vector, a memory map, an allocation of the caller. A [`Buffer`] is such a slice, and knows the
//! file that its bytes were mapped or read from. [`BufferMut`] is aligned memory that is filled
//! first and then shared. [`Buffer::make_mut`] makes bytes mutable again: it edits memory that is
//! not shared in place, and copies all other.

pub(crate) mod alignment;
pub(crate) mod file_identity;
pub(crate) mod map_budget;
pub(crate) mod mmap;

mod options;
mod owner;
pub(crate) mod zeroed;

use std::fmt;
use std::ops::{Bound, Deref, DerefMut, Range, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use memmap2::Mmap;

use crate::buffer::file_identity::FileIdentity;
use crate::buffer::map_budget::Slot;
use crate::error::{Error, Result};

pub use self::owner::FileInMemory;
use self::owner::{Memory, Owner, Root, SourceFile};
use self::zeroed::Zeroed;

pub use self::alignment::Alignment;
pub use self::mmap::{MmapChoice, PrivateMap};
pub use self::options::TensorBufferOptions;

/// Immutable bytes with a shared owner: cloning and slicing copy no bytes, and the owner lives
/// until the last slice of it is dropped.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::Buffer;
///
/// let whole = Buffer::from(vec![1_u8, 2, 3, 4]);
/// let tail = whole.slice(2..).unwrap();
/// drop(whole);
/// assert_eq!(&tail[..], [3, 4]); // still alive, never copied
/// ```
#[derive(Clone)]
pub struct Buffer {
    root: Arc<Root>,
    start: usize,
    end: usize,
}

/// Who holds the memory of a [`Buffer`]: [`Buffer::ownership`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ownership {
    /// This buffer alone holds memory that this crate allocated: dropping it frees the memory, and
    /// [`Buffer::make_mut`] edits in place.
    Owned,
    /// The bytes are in memory that other buffers hold too, or in a mapped file. The last buffer
    /// that is dropped frees the memory or unmaps the file.
    Shared,
    /// The bytes belong to an owner that the caller handed over ([`Buffer::from_owner`], `Bytes`).
    /// The owner is dropped with the last buffer of it; the owner decides what that frees.
    Lent,
}

/// The file, and the range in it, that the bytes of a [`Buffer`] are mapped from.
#[derive(Debug, Clone)]
pub struct FileRange<'a> {
    /// The path by which the file was opened. It may be the path of another file now.
    pub path: &'a Path,
    /// The byte range of the file that the buffer has.
    pub range: Range<u64>,
}

impl Buffer {
    /// The bytes of `owner`, which is kept alive; they are never copied.
    ///
    /// Use this for bytes that other code allocated: the owner keeps them alive (an `Arc`, a map, a
    /// foreign allocation with its `Drop`), so they cannot be freed too early. A plain `&[u8]` is
    /// accepted when it is `'static`. An owner whose `as_ref` later returns fewer bytes makes the
    /// buffer empty, not unsound.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use std::sync::Arc;
    /// use onnx_container::Buffer;
    ///
    /// let weights: Arc<[u8]> = Arc::from([1, 2, 3]);
    /// let buffer = Buffer::from_owner(weights.clone());
    /// assert_eq!(buffer.as_ptr(), weights.as_ptr());
    /// ```
    pub fn from_owner(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::from_memory(Memory::Foreign(Box::new(owner)), None)
    }

    /// The whole mapped file at `path`. A map outlives its descriptor, so none is kept: a model
    /// can have more weights files than a process may have open.
    pub(crate) fn from_map(map: Mmap, slot: Slot, path: PathBuf, identity: FileIdentity) -> Self {
        let file = SourceFile { path, identity, start: 0, settled: true };
        Self::from_memory(Memory::Map { map, _slot: slot }, Some(file))
    }

    fn from_memory(memory: Memory, file: Option<SourceFile>) -> Self {
        let mut owner = Owner { memory, used: 0..0 };
        owner.used.end = owner.bytes().len();
        let used = owner.used.clone();
        Self::rooted(Arc::new(owner), used, file.map(Arc::new))
    }

    /// The bytes `range` of the owner's memory, with a new root.
    fn rooted(owner: Arc<Owner>, range: Range<usize>, file: Option<Arc<SourceFile>>) -> Self {
        let Range { start, end } = range;
        Self { root: Arc::new(Root { owner, file }), start, end }
    }

    /// The part of this buffer in `range` (bytes), sharing its owner; `None` when the range is not
    /// inside the buffer.
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Option<Self> {
        let from = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(end) => end.checked_add(1)?,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.span(),
        };
        if from > to || to > self.span() {
            return None;
        }
        Some(Self { root: self.root.clone(), start: self.start + from, end: self.start + to })
    }

    /// The length in bytes, without asking the owner, which may have fewer bytes by now.
    #[inline]
    #[doc(hidden)]
    pub fn span(&self) -> usize {
        self.end - self.start
    }

    /// The same bytes with a separate reference count: clones of the fork do not touch this
    /// buffer's count, so threads that each clone their own fork do not contend.
    #[must_use]
    pub fn fork(&self) -> Self {
        let Root { owner, file } = &*self.root;
        Self::rooted(owner.clone(), self.start..self.end, file.clone())
    }

    /// Whether both share one owner, so that dropping only one of them frees no memory.
    pub fn same_owner(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root.owner, &other.root.owner)
    }

    /// The memory from the start of this buffer to the end of `next`, where that is a later part of
    /// the same memory.
    #[doc(hidden)]
    pub fn joined(&self, next: &Self) -> Option<Self> {
        let follows = self.same_owner(next) && self.end <= next.start;
        follows.then(|| Self { root: self.root.clone(), start: self.start, end: next.end })
    }

    /// Who holds the memory now. Other threads that drop or clone slices of it can change the
    /// answer between [`Owned`](Ownership::Owned) and [`Shared`](Ownership::Shared).
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::buffer::Ownership;
    /// use onnx_container::Buffer;
    ///
    /// let buffer = Buffer::from(vec![1_u8, 2, 3]);
    /// assert_eq!(buffer.ownership(), Ownership::Owned);
    /// let tail = buffer.slice(1..).unwrap();
    /// assert_eq!(tail.ownership(), Ownership::Shared);
    /// drop(buffer);
    /// assert_eq!(tail.ownership(), Ownership::Owned); // the last one that holds the memory
    /// assert_eq!(Buffer::from_owner([1, 2, 3]).ownership(), Ownership::Lent);
    /// ```
    pub fn ownership(&self) -> Ownership {
        match self.root.owner.memory {
            Memory::Bytes(_) | Memory::Foreign(_) => Ownership::Lent,
            Memory::Map { .. } => Ownership::Shared,
            Memory::Vec(_) | Memory::Anonymous(_) if self.is_shared() => Ownership::Shared,
            Memory::Vec(_) | Memory::Anonymous(_) => Ownership::Owned,
        }
    }

    /// Whether other buffers hold the same memory now, so that dropping this one frees no memory.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.root) > 1 || Arc::strong_count(&self.root.owner) > 1
    }

    /// The bytes, to be edited. Memory that only this buffer holds is edited in place; all other
    /// memory (shared, lent, or a file's) is copied first, so that no other holder sees the edit.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::Buffer;
    ///
    /// let original = Buffer::from(vec![1_u8, 2, 3]);
    /// let mut edited = original.clone();
    /// edited.make_mut()?[0] = 9;
    /// assert_eq!((original[0], edited[0]), (1, 9));
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`BufferMut::zeroed`] where the bytes are copied; the buffer is then unchanged.
    pub fn make_mut(&mut self) -> Result<&mut [u8]> {
        if self.sole_memory().is_none() {
            *self = self.copied()?.freeze();
        }
        self.sole_memory().ok_or_else(|| Error::internal("a new copy is shared"))
    }

    /// The bytes as mutable memory: the same memory where only this buffer holds it, otherwise a
    /// copy.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::Buffer;
    ///
    /// let buffer = Buffer::from(vec![1_u8, 2, 3]);
    /// let address = buffer.as_ptr();
    /// assert_eq!(buffer.into_mut()?.as_ptr(), address);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`BufferMut::zeroed`] where the bytes are copied.
    pub fn into_mut(self) -> Result<BufferMut> {
        if self.ownership() != Ownership::Owned {
            return self.copied();
        }
        let Self { root, start, end } = self;
        let shared = |owner| Self::rooted(owner, start..end, None).copied();
        // Another thread may have cloned this buffer's fork in the meantime. Then the bytes are
        // copied.
        let owner = match Arc::try_unwrap(root) {
            Ok(Root { owner, .. }) => owner,
            Err(root) => return Self { root, start, end }.copied(),
        };
        match Arc::try_unwrap(owner) {
            Ok(Owner { memory: Memory::Vec(bytes), .. }) => {
                Ok(BufferMut { memory: Zeroed::Heap(bytes), range: start..end })
            }
            Ok(Owner { memory: Memory::Anonymous(map), .. }) => {
                Ok(BufferMut { memory: Zeroed::Map(map), range: start..end })
            }
            Ok(owner) => shared(Arc::new(owner)),
            Err(owner) => shared(owner),
        }
    }

    /// A copy of the bytes, aligned for every element type.
    fn copied(&self) -> Result<BufferMut> {
        self.copied_to(Alignment::CACHE_LINE)
    }

    /// A copy of the bytes at a multiple of `alignment`.
    #[doc(hidden)]
    pub fn copied_to(&self, alignment: Alignment) -> Result<BufferMut> {
        let bytes: &[u8] = self;
        let mut copy = BufferMut::zeroed(bytes.len(), alignment)?;
        copy.copy_from_slice(bytes);
        Ok(copy)
    }

    /// The bytes, where they are in memory of this crate that no other buffer holds. They may
    /// change from here on, so they no longer count as the copy of a file.
    fn sole_memory(&mut self) -> Option<&mut [u8]> {
        let Root { owner, file } = Arc::get_mut(&mut self.root)?;
        let owner = Arc::get_mut(owner)?;
        let memory: &mut [u8] = match &mut owner.memory {
            Memory::Vec(bytes) => bytes,
            Memory::Anonymous(map) => map,
            Memory::Map { .. } | Memory::Bytes(_) | Memory::Foreign(_) => return None,
        };
        *file = None;
        memory.get_mut(self.start..self.end)
    }

    /// All of the memory that this buffer is a part of, when this crate allocated it; `None` for
    /// memory of a file or a caller.
    #[doc(hidden)]
    pub fn whole_allocation(&self) -> Option<Self> {
        let Root { owner, file } = &*self.root;
        let ours = matches!(owner.memory, Memory::Vec(_) | Memory::Anonymous(_));
        let all_of_it = |file: &Arc<SourceFile>| {
            file.start == owner.used.start && file.identity.len() == owner.used.len() as u64
        };
        let file = || file.clone().filter(all_of_it);
        ours.then(|| Self::rooted(owner.clone(), owner.used.clone(), file()))
    }

    /// Where the bytes are on disk, when the buffer is (part of) a mapped file.
    pub fn file_range(&self) -> Option<FileRange<'_>> {
        let mapped = matches!(self.root.owner.memory, Memory::Map { .. });
        self.source().filter(|_| mapped).map(|(place, _)| place)
    }

    /// The file and the range that the bytes were mapped or read from, and the file's identity at
    /// that time. A copy of bytes that changed while they were read has no source.
    #[doc(hidden)]
    pub fn source(&self) -> Option<(FileRange<'_>, &FileIdentity)> {
        let SourceFile { path, identity, start, .. } = self.root.file.as_deref()?;
        let offset = |at: usize| u64::try_from(at.checked_sub(*start)?).ok();
        let range = offset(self.start)?..offset(self.end)?;
        Some((FileRange { path, range }, identity))
    }

    /// The path of the file that the bytes were mapped or read from.
    #[doc(hidden)]
    pub fn file_path(&self) -> Option<&Path> {
        Some(&self.root.file.as_ref()?.path)
    }

    /// Whether an unchanged identity of the [`source`](Self::source) proves that it still holds
    /// these bytes.
    #[doc(hidden)]
    pub fn is_settled(&self) -> bool {
        self.root.file.as_ref().is_some_and(|file| file.settled)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // Out of range only where a lent owner now returns fewer bytes; see `from_owner`.
        self.root.owner.bytes().get(self.start..self.end).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Buffer {
    /// No bytes; allocates nothing.
    fn default() -> Self {
        static EMPTY: LazyLock<Buffer> = LazyLock::new(|| Buffer::from(Vec::new()));
        EMPTY.clone()
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from_memory(Memory::Vec(bytes), None)
    }
}

impl From<&[u8]> for Buffer {
    /// Copies the bytes.
    fn from(bytes: &[u8]) -> Self {
        Self::from(bytes.to_vec())
    }
}

impl From<Bytes> for Buffer {
    fn from(bytes: Bytes) -> Self {
        Self::from_memory(Memory::Bytes(bytes), None)
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Buffer");
        out.field("len", &self.len());
        if let Some(place) = self.file_range() {
            out.field("path", &place.path).field("range", &place.range);
        }
        out.finish()
    }
}

/// Zeroed memory that starts at an aligned address, filled through `&mut [u8]` and then frozen.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::{Alignment, BufferMut};
///
/// let mut memory = BufferMut::zeroed(4, Alignment::DEVICE)?;
/// memory.copy_from_slice(&[1, 2, 3, 4]);
/// let shared = memory.freeze();
/// assert_eq!(shared.as_ptr().addr() % 256, 0);
/// # Ok::<(), onnx_container::Error>(())
/// ```
pub struct BufferMut {
    memory: Zeroed,
    range: Range<usize>,
}

impl BufferMut {
    /// `len` zeroed bytes whose address is a multiple of `alignment`.
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge) when the length does not fit the address space,
    /// [`Io`](crate::ErrorKind::Io) when the memory cannot be allocated.
    pub fn zeroed(len: usize, alignment: Alignment) -> Result<Self> {
        let (memory, range) = Zeroed::aligned(len, alignment)?;
        Ok(Self { memory, range })
    }

    /// The bytes as a shared [`Buffer`], without a copy.
    pub fn freeze(self) -> Buffer {
        self.into_buffer(None)
    }

    /// As [`freeze`](Self::freeze), for the bytes of the whole file at `path`. `settled` says
    /// whether an unchanged `identity` later proves that the file still holds these bytes.
    #[doc(hidden)]
    pub fn freeze_copy(self, path: PathBuf, identity: FileIdentity, settled: bool) -> Buffer {
        self.into_buffer(Some((path, identity, settled)))
    }

    fn into_buffer(self, file: Option<(PathBuf, FileIdentity, bool)>) -> Buffer {
        let used = self.range.clone();
        let start = used.start;
        let file =
            file.map(|(path, identity, settled)| SourceFile { path, identity, start, settled });
        Buffer::rooted(self.into_owner(), used, file.map(Arc::new))
    }

    /// The ranges (bytes) of the memory that hold whole files, as buffers that share it. Each knows
    /// its file where an identity is given, with the meaning of [`freeze_copy`](Self::freeze_copy);
    /// a range that is not inside the memory is left out.
    #[doc(hidden)]
    pub fn freeze_files(self, files: Vec<FileInMemory>) -> Vec<Buffer> {
        let used = self.range.clone();
        let owner = self.into_owner();
        let place = |FileInMemory { range, path, identity }: FileInMemory| {
            let start = used.start.checked_add(range.start)?;
            let end = used.start.checked_add(range.end).filter(|end| *end <= used.end)?;
            let file = identity
                .map(|(identity, settled)| Arc::new(SourceFile { path, identity, start, settled }));
            (start <= end).then(|| Buffer::rooted(owner.clone(), start..end, file))
        };
        files.into_iter().filter_map(place).collect()
    }

    fn into_owner(self) -> Arc<Owner> {
        let memory = match self.memory {
            Zeroed::Heap(bytes) => Memory::Vec(bytes),
            Zeroed::Map(map) => Memory::Anonymous(map),
        };
        Arc::new(Owner { memory, used: self.range })
    }
}

impl Deref for BufferMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.memory.get(self.range.clone());
        debug_assert!(bytes.is_some(), "the range was held to the memory when it was taken");
        bytes.unwrap_or_default()
    }
}

impl DerefMut for BufferMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = self.memory.get_mut(self.range.clone());
        debug_assert!(bytes.is_some(), "the range was held to the memory when it was taken");
        bytes.unwrap_or_default()
    }
}

impl fmt::Debug for BufferMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferMut").field("len", &self.range.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn slices_share_and_stay_inside() {
        let whole = Buffer::from(vec![0_u8, 1, 2, 3, 4]);
        let part = whole.slice(1..4).unwrap();
        assert_eq!(part.as_ptr(), whole.get(1..).unwrap().as_ptr());
        assert_eq!(*part.slice(..=1).unwrap(), [1, 2]);
        assert!(part.same_owner(&whole.fork()));
        for range in [0..6, 5..6, usize::MAX..usize::MAX] {
            assert!(whole.slice(range).is_none());
        }
        assert!(part.slice(0..4).is_none(), "a slice does not reach beyond itself");
        assert!(part.slice(..=usize::MAX).is_none());
    }

    #[test]
    fn the_owner_lives_as_long_as_its_last_slice() {
        let owner: Arc<[u8]> = Arc::from([1, 2, 3]);
        let slice = Buffer::from_owner(owner.clone()).fork().slice(1..).unwrap();
        assert_eq!(Arc::strong_count(&owner), 2);
        assert_eq!(*slice, [2, 3]);
        drop(slice);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn memory_is_aligned() {
        for align in [1, 64, 256, 4096, 1 << 21] {
            let alignment = Alignment::new(align).unwrap();
            for len in [0, 1, 4095, 4097, 4 << 20] {
                let memory = BufferMut::zeroed(len, alignment).unwrap();
                assert_eq!(memory.len(), len);
                assert!(alignment.is_aligned(memory.as_ptr().addr() as u64), "{align} {len}");
                assert_eq!(memory.freeze().len(), len);
            }
        }
        for (len, kind) in [(usize::MAX, ErrorKind::TooLarge), (usize::MAX >> 1, ErrorKind::Io)] {
            assert_eq!(BufferMut::zeroed(len, Alignment::PAGE).unwrap_err().kind(), kind);
        }
    }

    #[test]
    fn small_memory_takes_no_page_of_its_own() {
        let small = |_| BufferMut::zeroed(16, Alignment::CACHE_LINE).unwrap().freeze();
        let all: Vec<_> = (0..1000).map(small).collect();
        let pages: std::collections::HashSet<_> =
            all.iter().map(|bytes| bytes.as_ptr().addr() / 4096).collect();
        assert!(pages.len() < 500, "{} pages", pages.len());
    }

    #[test]
    fn files_share_memory_and_each_knows_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let identity = |len| {
            let path = folder.path().join("f");
            std::fs::write(&path, vec![0; len]).unwrap();
            FileIdentity::at(&path, &path.metadata().unwrap())
        };
        let part = |range: Range<usize>, path: &str, known: bool| {
            let identity = known.then(|| (identity(range.len()), true));
            FileInMemory { range, path: path.into(), identity }
        };
        let mut memory = BufferMut::zeroed(256, Alignment::CACHE_LINE).unwrap();
        memory[64..67].copy_from_slice(&[1, 2, 3]);
        let parts =
            vec![part(0..4, "a", true), part(64..67, "b", true), part(128..130, "c", false)];
        let [a, mut b, c] = memory.freeze_files(parts).try_into().unwrap();
        let source = |bytes: &Buffer| {
            bytes.source().map(|(place, _)| (place.path.to_path_buf(), place.range))
        };
        assert_eq!(source(&a), Some(("a".into(), 0..4)));
        assert_eq!(source(&b.fork().slice(1..).unwrap()), Some(("b".into(), 1..3)));
        assert_eq!((source(&c), c.len()), (None, 2));
        assert_eq!((b.ownership(), b.is_settled()), (Ownership::Shared, true));
        let whole = b.whole_allocation().unwrap();
        assert_eq!((whole.len(), source(&whole)), (256, None), "no file is all of the memory");
        drop(whole);
        // While others share the memory an edit copies; the last one is edited in place.
        b.clone().make_mut().unwrap()[0] = 9;
        assert_eq!(*b, [1, 2, 3]);
        let address = b.as_ptr();
        drop((a, c));
        b.make_mut().unwrap()[0] = 9;
        assert_eq!((b.as_ptr(), source(&b)), (address, None));
        let beyond = BufferMut::zeroed(4, Alignment::DENSE).unwrap();
        assert!(beyond.freeze_files(vec![part(2..5, "d", true)]).is_empty());
    }

    #[test]
    fn bytes_go_both_ways() {
        let buffer = Buffer::from(Bytes::from_static(b"weights"));
        assert_eq!(Bytes::from(buffer.clone()), Bytes::from_static(b"weights"));
        assert_eq!(Buffer::default().len(), 0);
        assert_eq!(size_of::<Option<Buffer>>(), 3 * size_of::<usize>());
    }
}
