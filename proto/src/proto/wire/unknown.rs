//! [`Unknown`]: records of fields that the table does not have, and those that an outline leaves as
//! they are.

use std::io;

use super::outline::Gap;
use super::writer::Writer;
use crate::buffer::Buffer;

/// The records of a message whose field is unknown, or known with another wire type. They are kept
/// byte for byte, including groups, and written after the known fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Unknown(Option<Box<Kept>>);

/// Boxed, because nearly every message has none: so it takes 8 bytes.
#[derive(Debug, Clone, Default, PartialEq)]
struct Kept {
    records: Vec<Buffer>,
    /// In the order in which they were read.
    gaps: Vec<Gap>,
}

impl Unknown {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Whether there are no records, apart from those that an `Outline` leaves as
    /// they are.
    pub fn is_empty(&self) -> bool {
        self.records().is_empty()
    }

    /// Removes all records, also those that an `Outline` leaves as they are.
    pub fn clear(&mut self) {
        self.0 = None;
    }

    /// The bytes of each record, tag and value, in the order in which they were read.
    pub fn records(&self) -> &[Buffer] {
        self.0.as_deref().map_or(&[], |kept| &kept.records)
    }

    pub(crate) fn push(&mut self, record: Buffer) {
        self.0.get_or_insert_default().records.push(record);
    }

    #[inline]
    pub(super) fn gaps(&self) -> &[Gap] {
        self.0.as_deref().map_or(&[], |kept| &kept.gaps)
    }

    pub(super) fn push_gap(&mut self, gap: Gap) {
        self.0.get_or_insert_default().gaps.push(gap);
    }

    /// The length of the records, and of those in gaps.
    #[doc(hidden)]
    pub fn size(&self) -> u64 {
        let gaps = self.gaps().iter().map(|gap| &gap.bytes);
        self.records().iter().chain(gaps).map(|record| record.len() as u64).sum()
    }

    #[doc(hidden)]
    pub fn write(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        self.records().iter().try_for_each(|record| writer.bytes(record))
    }
}
