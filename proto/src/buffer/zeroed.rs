//! Zeroed memory: small pieces on the heap, large ones in pages of their own that go back to the
//! system.

use std::io::ErrorKind;
use std::ops::{Deref, DerefMut, Range};

use memmap2::MmapMut;

use crate::buffer::alignment::Alignment;
use crate::error::{self, Error, Result};
use crate::util::process_memory;

/// Memory that was zeroed when it was made.
pub(super) enum Zeroed {
    Heap(Vec<u8>),
    Map(AnonymousMap),
}

/// Pages of their own, which count as memory of the process.
pub(super) struct AnonymousMap(MmapMut);

/// The least number of bytes, padding included, for which memory is mapped. A map takes whole pages
/// and two system calls, and the number of maps of a process is limited, so small tensors use the
/// heap.
const MAPPED: usize = 64 << 10;

/// The least length in bytes for which huge pages are worthwhile: two of them.
#[cfg(all(target_os = "linux", not(miri)))]
const HUGE: usize = 4 << 20;

impl Zeroed {
    /// Memory, and the range of `len` bytes in it whose address is a multiple of `alignment`.
    ///
    /// # Errors
    /// [`TooLarge`](error::ErrorKind::TooLarge) when the length does not fit the address space,
    /// [`Io`](error::ErrorKind::Io) when the memory cannot be allocated.
    pub(super) fn aligned(len: usize, alignment: Alignment) -> Result<(Self, Range<usize>)> {
        let too_large = || Error::new(error::ErrorKind::TooLarge, format!("{len} bytes of memory"));
        let align = usize::try_from(alignment.bytes()).map_err(|_| too_large())?;
        let whole = len.checked_add(align).ok_or_else(too_large)?;
        let memory = if whole < MAPPED {
            Self::Heap(vec![0; whole])
        } else {
            let slack = if align > 4096 { align } else { 0 };
            match mapped(len.checked_add(slack).ok_or_else(too_large)?) {
                Ok(map) => Self::Map(map),
                // The process may have reached its limit of maps; the heap may still have room.
                Err(error) => Self::Heap(heap(whole).ok_or(error)?),
            }
        };
        let start = memory.as_ptr().align_offset(align);
        let end =
            start.checked_add(len).filter(|end| *end <= memory.len()).ok_or_else(too_large)?;
        Ok((memory, start..end))
    }
}

/// The length in bytes, or the number of elements, of what is to be in memory.
///
/// # Errors
/// [`TooLarge`](error::ErrorKind::TooLarge) beyond `isize::MAX`, the most that a slice has: 2 GiB
/// where addresses have 32 bits.
pub fn in_memory(len: u64) -> Result<usize> {
    isize::try_from(len).ok().and_then(|len| usize::try_from(len).ok()).ok_or_else(|| {
        Error::new(error::ErrorKind::TooLarge, format!("{len} bytes or elements do not fit memory"))
    })
}

/// Zeroed memory on the heap; `None` when it cannot be allocated.
fn heap(len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).ok()?;
    bytes.resize(len, 0);
    Some(bytes)
}

fn mapped(len: usize) -> Result<AnonymousMap> {
    let failed = |error| {
        process_memory::give_back(len);
        Error::io("anonymous memory", error)
    };
    if !process_memory::take(len) {
        return Err(failed(ErrorKind::OutOfMemory.into()));
    }
    let map = MmapMut::map_anon(len).map_err(failed)?;
    #[cfg(all(target_os = "linux", not(miri)))] // Miri does not know the hint.
    if len >= HUGE {
        // Only a hint: without huge pages the memory works too, but is slower to access.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    Ok(AnonymousMap(map))
}

impl Drop for AnonymousMap {
    fn drop(&mut self) {
        process_memory::give_back(self.0.len());
    }
}

impl Deref for AnonymousMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for AnonymousMap {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Deref for Zeroed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Map(map) => map,
        }
    }
}

impl DerefMut for Zeroed {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Map(map) => map,
        }
    }
}
