//! The elements of one tensor of any type, added up piece by piece.
//!
//! Floats of 16 bits are added up as floats of 32 bits, integers of more than 16 bits as floats of
//! 64 bits. Of the longest integers the smallest and the largest one are kept as they are,
//! because such floats have only 53 bits for them.

use half::{bf16, f16};
use pulp::{Arch, Simd, WithSimd};

use super::codes::{self, Codes, FewCodes, Tables};
use super::number::Number;
use super::numbers::{BLOCK, Blocks, Numbers, Real, Summand};
use super::{integers, short};
use crate::dtype::{DataType, Element};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::Tensor;
use crate::util::cancel;

/// What is known of some pieces of one tensor.
#[derive(Debug, Clone)]
pub(super) enum Elements {
    Codes(FewCodes),
    Numbers(Box<Numbers>, Option<(Number, Number)>),
}

impl Elements {
    /// Goes through `piece`. Of every `step` blocks of elements one is counted in the histogram.
    pub(super) fn of(piece: &Tensor, step: usize) -> Result<Self> {
        let dtype = piece.dtype();
        let is_sampled = step > 1 && codes::are_integers(dtype);
        if dtype.bit_width().is_some_and(|bits| bits <= 8) && !is_sampled {
            let mut codes = Codes::new();
            codes.add(piece)?;
            return Ok(Self::Codes(codes.few()));
        }
        let (numbers, exact) = match dtype {
            DataType::Float => (same(&piece.to_slice::<f32>()?, step)?, None),
            DataType::Double => (same(&piece.to_slice::<f64>()?, step)?, None),
            DataType::Float16 => (shorts(&piece.to_slice::<f16>()?, step, half)?, None),
            DataType::Bfloat16 => (shorts(&piece.to_slice::<bf16>()?, step, brain)?, None),
            DataType::Int8 | DataType::Uint8 | DataType::Int4 | DataType::Uint4 => {
                (bytes(piece, step)?, None)
            }
            DataType::Int16 => {
                let above = |number: i16| number.cast_unsigned() ^ SIGN;
                (words(&piece.to_slice::<i16>()?, step, SIGN, above, f32::from)?, None)
            }
            DataType::Uint16 => {
                (words(&piece.to_slice::<u16>()?, step, 0, |number| number, f32::from)?, None)
            }
            DataType::Int32 => (each(piece, step, |x: i32| f64::from(x))?.0, None),
            DataType::Uint32 => (each(piece, step, |x: u32| f64::from(x))?.0, None),
            #[allow(clippy::cast_precision_loss)] // the range is kept beside
            DataType::Int64 => exact(each(piece, step, |x: i64| x as f64)?, Number::Signed),
            #[allow(clippy::cast_precision_loss)] // the range is kept beside
            DataType::Uint64 => exact(each(piece, step, |x: u64| x as f64)?, Number::Unsigned),
            DataType::Complex64 => return Self::of(&parts(piece, DataType::Float)?, step),
            DataType::Complex128 => return Self::of(&parts(piece, DataType::Double)?, step),
            other => return Err(no_numbers(other)),
        };
        Ok(Self::Numbers(Box::new(numbers), exact))
    }

    /// Adds what is known of later pieces.
    pub(super) fn merge(&mut self, other: &Self) -> Result<()> {
        match (self, other) {
            (Self::Codes(codes), Self::Codes(more)) => {
                let mut all = codes.to_codes();
                all.merge(&more.to_codes());
                *codes = all.few();
            }
            (Self::Numbers(numbers, exact), Self::Numbers(more, more_exact)) => {
                numbers.merge(more);
                *exact = match (*exact, *more_exact) {
                    (Some((a, b)), Some((c, d))) => Some((a.least(c), b.most(d))),
                    (known, None) | (None, known) => known,
                };
            }
            _ => return Err(Error::internal("pieces of two types in one tensor")),
        }
        Ok(())
    }

    /// All that is known, of elements of this type.
    pub(super) fn finish(self, dtype: DataType) -> Result<(Numbers, Option<(Number, Number)>)> {
        match self {
            Self::Codes(codes) => Ok((codes.to_codes().finish(dtype)?, None)),
            Self::Numbers(numbers, exact) => Ok((*numbers, exact)),
        }
    }
}

