//! Enums, whose values are a closed set: what is not in it is no value of the field.
//!
//! onnx.proto is written in proto2. There the official parsers, and so every reader of ONNX, do not
//! store a value that the enum does not have: they keep its record among the unknown ones, and the
//! field stays as it was. To store the last value, as other fields do, would let one file be two
//! models: a tensor with `data_location` 1 and then 2 is external for them.

use super::budget::Budget;
use super::field::FieldInfo;
use super::number::low_half;
use super::reader::{Reader, Tag, Wire};
use super::unknown::Unknown;
use super::{DecodeOptions, Message};
use crate::buffer::Buffer;

/// The field of an enum: its number, and the largest value.
pub type Closed = (u32, i32);

/// The enum among `fields`; no message has two.
pub(super) const fn among(fields: &[FieldInfo]) -> Option<Closed> {
    let mut rest = fields;
    while let [field, others @ ..] = rest {
        if let Some(last) = field.last {
            return Some((field.number, last));
        }
        rest = others;
    }
    None
}

/// Whether the record whose tag was just read has a value that its enum does not have. `false`
/// where it is not the record of an enum, or is malformed, which reading it finds.
#[inline]
pub(super) fn is_no_value<M: Message>(tag: Tag, reader: &Reader<'_>) -> bool {
    let Some((number, last)) = M::ENUM else { return false };
    tag.number() == number && tag.wire() == Wire::Varint && !is_value(reader, last)
}

/// Whether a record of the enum with a value that it does not have is among the `unknown` ones of
/// an `M`. Readers that are not made with an official library may take it for the value of the
/// field.
pub fn has_no_value<M: Message>(unknown: &Unknown) -> bool {
    let options = DecodeOptions::default();
    let budget = Budget::new(0, &options.limits);
    let is_one = |record: &Buffer| {
        let mut reader = Reader::new(record, &options, &budget);
        reader.tag().is_ok_and(|tag| is_no_value::<M>(tag, &reader))
    };
    unknown.records().iter().any(is_one)
}

fn is_value(reader: &Reader<'_>, last: i32) -> bool {
    let value = match reader.rest() {
        [byte, ..] if *byte < 0x80 => Ok(i32::from(*byte)),
        // The official parsers look at the low 32 bits, too.
        _ => reader.probe().varint().map(low_half),
    };
    value.map_or(true, |value| (0..=last).contains(&value))
}
