//! Messages as values of a field: with a length prefix, one nesting level deeper.

use std::io;

use super::outline;
use super::overlay::{Overlay, Replacement};
use super::parallel;
use super::reader::{Reader, Wire};
use super::spread;
use super::value::{self, Value, one_size, write_one};
use super::writer::{Sizes, Writer, varint_size};
use super::{Message, Result};

pub(crate) fn read<M: Message>(reader: &mut Reader<'_>) -> Result<M> {
    reader.count(size_of::<M>())?;
    let mut message = M::default();
    merge(&mut message, reader)?;
    Ok(message)
}

/// Reads into a message, whose own memory is counted.
pub(crate) fn merge<M: Message>(message: &mut M, reader: &mut Reader<'_>) -> Result<()> {
    reader.descend()?;
    let outer = reader.enter()?;
    message.merge_body(reader)?;
    reader.count(message.rare_size())?;
    reader.leave(outer);
    reader.ascend();
    Ok(())
}

/// Whether `message` and what is in it nest at most `levels` deep, counted as [`merge`] does.
#[inline]
pub(crate) fn within<M: Message>(message: &M, levels: u32) -> bool {
    levels.checked_sub(1).is_some_and(|left| M::LEAF || message.within(left))
}

/// Passes over a message. `true`, with the reader in its middle, if it is a tensor or holds one.
pub(crate) fn pass<M: Message>(reader: &mut Reader<'_>) -> Result<bool> {
    // Only tensors can be replaced.
    if M::REPLACEABLE {
        return Ok(true);
    }
    reader.descend()?;
    let outer = reader.enter()?;
    let holds_tensor = outline::pass_body::<M>(reader)?;
    reader.leave(outer);
    reader.ascend();
    Ok(holds_tensor)
}

/// Appends a message, or the whole run of messages when it is long enough for several threads.
pub(crate) fn append<M>(list: &mut Vec<M>, reader: &mut Reader<'_>) -> Result<()>
where
    M: Message + Value,
{
    if list.len() == list.capacity() && reader.is_outline() {
        // Most of the records that follow are not for this list.
        value::reserve_counted(list, 1, reader)?;
    } else if list.len() == list.capacity() {
        let first = parallel::look_ahead(reader.threads());
        let run = reader.run(Wire::Len, value::ahead(list, first));
        if parallel::pays(run, reader.threads()) {
            // All at once: a list that grows takes three times its memory.
            let all = reader.run(Wire::Len, usize::MAX);
            value::reserve_counted(list, all.count, reader)?;
            return parallel::append(list, reader);
        }
        value::reserve_counted(list, run.count, reader)?;
    }
    // Built in its place in the list, because a message is too large to be moved there.
    list.resize_with(list.len() + 1, M::default);
    list.last_mut().map_or(Ok(()), |message| merge(message, reader))
}

#[inline]
pub(crate) fn size<M: Message>(message: &M, sizes: &mut Sizes<'_>) -> u64 {
    let len = if M::LEAF {
        message.fields_size(sizes)
    } else {
        sizes.remember(|sizes| match replacement(message, sizes.overlay()) {
            Some(other) => other.size(message, sizes),
            None => message.fields_size(sizes),
        })
    };
    varint_size(len) + len
}

/// The replacement that is written instead of the fields of `message`, if any.
#[inline]
fn replacement<'o, M: Message>(
    message: &M,
    overlay: Option<&'o dyn Overlay>,
) -> Option<&'o dyn Replacement> {
    let overlay = overlay.filter(|_| M::REPLACEABLE)?;
    overlay.replacement(std::ptr::from_ref(message).addr())
}

#[inline]
pub(crate) fn write<M: Message>(message: &M, writer: &mut Writer<'_>) -> io::Result<()> {
    let len = if M::LEAF { message.fields_size(&mut Sizes::default()) } else { writer.next_len() };
    writer.varint(len)?;
    match replacement(message, writer.overlay()) {
        Some(other) => other.write(message, writer),
        None => message.write_fields(writer),
    }
}

#[inline]
pub(crate) fn list_size<M: Message + Value>(list: &[M], number: u32, sizes: &mut Sizes<'_>) -> u64 {
    if spread::pays(list.len(), sizes.alone()) {
        return spread::size(list, number, sizes);
    }
    list.iter().map(|message| one_size(message, number, sizes)).sum()
}

#[inline]
pub(crate) fn write_list<M: Message + Value>(
    list: &[M],
    number: u32,
    writer: &mut Writer<'_>,
) -> io::Result<()> {
    if spread::pays(list.len(), writer.alone()) {
        return spread::write(list, number, writer);
    }
    list.iter().try_for_each(|message| write_one(message, number, writer))
}