/// The real and imaginary parts of complex elements.
fn parts(piece: &Tensor, of: DataType) -> Result<Tensor> {
    let bytes = piece.buffer().ok_or_else(|| no_numbers(piece.dtype()))?;
    let count = piece.element_count().checked_mul(2).and_then(|count| i64::try_from(count).ok());
    let count = count.ok_or_else(|| Error::new(ErrorKind::Shape, "more parts than bits"))?;
    Tensor::new(of, [count], bytes.clone())
}

/// Adds up elements that need no conversion.
fn same<T: Real>(elements: &[T], step: usize) -> Result<Numbers> {
    let mut blocks = Blocks::new(step);
    for block in elements.chunks(BLOCK) {
        blocks.add(block);
    }
    cancel::check()?;
    Ok(blocks.finish())
}

/// The number, computed so that the compiler makes vectors of it.
#[inline(always)]
fn half(number: f16) -> f32 {
    /// Two to the 112, by which the exponents of both types are apart.
    const APART: f32 = f32::from_bits(0x7780_0000);
    let bits = u32::from(number.to_bits());
    let (sign, size) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
    // The largest exponent is that of infinities, and stays it.
    let special = if size >= 0x0f80_0000 { 0x7f80_0000 } else { 0 };
    f32::from_bits((f32::from_bits(size) * APART).to_bits() | special | sign)
}

/// The number: its bits are the upper ones.
#[inline(always)]
fn brain(number: bf16) -> f32 {
    f32::from_bits(u32::from(number.to_bits()) << 16)
}

/// Adds up floats of 16 bits, each converted by `wide`: in short floats where not all blocks are
/// counted in bins, as then there are many. A block that is counted is converted as a whole.
fn shorts<T: Copy>(elements: &[T], step: usize, wide: impl Fn(T) -> f32) -> Result<Numbers> {
    let (mut blocks, mut block, arch) = (Blocks::new(step), [0.0_f32; BLOCK], Arch::new());
    for elements in elements.chunks(BLOCK) {
        #[allow(clippy::cast_possible_truncation)] // any number that is near
        let pivot = blocks.pivot().filter(|_| step > 1).map(|pivot| pivot as f32);
        let sums = pivot.and_then(|pivot| short::sums(arch, elements, &wide, pivot));
        match pivot.zip(sums).map(|(pivot, sums)| sums.found(pivot.into())) {
            Some(found) => {
                blocks.add_found(&found, || widened(arch, elements, &wide, &mut block));
            }
            None => blocks.add(widened(arch, elements, &wide, &mut block)),
        }
    }
    cancel::check()?;
    Ok(blocks.finish())
}

/// The sign of an integer of 16 bits.
const SIGN: u16 = 1 << 15;

/// Adds up integers of 16 bits. `above` adds `offset` to one, so that none is negative. A block
/// that is counted in bins is converted by `wide`.
fn words<T: Copy>(
    words: &[T],
    step: usize,
    offset: u16,
    above: impl Fn(T) -> u16,
    wide: impl Fn(T) -> f32,
) -> Result<Numbers> {
    let (mut blocks, mut block, arch) = (Blocks::new(step), [0.0_f32; BLOCK], Arch::new());
    for words in words.chunks(BLOCK) {
        let Some(found) = integers::of_words(arch, words, offset, &above) else { break };
        blocks.add_found(&found, || widened(arch, words, &wide, &mut block));
    }
    cancel::check()?;
    Ok(blocks.finish())
}

/// Adds up integers of four or eight bits, of which every `step`th block is counted in bins.
fn bytes(piece: &Tensor, step: usize) -> Result<Numbers> {
    let whole = piece.element_count() * usize::from(codes::bits(piece.dtype())?) / 8;
    let parts = piece.as_bytes().and_then(|bytes| bytes.split_at_checked(whole));
    let (whole, half) = parts.ok_or_else(|| Error::internal("a tensor without its bytes"))?;
    let (mut numbers, mut tables, arch) = (Numbers::default(), Tables::default(), Arch::new());
    for block in whole.chunks(BLOCK * step) {
        let found = match piece.dtype() {
            DataType::Int8 => integers::of_bytes::<u32, 1>(arch, block, 128, |byte| [byte ^ 128]),
            DataType::Uint8 => integers::of_bytes::<u32, 1>(arch, block, 0, |byte| [byte]),
            DataType::Int4 => {
                let both = |byte: u8| [(byte & 15) ^ 8, (byte >> 4) ^ 8];
                integers::of_bytes::<u16, 2>(arch, block, 8, both)
            }
            DataType::Uint4 => {
                integers::of_bytes::<u16, 2>(arch, block, 0, |byte| [byte & 15, byte >> 4])
            }
            other => return Err(no_numbers(other)),
        };
        found.into_iter().for_each(|found| found.add_to(&mut numbers));
        tables.add(block.get(..BLOCK).unwrap_or(block));
    }
    let mut counted = Codes::new();
    counted.add_tables(&tables);
    numbers.bins = counted.finish(piece.dtype())?.bins;
    if !half.is_empty() {
        let mut last = Codes::new();
        last.add(&Tensor::new(piece.dtype(), [1], half.into())?)?;
        numbers.merge(&last.finish(piece.dtype())?);
    }
    cancel::check()?;
    Ok(numbers)
}

