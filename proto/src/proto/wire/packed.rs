//! [`Packed`]: packed numbers, kept in their wire form.
//!
//! The numbers of a tensor may be gigabytes. They are decoded only when their values are read;
//! otherwise they are slices of the input, and are written back byte for byte.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::marker::PhantomData;

use super::field::{Field, Label};
use super::number::{Number, Varint};
use super::rare::Empty;
use super::reader::{Reader, Wire};
use super::varints::{self, Counted};
use super::writer::{Sizes, Writer, tag_size, varint_size};
use crate::buffer::Buffer;
use crate::error::{Error, ErrorKind, Result};

/// Numbers of a packed field, in their wire form, which is usually a slice of the input.
///
/// Two are equal if these bytes are.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::proto::Packed;
///
/// let packed = Packed::from(vec![1.5_f32, -2.0]);
/// assert_eq!(packed.as_wire_bytes(), Some(&[0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0][..]));
/// assert_eq!(*packed.values()?, [1.5, -2.0]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Clone)]
pub struct Packed<T> {
    wire: Chunks,
    numbers: PhantomData<T>,
}

#[derive(Clone)]
enum Chunks {
    /// One payload: a slice of the input.
    One(Buffer),
    /// Several payloads joined, or none.
    Joined(Vec<u8>),
}

impl Chunks {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::One(buffer) => buffer,
            Self::Joined(bytes) => bytes,
        }
    }

    fn append(&mut self, chunk: Buffer) {
        match self {
            Self::One(first) => *self = Self::Joined([&first[..], &chunk[..]].concat()),
            Self::Joined(bytes) if bytes.is_empty() => *self = Self::One(chunk),
            Self::Joined(bytes) => bytes.extend_from_slice(&chunk),
        }
    }
}

impl<T> Packed<T> {
    /// No numbers.
    pub const fn new() -> Self {
        Self { wire: Chunks::Joined(Vec::new()), numbers: PhantomData }
    }

    /// Whether there are no numbers.
    pub fn is_empty(&self) -> bool {
        self.wire.bytes().is_empty()
    }
}

impl<T: Number> Packed<T> {
    /// Numbers that are already in their wire form.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] when the bytes are not such numbers.
    pub fn from_wire(wire: Buffer) -> Result<Self> {
        validate::<T>(&wire, false).map_err(|at| malformed(at as u64))?;
        Ok(Self { wire: Chunks::One(wire), numbers: PhantomData })
    }

    /// How many numbers there are. Varints are counted each time.
    pub fn len(&self) -> usize {
        count::<T>(self.wire.bytes())
    }

    /// The numbers, borrowed if the wire form is that of this machine, and else decoded.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] when the bytes are no longer valid numbers: they were checked when
    /// they were read, but a mapped file can change.
    pub fn values(&self) -> Result<Cow<'_, [T]>> {
        let bytes = self.wire.bytes();
        if let Some(values) = T::cast(bytes) {
            return Ok(Cow::Borrowed(values));
        }
        T::read_all(bytes).map(Cow::Owned).ok_or_else(|| misread::<T>(bytes))
    }

    /// The little-endian numbers of a field with fixed width; `None` for varints.
    pub fn as_wire_bytes(&self) -> Option<&[u8]> {
        T::WIDTH.map(|_| self.wire.bytes())
    }

    /// The bytes of [`as_wire_bytes`](Self::as_wire_bytes) as a buffer that shares them; `None`
    /// also if they were not one payload.
    pub fn wire_buffer(&self) -> Option<&Buffer> {
        match &self.wire {
            Chunks::One(buffer) => T::WIDTH.map(|_| buffer),
            Chunks::Joined(_) => None,
        }
    }
}

impl<T: Varint> Packed<T> {
    /// Counts the numbers, to decode them into that many slots.
    pub(crate) fn counted(&self) -> CountedNumbers<'_, T> {
        CountedNumbers { varints: Counted::new(self.wire.bytes()), packed: self }
    }
}

