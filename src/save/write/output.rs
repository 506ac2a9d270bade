//! One new file, and the ways in which bytes get into it: written from memory, written past the
//! page cache, or copied by the system from another file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::batch::Batch;
use super::direct::{Bounces, Direct};
use super::holes::hole_bytes;
use super::origin::Run;
use crate::error::{Error, Result};
use crate::save::gather::weights::became_shorter;
use crate::save::options::SaveOptions;
use crate::save::plan::PlannedFile;
use crate::save::target::publish::NewFile;

/// Files of fewer bytes are written at once: their blocks are not allocated before, and no byte is
/// direct.
const SMALL: u64 = 1 << 20;

/// A new file that is written to.
pub(crate) struct Output {
    file: File,
    /// For messages.
    path: PathBuf,
    direct: Option<Direct>,
    /// Whether the system copies from other files into this one.
    copies: AtomicBool,
    /// Whether a mapped file that bytes come from has holes.
    keeps_holes: bool,
}

impl Output {
    /// A new, empty file. Blocks are allocated, so that a full disk is detected before the copy,
    /// unless extents are shared or holes are kept.
    pub(crate) fn new(new: NewFile, plan: &PlannedFile<'_>, options: &SaveOptions) -> Result<Self> {
        let NewFile { file, staged, path } = new;
        let direct = options.sync && options.direct_io && plan.len >= SMALL;
        let direct = direct.then(|| Direct::open(&staged)).flatten();
        let mapped = plan.pieces.iter().any(|piece| piece.initializer.file_range().is_some());
        let shares = mapped && shares_extents(&file);
        let copies = mapped && (direct.is_none() || shares);
        let keeps_holes = mapped && hole_bytes(plan) > 0;
        // Extents that will be shared need no blocks of their own, and holes none.
        let reserved = reserve(&file, plan, !shares && !keeps_holes);
        reserved.map_err(|error| Error::io(&path, error))?;
        Ok(Self { file, path, direct, copies: AtomicBool::new(copies), keeps_holes })
    }

    /// Whether holes of mapped files are looked for, to be left out.
    pub(super) fn keeps_holes(&self) -> bool {
        self.keeps_holes
    }

    /// Writes the batch at its place.
    pub(super) fn write(&self, batch: &Batch) -> Result<()> {
        let mut slices = batch.slices().map_err(|error| error.with_path(&self.path))?;
        write_all(&self.file, &mut slices, batch.start()).map_err(|e| self.error(e))
    }

    /// Which of `len` bytes that go to the offset `at` are written past the page cache.
    pub(super) fn direct_part(&self, len: usize, at: u64) -> Range<usize> {
        self.direct.as_ref().map_or(0..0, |direct| direct.part(len, at))
    }

    /// Writes `bytes`, a [direct part](Self::direct_part), to the offset `at`; returns how many
    /// were written. Fewer are written only where the file system refuses direct writes after all.
    /// They may also be in the file `origin` at an offset.
    pub(super) fn write_direct(
        &self,
        bytes: &[u8],
        at: u64,
        bounces: &Bounces,
        origin: Option<(Arc<File>, u64)>,
    ) -> Result<usize> {
        let Some(direct) = &self.direct else { return Ok(0) };
        direct.write(bytes, at, bounces, origin)?.map_err(|e| self.error(e))
    }

    /// Whether the system is asked to copy `run`. Where writes are direct, only extents that can be
    /// shared are faster.
    pub(super) fn may_copy(&self, run: &Run) -> bool {
        self.copies.load(Ordering::Relaxed) && (self.direct.is_none() || run.is_shareable())
    }

