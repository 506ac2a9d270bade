//! The one NaN of each float type, which results of computations have.
//!
//! What an instruction of a processor gives for a NaN, its sign and the bits of its fraction, is
//! not the same everywhere. So whatever computes writes one NaN: the kernel itself, in the loop
//! that writes a result, or the machine after the step
//! ([`Kernel::leaves_nans`](crate::Kernel::leaves_nans)). What only moves elements keeps their
//! bits.

use half::{bf16, f16};
use onnx_container_proto::{DataType, Element};

use crate::error::{Error, Result};

/// An element with the one NaN of its type for every NaN.
pub trait OneNan: Element {
    fn one_nan(self) -> Self;
}

macro_rules! without_nan {
    ($($type:ty),*) => {$(
        impl OneNan for $type {
            #[inline(always)]
            fn one_nan(self) -> Self { self }
        }
    )*};
}

without_nan!(bool, u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! with_nan {
    ($($type:ty = $bits:literal;)*) => {$(
        impl OneNan for $type {
            #[inline(always)]
            fn one_nan(self) -> Self {
                if self.is_nan() { Self::from_bits($bits) } else { self }
            }
        }
    )*};
}

with_nan! {
    f32 = 0x7fc0_0000;
    f64 = 0x7ff8_0000_0000_0000;
    f16 = 0x7e00;
    bf16 = 0x7fc0;
}

/// Every NaN in `bytes`, the elements of a tensor of `dtype`, becomes the one NaN. Floats of 8 bits
/// and fewer are always written with it.
///
/// # Errors
/// [`ErrorKind::Internal`](crate::ErrorKind::Internal) when they are not elements of that type.
pub fn settle(dtype: DataType, bytes: &mut [u8]) -> Result<()> {
    match dtype {
        DataType::Float | DataType::Complex64 => settle_all::<f32>(bytes),
        DataType::Double | DataType::Complex128 => settle_all::<f64>(bytes),
        DataType::Float16 => settle_all::<f16>(bytes),
        DataType::Bfloat16 => settle_all::<bf16>(bytes),
        _ => Ok(()),
    }
}

fn settle_all<T: OneNan + PartialEq>(bytes: &mut [u8]) -> Result<()> {
    // An empty slice may have any address.
    if !bytes.is_empty() {
        settle_elements(
            bytemuck::checked::try_cast_slice_mut::<u8, T>(bytes).map_err(Error::internal)?,
        );
    }
    Ok(())
}

/// Every NaN in `elements` becomes the one NaN. Nearly all results have none, so a part is looked
/// at before it is written.
pub(crate) fn settle_elements<T: OneNan + PartialEq>(elements: &mut [T]) {
    const PART: usize = 1024;
    for part in elements.chunks_mut(PART) {
        #[allow(clippy::eq_op, reason = "a NaN is not equal to itself")]
        if part.iter().fold(false, |found, x| found | (*x != *x)) {
            part.iter_mut().for_each(|x| *x = x.one_nan());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nan_becomes_the_one_of_its_type_and_nothing_else_changes() {
        fn case<T: OneNan + PartialEq + bytemuck::Pod>(
            dtype: DataType,
            nans: &[T],
            others: &[T],
            one: &[u8],
        ) {
            let mut elements = [nans, others].concat().repeat(600);
            let before: Vec<u8> = bytemuck::cast_slice(others).to_vec();
            settle(dtype, bytemuck::cast_slice_mut(&mut elements)).unwrap();
            for found in elements.chunks(nans.len() + others.len()) {
                let (nans, others) = found.split_at(nans.len());
                assert_eq!(bytemuck::cast_slice::<T, u8>(nans), one.repeat(nans.len()), "{dtype}");
                assert_eq!(bytemuck::cast_slice::<T, u8>(others), before, "{dtype}");
            }
        }
        let floats = [0xffc0_0000, 0x7f80_0001, 0xffff_ffff].map(f32::from_bits);
        let doubles = [0xfff8 << 48, (0x7ff << 52) | 1].map(f64::from_bits);
        let others = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, 1.5, f32::from_bits(1)];
        let one = 0x7fc0_0000_u32.to_le_bytes();
        case(DataType::Float, &floats, &others, &one);
        case(DataType::Complex64, &floats, &others, &one);
        let wide = others.map(f64::from);
        case(DataType::Double, &doubles, &wide, &(0x7ff8_u64 << 48).to_le_bytes());
        let halves = [0xfe00, 0x7c01, 0xffff].map(f16::from_bits);
        let others = [0x8000, 0x7c00, 0xfc00, 0x3c00].map(f16::from_bits);
        case(DataType::Float16, &halves, &others, &0x7e00_u16.to_le_bytes());
        let halves = [0xffc0, 0x7f81, 0xffff].map(bf16::from_bits);
        let others = [0x8000, 0x7f80, 0xff80, 0x3f80].map(bf16::from_bits);
        case(DataType::Bfloat16, &halves, &others, &0x7fc0_u16.to_le_bytes());
    }
}
