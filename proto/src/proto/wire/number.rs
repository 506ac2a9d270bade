//! Numbers as values of fields: varints and those of a fixed width, one at a time and packed.

use std::io;

use super::packed;
use super::reader::{Reader, Wire};
use super::value::Value;
use super::varints::Counted;
use super::writer::{Sizes, Writer, push_varint, varint_size};
use crate::error::Result;

/// A number with a packed form.
pub trait Number: Value + Copy + Send + Sync + 'static {
    /// Its length in bytes, when that is always the same.
    const WIDTH: Option<usize>;

    fn read_number(reader: &mut Reader<'_>) -> Result<Self>;
    fn number_size(&self) -> usize;
    fn push_number(&self, bytes: &mut Vec<u8>);

    /// The numbers that `bytes` consist of; `None` when they are malformed.
    fn read_all(bytes: &[u8]) -> Option<Vec<Self>>;

    /// The numbers in `bytes`, when this machine has the same byte order.
    fn cast(_bytes: &[u8]) -> Option<&[Self]> {
        None
    }
}

/// A number that is a varint.
pub trait Varint: Number {
    fn of_bits(bits: u64) -> Self;
}

/// A number that is a varint, converted from and to 64 bits.
macro_rules! varint {
    ($($number:ident $kind:literal: $from:expr, $into:expr;)*) => {$(
        impl Value for $number {
            const KIND: &'static str = $kind;
            const WIRE: Wire = Wire::Varint;
            const PACKABLE: bool = true;

            #[inline]
            fn read(reader: &mut Reader<'_>) -> Result<Self> {
                reader.varint().map($from)
            }

            #[inline]
            fn size(&self, _sizes: &mut Sizes<'_>) -> u64 {
                varint_size($into(*self))
            }

            #[inline]
            fn write(&self, writer: &mut Writer<'_>) -> io::Result<()> {
                writer.varint($into(*self))
            }

            fn count_packed(payload: &[u8]) -> usize {
                packed::count::<Self>(payload)
            }
        }

        impl Number for $number {
            const WIDTH: Option<usize> = None;

            #[inline]
            fn read_number(reader: &mut Reader<'_>) -> Result<Self> {
                Self::read(reader)
            }

            fn number_size(&self) -> usize {
                usize::try_from(varint_size($into(*self))).unwrap_or_default()
            }

            #[inline]
            fn push_number(&self, bytes: &mut Vec<u8>) {
                push_varint(bytes, $into(*self));
            }

            fn read_all(bytes: &[u8]) -> Option<Vec<Self>> {
                let counted = Counted::new(bytes);
                let mut numbers = vec![0; counted.len];
                counted.decode(&mut numbers, |bits| ($from(bits), true))?;
                Some(numbers)
            }
        }

        impl Varint for $number {
            #[inline]
            fn of_bits(bits: u64) -> Self {
                $from(bits)
            }
        }
    )*};
}

varint! {
    i64 "int64": u64::cast_signed, i64::cast_unsigned;
    u64 "uint64": u64::from, u64::from;
    // A negative number is written in ten bytes. A reader uses the low 32 bits.
    i32 "int32": low_half, |value| i64::from(value).cast_unsigned();
}

/// What an `int32` or an enum is of a varint.
pub(super) fn low_half(value: u64) -> i32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// A number whose little-endian bytes are its wire form.
macro_rules! fixed {
    ($($number:ident $kind:literal $wire:ident $width:literal;)*) => {$(
        impl Value for $number {
            const KIND: &'static str = $kind;
            const WIRE: Wire = Wire::$wire;
            const PACKABLE: bool = true;

            #[inline]
            fn read(reader: &mut Reader<'_>) -> Result<Self> {
                reader.array().map(Self::from_le_bytes)
            }

            #[inline]
            fn size(&self, _sizes: &mut Sizes<'_>) -> u64 {
                $width
            }

            #[inline]
            fn write(&self, writer: &mut Writer<'_>) -> io::Result<()> {
                writer.put(&self.to_le_bytes())
            }

            fn count_packed(payload: &[u8]) -> usize {
                packed::count::<Self>(payload)
            }
        }

        impl Number for $number {
            const WIDTH: Option<usize> = Some($width);

            #[inline]
            fn read_number(reader: &mut Reader<'_>) -> Result<Self> {
                Self::read(reader)
            }

            fn number_size(&self) -> usize {
                $width
            }

            #[inline]
            fn push_number(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn read_all(bytes: &[u8]) -> Option<Vec<Self>> {
                let (numbers, rest) = bytes.as_chunks();
                let numbers = numbers.iter().map(|number| Self::from_le_bytes(*number));
                rest.is_empty().then(|| numbers.collect())
            }

            fn cast(bytes: &[u8]) -> Option<&[Self]> {
                bytemuck::try_cast_slice(bytes).ok().filter(|_| cfg!(target_endian = "little"))
            }
        }
    )*};
}

fixed! {
    f32 "float" Fixed32 4;
    f64 "double" Fixed64 8;
}
