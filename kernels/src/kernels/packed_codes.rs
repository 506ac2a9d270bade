//! Codes of 2, 4 and 8 bits in bytes. The operators of onnxruntime give each block of them a scale.

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::call::Call;

/// Refuses other widths.
pub(super) fn check_bits(call: &Call<'_>, bits: usize) -> Result<()> {
    match bits {
        2 | 4 | 8 => Ok(()),
        _ => Err(call.no_kernel(&format!("`bits` {bits}, only with 2, 4 and 8"))),
    }
}

/// Refuses a `block_size` that no block has.
pub(super) fn check_block(block: usize) -> Result<()> {
    if block >= 16 && block.is_power_of_two() {
        return Ok(());
    }
    let reason = format!("`block_size` is {block}, not a power of two from 16 on");
    Err(Error::new(ErrorKind::InvalidModel, reason))
}

/// The middle of the codes, which is the zero point of unsigned ones where none is given.
pub(super) fn middle(bits: usize) -> f32 {
    f32::from(1_u8 << (bits - 1))
}

/// Code `i` of a byte, the lowest bits first.
#[inline(always)]
pub(super) fn code<const BITS: usize>(byte: u8, i: usize) -> u8 {
    (byte >> (i * BITS)) & (u8::MAX >> (8 - BITS))
}

/// Code `at` of `codes`.
#[inline(always)]
pub(super) fn code_at(codes: &[u8], bits: usize, at: usize) -> Result<u8> {
    let byte = codes.at(at / (8 / bits))?;
    Ok(match bits {
        2 => code::<2>(*byte, at % 4),
        4 => code::<4>(*byte, at % 2),
        _ => *byte,
    })
}