    /// Has the system copy `len` bytes at the offset `source` of `origin` to the offset `at`, and
    /// returns how many were copied.
    #[cfg(target_os = "linux")]
    pub(super) fn copy(
        &self,
        origin: &File,
        mut source: u64,
        mut at: u64,
        len: usize,
    ) -> Result<usize> {
        use rustix::io::Errno;
        let mut done = 0;
        while done < len {
            let (from, to) = (Some(&mut source), Some(&mut at));
            match rustix::fs::copy_file_range(origin, from, &self.file, to, len - done) {
                // The source ended, or the file system only pretends to copy.
                Ok(0) => break,
                Ok(copied) => done = done.saturating_add(copied),
                Err(Errno::INTR) => {}
                Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO)) => {
                    return Err(self.error(error.into()));
                }
                // Two file systems, or one that cannot copy.
                Err(_) => {
                    self.copies.store(false, Ordering::Relaxed);
                    break;
                }
            }
        }
        Ok(done)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn copy(&self, _: &File, _: u64, _: u64, _: usize) -> Result<usize> {
        Ok(0)
    }

    fn error(&self, error: io::Error) -> Error {
        // The map of a file that was cut off has no bytes there.
        let cut_off = error.kind() == io::ErrorKind::UnexpectedEof || is_fault(&error);
        if cut_off { became_shorter().with_path(&self.path) } else { Error::io(&self.path, error) }
    }
}

#[cfg(unix)]
fn is_fault(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::FAULT.raw_os_error())
}

#[cfg(not(unix))]
fn is_fault(_: &io::Error) -> bool {
    false
}

/// Sets the file's length, and allocates its blocks if `is_allocated`. A small file gets both by
/// being written.
fn reserve(file: &File, plan: &PlannedFile<'_>, is_allocated: bool) -> io::Result<()> {
    let written = plan.pieces.last().map_or(0, |piece| piece.end());
    if plan.len >= SMALL || written < plan.len {
        file.set_len(plan.len)?;
    }
    if is_allocated { allocate(file, plan.len) } else { Ok(()) }
}

/// Allocates `len` bytes of blocks of a file. Where the file system does not support this, or the
/// file is small, blocks are allocated as they are written.
#[cfg(target_os = "linux")]
fn allocate(file: &File, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    if len < SMALL {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, len) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::unnecessary_wraps)] // as on Linux
fn allocate(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}

/// Whether the file system lets two files have the same extents: btrfs and XFS, by their magic
/// numbers.
#[cfg(target_os = "linux")]
fn shares_extents(file: &File) -> bool {
    const MAGIC: [u32; 2] = [0x9123_683E, 0x5846_5342];
    let found = rustix::fs::fstatfs(file).ok().and_then(|found| u32::try_from(found.f_type).ok());
    found.is_some_and(|magic| MAGIC.contains(&magic))
}

#[cfg(not(target_os = "linux"))]
fn shares_extents(_: &File) -> bool {
    false
}

/// Writes `bytes` to the offset `at` of `file`.
#[cfg(feature = "jobs")]
pub(crate) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    write_all(file, &mut [io::IoSlice::new(bytes)], at)
}

/// Makes a file of `len` bytes, all zero, whose blocks are allocated where the file system can.
#[cfg(feature = "jobs")]
pub(in crate::save) fn create_whole(path: &std::path::Path, len: u64) -> io::Result<File> {
    let file = File::create_new(path)?;
    file.set_len(len)?;
    allocate(&file, len)?;
    Ok(file)
}

/// Writes all of `slices` to the offset `at`.
#[cfg(unix)]
fn write_all(file: &File, mut slices: &mut [io::IoSlice<'_>], mut at: u64) -> io::Result<()> {
    while !slices.is_empty() {
        match rustix::io::pwritev(file, slices, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                io::IoSlice::advance_slices(&mut slices, written);
                at = at.saturating_add(written as u64);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(windows)]
fn write_all(file: &File, slices: &mut [io::IoSlice<'_>], mut at: u64) -> io::Result<()> {
    for slice in slices {
        let mut bytes: &[u8] = slice;
        while !bytes.is_empty() {
            let n = std::os::windows::fs::FileExt::seek_write(file, bytes, at)?;
            bytes = bytes.get(n..).filter(|_| n > 0).ok_or(io::ErrorKind::WriteZero)?;
            at = at.saturating_add(u64::try_from(n).map_err(io::Error::other)?);
        }
    }
    Ok(())
}
