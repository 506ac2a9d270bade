//! Outlines: messages of which only that is decoded which holds tensors.
//!
//! A save that moves weights changes a few tensors of a graph with hundreds of thousands of nodes.
//! In an outline, the elements of a graph's lists that hold no tensor are passed over and kept as
//! the bytes that they were read as: a [`Gap`] for each run of them, in its place in the list. They
//! are written back byte for byte. What is passed over is checked as strictly as what is decoded.

use std::io;

use super::reader::{Reader, Tag};
use super::unknown::Unknown;
use super::value::Value;
use super::writer::{Sizes, Writer};
use super::{Message, Result};
use crate::buffer::Buffer;

/// Consecutive records of one list, none of which holds a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Gap {
    /// The number of the field.
    pub(super) number: u32,
    /// How many elements of the list were decoded before.
    pub(super) before: usize,
    /// The records, with their tags.
    pub(super) bytes: Buffer,
}

/// Passes over the records of a list of `message`, from the one whose tag was read to the first
/// that holds a tensor. `None`, with nothing passed, when that is the first one, or when the record
/// is not an element of a list of messages.
pub(super) fn gap<M: Message>(
    message: &M,
    tag: Tag,
    reader: &mut Reader<'_>,
) -> Result<Option<Gap>> {
    let Some(before) = message.listed(tag) else { return Ok(None) };
    // Where a record turns out to hold a tensor, the probe is left in its middle and dropped.
    let mut probe = reader.probe();
    let mut end = None;
    while M::pass_record(tag, &mut probe)? == Some(false) {
        end = Some(probe.position());
        if probe.at_end() || probe.tag()? != tag {
            break;
        }
    }
    let Some(end) = end else { return Ok(None) };
    let bytes = reader.records_up_to(end)?;
    Ok(Some(Gap { number: tag.number(), before, bytes }))
}

/// Passes over the fields of a message. `true` as soon as a tensor is met.
pub(super) fn pass_body<M: Message>(reader: &mut Reader<'_>) -> Result<bool> {
    while !reader.at_end() {
        let tag = reader.tag()?;
        match M::pass_record(tag, reader)? {
            Some(true) => return Ok(true),
            Some(false) => {}
            None => reader.pass_unknown(tag)?,
        }
    }
    Ok(false)
}

/// The elements of a list between the gaps of its field, each part with the gap that comes before
/// it.
fn parts<'a, T>(
    list: &'a [T],
    number: u32,
    unknown: &'a Unknown,
) -> impl Iterator<Item = (Option<&'a Gap>, &'a [T])> {
    let mut gaps = unknown.gaps().iter().filter(move |gap| gap.number == number);
    let (mut next, mut start) = (Some(None), 0);
    std::iter::from_fn(move || {
        let gap = next.take()?;
        let following = gaps.next();
        // A list that was cut since it was read ends before its last gaps.
        let end = following.map_or(list.len(), |gap| gap.before.min(list.len()));
        next = following.map(Some);
        let part = list.get(start..end).unwrap_or_default();
        start = end;
        Some((gap, part))
    })
}

/// The size of a list without its gaps, which count as unknown records. It is counted in the parts
/// in which the list is written.
pub(super) fn list_size<T: Value>(
    list: &[T],
    number: u32,
    unknown: &Unknown,
    sizes: &mut Sizes<'_>,
) -> u64 {
    parts(list, number, unknown).map(|(_, part)| T::list_size(part, number, sizes)).sum()
}

/// Writes a list with its gaps.
pub(super) fn write_list<T: Value>(
    list: &[T],
    number: u32,
    unknown: &Unknown,
    writer: &mut Writer<'_>,
) -> io::Result<()> {
    parts(list, number, unknown).try_for_each(|(gap, part)| {
        gap.map_or(Ok(()), |gap| writer.bytes(&gap.bytes))?;
        T::write_list(part, number, writer)
    })
}
