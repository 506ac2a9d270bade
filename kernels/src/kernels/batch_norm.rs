//! Normalization over the batch and over channels: BatchNormalization, MeanVarianceNormalization,
//! LRN.
//!
//! Operator `BatchNormalization` is specified at
//! <https://onnx.ai/onnx/operators/onnx__BatchNormalization.html>, and the others likewise.

use super::elementwise::same;
use super::normalization::reals;
use super::reduce::Dims;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{around, axes, count, each_of, size};
use crate::numeric::{Float, Number, Real, for_type, number};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("BatchNormalization", batch_infer, batch),
    Builtin::new("MeanVarianceNormalization", same, mean_variance),
    Builtin::new("LRN", same, lrn),
];

/// Scale, bias, mean and variance of one channel.
#[derive(Debug, Clone, Copy)]
struct Channel<R> {
    scale: R,
    bias: R,
    mean: R,
    variance: R,
}

/// The output, the running statistics and, before version 14, those of the batch.
fn batch_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    if !is_training(call)? && (call.has_output(1) || call.has_output(2)) {
        let reason = "statistics are outputs in training mode only";
        return Err(Error::new(ErrorKind::InvalidModel, reason));
    }
    let mut outputs = same(call)?;
    for of in [3, 4, 3, 4] {
        outputs.push(OutSpec::tensor(call.dtype(of)?, call.shape(of)?));
    }
    Ok(outputs)
}

/// Whether the statistics of the batch are used: from version 14 on if an attribute says so, before
/// if they are outputs of the node.
fn is_training(call: &Call<'_>) -> Result<bool> {
    Ok(match call.version() {
        14.. => call.flag("training_mode", false)?,
        _ => call.has_output(1) && !call.flag("is_test", false)?,
    })
}

fn batch(cx: &mut RunCx<'_>) -> Result<()> {
    for_type!(cx.dtype(0)?, floats, T => batch_of::<T>(cx))
}

/// If the node is not `spatial`, every element of an image has parameters of its own; then `inner`
/// is 1.
fn batch_of<T: Float>(cx: &mut RunCx<'_>) -> Result<()> {
    let shape = cx.shape(0)?;
    let from = if shape.len() > 1 { 1 } else { shape.len() };
    let own = count(shape.part(from..)?);
    let (_, channels, inner) = match cx.flag("spatial", true)? {
        true => around(&shape, from),
        false => (0, own, 1),
    };
    let mut parameters = channels_of::<T::Real>(cx, channels)?;
    let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    if is_training(cx)? {
        let statistics = batch_statistics(input, channels, inner);
        write_running(cx, &parameters, &statistics)?;
        for (channel, (mean, variance)) in parameters.iter_mut().zip(statistics) {
            (channel.mean, channel.variance) = (mean, variance);
        }
    }
    let epsilon = real::<T::Real>(cx.float_or("epsilon", 1e-5)?);
    let inner = inner.max(1);
    let parts = input.chunks_exact(inner).zip(output.chunks_exact_mut(inner));
    for ((x, y), channel) in parts.zip(parameters.iter().cycle()) {
        let factor = channel.scale / (channel.variance + epsilon).sqrt();
        let apply = |x: T::Real| (x - channel.mean) * factor + channel.bias;
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x.map(apply));
    }
    Ok(())
}

fn real<R: Real>(value: f32) -> R {
    R::of(f64::from(value))
}

