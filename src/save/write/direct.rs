//! Writes past the page cache, for saves that wait for the disk.
//!
//! A durable save through the page cache copies every byte and then waits until the copy is on the
//! disk. Direct I/O writes large pieces from the memory that holds them. The system takes only
//! whole blocks at addresses of whole blocks: bytes at other addresses are copied to aligned memory
//! first, and the parts of a block at either end of a piece are left to the caller. Linux only;
//! elsewhere nothing is direct.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::buffer::Alignment;
use crate::buffer::BufferMut;
use crate::error::Result;

/// Offsets, lengths and addresses are multiples of this: the largest block of common disks, and a
/// page.
const BLOCK: usize = 4096;
/// Shorter pieces, in bytes, are faster through the page cache.
const LEAST: usize = 1 << 20;
/// The length of aligned memory that is filled and then written.
const BOUNCE: usize = 4 << 20;

/// A file opened for direct I/O.
pub(super) struct Direct {
    file: File,
    /// Set when the file system accepted the open file, but not a write.
    refused: AtomicBool,
}

impl Direct {
    /// Opens the file at `path` for direct writes; `None` where that is not supported.
    #[cfg(target_os = "linux")]
    pub(super) fn open(path: &Path) -> Option<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).ok()?;
        let file = File::options().write(true).custom_flags(flags).open(path).ok()?;
        Some(Self { file, refused: AtomicBool::new(false) })
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn open(_: &Path) -> Option<Self> {
        None
    }

    /// Which of `len` bytes at the offset `at` of the file can be written directly.
    pub(super) fn part(&self, len: usize, at: u64) -> Range<usize> {
        if len < LEAST || self.refused.load(Ordering::Relaxed) {
            return 0..0;
        }
        let block = BLOCK as u64;
        let end = at.saturating_add(len as u64);
        let in_piece = |offset: u64| usize::try_from(offset.saturating_sub(at)).unwrap_or(0);
        in_piece(at.next_multiple_of(block))..in_piece(end - end % block)
    }

    /// Writes `bytes`, whole blocks that are also in the file `origin` at an offset, to the offset
    /// `at`, and returns how many were written. Fewer are written only where the file system
    /// refuses direct writes after all.
    pub(super) fn write(
        &self,
        bytes: &[u8],
        at: u64,
        bounces: &Bounces,
        origin: Option<(Arc<File>, u64)>,
    ) -> Result<io::Result<usize>> {
        if self.refused.load(Ordering::Relaxed) {
            return Ok(Ok(0));
        }
        if bytes.as_ptr().addr().is_multiple_of(BLOCK) {
            return Ok(self.write_aligned(bytes, at));
        }
        let mut bounce = bounces.take()?;
        let mut done: usize = 0;
        for chunk in bytes.chunks(BOUNCE) {
            let Some(memory) = bounce.get_mut(..chunk.len()) else { break };
            let filled = match &origin {
                Some((file, start)) => {
                    read_exact_at(file, memory, start.saturating_add(done as u64))
                }
                None => {
                    memory.copy_from_slice(chunk);
                    Ok(())
                }
            };
            if let Err(error) = filled {
                return Ok(Err(error));
            }
            match self.write_aligned(memory, at.saturating_add(done as u64)) {
                Ok(written) => done = done.saturating_add(written),
                failed @ Err(_) => return Ok(failed),
            }
            if self.refused.load(Ordering::Relaxed) {
                break;
            }
        }
        bounces.give_back(bounce);
        Ok(Ok(done))
    }

    #[cfg(unix)]
    fn write_aligned(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.file.write_at(rest, at.saturating_add(done as u64)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done = done.saturating_add(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_refusal(&error) => {
                    self.refused.store(true, Ordering::Relaxed);
                    break;
                }
                Err(error) => return Err(error),
            }
            // After a part of a block no direct write can follow.
            if !done.is_multiple_of(BLOCK) {
                self.refused.store(true, Ordering::Relaxed);
                break;
            }
        }
        Ok(done)
    }

    #[cfg(not(unix))]
    fn write_aligned(&self, _: &[u8], _: u64) -> io::Result<usize> {
        self.refused.store(true, Ordering::Relaxed);
        Ok(0)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

#[cfg(not(unix))]
fn read_exact_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether direct I/O is refused, rather than the write.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// Aligned memory that threads take in turn.
#[derive(Default)]
pub(super) struct Bounces(Mutex<Vec<BufferMut>>);

impl Bounces {
    fn take(&self) -> Result<BufferMut> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.map_or_else(|| BufferMut::zeroed(BOUNCE, Alignment::PAGE), Ok)
    }

    fn give_back(&self, bounce: BufferMut) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bounce);
    }
}
