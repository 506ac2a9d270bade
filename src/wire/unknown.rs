//! [`Unknown`]: records of fields that the table does not have.

use std::io;

use super::writer::Writer;
use crate::buffer::Buffer;

/// The records of a message whose field is unknown, or known with another wire type. They are kept byte
/// for byte, including groups, and written after the known fields.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::box_collection, reason = "empty in nearly every message, so it takes 8 bytes")]
pub struct Unknown(Option<Box<Vec<Buffer>>>);

impl Unknown {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Removes all records.
    pub fn clear(&mut self) {
        self.0 = None;
    }

    /// The bytes of each record, tag and value, in the order in which they were read.
    pub fn records(&self) -> &[Buffer] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn push(&mut self, record: Buffer) {
        self.0.get_or_insert_default().push(record);
    }

    #[doc(hidden)]
    pub fn size(&self) -> u64 {
        self.records().iter().map(|record| record.len() as u64).sum()
    }

    #[doc(hidden)]
    pub fn write(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        self.records().iter().try_for_each(|record| writer.bytes(record))
    }
}
