//! Pooling by windows: [MaxPool](https://onnx.ai/onnx/operators/onnx__MaxPool.html),
//! [AveragePool](https://onnx.ai/onnx/operators/onnx__AveragePool.html) and
//! [LpPool](https://onnx.ai/onnx/operators/onnx__LpPool.html); the Global ones, whose window is the
//! whole plane; and [MaxUnpool](https://onnx.ai/onnx/operators/onnx__MaxUnpool.html).
//!
//! Sums go over a window's elements in row-major order.

use onnx_container_proto::DataType;

use super::window::{Axis, Window, attributes, image, list};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{count, index, size, strides};
use crate::numeric::{Float, Number, Real, for_type};
use crate::program::Attribute;

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("MaxPool", max_infer, max_pool),
    Builtin::new("AveragePool", infer, average_pool),
    Builtin::new("LpPool", infer, lp_pool),
    Builtin::new("GlobalMaxPool", global_infer, global_max),
    Builtin::new("GlobalAveragePool", global_infer, global_average),
    Builtin::new("GlobalLpPool", global_infer, global_lp),
    Builtin::new("MaxUnpool", unpool_infer, max_unpool),
];

fn window(call: &Call<'_>) -> Result<Window> {
    let (_, _, spatial) = image(call, 0)?;
    Window::pooling(call, &spatial, &list(call, "kernel_shape", spatial.len(), 0)?)
}

/// The dimensions of the output of a window.
fn output_shape(call: &Call<'_>) -> Result<Vec<usize>> {
    let (batch, channels, _) = image(call, 0)?;
    Ok([batch, channels].into_iter().chain(window(call)?.output()).collect())
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(call.dtype(0)?, output_shape(call)?)])
}

fn max_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shape = output_shape(call)?;
    let indices = OutSpec::tensor(DataType::Int64, shape.clone());
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape), indices])
}

/// The planes of the input, each with its plane of the output.
fn planes<'a, A, B>(
    window: &Window,
    input: &'a [A],
    output: &'a mut [B],
) -> impl Iterator<Item = (&'a [A], &'a mut [B])> {
    let outputs = output.chunks_exact_mut(window.output_len().max(1));
    input.chunks_exact(window.input_len().max(1)).zip(outputs)
}

fn max_pool(cx: &mut RunCx<'_>) -> Result<()> {
    let window = window(cx)?;
    for_type!(cx.dtype(0)?, numbers, T => {
        let (x, y) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
        if !cx.has_output(1) {
            y.fill(T::LOWEST);
            for (x, y) in planes(&window, x, y) {
                window.rows(|row| row.zip(y, x, |y, x| *y = greater(*y, *x)));
            }
            return Ok(());
        }
        let by_columns = cx.int_or("storage_order", 0)? == 1;
        max_with_indices(&window, x, y, cx.output::<i64>(1)?, by_columns)
    })
}

/// The greater of two; a NaN where there is one.
fn greater<T: Number>(y: T, x: T) -> T {
    if x > y || x.is_nan() { x } else { y }
}

/// The index of a maximum is that of the first one in the whole input.
fn max_with_indices<T: Number>(
    window: &Window,
    x: &[T],
    y: &mut [T],
    indices: &mut [i64],
    by_columns: bool,
) -> Result<()> {
    let places: Vec<usize> =
        (0..window.input_len()).map(|at| place(window, at, by_columns)).collect();
    let mut best: Vec<Option<(T, usize)>> = vec![None; window.output_len()];
    let outputs = planes(window, x, y).zip(indices.chunks_exact_mut(window.output_len().max(1)));
    for (plane, ((x, y), indices)) in outputs.enumerate() {
        best.fill(None);
        let places: Vec<(T, usize)> = x.iter().copied().zip(places.iter().copied()).collect();
        window.rows(|row| {
            row.zip(&mut best, &places, |best, (x, place)| {
                if best.is_none_or(|(y, _)| *x > y || (x.is_nan() && !y.is_nan())) {
                    *best = Some((*x, *place));
                }
            });
        });
        for ((y, index), best) in y.iter_mut().zip(indices).zip(&best) {
            // A window over padding alone has no element.
            let (value, place) = best.unwrap_or((T::LOWEST, 0));
            *y = value;
            let at =
                plane.checked_mul(window.input_len()).and_then(|start| start.checked_add(place));
            *index = at
                .and_then(|at| i64::try_from(at).ok())
                .ok_or_else(|| Error::internal("an index that does not fit"))?;
        }
    }
    Ok(())
}

