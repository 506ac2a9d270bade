//! The copy engine: from initializers to the bytes of a file.
//!
//! A file is cut into shares, which a few threads write at their own offsets. Large tensors are
//! written directly from memory; small ones, and the padding between them, are gathered first,
//! because one write call per tensor is slow for many small tensors.

use std::fs::File;
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::parallel;
use crate::save::options::SaveOptions;
use crate::save::plan::{Piece, PlannedFile};
use crate::save::produce::Ahead;
use crate::save::progress::{Progress, cancelled};
use crate::save::weights::became_shorter;

/// The length of a share in bytes.
const SHARE: u64 = 32 << 20;
/// How many bytes are gathered before a write, and read at a time from an initializer without a buffer.
const GATHER: usize = 1 << 20;
/// A tensor of at least this many bytes is written directly from memory.
const DIRECT: u64 = 64 << 10;
/// More threads than this do not write faster.
const MAX_THREADS: usize = 4;

/// Counts bytes and reports them to the caller of the save, who may cancel.
pub(crate) struct Meter<'o> {
    options: &'o SaveOptions,
    /// Locked while the caller is called, so that the reported number never decreases.
    done: Mutex<u64>,
    total: u64,
    cancelled: AtomicBool,
}

impl<'o> Meter<'o> {
    pub(crate) fn new(options: &'o SaveOptions, total: u64) -> Self {
        Self { options, done: Mutex::new(0), total, cancelled: AtomicBool::new(false) }
    }

    fn add(&self, bytes: u64) -> Result<()> {
        if bytes > 0 { self.tell(bytes) } else { Ok(()) }
    }

    /// Reports `bytes` more to the caller.
    fn tell(&self, bytes: u64) -> Result<()> {
        let Some(report) = &self.options.progress else { return Ok(()) };
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(cancelled());
        }
        *done = done.saturating_add(bytes);
        match report(Progress { done: *done, total: self.total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                self.cancelled.store(true, Ordering::Relaxed);
                Err(cancelled())
            }
        }
    }

    /// Reports the progress without new bytes, so that the caller can cancel before the first file is
    /// created, and when all files are complete and about to be renamed.
    pub(crate) fn step(&self) -> Result<()> {
        self.tell(0)
    }

    /// The error of a cancellation if the save was cancelled, which the `io::Error` in `error` does
    /// not show; otherwise `error`.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if self.cancelled.load(Ordering::Relaxed) { cancelled() } else { error }
    }
}

/// Writes the pieces of `plan` to the new, empty `file`; `path` is for messages.
pub(crate) fn write_file(
    plan: &PlannedFile<'_>,
    file: &File,
    path: &Path,
    ahead: &Ahead<'_>,
    meter: &Meter<'_>,
) -> Result<()> {
    reserve(file, plan.len).map_err(|e| Error::io(path, e))?;
    let shares = plan.len.div_ceil(SHARE);
    let threads = parallel::cores(MAX_THREADS).min(usize::try_from(shares).unwrap_or(MAX_THREADS));
    parallel::for_each(threads, 0..shares, |number| {
        let start = number.saturating_mul(SHARE);
        let end = start.saturating_add(SHARE).min(plan.len);
        let out = Output { file, path, ahead, meter };
        Writer { out, gathered: Vec::new(), at: 0, written: 0 }.share(&plan.pieces, start..end)
    })
}

/// Sets the file's length and allocates its blocks, so that a full disk is detected before the copy.
fn reserve(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len)?;
    #[cfg(target_os = "linux")]
    if len > 0 {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        // Where the file system does not support this, blocks are allocated as they are written.
        let taken = fallocate(file, FallocateFlags::empty(), 0, len);
        if let Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) = taken {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Writes a share of a file.
struct Writer<'w> {
    out: Output<'w>,
    gathered: Vec<u8>,
    /// The offset of the gathered bytes.
    at: u64,
    /// How many bytes of the share are written.
    written: u64,
}

/// A file, the producer of its lazy pieces, and the meter that counts what is written.
struct Output<'w> {
    file: &'w File,
    path: &'w Path,
    ahead: &'w Ahead<'w>,
    meter: &'w Meter<'w>,
}

