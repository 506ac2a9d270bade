//! A file as a [`Buffer`]: mapped where the caller vouches for the file, read where not.
//!
//! Another process that truncates a mapped file takes the memory away from under a `&[u8]`. No
//! library can rule that out, so mapping is a choice that costs an `unsafe`, made once, and a value
//! afterwards.

#![allow(unsafe_code)] // the one place that maps files

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use memmap2::Mmap;

use crate::buffer::alignment::Alignment;
use crate::buffer::file_identity::FileIdentity;
use crate::buffer::map_budget::{self, Slot, Slots};
use crate::buffer::zeroed::in_memory;
use crate::buffer::{Buffer, BufferMut};
use crate::error::{Error, ErrorKind, Result};
use crate::util::cancel;
use crate::util::parallel;
use crate::util::retry::retried;

/// Whether weights files are mapped or read.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::MmapChoice;
///
/// // SAFETY: nobody truncates or rewrites the model's files while the container lives.
/// let map = unsafe { MmapChoice::auto() };
/// assert_ne!(map, MmapChoice::never());
/// assert_eq!(MmapChoice::default(), MmapChoice::never());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MmapChoice(Choice);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Choice {
    Auto,
    #[default]
    Never,
}

impl MmapChoice {
    /// Maps files; a file that cannot be mapped is read.
    ///
    /// A process may have only so many maps, 65,530 by default on Linux. So while it has 1,024
    /// files mapped, further ones below 64 KiB are read, and while it has 49,152, all of them.
    ///
    /// # Safety
    /// For as long as any [`Buffer`] of a mapped file lives, no process may truncate the file (a
    /// later access would raise `SIGBUS`) or write to it (bytes behind a `&[u8]` would change).
    /// Replacing a file by renaming another over it, as `Container::save` does, is
    /// fine: the map keeps the old one.
    pub const unsafe fn auto() -> Self {
        Self(Choice::Auto)
    }

    /// Reads files into aligned memory.
    pub const fn never() -> Self {
        Self(Choice::Never)
    }

    /// All bytes of the file at `path`, mapped or read.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::MmapChoice;
    ///
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("w.bin");
    /// std::fs::write(&path, [1, 2, 3]).unwrap();
    /// assert_eq!(*MmapChoice::never().buffer(&path)?, [1, 2, 3]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when it is not a regular file, [`ErrorKind::MissingFile`] and
    /// [`ErrorKind::Io`] from the operating system.
    pub fn buffer(self, path: impl AsRef<Path>) -> Result<Buffer> {
        let path = path.as_ref();
        self.open(&Self::open_regular(path)?, path)
    }

    /// Opens the regular file at `path`, which a caller of the crate named.
    #[doc(hidden)]
    pub fn open_regular(path: &Path) -> Result<File> {
        let io = |error| Error::io(path, error);
        // Looked at before it is opened: opening a FIFO would wait for its writer.
        let meta = retried(|| std::fs::metadata(path)).map_err(io)?;
        if !meta.is_file() {
            let reason =
                if meta.is_dir() { "a directory, not a file" } else { "not a regular file" };
            return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(path));
        }
        File::open(path).map_err(io)
    }

    /// All bytes of the open, regular `file`; `path` is for messages.
    #[doc(hidden)]
    pub fn open(self, file: &File, path: &Path) -> Result<Buffer> {
        let metadata = retried(|| file.metadata()).map_err(|error| Error::io(path, error))?;
        self.open_known(file, &metadata, path)
    }

    /// Whether some files are mapped.
    #[doc(hidden)]
    pub fn maps(self) -> bool {
        self.0 == Choice::Auto
    }

    /// As [`open`](Self::open), for a file whose `metadata` were read when it was opened.
    #[doc(hidden)]
    pub fn open_known(self, file: &File, metadata: &Metadata, path: &Path) -> Result<Buffer> {
        self.open_counted(file, metadata, path, &map_budget::FILES)
    }

    /// As [`open_known`](Self::open_known), with the slots that maps take.
    fn open_counted(
        self,
        file: &File,
        metadata: &Metadata,
        path: &Path,
        slots: &'static Slots,
    ) -> Result<Buffer> {
        let io = |error| Error::io(path, error);
        let identity = FileIdentity::of(file, metadata);
        let wanted = self.maps() && metadata.len() > 0;
        if let Some(slot) = wanted.then(|| slots.take(metadata.len())).flatten() {
            // SAFETY: `auto` has its caller promise that mapped files are neither truncated nor
            // written while a buffer of them lives; the map is read-only.
            if let Ok(map) = unsafe { Mmap::map(file) } {
                return Ok(Buffer::from_map(map, slot, path.to_path_buf(), identity));
            }
        }
        copy(file, path, identity).map_err(io)
    }
}

