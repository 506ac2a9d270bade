//! Ranges of M, and the arithmetic of their addresses.

use crate::error::{Error, Result};

/// The first address of the weights; the arena lies below it.
pub const WEIGHTS: u64 = 1 << 46;

/// The number of the content of the weights of the model, which never change.
pub const WEIGHT: u64 = 0;

/// Every tensor starts at a multiple of this many bytes.
pub const ALIGNMENT: u64 = 64;

/// A range of M: the bytes of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The address of its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Span {
    pub(super) fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.len > 0 && other.len > 0 && self.offset < other.end() && other.offset < self.end()
    }

    /// Whether it lies among the weights.
    pub fn is_weight(self) -> bool {
        self.offset >= WEIGHTS
    }
}

pub(super) fn slice(bytes: &[u8], span: Span, start: u64) -> Result<&[u8]> {
    let from = to_usize(span.offset - start)?;
    let to = to_usize(span.end() - start)?;
    bytes.get(from..to).ok_or_else(|| outside(span))
}

pub(super) fn outside(span: Span) -> Error {
    Error::internal(format!("bytes {} to {} are not in memory", span.offset, span.end()))
}

pub(super) fn round_up(len: u64) -> u64 {
    len.div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT)
}

pub(super) fn to_usize(value: u64) -> Result<usize> {
    usize::try_from(value).map_err(|_| Error::internal("a length of more than 64 bits"))
}
