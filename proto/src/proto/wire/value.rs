//! [`Value`]: one value on the wire, and the room for many.

use std::io;

use super::reader::{Reader, Wire};
use super::text::Str;
use super::writer::{Sizes, Writer, tag_size, varint_size};
use crate::buffer::Buffer;
use crate::error::Result;

/// One value on the wire.
pub trait Value: Sized {
    /// The type as onnx.proto calls it.
    const KIND: &'static str;
    /// How it is encoded.
    const WIRE: Wire;
    /// Whether one record can hold many values (packed).
    const PACKABLE: bool = false;
    /// Whether it is a message.
    const NESTED: bool = false;

    /// Reads a value.
    fn read(reader: &mut Reader<'_>) -> Result<Self>;
    /// Its length in bytes, without a tag.
    fn size(&self, sizes: &mut Sizes<'_>) -> u64;
    /// Writes it, without a tag.
    fn write(&self, writer: &mut Writer<'_>) -> io::Result<()>;

    /// Reads a further occurrence: the last one wins, unless it is a message.
    fn merge(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        *self = Self::read(reader)?;
        Ok(())
    }

    /// Passes over a value. `true` if it holds a tensor; the reader may then be left in its middle.
    #[inline]
    fn pass(reader: &mut Reader<'_>) -> Result<bool> {
        reader.skip_value(Self::WIRE).map(|()| false)
    }

    /// Reads one more value, or several that follow each other.
    fn append(list: &mut Vec<Self>, reader: &mut Reader<'_>) -> Result<()> {
        reserve_run::<Self>(list, reader)?;
        list.push(Self::read(reader)?);
        Ok(())
    }

    /// The size of a list, tags included.
    #[inline]
    fn list_size(list: &[Self], number: u32, sizes: &mut Sizes<'_>) -> u64 {
        list.iter().map(|value| one_size(value, number, sizes)).sum()
    }

    /// Writes a list, tags included.
    #[inline]
    fn write_list(list: &[Self], number: u32, writer: &mut Writer<'_>) -> io::Result<()> {
        list.iter().try_for_each(|value| write_one(value, number, writer))
    }

    /// Calls `visit` with each string in it.
    #[inline]
    fn strings<'m>(&'m self, _visit: &mut dyn FnMut(&'m Str)) {}

    /// Whether the messages in it nest at most `levels` deep.
    #[inline]
    fn within(&self, _levels: u32) -> bool {
        true
    }

    /// The number of values in the payload of a packed record.
    fn count_packed(_payload: &[u8]) -> usize {
        0
    }
}

/// How many bytes of records are counted before they are read: few enough to remain in the cache.
pub(super) const LOOK_AHEAD: usize = 256 << 10;

/// Reserves room for the records that follow, so that most lists are allocated once.
#[inline]
fn reserve_run<T: Value>(list: &mut Vec<T>, reader: &mut Reader<'_>) -> Result<()> {
    if list.len() == list.capacity() {
        let count = reader.run(T::WIRE, ahead(list, LOOK_AHEAD)).count;
        reserve_counted(list, count, reader)?;
    }
    Ok(())
}

/// How many bytes of the records that follow are looked at before they are read into `list`:
/// `first` for a new list, and all for one that was too small. It would take three times its memory
/// if it grew in steps.
pub(super) fn ahead<T>(list: &[T], first: usize) -> usize {
    if list.is_empty() { first } else { usize::MAX }
}

/// As [`reserve`], and counts the memory first.
#[inline]
pub(super) fn reserve_counted<T>(
    list: &mut Vec<T>,
    count: usize,
    reader: &mut Reader<'_>,
) -> Result<()> {
    if list.capacity() - list.len() < count {
        let more = if list.capacity() == 0 { count } else { count.max(list.len()) };
        reader.count(more.saturating_mul(size_of::<T>()))?;
        reserve(list, count);
    }
    Ok(())
}

/// Reserves room for exactly `count` more elements, so that no memory is wasted; but at least
/// doubles the list, because records of several lists may alternate.
#[inline]
pub(super) fn reserve<T>(list: &mut Vec<T>, count: usize) {
    if list.capacity() == 0 {
        *list = Vec::with_capacity(count);
    } else if list.capacity() - list.len() < count {
        list.reserve_exact(count.max(list.len()));
    }
}

/// Bytes with a length prefix.
macro_rules! delimited {
    ($($bytes:ident $kind:literal $(visited by $visit:ident)?;)*) => {$(
        impl Value for $bytes {
            const KIND: &'static str = $kind;
            const WIRE: Wire = Wire::Len;

            #[inline]
            fn read(reader: &mut Reader<'_>) -> Result<Self> {
                reader.payload().map(Self::from)
            }

            #[inline]
            fn size(&self, _sizes: &mut Sizes<'_>) -> u64 {
                let len = self.span() as u64;
                varint_size(len) + len
            }

            #[inline]
            fn write(&self, writer: &mut Writer<'_>) -> io::Result<()> {
                writer.delimited(self.as_ref())
            }

            $(
                #[inline]
                fn strings<'m>(&'m self, $visit: &mut dyn FnMut(&'m Str)) {
                    $visit(self);
                }
            )?
        }
    )*};
}

delimited! {
    Str "string" visited by visit;
    Buffer "bytes";
}

impl<T: Value> Value for Box<T> {
    const KIND: &'static str = T::KIND;
    const WIRE: Wire = T::WIRE;
    const NESTED: bool = T::NESTED;

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        T::read(reader).map(Self::new)
    }

    fn size(&self, sizes: &mut Sizes<'_>) -> u64 {
        (**self).size(sizes)
    }

    fn write(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        (**self).write(writer)
    }

    fn merge(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        (**self).merge(reader)
    }

    fn pass(reader: &mut Reader<'_>) -> Result<bool> {
        T::pass(reader)
    }

    fn strings<'m>(&'m self, visit: &mut dyn FnMut(&'m Str)) {
        (**self).strings(visit);
    }

    fn within(&self, levels: u32) -> bool {
        (**self).within(levels)
    }
}

/// The size of a record.
#[inline]
pub(crate) fn one_size<T: Value>(value: &T, number: u32, sizes: &mut Sizes<'_>) -> u64 {
    tag_size(number) + value.size(sizes)
}

/// The size of a record of `len` bytes with a length prefix.
pub fn delimited_size(number: u32, len: u64) -> u64 {
    tag_size(number) + varint_size(len) + len
}

/// Writes a record.
#[inline]
pub fn write_one<T: Value>(value: &T, number: u32, writer: &mut Writer<'_>) -> io::Result<()> {
    writer.tag(number, T::WIRE)?;
    value.write(writer)
}
