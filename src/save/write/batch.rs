//! Bytes that are written with one call: parts of pieces that follow each other in a file, and the
//! zeros between them.

use std::io::IoSlice;

use crate::buffer::Buffer;
use crate::error::Result;
use crate::save::gather::weights::became_shorter;

/// The longest padding that is written between two parts. A longer one stays a hole.
static ZEROS: [u8; 4096] = [0; 4096];
/// So many parts, each with the padding before it, are at most what a call of the system takes:
/// 1,024 slices.
const MOST: usize = 512;

/// Bytes and their offset in the file.
pub(super) struct BatchPart {
    bytes: Buffer,
    at: u64,
}

impl BatchPart {
    pub(super) fn new(bytes: Buffer, at: u64) -> Self {
        Self { bytes, at }
    }
}

/// Parts in the order of their offsets, without overlap.
#[derive(Default)]
pub(super) struct Batch {
    parts: Vec<BatchPart>,
    /// The offset of the first part.
    start: u64,
    /// The length of the parts and the padding between them in bytes.
    len: usize,
}

impl Batch {
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether `part` can be written with the others.
    pub(super) fn takes(&self, part: &BatchPart) -> bool {
        self.parts.is_empty() || (self.parts.len() < MOST && self.padding(part).is_some())
    }

    /// Adds a part that the batch takes.
    pub(super) fn push(&mut self, part: BatchPart) {
        if self.parts.is_empty() {
            self.start = part.at;
        }
        let padding = self.padding(&part).map_or(0, <[u8]>::len);
        self.len = self.len.saturating_add(padding).saturating_add(part.bytes.span());
        self.parts.push(part);
    }

    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.len = 0;
    }

    /// The bytes to be written from the start on.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds) when the owner of a part now has
    /// fewer bytes.
    pub(super) fn slices(&self) -> Result<Vec<IoSlice<'_>>> {
        let mut slices = Vec::with_capacity(self.parts.len().saturating_mul(2));
        let mut end = self.start;
        for part in &self.parts {
            if part.bytes.len() != part.bytes.span() {
                return Err(became_shorter());
            }
            let padding = zeros(end, part.at).ok_or_else(became_shorter)?;
            if !padding.is_empty() {
                slices.push(IoSlice::new(padding));
            }
            slices.push(IoSlice::new(&part.bytes));
            end = part.at.saturating_add(part.bytes.span() as u64);
        }
        Ok(slices)
    }

    /// The padding between the last part and `part`.
    fn padding(&self, part: &BatchPart) -> Option<&'static [u8]> {
        zeros(self.start.saturating_add(self.len as u64), part.at)
    }
}

/// Zeros for the bytes of a file between two offsets, if they are few.
fn zeros(from: u64, to: u64) -> Option<&'static [u8]> {
    let len = usize::try_from(to.checked_sub(from)?).ok()?;
    ZEROS.get(..len)
}