/// The parameters of all channels.
fn channels_of<R: Real>(cx: &RunCx<'_>, channels: usize) -> Result<Vec<Channel<R>>> {
    let [scales, biases] = [reals::<R>(cx, 1)?, reals::<R>(cx, 2)?];
    let [means, variances] = [reals::<R>(cx, 3)?, reals::<R>(cx, 4)?];
    let lens = [scales.len(), biases.len(), means.len(), variances.len()];
    if lens != [channels; 4] {
        let reason =
            format!("{channels} channels have {lens:?} scales, biases, means and variances");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let all = scales.into_iter().zip(biases).zip(means.into_iter().zip(variances));
    let channel = |((scale, bias), (mean, variance))| Channel { scale, bias, mean, variance };
    Ok(all.map(channel).collect())
}

/// The mean and the variance of each channel over the batch.
fn batch_statistics<T: Float>(
    input: &[T],
    channels: usize,
    inner: usize,
) -> Vec<(T::Real, T::Real)> {
    let zero = <T::Real as Number>::ZERO;
    let all = channels.saturating_mul(inner).max(1);
    let terms = number::<T::Real>(input.len() / all * inner);
    let dims = Dims::new(&[input.len() / all, channels, inner], &[true, false, true]);
    let mut sums = vec![zero; channels];
    dims.fold(input, &mut sums, |sum, x| sum + x.widen());
    let means = sums.into_iter().map(|sum| sum / terms);
    let mut totals: Vec<_> = means.map(|mean| (mean, zero)).collect();
    dims.fold(input, &mut totals, |(mean, squares), x| {
        let beside = x.widen() - mean;
        (mean, squares + beside * beside)
    });
    totals.into_iter().map(|(mean, squares)| (mean, squares / terms)).collect()
}

/// The running statistics, which move by `1 - momentum` to those of the batch, and those of the
/// batch.
fn write_running<R: Real>(
    cx: &mut RunCx<'_>,
    running: &[Channel<R>],
    batch: &[(R, R)],
) -> Result<()> {
    let momentum = real::<R>(cx.float_or("momentum", 0.9)?);
    let moved = |old: R, new: R| old * momentum + new * (R::ONE - momentum);
    let both = || running.iter().zip(batch);
    let columns: [Vec<R>; 4] = [
        both().map(|(channel, (mean, _))| moved(channel.mean, *mean)).collect(),
        both().map(|(channel, (_, variance))| moved(channel.variance, *variance)).collect(),
        batch.iter().map(|(mean, _)| *mean).collect(),
        batch.iter().map(|(_, variance)| *variance).collect(),
    ];
    for (j, column) in (1..).zip(&columns) {
        if cx.has_output(j) {
            for_type!(cx.out_dtype(j)?, floats, U => {
                let output = cx.output::<U>(j)?;
                output.iter_mut().zip(column).for_each(|(y, x)| *y = Number::from_f64(x.to_f64()));
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// `(x - mean) / (deviation + 1e-9)` over `axes`.
fn mean_variance(cx: &mut RunCx<'_>) -> Result<()> {
    let shape = cx.shape(0)?;
    let axes = axes(cx.ints_or("axes", &[0, 2, 3])?, shape.len())?;
    let reduced: Vec<_> = (0..shape.len()).map(|i| axes.contains(&i)).collect();
    for_type!(cx.dtype(0)?, floats, T => mean_variance_of::<T>(cx, &Dims::new(&shape, &reduced)))
}

fn mean_variance_of<T: Float>(cx: &mut RunCx<'_>, dims: &Dims) -> Result<()> {
    let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    let zero = <T::Real as Number>::ZERO;
    let terms = number::<T::Real>(dims.terms());
    let totals = each_of(input.len(), dims.terms());
    let mut sums = vec![zero; totals];
    dims.fold(input, &mut sums, |sum, x| sum + x.widen());
    let mut moments: Vec<_> = sums.into_iter().map(|sum| (sum / terms, zero)).collect();
    dims.fold(input, &mut moments, |(mean, squares), x| {
        let beside = x.widen() - mean;
        (mean, squares + beside * beside)
    });
    let tiny = <T::Real as Real>::of(1e-9);
    let scaled = |(mean, squares): (T::Real, T::Real)| (mean, (squares / terms).sqrt() + tiny);
    let moments: Vec<_> = moments.into_iter().map(scaled).collect();
    output.copy_from_slice(input);
    dims.each(output, &moments, |y, (mean, deviation)| *y = y.map(|x| (x - mean) / deviation))
}

/// Divides each element by a power of the sum of the squares at its place in `size` neighbouring
/// channels.
fn lrn(cx: &mut RunCx<'_>) -> Result<()> {
    for_type!(cx.dtype(0)?, floats, T => lrn_of::<T>(cx))
}

fn lrn_of<T: Float>(cx: &mut RunCx<'_>) -> Result<()> {
    let shape = cx.shape(0)?;
    let (window, (_, channels, inner)) = (size(cx.int("size")?)?, around(&shape, 1));
    if window == 0 || shape.len() < 2 {
        let reason = format!("{window} neighbouring channels of a tensor of shape {shape:?}");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let alpha = real::<T::Real>(cx.float_or("alpha", 1e-4)?);
    let alpha = alpha / number::<T::Real>(window);
    let beta = real::<T::Real>(cx.float_or("beta", 0.75)?);
    let bias = real::<T::Real>(cx.float_or("bias", 1.0)?);
    let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    let (inner, image) = (inner.max(1), channels.saturating_mul(inner).max(1));
    let mut sums = vec![<T::Real as Number>::ZERO; inner];
    for (x, y) in input.chunks_exact(image).zip(output.chunks_exact_mut(image)) {
        for (c, (y, own)) in y.chunks_exact_mut(inner).zip(x.chunks_exact(inner)).enumerate() {
            let first = c.saturating_sub((window - 1) / 2);
            let end = c.saturating_add(window / 2).saturating_add(1).min(channels);
            sums.fill(<T::Real as Number>::ZERO);
            for near in x.chunks_exact(inner).take(end).skip(first) {
                let squares = near.iter().map(|x| x.widen() * x.widen());
                sums.iter_mut().zip(squares).for_each(|(sum, square)| *sum += square);
            }
            for ((y, x), sum) in y.iter_mut().zip(own).zip(&sums) {
                *y = x.map(|x| x / Real::pow(bias + alpha * *sum, beta));
            }
        }
    }
    Ok(())
}