impl Writer<'_> {
    /// Writes the parts of `pieces` that are in `share`, a range of the file. The bytes between pieces are
    /// already zero and count as written.
    fn share(&mut self, pieces: &[Piece<'_>], share: Range<u64>) -> Result<()> {
        let first = pieces.partition_point(|piece| piece.end() <= share.start);
        for piece in pieces.iter().skip(first).take_while(|piece| piece.offset < share.end) {
            let part = share.start.max(piece.offset)..share.end.min(piece.end());
            if !part.is_empty() {
                self.part(piece, part)?;
            }
        }
        self.flush()?;
        let padding = (share.end - share.start).checked_sub(self.written);
        self.out.meter.add(padding.ok_or_else(|| Error::internal("pieces of a file overlap"))?)
    }

    /// Writes the bytes of `piece` that are in `part` of the file.
    fn part(&mut self, piece: &Piece<'_>, part: Range<u64>) -> Result<()> {
        let (skip, len) = (part.start - piece.offset, part.end - part.start);
        if let Some(made) = self.out.ahead.bytes_of(piece)? {
            self.bytes(part_of(&made, skip, len)?, part.start)?;
            drop(made);
            self.out.ahead.wrote(piece, len);
            return Ok(());
        }
        match piece.initializer.as_buffer() {
            Some(bytes) => {
                let bytes = part_of(&bytes, skip, len).map_err(|error| piece.name_in(error))?;
                self.bytes(bytes, part.start)
            }
            None => self.read(piece, skip, part),
        }
    }

    fn bytes(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        if length(bytes) < DIRECT {
            return self.gather(bytes, at);
        }
        self.flush()?;
        let mut at = at;
        for chunk in bytes.chunks(8 << 20) {
            self.write(chunk, at)?;
            at = at.saturating_add(length(chunk));
        }
        Ok(())
    }

    /// Adds `bytes`, after the padding before them, to the gathered bytes.
    fn gather(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        let gap = at.checked_sub(self.at.saturating_add(length(&self.gathered)));
        let gap = gap.and_then(|gap| usize::try_from(gap).ok());
        let fits = |gap: usize| gap.saturating_add(self.gathered.len()) <= GATHER;
        match gap.filter(|gap| !self.gathered.is_empty() && fits(*gap)) {
            Some(gap) => self.gathered.resize(self.gathered.len() + gap, 0),
            None => {
                self.flush()?;
                self.at = at;
            }
        }
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= GATHER { self.flush() } else { Ok(()) }
    }

    /// Copies an initializer whose bytes are not in one buffer, a chunk at a time.
    fn read(&mut self, piece: &Piece<'_>, skip: u64, part: Range<u64>) -> Result<()> {
        let mut chunk = vec![0; part_len(&part, part.start)];
        let (mut skip, mut at) = (skip, part.start);
        while at < part.end {
            chunk.truncate(part_len(&part, at));
            let read = piece.initializer.read_at(skip, &mut chunk);
            read.map_err(|error| piece.name_in(error))?;
            self.bytes(&chunk, at)?;
            skip = skip.saturating_add(length(&chunk));
            at = at.saturating_add(length(&chunk));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.gathered.is_empty() {
            let gathered = std::mem::take(&mut self.gathered);
            self.write(&gathered, self.at)?;
            self.gathered = gathered;
            self.gathered.clear();
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        write_all_at(self.out.file, bytes, at).map_err(|e| Error::io(self.out.path, e))?;
        self.written = self.written.saturating_add(length(bytes));
        self.out.meter.add(length(bytes))
    }
}

fn length(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

/// How many bytes of `part` are read at a time from `at` on.
fn part_len(part: &Range<u64>, at: u64) -> usize {
    usize::try_from(part.end.saturating_sub(at)).map_or(GATHER, |left| left.min(GATHER))
}

/// `len` bytes from `skip` on.
fn part_of(bytes: &[u8], skip: u64, len: u64) -> Result<&[u8]> {
    let start = usize::try_from(skip).ok();
    let end = skip.checked_add(len).and_then(|end| usize::try_from(end).ok());
    let part = start.zip(end).and_then(|(start, end)| bytes.get(start..end));
    part.ok_or_else(became_shorter)
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_write(file, bytes, at)?;
        bytes = bytes.get(n..).filter(|_| n > 0).ok_or(io::ErrorKind::WriteZero)?;
        at = at.saturating_add(u64::try_from(n).map_err(io::Error::other)?);
    }
    Ok(())
}

/// A writer that reports to the meter, for the model file.
pub(crate) struct Metered<'m, 'o> {
    file: &'m File,
    meter: &'m Meter<'o>,
}

impl<'m, 'o> Metered<'m, 'o> {
    pub(crate) fn new(file: &'m File, meter: &'m Meter<'o>) -> Self {
        Self { file, meter }
    }
}

impl Write for Metered<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Bounded, so that an embedded tensor of gigabytes shows progress and can be cancelled.
        let (first, _) = bytes.split_at_checked(8 << 20).unwrap_or((bytes, &[]));
        let n = self.file.write(first)?;
        self.meter.add(n as u64).map_err(io::Error::other)?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