/// Numbers that are counted and not decoded yet.
pub(crate) struct CountedNumbers<'a, T> {
    varints: Counted<'a>,
    packed: &'a Packed<T>,
}

impl<T: Varint> CountedNumbers<'_, T> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.varints.len
    }

    /// Writes `element` of each number to `slots`, of which there are [`len`](Self::len). The
    /// second value of `element` is whether the number fits its type; the result is whether all
    /// fit.
    ///
    /// # Errors
    /// Those of [`Packed::values`].
    pub(crate) fn decode<E: Send>(
        self,
        slots: &mut [E],
        element: impl Fn(T) -> (E, bool) + Sync,
    ) -> Result<bool> {
        let done = self.varints.decode(slots, |bits| element(T::of_bits(bits)));
        done.ok_or_else(|| misread::<T>(self.packed.wire.bytes()))
    }
}

fn misread<T: Number>(bytes: &[u8]) -> Error {
    match validate::<T>(bytes, false) {
        Err(at) => malformed(at as u64),
        Ok(()) => Error::new(ErrorKind::Decode, "packed numbers changed while they were read"),
    }
}

fn malformed(at: u64) -> Error {
    Error::new(ErrorKind::Decode, "malformed packed numbers").with_offset(at)
}

/// Checks that `bytes` are numbers.
///
/// # Errors
/// The position of the first byte sequence that is not a number.
fn validate<T: Number>(bytes: &[u8], alone: bool) -> Result<(), usize> {
    match T::WIDTH {
        Some(width) if bytes.len().is_multiple_of(width) => Ok(()),
        Some(_) => Err(0),
        None => varints::validate(bytes, alone),
    }
}

/// How many numbers are in `bytes`.
pub(super) fn count<T: Number>(bytes: &[u8]) -> usize {
    match T::WIDTH {
        Some(width) => bytes.len() / width,
        None => varints::count(bytes),
    }
}

impl<T: Number> From<Vec<T>> for Packed<T> {
    fn from(values: Vec<T>) -> Self {
        let mut bytes = Vec::new();
        bytes.reserve_exact(values.iter().map(T::number_size).sum());
        values.iter().for_each(|value| value.push_number(&mut bytes));
        Self { wire: Chunks::One(Buffer::from(bytes)), numbers: PhantomData }
    }
}

impl<T: Number> Field for Packed<T> {
    const KIND: &'static str = T::KIND;
    const LABEL: Label = Label::Repeated;
    const PACKED: bool = true;
    const NESTED: bool = false;
    const UNSET: Self = Self::new();

    fn accepts(wire: Wire) -> bool {
        wire == Wire::Len || wire == T::WIRE
    }

    fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<()> {
        let chunk = if wire == Wire::Len {
            let chunk = reader.payload()?;
            let start = reader.position() - chunk.len();
            let valid = validate::<T>(&chunk, reader.threads() == 1);
            valid.map_err(|at| malformed((start + at) as u64))?;
            chunk
        } else {
            let start = reader.position();
            T::read_number(reader)?;
            reader.slice_from(start)?
        };
        self.wire.append(chunk);
        Ok(())
    }

    fn size(&self, number: u32, _sizes: &mut Sizes<'_>) -> u64 {
        match self.wire.bytes().len() as u64 {
            0 => 0,
            len => tag_size(number) + varint_size(len) + len,
        }
    }

    fn write(&self, number: u32, writer: &mut Writer<'_>) -> io::Result<()> {
        let bytes = self.wire.bytes();
        if bytes.is_empty() {
            return Ok(());
        }
        writer.tag(number, Wire::Len)?;
        writer.delimited(bytes)
    }
}

impl<T: 'static> Empty for Packed<T> {
    const EMPTY: &'static Self = &Self::new();
}

impl<T> Default for Packed<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PartialEq for Packed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.wire.bytes() == other.wire.bytes()
    }
}

impl<T: Number> fmt::Debug for Packed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.wire.bytes().len();
        f.debug_struct("Packed").field("kind", &T::KIND).field("bytes", &bytes).finish()
    }
}
