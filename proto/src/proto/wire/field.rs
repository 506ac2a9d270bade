//! The types of fields that the table of a message can have, and how they are read and written.
//!
//! A [`Field`] is the container of [values](Value) in a message: at most one (`Option`), many
//! (`Vec`), many packed ([`Packed`](super::Packed)). So the Rust type of a field determines its
//! wire form.

use std::io;

use super::outline;
use super::rare::{Empty, Rare};
use super::reader::{Reader, Wire};
use super::text::Str;
use super::unknown::Unknown;
use super::value::{Value, one_size, reserve_counted, write_one};
use super::writer::{Sizes, Writer};
use crate::error::Result;

/// A row of the table, for the test that compares it with onnx.proto's own descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldInfo {
    /// The number of the field.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// Its type, as onnx.proto calls it.
    pub kind: &'static str,
    /// How often it occurs.
    pub label: Label,
    /// Whether onnx.proto says that one record holds all of its values.
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
    /// At most once.
    Optional,
    /// Any number of times.
    Repeated,
}

/// The values of one field in a message.
pub trait Field: Sized {
    /// The type of a value, as onnx.proto calls it.
    const KIND: &'static str;
    /// How often the field occurs.
    const LABEL: Label;
    /// Whether one record holds all values.
    const PACKED: bool;
    /// Whether the values are messages.
    const NESTED: bool;
    /// The field without a value.
    const UNSET: Self;

    /// Whether a record with this wire type belongs to this field.
    fn accepts(wire: Wire) -> bool;
    /// Reads the value of a record.
    fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<()>;
    /// The length of all records in bytes.
    fn size(&self, number: u32, sizes: &mut Sizes<'_>) -> u64;
    /// Writes all records.
    fn write(&self, number: u32, writer: &mut Writer<'_>) -> io::Result<()>;

    /// Passes over a record, as `Value::pass` does.
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
