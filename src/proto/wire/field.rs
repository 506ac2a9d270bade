//! The types of fields that the table of a message can have, and how they are read and written.
//!
//! A [`Value`] is one value on the wire. A [`Field`] is the container of values in a message: at
//! most one (`Option`), many (`Vec`), many packed ([`Packed`](super::Packed)). So the Rust type of
//! a field determines its wire form.

use std::io;

use super::outline;
use super::rare::{Empty, Rare};
use super::reader::{Reader, Wire};
use super::text::Str;
use super::unknown::Unknown;
use super::writer::{Sizes, Writer, tag_size, varint_size};
use crate::buffer::Buffer;
use crate::error::Result;

/// A row of the table, for the test that compares it with onnx.proto's own descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldInfo {
    pub number: u32,
    pub name: &'static str,
    pub kind: &'static str,
    pub label: Label,
    pub packed: bool,
    /// Whether it is one of the alternatives of the message.
    pub alternative: bool,
    /// Of an enum, the largest of its values, which begin at 0. Its kind is that of the number
    /// which stores it.
    pub last: Option<i32>,
}

impl FieldInfo {
    pub(crate) const fn of<F: Field>(number: u32, name: &'static str) -> Self {
        let (kind, label, packed) = (F::KIND, F::LABEL, F::PACKED);
        Self { number, name: plain(name), kind, label, packed, alternative: false, last: None }
    }

    /// The row as that of one of the alternatives.
    pub(crate) const fn alternative(mut self) -> Self {
        self.alternative = true;
        self
    }

    /// The row as that of an enum, where `found` names its field: with the largest value.
    pub(crate) const fn among(mut self, found: Option<(&'static str, i32)>) -> Self {
        if let Some((name, last)) = found
            && same(self.name.as_bytes(), plain(name).as_bytes())
        {
            self.last = Some(last);
        }
        self
    }
}

/// The number of the field called `name`; 0, which no field has, when there is none.
pub(crate) const fn number_of(name: &str, fields: &[FieldInfo]) -> u32 {
    let mut rest = fields;
    while let [field, others @ ..] = rest {
        if same(field.name.as_bytes(), name.as_bytes()) {
            return field.number;
        }
        rest = others;
    }
    0
}

const fn same(mut left: &[u8], mut right: &[u8]) -> bool {
    while let ([a, more @ ..], [b, others @ ..]) = (left, right) {
        if *a != *b {
            return false;
        }
        (left, right) = (more, others);
    }
    left.is_empty() && right.is_empty()
}

/// A name without the prefix that makes a keyword an identifier.
pub(crate) const fn plain(name: &str) -> &str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

/// How often a field occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    Optional,
    Repeated,
}

/// One value on the wire.
pub trait Value: Sized {
    /// The type as onnx.proto calls it.
    const KIND: &'static str;
    const WIRE: Wire;
    /// Whether one record can hold many values (packed).
    const PACKABLE: bool = false;
    const NESTED: bool = false;