/// The index of element `at` in its plane, which counts along the first axis first if `by_columns`.
fn place(window: &Window, at: usize, by_columns: bool) -> usize {
    let [a, b, c] = &window.axes;
    let (line, k) = (at / c.input.max(1), at % c.input.max(1));
    let (i, j) = (line / b.input.max(1), line % b.input.max(1));
    if by_columns { i + (j + k * b.input) * a.input } else { at }
}

/// For each output of a plane, the product over the axes of `of`.
fn each_output(window: &Window, of: impl Fn(&Axis, usize) -> usize) -> Vec<usize> {
    let [a, b, c] = &window.axes;
    let mut counts = Vec::with_capacity(window.output_len());
    for i in 0..a.output {
        for j in 0..b.output {
            counts.extend((0..c.output).map(|k| of(a, i) * of(b, j) * of(c, k)));
        }
    }
    counts
}

/// A count as a float.
#[allow(
    clippy::cast_precision_loss,
    reason = "counts of elements are small, or rounded to the nearest"
)]
fn real<R: Real>(count: usize) -> R {
    R::of(count as f64)
}

fn average_pool(cx: &mut RunCx<'_>) -> Result<()> {
    let padded = cx.flag("count_include_pad", false)?;
    let (window, counted) =
        (window(cx)?, if padded { Counted::WithPadding } else { Counted::Inputs });
    for_type!(cx.dtype(0)?, floats, T => {
        averages::<T>(&window, counted, cx.input(0)?, cx.output(0)?);
        Ok(())
    })
}

/// Which taps of a window are counted for its average.
#[derive(Debug, Clone, Copy)]
pub(super) enum Counted {
    /// Those in the input.
    Inputs,
    /// Those in the input and in its padding, but not behind the padding.
    WithPadding,
    /// All.
    All,
}

/// The average of each window over the planes of `x`.
pub(super) fn averages<T: Float>(window: &Window, counted: Counted, x: &[T], y: &mut [T]) {
    let counts = match counted {
        Counted::Inputs => each_output(window, |axis, o| axis.taps(o).len()),
        Counted::WithPadding => each_output(window, Axis::padded_taps),
        Counted::All => each_output(window, |axis, _| axis.kernel),
    };
    let counts: Vec<_> = counts.iter().map(|count| real::<T::Real>(*count)).collect();
    let mut sums = vec![<T::Real as Number>::ZERO; window.output_len()];
    for (x, y) in planes(window, x, y) {
        sums.fill(Number::ZERO);
        window.rows(|row| row.zip(&mut sums, x, |sum, x| *sum += x.widen()));
        for ((y, sum), count) in y.iter_mut().zip(&sums).zip(&counts) {
            *y = T::round_from(*sum / *count);
        }
    }
}

/// The exponent of a norm, which is a float in version 1.
fn exponent(call: &Call<'_>) -> Result<f64> {
    match call.node().attributes.get("p") {
        Some(Attribute::Float(p)) => Ok(f64::from(*p)),
        #[allow(clippy::cast_precision_loss, reason = "exponents are small")]
        _ => Ok(call.int_or("p", 2)? as f64),
    }
}

/// The absolute value of `x` to the power of `p`.
fn power<R: Real>(x: R, p: f64) -> R {
    match p {
        1.0 => Number::abs(x),
        2.0 => x * x,
        _ => Number::abs(x).pow(R::of(p)),
    }
}

/// The root of a sum of powers of `p`.
fn root<R: Real>(sum: R, p: f64) -> R {
    match p {
        1.0 => sum,
        2.0 => Real::sqrt(sum),
        _ => sum.pow(R::of(1.0 / p)),
    }
}

fn lp_pool(cx: &mut RunCx<'_>) -> Result<()> {
    let (window, p) = (window(cx)?, exponent(cx)?);
    for_type!(cx.dtype(0)?, floats, T => {
        let (x, y) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
        let mut sums = vec![<T as Float>::Real::ZERO; window.output_len()];
        for (x, y) in planes(&window, x, y) {
            sums.fill(Number::ZERO);
            window.rows(|row| row.zip(&mut sums, x, |sum, x| *sum += power(x.widen(), p)));
            y.iter_mut().zip(&sums).for_each(|(y, sum)| *y = T::round_from(root(*sum, p)));
        }
        Ok(())
    })
}

