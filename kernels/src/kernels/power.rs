//! [Pow](https://onnx.ai/onnx/operators/onnx__Pow.html): powers of numbers of every type, by
//! exponents of every type.
//!
//! Squares and cubes of floats of at most 32 bits, which layer norms and activations are full of,
//! are products that are rounded once; so is the square of a DOUBLE. Other powers of floats are
//! those of `libm` in the type of the base, FLOAT16 and BFLOAT16 in FLOAT. An integer to the power
//! of an integer from 0 on wraps; other powers of integers are computed as DOUBLE.

use onnx_container_proto::DataType;

use super::loops::{map, zip_with};
use crate::error::Result;
use crate::kernel::run_cx::RunCx;
use crate::numeric::{Number, Real, for_type};

/// The powers of input 0 by input 1, seen in these `shapes`. The exponents are widened, so that not
/// every pair of types has a loop of its own.
pub(super) fn pow(cx: &mut RunCx<'_>, shapes: &[Vec<usize>]) -> Result<()> {
    if cx.dtype(1)?.is_integer() {
        let exponents: Vec<i128> = for_type!(cx.dtype(1)?, integers, B => {
            Ok(cx.input::<B>(1)?.iter().map(|x| x.to_i128()).collect())
        })?;
        return for_type!(cx.dtype(0)?, numbers, A => {
            zip_with(cx, shapes, &exponents, power_by_integer::<A>)
        });
    }
    let exponents: Vec<f64> = for_type!(cx.dtype(1)?, floats, B => {
        Ok(cx.input::<B>(1)?.iter().map(|x| x.to_f64()).collect())
    })?;
    // The loop over one exponent that is known is one of vectors.
    match (exponents.as_slice(), shapes) {
        ([2.0], [x, by]) if by.len() <= x.len() => {
            for_type!(cx.dtype(0)?, numbers, A => map(cx, |x: A| power(x, 2.0)))
        }
        ([3.0], [x, by]) if by.len() <= x.len() => {
            for_type!(cx.dtype(0)?, numbers, A => map(cx, |x: A| power(x, 3.0)))
        }
        _ => for_type!(cx.dtype(0)?, numbers, A => zip_with(cx, shapes, &exponents, power::<A>)),
    }
}

fn power_by_integer<A: Number>(base: A, exponent: i128) -> A {
    match A::DTYPE.is_integer() && exponent >= 0 {
        true => integer_power(base, exponent),
        false => power(base, <f64 as Number>::from_i128(exponent)),
    }
}

#[inline(always)]
fn power<A: Number>(base: A, exponent: f64) -> A {
    let wide = base.to_f64();
    match A::DTYPE {
        DataType::Float | DataType::Float16 | DataType::Bfloat16 => {
            if exponent == 2.0 {
                A::from_f64(wide * wide)
            } else if exponent == 3.0 {
                // Of 16 bits the cube is exact.
                A::from_f64(if A::DTYPE == DataType::Float {
                    cube(wide)
                } else {
                    wide * wide * wide
                })
            } else {
                let power = Real::pow(f32::of(wide), f32::of(exponent));
                A::from_f64(f64::from(power))
            }
        }
        DataType::Double if exponent == 2.0 => A::from_f64(wide * wide),
        _ => A::from_f64(Real::pow(wide, exponent)),
    }
}

/// `base` to the power of an integer from 0 on, by squaring; it wraps.
fn integer_power<A: Number>(base: A, exponent: i128) -> A {
    let (mut result, mut square, mut left) = (A::ONE, base, exponent);
    while left > 0 {
        if left % 2 == 1 {
            result = result.mul(square);
        }
        square = square.mul(square);
        left /= 2;
    }
    result
}