/// Reads `file`, which was `identity` just before. The copy knows its file only where nobody wrote
/// to it meanwhile, and whether a later change would show in the time.
fn copy(file: &File, path: &Path, identity: FileIdentity) -> io::Result<Buffer> {
    let settled = identity.is_settled(SystemTime::now());
    let bytes = read(file, identity.len())?;
    if is_still(file, &identity) {
        return Ok(bytes.freeze_copy(path.to_path_buf(), identity, settled));
    }
    Ok(bytes.freeze())
}

/// Fills `memory` with the first bytes of `file`, of which `metadata` were read just before. As
/// [`FileInMemory`](crate::buffer::FileInMemory), the answer is what tells later whether the file
/// still has these bytes.
pub fn copy_into(
    file: &File,
    metadata: &Metadata,
    memory: &mut [u8],
) -> io::Result<Option<(FileIdentity, bool)>> {
    let identity = FileIdentity::of(file, metadata);
    let settled = identity.is_settled(SystemTime::now());
    read_at(file, memory, 0)?;
    Ok(is_still(file, &identity).then_some((identity, settled)))
}

fn is_still(file: &File, identity: &FileIdentity) -> bool {
    retried(|| file.metadata()).is_ok_and(|now| FileIdentity::of(file, &now) == *identity)
}

/// A part of a file, mapped apart from the container and for writing: pages that are written to are
/// copied first, so that neither the file nor any [`Buffer`] of it changes.
///
/// It is for code that needs memory which it may write to, such as PyTorch, and that may write to
/// little of it.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::buffer::PrivateMap;
/// use onnx_container::MmapChoice;
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("w.bin");
/// std::fs::write(&path, [1, 2, 3]).unwrap();
/// // SAFETY: nobody truncates or writes to the file while it is mapped.
/// let bytes = unsafe { MmapChoice::auto() }.buffer(&path)?;
/// let map = unsafe { PrivateMap::new(&bytes.slice(1..).unwrap()) }?;
/// // SAFETY: the map has two bytes, which nothing else refers to.
/// unsafe { *map.as_ptr() = 9 };
/// assert_eq!(unsafe { std::slice::from_raw_parts(map.as_ptr(), map.len()) }, [9, 3]);
/// assert_eq!(*bytes, [1, 2, 3]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug)]
pub struct PrivateMap {
    map: memmap2::MmapRaw,
    _slot: Slot,
}

impl PrivateMap {
    /// Maps again what `bytes`, part of a mapped file, shows.
    ///
    /// # Safety
    /// As for [`MmapChoice::auto`], for as long as the map lives.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the bytes are in no mapped file, or where this process has
    /// so many maps already that [`MmapChoice::auto`] reads all files; [`ErrorKind::Io`] or
    /// [`ErrorKind::MissingFile`] where the file cannot be mapped again, or was replaced since.
    pub unsafe fn new(bytes: &Buffer) -> Result<Self> {
        let mapped = bytes.file_range().is_some();
        let (place, identity) = bytes.source().filter(|_| mapped).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "the bytes do not lie in a mapped file")
        })?;
        let io = |error| Error::io(place.path, error);
        let is_the_same = |now: FileIdentity| match now.has_the_bytes_of(identity) {
            true => Ok(()),
            false => {
                let reason = "the file changed, or another one took its place, since it was mapped";
                Err(Error::new(ErrorKind::Io, reason).with_path(place.path))
            }
        };
        // Whatever its length: reading it instead is for the caller to decide.
        let slot = map_budget::FILES.take(u64::MAX).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "too many files are mapped").with_path(place.path)
        })?;
        // Also looked at before it is opened: opening a FIFO would wait for its writer.
        let metadata = retried(|| std::fs::metadata(place.path)).map_err(io)?;
        is_the_same(FileIdentity::at(place.path, &metadata))?;
        let file = File::open(place.path).map_err(io)?;
        is_the_same(FileIdentity::of(&file, &retried(|| file.metadata()).map_err(io)?))?;
        let mut options = memmap2::MmapOptions::new();
        // Without a reservation a file that is longer than the memory can be mapped.
        options.offset(place.range.start).len(bytes.len()).no_reserve_swap();
        // SAFETY: the caller promises that the file is neither truncated nor written.
        let map = unsafe { options.map_copy(&file) }.map_err(io)?;
        Ok(Self { map: map.into(), _slot: slot })
    }

    /// The first of the bytes, to be read and written by the owner of the map.
    pub fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The least a thread reads: below this, starting it costs more than it saves.