fn global_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (batch, channels, spatial) = image(call, 0)?;
    let shape = [vec![batch, channels], vec![1; spatial.len()]].concat();
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

/// `f` of each plane of the input.
fn global<T: Number>(cx: &mut RunCx<'_>, f: impl Fn(&[T]) -> T) -> Result<()> {
    let (_, _, spatial) = image(cx, 0)?;
    let (x, y) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    match count(&spatial) {
        0 => y.fill(f(&[])),
        plane => y.iter_mut().zip(x.chunks_exact(plane)).for_each(|(y, x)| *y = f(x)),
    }
    Ok(())
}

fn global_max(cx: &mut RunCx<'_>) -> Result<()> {
    for_type!(cx.dtype(0)?, floats, T => {
        global(cx, |x: &[T]| x.iter().copied().fold(T::LOWEST, greater))
    })
}

fn global_average(cx: &mut RunCx<'_>) -> Result<()> {
    for_type!(cx.dtype(0)?, floats, T => global(cx, |plane: &[T]| {
        let sum = plane.iter().fold(<T as Float>::Real::ZERO, |sum, x| sum + x.widen());
        T::round_from(sum / real::<<T as Float>::Real>(plane.len()))
    }))
}

fn global_lp(cx: &mut RunCx<'_>) -> Result<()> {
    let p = exponent(cx)?;
    for_type!(cx.dtype(0)?, floats, T => global(cx, |plane: &[T]| {
        let sum = plane.iter().fold(<T as Float>::Real::ZERO, |sum, x| sum + power(x.widen(), p));
        T::round_from(root(sum, p))
    }))
}

/// The shape of the tensor that was pooled: the smallest one that the windows cover.
fn pooled_shape(call: &Call<'_>) -> Result<Vec<usize>> {
    let (batch, channels, spatial) = image(call, 0)?;
    let kernel = list(call, "kernel_shape", spatial.len(), 0)?;
    let mut shape = vec![batch, channels];
    for axis in attributes(call, &spatial, &kernel)? {
        let covered = axis.input.saturating_sub(1).checked_mul(axis.stride);
        let padded = covered.and_then(|len| len.checked_add(axis.kernel));
        let dim = padded.and_then(|len| len.checked_sub(axis.begin.checked_add(axis.end)?));
        shape.push(dim.ok_or_else(|| {
            Error::new(ErrorKind::Shape, format!("windows of {kernel:?} with this padding"))
        })?);
    }
    Ok(shape)
}

/// The shape of input 2, or that of the tensor that was pooled.
fn unpool_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let mut shape = pooled_shape(call)?;
    if call.has_input(2) {
        let wanted = call.integers(2)?.iter().map(|dim| size(*dim)).collect::<Result<Vec<_>>>()?;
        if wanted.len() != shape.len() {
            let reason = format!("an output of shape {wanted:?} for {} dimensions", shape.len());
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        shape = wanted;
    }
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

/// Zeros, with the elements of the input at their indices, which are those of the tensor that was
/// pooled.
fn max_unpool(cx: &mut RunCx<'_>) -> Result<()> {
    let (indices, pooled, shape) = (cx.input::<i64>(1)?, pooled_shape(cx)?, cx.out_shape(0)?);
    let (of_pooled, of_output) = (strides(&pooled), strides(shape));
    for_type!(cx.dtype(0)?, floats, T => {
        let (x, y) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
        y.fill(T::ZERO);
        for (x, i) in x.iter().zip(indices) {
            let (mut left, mut at) = (index(*i, count(&pooled))?, 0);
            for ((dim, own), stride) in shape.iter().zip(&of_pooled).zip(&of_output) {
                let coordinate = left / (*own).max(1);
                if coordinate >= *dim {
                    let reason = format!("index {i} lies outside of the shape {shape:?}");
                    return Err(Error::new(ErrorKind::Value, reason));
                }
                left -= coordinate * own;
                at += coordinate * stride;
            }
            *y.at_mut(at)? = *x;
        }
        Ok(())
    })
}
