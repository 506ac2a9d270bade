//! Refuses plans that write out of all proportion to the weights that there are.

use super::layout::PlannedFile;
use crate::error::{Error, ErrorKind, Result};
use crate::files::overlaps::{FEW_BYTES, MOST_USES, refused};
use crate::tensor::initializer::Initializer;
use crate::util::byte_size::ByteSize;

/// Refuses `files` that are long because of an alignment, and not because of what is in them.
pub(super) fn refuse_padding(files: &[PlannedFile<'_>]) -> Result<()> {
    let len = files.iter().map(|file| file.len).fold(0, u64::saturating_add);
    let lengths = files.iter().flat_map(PlannedFile::initializers).map(Initializer::byte_len);
    let bytes = lengths.fold(0, u64::saturating_add);
    if len <= FEW_BYTES.max(bytes.saturating_mul(MOST_USES)) {
        return Ok(());
    }
    let reason = format!(
        "the alignment would make files of {} for {} of weights: choose a smaller one",
        ByteSize(len),
        ByteSize(bytes)
    );
    Err(Error::new(ErrorKind::InvalidArgument, reason))
}

/// Refuses a save that would write these initializers, each once for each place where it goes, when
/// they overlap so much that a small model and its weights would fill a disk.
pub(super) fn refuse_overlaps<'i>(written: impl Iterator<Item = &'i Initializer>) -> Result<()> {
    let range = |initializer: &Initializer| {
        let (source, start) = initializer.address()?.parts();
        Some((source, start, initializer.byte_len()))
    };
    refused(written.filter_map(range).collect(), "written").map_or(Ok(()), Err)
}