/// The cube of a number with 24 significant bits, rounded to odd: if it is not exact, its last bit
/// is set. What is rounded from it to 24 bits or fewer is the nearest to the exact cube.
#[inline(always)]
fn cube(x: f64) -> f64 {
    const LOW: u64 = (1 << 29) - 1;
    // The square is exact, and so are the products of both of its halves.
    let square = x * x;
    if !square.is_finite() {
        return square * x;
    }
    let high = f64::from_bits(square.to_bits() & !LOW);
    let (large, small) = (high * x, (square - high) * x);
    let sum = large + small;
    let error = small - (sum - large);
    // Chosen without branches, because the outcome is random and a branch would often be
    // mispredicted.
    let away = if (error > 0.0) == (sum > 0.0) { 1 } else { -1 };
    let is_even = sum.to_bits() & 1 == 0;
    let step = if is_even && error != 0.0 { away } else { 0 };
    f64::from_bits(sum.to_bits().wrapping_add_signed(step))
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    /// The nearest FLOAT to `mantissa * 2^exponent`, by integers.
    fn nearest(mantissa: u128, exponent: i32) -> f32 {
        let shift = (128 - mantissa.leading_zeros()).saturating_sub(24);
        let (kept, rest) = (mantissa >> shift, mantissa & ((1 << shift) - 1));
        let half = (1_u128 << shift) >> 1;
        let up = rest > half || (rest == half && kept % 2 == 1 && shift > 0);
        let kept = (kept + u128::from(up)) as f64;
        f32::of(kept * libm::exp2(f64::from(exponent + shift.cast_signed())))
    }

    #[test]
    fn squares_and_cubes_are_the_nearest_floats() {
        // Mantissas of 24 bits, among them those whose cubes lie next to the middle of two floats.
        let many = (0..20_000_u32).map(|i| 0x0080_0000 | (i.wrapping_mul(2_654_435_761) >> 9));
        let special = [0x0080_0000, 0x0080_0001, 0x00ff_ffff, 0x00c0_0000, 0x00a0_0001];
        for mantissa in many.chain(special) {
            let x = f32::from_bits(0x3f00_0000 | (mantissa & 0x007f_ffff)); // mantissa * 2^-24
            let wide = u128::from(mantissa);
            let square = nearest(wide * wide, -48);
            let cubed = nearest(wide * wide * wide, -72);
            for sign in [1.0, -1.0] {
                assert_eq!(power(sign * x, 2.0), square, "{x}");
                assert_eq!(power_by_integer(sign * x, 2), square, "{x}");
                assert_eq!(power(sign * x, 3.0), sign * cubed, "{x}");
            }
        }
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            let exact = |x: f64| (x * x, x * x * x); // 11 and 8 bits: 33 and 24 bits
            let (square, cubed) = exact(f64::from(half));
            let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
            assert!(same(power(half, 2.0).into(), f16::from_f64(square).into()), "{half}");
            assert!(same(power(half, 3.0).into(), f16::from_f64(cubed).into()), "{half}");
            let (square, cubed) = exact(f64::from(brain));
            assert!(same(power(brain, 2.0).into(), bf16::from_f64(square).into()), "{brain}");
            assert!(same(power(brain, 3.0).into(), bf16::from_f64(cubed).into()), "{brain}");
        }
    }

    #[test]
    fn a_cube_is_rounded_to_odd() {
        for i in 0..20_000_u64 {
            let mantissa = 0x0080_0000 | (i.wrapping_mul(2_654_435_761) >> 9 & 0x007f_ffff);
            let exact = u128::from(mantissa).pow(3);
            let found = cube(mantissa as f64);
            let shift = (128 - exact.leading_zeros()).saturating_sub(53);
            let odd = (exact >> shift) | u128::from(exact & ((1 << shift) - 1) != 0);
            assert_eq!(found, odd as f64 * libm::exp2(f64::from(shift)), "{mantissa}");
        }
    }

    #[test]
    fn powers_at_the_ends_are_those_of_the_exact_product() {
        let cases = [
            (f32::MAX, 2.0, f32::INFINITY),
            (-f32::MAX, 3.0, f32::NEG_INFINITY),
            (f32::NEG_INFINITY, 2.0, f32::INFINITY),
            (f32::NEG_INFINITY, 3.0, f32::NEG_INFINITY),
            (1e-30, 2.0, 0.0),
            (-0.0, 2.0, 0.0),
            (-0.0, 3.0, -0.0),
            (2.0, 0.5, libm::powf(2.0, 0.5)),
            (-2.0, -3.0, -0.125),
        ];
        for (base, exponent, expected) in cases {
            let found = power::<f32>(base, exponent);
            assert_eq!(found.to_bits(), expected.to_bits(), "{base} to the power of {exponent}");
        }
        assert!(power(f32::NAN, 3.0).is_nan());
        assert_eq!(power(1.5_f64, 2.0), 2.25);
        assert_eq!(power(-3_i32, 3.0), -27);
        assert_eq!(power_by_integer(3_i32, -1), 0);
    }
}