/// The elements of a block, converted in vectors of the processor.
fn widened<'b, T: Copy, R>(
    arch: Arch,
    elements: &[T],
    wide: &impl Fn(T) -> R,
    to: &'b mut [R; BLOCK],
) -> &'b [R] {
    arch.dispatch(Widened { elements, wide, to });
    to.get(..elements.len()).unwrap_or_default()
}

struct Widened<'e, T, R, F> {
    elements: &'e [T],
    wide: &'e F,
    to: &'e mut [R; BLOCK],
}

impl<T: Copy, R, F: Fn(T) -> R> WithSimd for Widened<'_, T, R, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (to, from) in self.to.iter_mut().zip(self.elements) {
            *to = (self.wide)(*from);
        }
    }
}

/// Adds up integers, and finds the smallest and the largest one. A block that is counted in bins is
/// converted.
fn each<T: Element + Summand + Ord, R: Real>(
    piece: &Tensor,
    step: usize,
    convert: impl Fn(T) -> R,
) -> Result<(Numbers, Option<(T, T)>)> {
    let (mut blocks, mut block, arch) = (Blocks::new(step), [R::default(); BLOCK], Arch::new());
    let mut range: Option<(T, T)> = None;
    for elements in piece.to_slice::<T>()?.chunks(BLOCK) {
        let Some((pivot, sums)) = blocks.sums(elements) else { break };
        let (min, max) = range.unwrap_or((sums.min, sums.max));
        range = Some((min.min(sums.min), max.max(sums.max)));
        blocks.add_found(&sums.found(pivot), || widened(arch, elements, &convert, &mut block));
    }
    cancel::check()?;
    Ok((blocks.finish(), range))
}

/// The smallest and the largest integer as they are.
fn exact<T>(
    (numbers, range): (Numbers, Option<(T, T)>),
    number: impl Fn(T) -> Number,
) -> (Numbers, Option<(Number, Number)>) {
    (numbers, range.map(|(min, max)| (number(min), number(max))))
}

/// The elements of `piece` as floats of 64 bits, those of complex elements as their parts.
pub(crate) fn wide(piece: &Tensor) -> Result<Vec<f64>> {
    fn all<T: Element>(piece: &Tensor, convert: impl Fn(T) -> f64) -> Result<Vec<f64>> {
        Ok(piece.to_slice::<T>()?.iter().map(|element| convert(*element)).collect())
    }
    match piece.dtype() {
        DataType::Double => all(piece, |x: f64| x),
        DataType::Int16 => all(piece, |x: i16| f64::from(x)),
        DataType::Uint16 => all(piece, |x: u16| f64::from(x)),
        DataType::Int32 => all(piece, |x: i32| f64::from(x)),
        DataType::Uint32 => all(piece, |x: u32| f64::from(x)),
        #[allow(clippy::cast_precision_loss)] // rounds
        DataType::Int64 => all(piece, |x: i64| x as f64),
        #[allow(clippy::cast_precision_loss)] // rounds
        DataType::Uint64 => all(piece, |x: u64| x as f64),
        DataType::Complex64 => wide(&parts(piece, DataType::Float)?),
        DataType::Complex128 => wide(&parts(piece, DataType::Double)?),
        dtype if dtype.bit_width().is_some_and(|bits| bits <= 8) => codes::wide(piece),
        _ => Ok(piece.to_f32()?.iter().map(|element| f64::from(*element)).collect()),
    }
}

/// The error for elements that are not numbers.
pub(super) fn no_numbers(dtype: DataType) -> Error {
    Error::new(ErrorKind::DataType, format!("{dtype} elements are not numbers"))
}
