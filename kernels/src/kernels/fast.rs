//! Exp of profile `fast`, and what is made of it: a polynomial that is computed in vectors.
//!
//! FLOAT and the floats of 16 bits are computed in 32 bits; DOUBLE is as in the strict profile.
//! Exp, tanh and sigmoid are within 4 units in the last place of 32 bits; where exp is below
//! 2.5e-38 it is 0.

use half::{bf16, f16};
use onnx_container_proto::DataType;
use pulp::Arch;

use super::elementwise::same;
use super::loops::map;
use super::softmax::{along, highest};
use super::{activation, softmax};
use crate::error::Result;
use crate::kernel::Builtin;
use crate::kernel::run_cx::RunCx;
use crate::numeric::nan::OneNan;
use crate::numeric::{Float, Real, not_taken};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("Exp", same, |cx| elements(cx, exp, Real::exp)),
    Builtin::new("Gelu", same, |cx| match cx.str_or("approximate", "none")? {
        "tanh" => elements(cx, gelu, activation::gelu_tanh),
        _ => activation::gelu(cx),
    }),
    Builtin::new("Sigmoid", same, |cx| elements(cx, sigmoid, activation::sigmoid)),
    Builtin::new("Softmax", same, |cx| match cx.dtype(0)? {
        DataType::Float => along::<f32>(cx, softmax),
        DataType::Float16 => along::<f16>(cx, softmax),
        DataType::Bfloat16 => along::<bf16>(cx, softmax),
        DataType::Double => along::<f64>(cx, softmax::softmax),
        other => Err(not_taken(other)),
    }),
    Builtin::new("Tanh", same, |cx| elements(cx, tanh, Real::tanh)),
];

/// `f` of each element of input 0, of DOUBLE `of_double`.
fn elements(
    cx: &mut RunCx<'_>,
    f: impl Fn(f32) -> f32,
    of_double: impl Fn(f64) -> f64,
) -> Result<()> {
    match cx.dtype(0)? {
        DataType::Float => {
            let (x, y) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
            Arch::new().dispatch(|| y.iter_mut().zip(x).for_each(|(y, x)| *y = f(*x).one_nan()));
            Ok(())
        }
        DataType::Float16 => map(cx, |x: f16| x.map(&f)),
        DataType::Bfloat16 => map(cx, |x: bf16| x.map(&f)),
        DataType::Double => map(cx, of_double),
        other => Err(not_taken(other)),
    }
}

/// The elements of `row` become `exp(x) / sum(exp(x))`.
fn softmax(row: &mut [f32]) {
    let max = highest(row);
    Arch::new().dispatch(|| row.iter_mut().for_each(|x| *x = exp(*x - max)));
    let sum = row.iter().fold(0.0, |sum, x| sum + *x);
    Arch::new().dispatch(|| row.iter_mut().for_each(|x| *x /= sum));
}

#[inline(always)]
fn exp(x: f32) -> f32 {
    // exp is finite up to here, and a normal number from here on.
    const HIGHEST: f32 = 88.722_83;
    const LOWEST: f32 = -86.6;
    let bounded = if x > HIGHEST { HIGHEST } else { x };
    let bounded = if bounded < LOWEST { LOWEST } else { bounded };
    let (half_power, rest) = parts(bounded);
    let exp = (half_power + half_power * rest) * 2.0;
    let exp = if x > HIGHEST { f32::INFINITY } else { exp };
    if x < LOWEST { 0.0 } else { exp }
}

/// `expm1(2x) / (expm1(2x) + 2)`, which is exact where it is 1 in 32 bits.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let doubled = 2.0 * x.abs();
    let (half_power, rest) = parts(if doubled > 20.0 { 20.0 } else { doubled });
    let power = 2.0 * half_power;
    let expm1 = power * rest + (power - 1.0);
    (expm1 / (expm1 + 2.0)).copysign(x)
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
fn gelu(x: f32) -> f32 {
    let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + tanh(inner))
}

/// `2^(k - 1)` and `expm1(r)`, where `x` is `k ln 2 + r` and `r` is at most half of `ln 2`. `x` is
/// between -87 and 89.
#[inline(always)]
fn parts(x: f32) -> (f32, f32) {
    // What is added to a number so that its last bits are the nearest integer.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, of which the first has few bits, so that its products with k are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    // The nearest polynomial of degree 4 to (expm1(r) - r) / r^2, fitted at Chebyshev's points.
    const TERMS: [f32; 5] = [0.5, 0.166_665_73, 0.041_666_456, 0.008_363_777, 0.001_393_454_5];
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = x - k * LN_2[0] - k * LN_2[1];
    let [a, b, c, d, e] = TERMS;
    let rest = r + r * r * (a + r * (b + r * (c + r * (d + r * e))));
    let half_power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(126 << 23));
    (half_power, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::cast_possible_truncation, reason = "rounds to the nearest")]
    fn nearest(exact: f64) -> f32 {
        exact as f32
    }

    /// The units in the last place by which `found` differs from `exact`.
    fn error(found: f32, exact: f64) -> f64 {
        let nearest = nearest(exact);
        let unit =
            f64::from(f32::from_bits(nearest.abs().to_bits() + 1)) - f64::from(nearest.abs());
        (f64::from(found) - exact).abs() / unit
    }

    /// Every sign, exponent and some mantissas.
    fn numbers() -> impl Iterator<Item = f32> {
        (0..=u32::MAX).step_by(9973).map(f32::from_bits).filter(|x| x.is_finite())
    }

    type Case = (&'static str, fn(f32) -> f32, fn(f64) -> f64);

    #[test]
    fn every_function_is_within_4_units_in_the_last_place() {
        let cases: [Case; 3] = [
            ("exp", exp, libm::exp),
            ("tanh", tanh, libm::tanh),
            ("sigmoid", sigmoid, |x| 1.0 / (1.0 + libm::exp(-x))),
        ];
        for (name, f, exact) in cases {
            for x in numbers() {
                let (found, exact) = (f(x), exact(f64::from(x)));
                let tiny = 0.0..2.5e-38;
                let is_tiny = tiny.contains(&exact) && tiny.contains(&f64::from(found));
                let is_infinite = nearest(exact) == f32::INFINITY && found == f32::INFINITY;
                assert!(
                    is_tiny || is_infinite || error(found, exact) <= 4.0,
                    "{name}({x}) = {found}, not {exact}"
                );
            }
        }
    }

    #[test]
    fn ends_and_numbers_that_are_none_are_those_of_the_functions() {
        let inf = f32::INFINITY;
        for (f, x, expected) in [
            (exp as fn(f32) -> f32, inf, inf),
            (exp, -inf, 0.0),
            (exp, 0.0, 1.0),
            (exp, -0.0, 1.0),
            (exp, 88.8, inf),
            (tanh, inf, 1.0),
            (tanh, -inf, -1.0),
            (sigmoid, inf, 1.0),
            (sigmoid, -inf, 0.0),
            (sigmoid, 0.0, 0.5),
        ] {
            assert_eq!(f(x), expected, "of {x}");
        }
        assert!([exp, tanh, sigmoid, gelu].iter().all(|f| f(f32::NAN).is_nan()));
        assert_eq!(tanh(-0.0).to_bits(), (-0.0_f32).to_bits());
    }

    #[test]
    fn a_softmax_sums_to_one() {
        let mut row: Vec<f32> = (0..1000).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
        softmax(&mut row);
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        assert!(row.iter().all(|x| *x >= 0.0));
    }
}