    fn read(reader: &mut Reader<'_>) -> Result<Self>;
    fn size(&self, sizes: &mut Sizes<'_>) -> u64;
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
pub(crate) fn delimited_size(number: u32, len: u64) -> u64 {
    tag_size(number) + varint_size(len) + len
}

/// Writes a record.
#[inline]
pub(crate) fn write_one<T: Value>(
    value: &T,
    number: u32,
    writer: &mut Writer<'_>,
) -> io::Result<()> {
    writer.tag(number, T::WIRE)?;
    value.write(writer)
}

/// The values of one field in a message.
pub trait Field: Sized {
    const KIND: &'static str;
    const LABEL: Label;
    const PACKED: bool;
    const NESTED: bool;
    const UNSET: Self;

    /// Whether a record with this wire type belongs to this field.
    fn accepts(wire: Wire) -> bool;
    fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<()>;
    fn size(&self, number: u32, sizes: &mut Sizes<'_>) -> u64;
    fn write(&self, number: u32, writer: &mut Writer<'_>) -> io::Result<()>;

    /// Passes over a record, as [`Value::pass`] does.
    #[inline]
    fn pass(wire: Wire, reader: &mut Reader<'_>) -> Result<bool> {
        reader.skip_value(wire).map(|()| false)
    }

    /// How many messages a list of messages has.
    #[inline]
    fn listed(&self) -> Option<usize> {
        None
    }

    /// The size without the gaps that an outline has among the values of the field.
    #[inline]
    fn size_among(&self, number: u32, _unknown: &Unknown, sizes: &mut Sizes<'_>) -> u64 {
        self.size(number, sizes)
    }

    /// Writes the values, and the gaps that an outline has among them.
    #[inline]
    fn write_among(
        &self,
        number: u32,
        _unknown: &Unknown,
        writer: &mut Writer<'_>,
    ) -> io::Result<()> {
        self.write(number, writer)
    }

    /// Calls `visit` with each string in it.
    #[inline]
    fn strings<'m>(&'m self, _visit: &mut dyn FnMut(&'m Str)) {}

    /// Whether the messages in it nest at most `levels` deep.
    #[inline]
    fn within(&self, _levels: u32) -> bool {
        true
    }
}

impl<T: Value> Field for Option<T> {
    const KIND: &'static str = T::KIND;
    const UNSET: Self = None;
    const LABEL: Label = Label::Optional;
    const PACKED: bool = false;
    const NESTED: bool = T::NESTED;

    #[inline]
    fn accepts(wire: Wire) -> bool {
        wire == T::WIRE
    }

    #[inline]
    fn merge(&mut self, _wire: Wire, reader: &mut Reader<'_>) -> Result<()> {
        match self {
            Some(value) => value.merge(reader)?,
            None => *self = Some(T::read(reader)?),
        }
        Ok(())
    }

    #[inline]
    fn pass(_wire: Wire, reader: &mut Reader<'_>) -> Result<bool> {
        T::pass(reader)
    }

    #[inline]
    fn size(&self, number: u32, sizes: &mut Sizes<'_>) -> u64 {
        self.as_ref().map_or(0, |value| one_size(value, number, sizes))
    }

    #[inline]
    fn write(&self, number: u32, writer: &mut Writer<'_>) -> io::Result<()> {
        self.as_ref().map_or(Ok(()), |value| write_one(value, number, writer))
    }

    #[inline]
    fn strings<'m>(&'m self, visit: &mut dyn FnMut(&'m Str)) {
        self.iter().for_each(|value| value.strings(visit));
    }

    #[inline]
    fn within(&self, levels: u32) -> bool {
        !T::NESTED || self.iter().all(|value| value.within(levels))
    }
}

impl<T: Value> Field for Vec<T> {
    const KIND: &'static str = T::KIND;
    const UNSET: Self = Self::new();
    const LABEL: Label = Label::Repeated;
    const PACKED: bool = false;
    const NESTED: bool = T::NESTED;

    #[inline]
    fn accepts(wire: Wire) -> bool {
        wire == T::WIRE || (T::PACKABLE && wire == Wire::Len)
    }

    #[inline]
    fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<()> {
        if wire == T::WIRE {
            return T::append(self, reader);
        }
        let outer = reader.enter()?;
        reserve_counted(self, T::count_packed(reader.rest()), reader)?;
        while !reader.at_end() {
            self.push(T::read(reader)?);
        }
        reader.leave(outer);
        Ok(())
    }

    #[inline]
    fn pass(wire: Wire, reader: &mut Reader<'_>) -> Result<bool> {
        if wire == T::WIRE {
            return T::pass(reader);
        }
        let outer = reader.enter()?;
        while !reader.at_end() {
            T::pass(reader)?;
        }
        reader.leave(outer);
        Ok(false)
    }

    #[inline]
    fn listed(&self) -> Option<usize> {
        T::NESTED.then_some(self.len())
    }

    #[inline]
    fn size_among(&self, number: u32, unknown: &Unknown, sizes: &mut Sizes<'_>) -> u64 {
        if T::NESTED && !unknown.gaps().is_empty() {
            return outline::list_size(self, number, unknown, sizes);
        }
        self.size(number, sizes)
    }

    #[inline]
    fn write_among(
        &self,
        number: u32,
        unknown: &Unknown,
        writer: &mut Writer<'_>,
    ) -> io::Result<()> {
        if T::NESTED && !unknown.gaps().is_empty() {
            return outline::write_list(self, number, unknown, writer);
        }
        self.write(number, writer)
    }

    #[inline]
    fn size(&self, number: u32, sizes: &mut Sizes<'_>) -> u64 {
        T::list_size(self, number, sizes)
    }

    #[inline]
    fn write(&self, number: u32, writer: &mut Writer<'_>) -> io::Result<()> {
        T::write_list(self, number, writer)
    }

    #[inline]
    fn strings<'m>(&'m self, visit: &mut dyn FnMut(&'m Str)) {
        self.iter().for_each(|value| value.strings(visit));
    }

    #[inline]
    fn within(&self, levels: u32) -> bool {
        !T::NESTED || self.iter().all(|value| value.within(levels))
    }
}

impl<T: Field + Empty + Default> Field for Rare<T> {
    const KIND: &'static str = T::KIND;
    const UNSET: Self = Self::new();
    const LABEL: Label = T::LABEL;
    const PACKED: bool = T::PACKED;
    const NESTED: bool = T::NESTED;

    #[inline]
    fn accepts(wire: Wire) -> bool {
        T::accepts(wire)
    }

    fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<()> {
        (**self).merge(wire, reader)
    }

    #[inline]
    fn pass(wire: Wire, reader: &mut Reader<'_>) -> Result<bool> {
        T::pass(wire, reader)
    }

    #[inline]
    fn size(&self, number: u32, sizes: &mut Sizes<'_>) -> u64 {
        if self.is_set() { (**self).size(number, sizes) } else { 0 }
    }

    #[inline]
    fn write(&self, number: u32, writer: &mut Writer<'_>) -> io::Result<()> {
        if self.is_set() { (**self).write(number, writer) } else { Ok(()) }
    }

    #[inline]
    fn strings<'m>(&'m self, visit: &mut dyn FnMut(&'m Str)) {
        if let Some(value) = self.as_deref() {
            value.strings(visit);
        }
    }

    #[inline]
    fn within(&self, levels: u32) -> bool {
        self.as_deref().is_none_or(|value| value.within(levels))
    }
}
