//! The weights of M: ranges of buffers that others own, each at an address of its own.

use onnx_container_proto::{Alignment, Buffer, BufferMut};

use super::span::{Span, WEIGHTS, outside, round_up, slice, to_usize};
use crate::error::{Error, ErrorKind, Result};

/// The read-only part of M: the bytes of every constant, each at an address of its own.
#[derive(Debug, Clone, Default)]
pub struct Weights {
    ranges: Vec<(u64, Buffer)>,
    len: u64,
}

impl Weights {
    /// Gives `bytes` an address. They are shared, not copied, unless they are not aligned to
    /// `align` bytes: then elements cannot be read in place.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when the addresses do not suffice.
    pub fn add(&mut self, bytes: Buffer, align: usize) -> Result<u64> {
        let bytes = if bytes.as_ptr().align_offset(align) == 0 { bytes } else { aligned(&bytes)? };
        let (offset, len) = (WEIGHTS + self.len, bytes.len() as u64);
        self.len = round_up(self.len.saturating_add(len.max(1)));
        if self.len >= WEIGHTS {
            return Err(Error::new(ErrorKind::OutOfMemory, "the weights have too many bytes"));
        }
        self.ranges.push((offset, bytes));
        Ok(offset)
    }

    /// The length in bytes of all weights, with the gaps that align them.
    pub fn byte_len(&self) -> u64 {
        self.len
    }

    /// Forgets what was added after the weights had `len` bytes. Nothing may use it any more.
    #[doc(hidden)]
    pub fn truncate(&mut self, len: u64) {
        self.ranges.retain(|(offset, _)| *offset < WEIGHTS + len);
        self.len = len;
    }

    /// The bytes of `span`.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when no weight has them.
    #[doc(hidden)]
    pub fn read(&self, span: Span) -> Result<&[u8]> {
        let (offset, bytes) = self.range_of(span)?;
        slice(bytes, span, offset)
    }

    /// As [`read`](Self::read), as a part of the weight that has them.
    pub(crate) fn share(&self, span: Span) -> Result<Buffer> {
        let (offset, bytes) = self.range_of(span)?;
        let range = to_usize(span.offset - offset)?..to_usize(span.end() - offset)?;
        bytes.slice(range).ok_or_else(|| outside(span))
    }

    fn range_of(&self, span: Span) -> Result<(u64, &Buffer)> {
        let after = self.ranges.partition_point(|(offset, _)| *offset <= span.offset);
        let found = after.checked_sub(1).and_then(|i| self.ranges.get(i));
        found.map(|(offset, bytes)| (*offset, bytes)).ok_or_else(|| outside(span))
    }
}

/// A copy of `bytes` that starts at an aligned address.
fn aligned(bytes: &[u8]) -> Result<Buffer> {
    let mut copy = BufferMut::zeroed(bytes.len(), Alignment::CACHE_LINE)?;
    copy.copy_from_slice(bytes);
    Ok(copy.freeze())
}
