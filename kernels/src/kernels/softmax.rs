//! Softmax, LogSoftmax and Hardmax: what stands for a probability along an axis.
//!
//! Operator `Softmax` is specified at <https://onnx.ai/onnx/operators/onnx__Softmax.html>, and the
//! others likewise.

use super::elementwise::same;
use crate::error::Result;
use crate::kernel::Builtin;
use crate::kernel::call::Call;
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{around, axis};
use crate::numeric::lines::lines;
use crate::numeric::{Float, Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new(
        "Softmax",
        same,
        |cx| for_type!(cx.dtype(0)?, floats, T => along::<T>(cx, softmax::<<T as Float>::Real>)),
    ),
    Builtin::new(
        "LogSoftmax",
        same,
        |cx| for_type!(cx.dtype(0)?, floats, T => along::<T>(cx, log_softmax::<<T as Float>::Real>)),
    ),
    Builtin::new(
        "Hardmax",
        same,
        |cx| for_type!(cx.dtype(0)?, floats, T => along::<T>(cx, hardmax::<<T as Float>::Real>)),
    ),
];

/// The length of a line, and how far apart the elements of a line are. Before version 13, a line is
/// all elements from `axis` on.
fn line(call: &Call<'_>) -> Result<(usize, usize)> {
    let shape = call.shape(0)?;
    let flat = call.version() < 13;
    let at = axis(call.int_or("axis", if flat { 1 } else { -1 })?, shape.len())?;
    let (_, dim, inner) = around(&shape, at);
    Ok(if flat { (dim * inner, 1) } else { (dim, inner) })
}

/// `f` of each line of input 0, in place.
pub(super) fn along<T: Float>(cx: &mut RunCx<'_>, f: impl Fn(&mut [T::Real])) -> Result<()> {
    let (dim, inner) = line(cx)?;
    let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    let mut row = vec![<T::Real as Number>::ZERO; dim];
    lines((input, dim), (output, dim), inner, |x, y| {
        row.iter_mut().zip(x).for_each(|(real, x)| *real = x.widen());
        f(&mut row);
        y.iter_mut().zip(&row).for_each(|(y, real)| *y = T::round_from(*real));
    });
    Ok(())
}

/// The highest element that is a number; minus infinity without one.
pub(super) fn highest<R: Real>(row: &[R]) -> R {
    row.iter().fold(R::LOWEST, |max, x| if *x > max { *x } else { max })
}

/// `exp(x - max)` of each element, and their sum.
fn exponentials<R: Real>(row: &mut [R]) -> R {
    let max = highest(row);
    row.iter_mut().for_each(|x| *x = (*x - max).exp());
    row.iter().fold(R::ZERO, |sum, x| sum + *x)
}

/// The elements of `row` become `exp(x) / sum(exp(x))`.
pub(super) fn softmax<R: Real>(row: &mut [R]) {
    let sum = exponentials(row);
    row.iter_mut().for_each(|x| *x = *x / sum);
}

/// The elements of `row` become the logarithms of their softmax.
pub(super) fn log_softmax<R: Real>(row: &mut [R]) {
    let max = highest(row);
    let sum = row.iter().fold(R::ZERO, |sum, x| sum + (*x - max).exp());
    let log = sum.ln();
    row.iter_mut().for_each(|x| *x = *x - max - log);
}

/// The first of the highest elements becomes 1, the others 0. A NaN is the highest, as for ArgMax.
fn hardmax<R: Real>(row: &mut [R]) {
    let max = highest(row);
    let nan = row.iter().position(|x| Number::is_nan(*x));
    let at = nan.or_else(|| row.iter().position(|x| *x == max));
    row.iter_mut().enumerate().for_each(|(i, x)| *x = if Some(i) == at { R::ONE } else { R::ZERO });
}
