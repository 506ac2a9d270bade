//! Conversions of floats that are the same on every processor: of FLOAT16 and BFLOAT16, and of what
//! is wider than FLOAT to what is narrower, rounded once.
//!
//! Those of the crate `half` are left to instructions of the processor where it has them, and
//! differ in the bits of a NaN and, from DOUBLE, in the number of roundings. These are integer
//! operations, which the compiler turns into vectors.
//!
//! A number is rounded once although it passes through narrower types when each of them but the
//! last is rounded *to odd*: what is not exact gets the neighbour whose last bit is set. A later
//! rounding to the nearest, with two bits less or fewer, then sees on which side of a middle the
//! number was.

use std::cmp::Ordering;

use half::{bf16, f16};

/// The bits of the NaN of FLOAT16 and BFLOAT16 in results.
const NAN_OF_F16: u32 = 0x7e00;
const NAN_OF_BF16: u32 = 0x7fc0;

/// The value of a FLOAT16.
#[inline(always)]
pub(crate) fn from_f16(half: f16) -> f32 {
    /// What is added to the exponent, whose bias is 15 there and 127 here.
    const BIAS: u32 = (127 - 15) << 23;
    /// The least number above zero, 2^-24.
    const LEAST: f32 = 1.0 / 16_777_216.0;
    let bits = u32::from(half.to_bits());
    let magnitude = bits & 0x7fff;
    let normal = (magnitude << 13) + BIAS;
    #[allow(clippy::cast_precision_loss, reason = "15 bits")]
    let subnormal = (magnitude.cast_signed() as f32 * LEAST).to_bits();
    let finite = if magnitude < 0x0400 { subnormal } else { normal };
    let bits_of_all = if magnitude >= 0x7c00 { normal + BIAS } else { finite };
    f32::from_bits(((bits & 0x8000) << 16) | bits_of_all)
}

/// The nearest FLOAT16, ties to even.
#[inline(always)]
pub(crate) fn to_f16(value: f32) -> f16 {
    let (sign, magnitude) = sign_and_magnitude(value);
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub((127 - 15) << 23).wrapping_add(0x0fff + odd) >> 13;
    // The last bit of numbers from 0.5 to 1 is that of the subnormal ones, 2^-24.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
    let finite = if magnitude < 0x3880_0000 { subnormal } else { normal };
    let number = sign | if magnitude >= 0x4780_0000 { 0x7c00 } else { finite };
    f16::from_bits(low_half(if magnitude > 0x7f80_0000 { NAN_OF_F16 } else { number }))
}

/// The value of a BFLOAT16.
#[inline(always)]
pub(crate) fn from_bf16(half: bf16) -> f32 {
    f32::from_bits(u32::from(half.to_bits()) << 16)
}

/// The nearest BFLOAT16, ties to even.
#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> bf16 {
    let (sign, magnitude) = sign_and_magnitude(value);
    let number = sign | (magnitude.wrapping_add(0x7fff + ((magnitude >> 16) & 1)) >> 16);
    bf16::from_bits(low_half(if magnitude > 0x7f80_0000 { NAN_OF_BF16 } else { number }))
}

/// The sign as bit 15, and the bits of the absolute value.
#[inline(always)]
fn sign_and_magnitude(value: f32) -> (u32, u32) {
    ((value.to_bits() >> 16) & 0x8000, value.to_bits() & 0x7fff_ffff)
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the upper half is zero")]
fn low_half(bits: u32) -> u16 {
    bits as u16
}

/// `value` as `f32`, rounded to odd.
#[inline(always)]
pub(crate) fn odd_f32(value: f64) -> f32 {
    #[allow(clippy::cast_possible_truncation, reason = "rounds to the nearest")]
    let near = value as f32;
    let farther = f64::from(near).abs().partial_cmp(&value.abs());
    f32::from_bits(near.to_bits().wrapping_add_signed(step(near.to_bits() & 1 == 1, farther)))
}

/// `value` as `f64`, rounded to odd.
pub(crate) fn odd_f64(value: i128) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "rounds to the nearest")]
    let near = value as f64;
    #[allow(clippy::cast_possible_truncation, reason = "an integer, saturated")]
    let farther = (near as i128).unsigned_abs().cmp(&value.unsigned_abs());
    towards(near, farther)
}

/// `near`, the nearest `f64` of a number, as that number rounded to odd. `farther` compares the
/// distances of `near` and of the number from zero.
pub(crate) fn towards(near: f64, farther: Ordering) -> f64 {
    let step = step(near.to_bits() & 1 == 1, Some(farther));
    f64::from_bits(near.to_bits().wrapping_add_signed(i64::from(step)))
}

