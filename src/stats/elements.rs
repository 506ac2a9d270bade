//! The elements of one tensor of any type, added up piece by piece.
//!
//! Floats of 16 bits and short integers are added up as floats of 32 bits, long integers as floats
//! of 64 bits. Of the longest integers the smallest and the largest one are kept as they are,
//! because such floats have only 53 bits for them.

use half::slice::HalfFloatSliceExt as _;
use half::{bf16, f16};

use super::codes::{self, Codes};
use super::number::Number;
use super::numbers::{BLOCK, Blocks, Numbers, Real};
use crate::dtype::{DataType, Element};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::Tensor;
use crate::util::cancel;

/// What is known of some pieces of one tensor.
#[derive(Debug, Clone)]
pub(super) enum Elements {
    Codes(Codes),
    Numbers(Box<Numbers>, Option<(Number, Number)>),
}

impl Elements {
    /// Goes through `piece`.
    pub(super) fn of(piece: &Tensor) -> Result<Self> {
        let dtype = piece.dtype();
        if dtype.bit_width().is_some_and(|bits| bits <= 8) {
            let mut codes = Codes::new();
            codes.add(piece)?;
            return Ok(Self::Codes(codes));
        }
        let (numbers, exact) = match dtype {
            DataType::Float => (same(&piece.to_slice::<f32>()?)?, None),
            DataType::Double => (same(&piece.to_slice::<f64>()?)?, None),
            DataType::Float16 => (halves(&piece.to_slice::<f16>()?)?, None),
            DataType::Bfloat16 => (halves(&piece.to_slice::<bf16>()?)?, None),
            DataType::Int16 => (each(piece, |x: i16| f32::from(x))?, None),
            DataType::Uint16 => (each(piece, |x: u16| f32::from(x))?, None),
            DataType::Int32 => (each(piece, |x: i32| f64::from(x))?, None),
            DataType::Uint32 => (each(piece, |x: u32| f64::from(x))?, None),
            #[allow(clippy::cast_precision_loss)] // the range is kept beside
            DataType::Int64 => (each(piece, |x: i64| x as f64)?, range(piece, Number::Signed)?),
            #[allow(clippy::cast_precision_loss)] // the range is kept beside
            DataType::Uint64 => (each(piece, |x: u64| x as f64)?, range(piece, Number::Unsigned)?),
            DataType::Complex64 => return Self::of(&parts(piece, DataType::Float)?),
            DataType::Complex128 => return Self::of(&parts(piece, DataType::Double)?),
            other => return Err(no_numbers(other)),
        };
        Ok(Self::Numbers(Box::new(numbers), exact))
    }

    /// Adds what is known of later pieces.
    pub(super) fn merge(&mut self, other: &Self) -> Result<()> {
        match (self, other) {
            (Self::Codes(codes), Self::Codes(more)) => codes.merge(more),
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
            Self::Codes(codes) => Ok((codes.finish(dtype)?, None)),
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
fn same<T: Real>(elements: &[T]) -> Result<Numbers> {
    let mut blocks = Blocks::new();
    for block in elements.chunks(BLOCK) {
        blocks.add(block);
    }
    cancel::check()?;
    Ok(blocks.finish())
}

/// Adds up floats of 16 bits.
fn halves<T>(elements: &[T]) -> Result<Numbers>
where
    [T]: half::slice::HalfFloatSliceExt,
{
    let (mut blocks, mut wide) = (Blocks::new(), [0.0_f32; BLOCK]);
    for block in elements.chunks(BLOCK) {
        let wide = wide.get_mut(..block.len()).unwrap_or_default();
        block.convert_to_f32_slice(wide);
        blocks.add(wide);
    }
    cancel::check()?;
    Ok(blocks.finish())
}

/// Adds up elements, each converted by `convert`.
fn each<T: Element, R: Real>(piece: &Tensor, convert: impl Fn(T) -> R) -> Result<Numbers> {
    let (mut blocks, mut block) = (Blocks::new(), [R::default(); BLOCK]);
    for elements in piece.to_slice::<T>()?.chunks(BLOCK) {
        for (to, from) in block.iter_mut().zip(elements) {
            *to = convert(*from);
        }
        blocks.add(block.get(..elements.len()).unwrap_or_default());
    }
    cancel::check()?;
    Ok(blocks.finish())
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

/// The smallest and the largest element of `piece`.
fn range<T: Element + Ord>(
    piece: &Tensor,
    number: impl Fn(T) -> Number,
) -> Result<Option<(Number, Number)>> {
    let elements = piece.to_slice::<T>()?;
    let (min, max) = (elements.iter().min(), elements.iter().max());
    Ok(min.zip(max).map(|(min, max)| (number(*min), number(*max))))
}

/// The error for elements that are not numbers.
pub(super) fn no_numbers(dtype: DataType) -> Error {
    Error::new(ErrorKind::DataType, format!("{dtype} elements are not numbers"))
}