const SHARE: usize = 16 << 20;
/// How much is read at a time, so that the call can be cancelled.
const PIECE: usize = 4 << 20;

/// Reads `len` bytes of `file` into page-aligned memory, in parallel when there are many.
fn read(file: &File, len: u64) -> io::Result<BufferMut> {
    let len = in_memory(len).map_err(Error::into_io)?;
    let mut memory = BufferMut::zeroed(len, Alignment::PAGE).map_err(io::Error::other)?;
    cancel::begin(len as u64);
    if len <= SHARE {
        // The number of cores is read from files, which takes longer than reading a short one.
        read_at(file, &mut memory, 0)?;
        cancel::advance(len as u64).map_err(Error::into_io)?;
        return Ok(memory);
    }
    let threads = parallel::cores(8.min(len / SHARE));
    let pieces = memory.chunks_mut(PIECE).enumerate();
    let read = |(i, piece): (usize, &mut [u8])| {
        read_at(file, piece, i.saturating_mul(PIECE) as u64)?;
        cancel::advance(piece.len() as u64)
    };
    parallel::for_each(threads, pieces, read).map_err(|error| error.into_io())?;
    Ok(memory)
}

/// Fills `chunk` with the bytes of `file` from `offset` on.
#[cfg(unix)]
pub fn read_at(file: &File, chunk: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, chunk, offset)
}

/// Fills `chunk` with the bytes of `file` from `offset` on.
#[cfg(windows)]
pub fn read_at(file: &File, mut chunk: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !chunk.is_empty() {
        // It moves the position of the handle too, which nobody reads from.
        let read = match std::os::windows::fs::FileExt::seek_read(file, chunk, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        chunk = chunk
            .split_at_mut_checked(read)
            .filter(|_| read > 0)
            .ok_or(io::ErrorKind::UnexpectedEof)?
            .1;
        offset = offset.saturating_add(read as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beyond_the_limit_of_maps_are_read() {
        static SLOTS: Slots = Slots::new(2, 3);
        let folder = tempfile::tempdir().unwrap();
        let lens = [1, 100_000, 1, 100_000, 100_000, 0];
        // SAFETY: nobody writes to the files.
        let auto = unsafe { MmapChoice::auto() };
        let open = |(i, len): (u8, &usize)| {
            let path = folder.path().join(i.to_string());
            std::fs::write(&path, vec![i; *len]).unwrap();
            let file = File::open(&path).unwrap();
            auto.open_counted(&file, &file.metadata().unwrap(), &path, &SLOTS).unwrap()
        };
        let mapped = |all: &[Buffer]| -> Vec<_> {
            all.iter().map(|bytes| bytes.file_range().is_some()).collect()
        };
        let buffers: Vec<_> = (0..).zip(&lens).map(open).collect();
        assert_eq!(mapped(&buffers), [true, true, false, true, false, false]);
        for ((i, len), bytes) in (0..).zip(&lens).zip(&buffers) {
            assert_eq!(**bytes, vec![i; *len]);
        }
        // A slice keeps the map, and with it the slot.
        let slices: Vec<_> = buffers.iter().map(|bytes| bytes.slice(..0).unwrap()).collect();
        drop(buffers);
        assert_eq!(mapped(&[open((6, &1))]), [false]);
        drop(slices);
        assert_eq!(mapped(&[open((7, &1))]), [true]);
    }
}
