//! Whether the files that a save would write are there already, byte for byte.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use crate::buffers::FileIdentity;
use crate::save::encode::WrittenModel;
use crate::save::plan::{Piece, PlannedFile};
use crate::util::cancel;
use crate::util::retry::{is_link, retried};

/// How much of a file is read at a time.
const PIECE: usize = 64 << 10;
/// How much is compared at a time.
const PART: usize = 4 << 10;

/// Files that have the bytes that would be written.
pub(super) struct SameFiles(Vec<(PathBuf, FileIdentity)>);

impl SameFiles {
    /// The model at `path` and the `files` beside it, where they are regular files with exactly the
    /// bytes of `model`, which has `len`, and of the plan. A save replaces links, so a link is no
    /// such file. No weights are made: of those without a buffer this is not known.
    pub(super) fn find(
        path: &Path,
        (len, model): (u64, &WrittenModel),
        files: &[PlannedFile<'_>],
    ) -> Option<Self> {
        let of_model = regular(path, len)?;
        let beside: Vec<_> = files.iter().map(|file| path.with_file_name(&file.name)).collect();
        // Most files differ in their lengths.
        let is_there = |(path, file): (&PathBuf, &PlannedFile<'_>)| regular(path, file.len);
        let identities: Vec<_> = beside.iter().zip(files).map(is_there).collect::<Option<_>>()?;
        let mut comparison = Comparison::new(File::open(path).ok()?);
        model.encode(&mut comparison).ok()?;
        let mut same = vec![(path.to_path_buf(), of_model)];
        for ((path, identity), file) in beside.into_iter().zip(identities).zip(files) {
            has_bytes(&path, &identity, file).ok()?;
            same.push((path, identity));
        }
        let same = Self(same);
        same.are_still().then_some(same)
    }

    /// Whether these are still the files at their paths, and nobody wrote to them.
    pub(super) fn are_still(&self) -> bool {
        self.0.iter().all(|(path, identity)| {
            let now = retried(|| path.symlink_metadata());
            let is_same = |now: Metadata| FileIdentity::at(path, &now) == *identity;
            now.is_ok_and(|now| !now.is_symlink() && is_same(now))
        })
    }

    /// Waits until they are on the disk: the program that wrote them may not have done so. Some
    /// file systems flush only files that are open for writing.
    pub(super) fn flush(&self) {
        for (path, _) in &self.0 {
            drop(File::open(path).and_then(|file| file.sync_all()));
        }
    }
}

/// The identity of the file at `path`, where it is a regular file of `len` bytes and no link.
fn regular(path: &Path, len: u64) -> Option<FileIdentity> {
    if is_link(path) {
        return None;
    }
    let is_alike = |metadata: &Metadata| metadata.is_file() && metadata.len() == len;
    let metadata = retried(|| path.metadata()).ok().filter(is_alike)?;
    Some(FileIdentity::at(path, &metadata))
}

/// Whether the file at `path` is no link and has the `len` bytes that `source` reads.
#[cfg(feature = "jobs")]
pub(crate) fn is_copy(path: &Path, mut source: impl io::Read, len: u64) -> bool {
    let has_len = regular(path, len).is_some();
    let mut compared = || io::copy(&mut source, &mut Comparison::new(File::open(path)?));
    has_len && compared().is_ok_and(|compared| compared == len)
}

/// Fails where the file at `path` has other bytes than `file`.
fn has_bytes(path: &Path, identity: &FileIdentity, file: &PlannedFile<'_>) -> io::Result<()> {
    let mut comparison = Comparison::new(File::open(path)?);
    let mut at = 0;
    for piece in &file.pieces {
        comparison.zeros(piece.offset.saturating_sub(at))?;
        if is_from(piece, identity) {
            comparison.skip(piece.initializer.byte_len())?;
        } else {
            let bytes = piece.initializer.as_buffer().ok_or_else(other)?;
            comparison.write_all(&bytes)?;
        }
        at = piece.end();
    }
    comparison.zeros(file.len.saturating_sub(at))
}

/// Whether the bytes of `piece` are those of the file of this identity, at their place.
fn is_from(piece: &Piece<'_>, identity: &FileIdentity) -> bool {
    let bytes = piece.initializer.as_buffer().filter(|bytes| bytes.is_settled());
    let source = bytes.as_ref().and_then(|bytes| bytes.source());
    source.is_some_and(|(place, of)| place.range.start == piece.offset && of == identity)
}

fn other() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Takes the bytes that a file has, and refuses others.
struct Comparison {
    file: BufReader<File>,
}

impl Comparison {
    fn new(file: File) -> Self {
        Self { file: BufReader::with_capacity(PIECE, file) }
    }

    /// Takes `len` zeros.
    fn zeros(&mut self, len: u64) -> io::Result<()> {
        let zeros = [0; PART];
        let mut left = len;
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(PART);
            self.write_all(zeros.get(..len).unwrap_or_default())?;
            left = left.saturating_sub(u64::try_from(len).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    /// Passes over `len` bytes.
    fn skip(&mut self, len: u64) -> io::Result<()> {
        self.file.seek_relative(i64::try_from(len).map_err(io::Error::other)?)
    }
}

impl Write for Comparison {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        cancel::check().map_err(io::Error::other)?;
        let mut found = [0; PART];
        for part in bytes.chunks(PART) {
            let found = found.get_mut(..part.len()).unwrap_or_default();
            self.file.read_exact(found)?;
            if found != part {
                return Err(other());
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
