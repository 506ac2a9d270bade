//! Elements of one float type as another: rounded as a cast of the model is.

use half::{bf16, f16};

use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::tensor::rounding::{SmallFloat, to_bf16, to_f16};

/// The length of an element in bytes, for types that are matched.
pub(super) fn width(dtype: DataType) -> Result<usize> {
    match dtype {
        DataType::Double => Ok(8),
        DataType::Float => Ok(4),
        DataType::Float16 | DataType::Bfloat16 => Ok(2),
        _ if is_matched(dtype) => Ok(1),
        _ => Err(Error::internal(format!("{dtype} weights are not matched"))),
    }
}

/// Whether tensors of this type are matched: floats of whole bytes.
pub(super) fn is_matched(dtype: DataType) -> bool {
    let is_byte = || SmallFloat::of(dtype).is_some() && dtype.bit_width() == Some(8);
    is_wide(dtype) || is_byte()
}

fn is_wide(dtype: DataType) -> bool {
    matches!(dtype, DataType::Double | DataType::Float | DataType::Float16 | DataType::Bfloat16)
}

/// Whether elements of type `from` may have become elements of type `to`.
pub(super) fn is_cast(from: DataType, to: DataType) -> bool {
    from == to || (is_wide(from) && is_matched(to))
}

/// Converts the elements of `input`; `out` has as many.
pub(super) fn convert(from: DataType, to: DataType, input: &[u8], out: &mut [u8]) -> Result<()> {
    match (from, to) {
        (DataType::Double, DataType::Float) => {
            each(input, out, |x: [u8; 8]| single(f64::from_le_bytes(x)).to_le_bytes());
        }
        (DataType::Double, _) => through(input, out, to, |x| single(f64::from_le_bytes(x)))?,
        (DataType::Float, _) => through(input, out, to, f32::from_le_bytes)?,
        (DataType::Float16, _) => through(input, out, to, |x| f16::from_le_bytes(x).to_f32())?,
        (DataType::Bfloat16, _) => through(input, out, to, |x| bf16::from_le_bytes(x).to_f32())?,
        _ => return Err(Error::internal(format!("{from} is not cast to {to}"))),
    }
    Ok(())
}

/// Converts elements, which `read` reads, through FLOAT.
fn through<const N: usize>(
    input: &[u8],
    out: &mut [u8],
    to: DataType,
    read: impl Fn([u8; N]) -> f32,
) -> Result<()> {
    match to {
        DataType::Double => each(input, out, |x| f64::from(read(x)).to_le_bytes()),
        DataType::Float => each(input, out, |x| read(x).to_le_bytes()),
        DataType::Float16 => each(input, out, |x| to_f16(read(x)).to_le_bytes()),
        DataType::Bfloat16 => each(input, out, |x| to_bf16(read(x)).to_le_bytes()),
        _ => {
            let small = SmallFloat::of(to);
            let small = small.ok_or_else(|| Error::internal(format!("{to} is no float")))?;
            each(input, out, |x| [small.code(read(x))]);
        }
    }
    Ok(())
}

fn each<const N: usize, const M: usize>(
    input: &[u8],
    out: &mut [u8],
    one: impl Fn([u8; N]) -> [u8; M],
) {
    let (input, _) = input.as_chunks::<N>();
    let (out, _) = out.as_chunks_mut::<M>();
    out.iter_mut().zip(input).for_each(|(out, input)| *out = one(*input));
}

/// The nearest FLOAT.
#[allow(clippy::cast_possible_truncation, reason = "it rounds")]
fn single(value: f64) -> f32 {
    value as f32
}