/// What leads from the bits of the nearest number to those of the odd one. `None` is a NaN.
#[inline(always)]
fn step(is_odd: bool, farther: Option<Ordering>) -> i32 {
    match farther {
        _ if is_odd => 0,
        Some(Ordering::Greater) => -1,
        Some(Ordering::Less) => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a code, by the definition: a mantissa of `bits` and an exponent.
    fn defined(code: u16, bits: u32, bias: i32) -> f64 {
        let (sign, magnitude) = (code >> 15, u64::from(code & 0x7fff));
        let (exponent, mantissa) = (magnitude >> bits, magnitude & ((1 << bits) - 1));
        let scale = |exponent: i32| libm::exp2(f64::from(exponent));
        let least = 1 - bias - bits.cast_signed();
        let value = match i32::try_from(exponent).unwrap() {
            0 => mantissa as f64 * scale(least),
            exponent => (mantissa + (1 << bits)) as f64 * scale(exponent - 1 + least),
        };
        if sign == 1 { -value } else { value }
    }

    type Half = (u32, i32, fn(u16) -> f32, fn(f32) -> u16);
    const F16: Half = (10, 15, |x| from_f16(f16::from_bits(x)), |x| to_f16(x).to_bits());
    const BF16: Half = (7, 127, |x| from_bf16(bf16::from_bits(x)), |x| to_bf16(x).to_bits());

    #[test]
    fn every_code_has_the_value_of_its_definition() {
        for (bits, bias, widen, narrow) in [F16, BF16] {
            let infinity = 0x7fff_u16 >> bits << bits;
            for code in 0..=u16::MAX {
                let value = widen(code);
                match (code & 0x7fff).cmp(&infinity) {
                    Ordering::Less => assert_eq!(f64::from(value), defined(code, bits, bias)),
                    Ordering::Equal => assert!(value.is_infinite()),
                    Ordering::Greater => assert!(value.is_nan()),
                }
                match value.is_nan() {
                    true => assert_eq!(narrow(value), widen_nan(infinity), "one NaN for {code:#x}"),
                    false => assert_eq!(narrow(value), code, "{value}"),
                }
                assert_eq!(value.is_sign_negative(), code >> 15 == 1, "{code:#x}");
            }
        }
    }

    fn widen_nan(infinity: u16) -> u16 {
        u16::try_from(if infinity == 0x7c00 { NAN_OF_F16 } else { NAN_OF_BF16 }).unwrap()
    }

    /// Between two neighbours, what is below the middle goes down and what is above goes up, by
    /// however little.
    #[test]
    fn doubles_round_once_to_the_nearest() {
        for (bits, bias, _, narrow) in [F16, BF16] {
            let infinity = 0x7fff_u16 >> bits << bits;
            for code in (0..infinity).step_by(7).chain([0, 1, 0x3ff, 0x400, infinity - 1]) {
                let (low, high) = (defined(code, bits, bias), defined(code + 1, bits, bias));
                let middle = f64::midpoint(low, high);
                let even = if code % 2 == 0 { code } else { code + 1 };
                let [below, above] =
                    [-1, 1].map(|by| f64::from_bits(middle.to_bits().wrapping_add_signed(by)));
                for (value, expected) in [(below, code), (middle, even), (above, code + 1)] {
                    assert_eq!(narrow(odd_f32(value)), expected, "{value:e}");
                    assert_eq!(narrow(odd_f32(-value)), expected | 0x8000, "{value:e}");
                }
            }
        }
    }

    #[test]
    fn ends_are_rounded_to_odd() {
        assert_eq!(odd_f32(f64::MAX), f32::MAX);
        assert_eq!(odd_f32(-f64::MIN_POSITIVE), -f32::from_bits(1));
        assert_eq!(odd_f32(f64::INFINITY), f32::INFINITY);
        assert_eq!(odd_f32(-0.0).to_bits(), 1 << 31);
        assert!(odd_f32(f64::NAN).is_nan());
        let large = 1_i128 << 53;
        let cases = [
            (large, large),
            (large + 1, large + 2),
            (large + 3, large + 2),
            (2 * large - 1, 2 * large - 2),
            (4 * large - 1, 4 * large - 4),
            (4 * large + 1, 4 * large + 8),
        ];
        for (value, expected) in cases {
            assert_eq!(odd_f64(value), expected as f64, "{value}");
            assert_eq!(odd_f64(-value), -(expected as f64), "{value}");
        }
    }
}
