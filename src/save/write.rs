//! The copy engine: from initializers to the bytes of a file.
//!
//! A file is cut into shares that a few threads write at their own offsets. Large tensors go
//! straight from where they lie; small ones, and the padding between them, are gathered first,
//! because a call per tensor is what makes many small tensors slow.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::buffer::Buffer;
use crate::error::{Error, ErrorKind, Result};
use crate::initializer::Initializer;
use crate::save::options::{Progress, SaveOptions};
use crate::save::plan::{Piece, PlannedFile};

/// What a thread writes before it looks for more, in bytes.
const SHARE: u64 = 32 << 20;
/// What is gathered before it is written, and read at a time from an initializer without a buffer.
const GATHER: usize = 1 << 20;
/// From this length in bytes on, a tensor is written straight from memory.
const DIRECT: u64 = 64 << 10;
/// More threads than this do not write faster.
const MAX_THREADS: usize = 4;

/// Counts bytes and tells the caller of the save, who may cancel.
pub(crate) struct Meter<'o> {
    options: &'o SaveOptions,
    done: AtomicU64,
    total: u64,
    cancelled: AtomicBool,
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the save was cancelled")
}

impl<'o> Meter<'o> {
    pub(crate) fn new(options: &'o SaveOptions, total: u64) -> Self {
        Self { options, done: AtomicU64::new(0), total, cancelled: AtomicBool::new(false) }
    }

    fn add(&self, bytes: u64) -> Result<()> {
        let Some(report) = &self.options.progress else { return Ok(()) };
        let done = self.done.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        match report(Progress { done, total: self.total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                self.cancelled.store(true, Ordering::Relaxed);
                Err(cancelled())
            }
        }
    }

    /// `error`, or that the save was cancelled: an `io::Error` on its way here does not say so.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if self.cancelled.load(Ordering::Relaxed) { cancelled() } else { error }
    }
}

/// Writes the pieces of `plan` to the new, empty `file`; `path` is for messages.
pub(crate) fn write_file(
    plan: &PlannedFile<'_>,
    file: &File,
    path: &Path,
    meter: &Meter<'_>,
) -> Result<()> {
    reserve(file, plan.len).map_err(|e| Error::io(path, e))?;
    let next = AtomicU64::new(0);
    let failed = AtomicUsize::new(0);
    let work = || -> Result<()> {
        let mut writer = Writer { file, path, meter, gathered: Vec::new(), at: 0 };
        while failed.load(Ordering::Relaxed) == 0 {
            let start = next.fetch_add(SHARE, Ordering::Relaxed);
            if start >= plan.len {
                break;
            }
            let end = start.saturating_add(SHARE).min(plan.len);
            writer.share(&plan.pieces, start, end).inspect_err(|_| {
                failed.fetch_add(1, Ordering::Relaxed);
            })?;
        }
        Ok(())
    };
    run(threads_for(plan.len), &work)
}

fn threads_for(len: u64) -> usize {
    let shares = usize::try_from(len.div_ceil(SHARE)).unwrap_or(usize::MAX);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    shares.min(cores).clamp(1, MAX_THREADS)
}

/// Runs `work` on `threads` threads, this one among them; the first error of any is returned.
fn run(threads: usize, work: &(impl Fn() -> Result<()> + Sync)) -> Result<()> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut result = work();
        for other in others {
            let panicked = || Err(Error::internal("a writing thread panicked"));
            result = result.and(other.join().unwrap_or_else(|_| panicked()));
        }
        result
    })
}

/// Sets the file's length and takes its blocks, so that a full disk is found before the copy.
fn reserve(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len)?;
    #[cfg(target_os = "linux")]
    if len > 0 {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        // Not every file system can; then blocks are taken as they are written.
        let taken = fallocate(file, FallocateFlags::empty(), 0, len);
        if let Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) = taken {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Writes shares of one file.
struct Writer<'w, 'o> {
    file: &'w File,
    path: &'w Path,
    meter: &'w Meter<'o>,
    gathered: Vec<u8>,
    /// The offset of the gathered bytes.
    at: u64,
}

impl Writer<'_, '_> {
    /// Writes what `pieces` put between `start` and `end`.
    fn share(&mut self, pieces: &[Piece<'_>], start: u64, end: u64) -> Result<()> {
        let first = pieces.partition_point(|piece| piece_end(piece) <= start);
        for piece in pieces.iter().skip(first).take_while(|piece| piece.offset < end) {
            let from = start.max(piece.offset);
            let to = end.min(piece_end(piece));
            self.part(piece, from, to.max(from))?;
        }
        self.flush()
    }

    /// Writes the bytes of `piece` that lie between `from` and `to` in the file.
    fn part(&mut self, piece: &Piece<'_>, from: u64, to: u64) -> Result<()> {
        let skip = from - piece.offset;
        match piece.initializer.as_buffer() {
            Some(bytes) => {
                let bytes = part_of(&bytes, skip, to - from)?;
                if to - from >= DIRECT {
                    self.direct(&bytes, from)
                } else {
                    self.gather(&bytes, from)
                }
            }
            None => self.read(&piece.initializer, skip, from, to),
        }
    }

    fn direct(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        self.flush()?;
        let mut at = at;
        for chunk in bytes.chunks(8 << 20) {
            self.write(chunk, at)?;
            at = at.saturating_add(length(chunk));
        }
        Ok(())
    }

    /// Adds `bytes` to what is gathered, after the padding that lies between.
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

    /// Copies an initializer whose bytes do not lie in one piece, a chunk at a time.
    fn read(&mut self, initializer: &Initializer, skip: u64, from: u64, to: u64) -> Result<()> {
        let room = usize::try_from(to - from).map_or(GATHER, |len| len.min(GATHER));
        let mut chunk = vec![0; room];
        if to - from < DIRECT {
            initializer.read_at(skip, &mut chunk)?;
            return self.gather(&chunk, from);
        }
        self.flush()?;
        let (mut skip, mut at) = (skip, from);
        while at < to {
            let len = usize::try_from(to - at).map_or(GATHER, |left| left.min(GATHER));
            let chunk = chunk.get_mut(..len).unwrap_or_default();
            initializer.read_at(skip, chunk)?;
            self.write(chunk, at)?;
            skip = skip.saturating_add(length(chunk));
            at = at.saturating_add(length(chunk));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.gathered.is_empty() {
            self.write(&self.gathered, self.at)?;
            self.gathered.clear();
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        write_all_at(self.file, bytes, at).map_err(|e| Error::io(self.path, e))?;
        self.meter.add(length(bytes))
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn piece_end(piece: &Piece<'_>) -> u64 {
    piece.offset.saturating_add(piece.initializer.byte_len())
}

/// `len` bytes from `skip` on: a plan and its buffer can only disagree when an owner shrank.
fn part_of(bytes: &Buffer, skip: u64, len: u64) -> Result<Buffer> {
    let start = usize::try_from(skip).ok();
    let end = skip.checked_add(len).and_then(|end| usize::try_from(end).ok());
    start.zip(end).and_then(|(start, end)| bytes.slice(start..end)).ok_or_else(|| {
        Error::new(ErrorKind::OutOfBounds, "an initializer became shorter while it was saved")
    })
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

/// A writer that feeds the meter, for the model itself.
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
        let bytes = bytes.get(..bytes.len().min(8 << 20)).unwrap_or_default();
        let n = self.file.write(bytes)?;
        self.meter.add(u64::try_from(n).unwrap_or(0)).map_err(io::Error::other)?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
