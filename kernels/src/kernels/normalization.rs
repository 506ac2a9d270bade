//! Normalization of rows: LayerNormalization, RMSNormalization, GroupNormalization,
//! InstanceNormalization.
//!
//! A row is what has one mean and one variance: neighbouring elements of the input. It is
//! normalized in the type of stage one (`stash_type`), and scaled and shifted in the type of the
//! tensor. Normalization over the batch is in `batch_norm`. Operator `LayerNormalization` is
//! specified at <https://onnx.ai/onnx/operators/onnx__LayerNormalization.html>, and the others
//! likewise.

use onnx_container_proto::DataType;

use super::elementwise::same;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{around, axis, broadcast, broadcast_strides, count, offsets, size};
use crate::numeric::lines::lines;
use crate::numeric::{Float, Number, Real, for_type, not_taken, number};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("LayerNormalization", layer_infer, layer),
    Builtin::new("RMSNormalization", rms_infer, rms),
    Builtin::new("GroupNormalization", same, group),
    Builtin::new("InstanceNormalization", same, instance),
    Builtin::new("LpNormalization", same, lp),
];

/// Runs `$body` with `$S` as the type in which stage one is computed, of `DataType` `$dtype`.
macro_rules! for_stage {
    ($dtype:expr, $S:ident => $body:expr) => {
        match $dtype {
            DataType::Float | DataType::Float16 | DataType::Bfloat16 => {
                type $S = f32;
                $body
            }
            DataType::Double => {
                type $S = f64;
                $body
            }
            other => Err(not_taken(other)),
        }
    };
}

/// The type of stage one: FLOAT where nothing else is asked for.
fn stash_type(call: &Call<'_>) -> Result<DataType> {
    let number = i32::try_from(call.int_or("stash_type", 1)?);
    number.ok().and_then(|number| DataType::try_from(number).ok()).ok_or_else(|| {
        Error::new(ErrorKind::InvalidModel, "`stash_type` is not the number of an element type")
    })
}

/// A float in the type of a stage.
fn staged<S: Real>(x: impl Number) -> S {
    S::from_f64(x.to_f64())
}

/// The elements of input `i`, of any float type, in type `R`.
pub(super) fn reals<R: Real>(cx: &RunCx<'_>, i: usize) -> Result<Vec<R>> {
    for_type!(cx.dtype(i)?, floats, T => Ok(cx.input::<T>(i)?.iter().map(|x| staged(*x)).collect()))
}

/// The mean and the variance: the mean of the squared differences from the mean.
pub(super) fn moments<R: Real>(row: &[R]) -> (R, R) {
    let terms = number::<R>(row.len());
    let mean = row.iter().fold(R::ZERO, |sum, x| sum + *x) / terms;
    let squares = row.iter().fold(R::ZERO, |sum, x| sum + (*x - mean) * (*x - mean));
    (mean, squares / terms)
}

/// `1 / sqrt(variance + epsilon)`.
pub(super) fn inverse<R: Real>(variance: R, epsilon: R) -> R {
    R::ONE / (variance + epsilon).sqrt()
}

/// The elements of `row` become those with mean 0 and variance 1; the mean and the inverse of the
/// deviation.
fn normalize<R: Real>(row: &mut [R], epsilon: R) -> (R, R) {
    let (mean, variance) = moments(row);
    let inverse = inverse(variance, epsilon);
    row.iter_mut().for_each(|x| *x = (*x - mean) * inverse);
    (mean, inverse)
}

/// Divides the elements of `row` by the root of the mean of their squares.
fn normalize_by_root<R: Real>(row: &mut [R], epsilon: R) -> (R, R) {
    let terms = number::<R>(row.len());
    let squares = row.iter().fold(R::ZERO, |sum, x| sum + *x * *x);
    let inverse = inverse(squares / terms, epsilon);
    row.iter_mut().for_each(|x| *x = *x * inverse);
    (R::ZERO, inverse)
}

/// Stage one: the elements of `input`, normalized by `f` in type `S`, are written to `output`.
/// `row` is memory to compute in.
fn stage_one<T: Float, V: Float, S: Real, F>(
    input: &[T],
    output: &mut [V],
    row: &mut Vec<S>,
    f: impl FnOnce(&mut [S]) -> F,
) -> F {
    row.clear();
    row.extend(input.iter().map(|x| staged::<S>(*x)));
    let found = f(row);
    output.iter_mut().zip(row).for_each(|(y, x)| *y = V::from_f64(x.to_f64()));
    found
}

/// The dimensions from `axis` on, and how many elements they have.
fn row_shape(call: &Call<'_>) -> Result<(usize, usize)> {
    let shape = call.shape(0)?;
    let at = axis(call.int_or("axis", -1)?, shape.len())?;
    Ok((at, count(shape.part(at..)?)))
}

fn layer_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (dtype, shape, (at, _)) = (call.dtype(0)?, call.shape(0)?, row_shape(call)?);
    let rows: Vec<_> =
        shape.iter().enumerate().map(|(i, dim)| if i < at { *dim } else { 1 }).collect();
    let of_rows = OutSpec::tensor(stash_type(call)?, rows);
    Ok(vec![OutSpec::tensor(dtype, shape), of_rows.clone(), of_rows])
}

fn rms_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(call.dtype(1)?, call.shape(0)?)])
}

/// Input `i`, which broadcasts to input 0, with the elements for one row or for all rows.
fn per_row<R: Real>(cx: &RunCx<'_>, i: usize) -> Result<Vec<R>> {
    let (shape, own, values) = (cx.shape(0)?, cx.shape(i)?, reals::<R>(cx, i)?);
    let (at, _) = row_shape(cx)?;
    let leading = (own.len() + at).saturating_sub(shape.len());
    let shared = own.iter().take(leading).all(|dim| *dim == 1);
    if shared && own.get(leading..) == shape.get(at..) {
        return Ok(values);
    }
    if broadcast(&[own.clone(), shape.clone()])? != shape {
        let reason = format!("input {i} of shape {own:?} does not broadcast to {shape:?}");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let strides = broadcast_strides(&own, &shape);
    offsets(&shape, &strides).map(|at| values.at(at).copied()).collect()
}

fn layer(cx: &mut RunCx<'_>) -> Result<()> {
    let stash = stash_type(cx)?;
    for_type!(cx.dtype(0)?, floats, T => for_stage!(stash, S => layer_of::<T, T, S>(cx, normalize)))
}

/// The scale has a type of its own, which is that of the output.
fn rms(cx: &mut RunCx<'_>) -> Result<()> {
    let stash = stash_type(cx)?;
    for_type!(cx.dtype(0)?, floats, T => for_type!(cx.dtype(1)?, floats, V => {
        for_stage!(stash, S => layer_of::<T, V, S>(cx, normalize_by_root))
    }))
}

/// Rows of `T`, normalized in `S` by `f`, scaled and shifted in `V`.
fn layer_of<T: Float, V: Float, S: Real>(
    cx: &mut RunCx<'_>,
    f: impl Fn(&mut [S], S) -> (S, S),
) -> Result<()> {
    let (_, len) = row_shape(cx)?;
    let epsilon = staged::<S>(cx.float_or("epsilon", 1e-5)?);
    let (input, output) = (cx.input::<T>(0)?, cx.output::<V>(0)?);
    let scale = per_row::<V::Real>(cx, 1)?;
    let bias = if cx.has_input(2) { Some(per_row::<V::Real>(cx, 2)?) } else { None };
    let len = len.max(1);
    let scales = scale.chunks_exact(len).cycle();
    let mut biases = bias.as_deref().map(|bias| bias.chunks_exact(len).cycle());
    let (mut row, mut statistics) = (Vec::new(), Vec::new());
    let rows = input.chunks_exact(len).zip(output.chunks_exact_mut(len));
    for ((x, y), scale) in rows.zip(scales) {
        statistics.push(stage_one(x, y, &mut row, |row| f(row, epsilon)));
        y.iter_mut().zip(scale).for_each(|(y, scale)| *y = y.map(|y| y * *scale));
        if let Some(bias) = biases.as_mut().and_then(Iterator::next) {
            y.iter_mut().zip(bias).for_each(|(y, bias)| *y = y.map(|y| y + *bias));
        }
    }
    write_statistics(cx, &statistics)
}

/// Outputs 1 and 2, where they are asked for: the means, and the inverses of the deviations.
fn write_statistics<S: Real>(cx: &mut RunCx<'_>, statistics: &[(S, S)]) -> Result<()> {
    let column = |j: usize| statistics.iter().map(move |(a, b)| if j == 1 { *a } else { *b });
    for j in (1..3).filter(|j| cx.has_output(*j)).collect::<Vec<_>>() {
        for_type!(cx.out_dtype(j)?, floats, U => {
            let output = cx.output::<U>(j)?;
            output.iter_mut().zip(column(j)).for_each(|(y, x)| *y = Number::from_f64(x.to_f64()));
            Ok(())
        })?;
    }
    Ok(())
}

/// Scale and bias are by group before version 21, and by channel later.
fn group(cx: &mut RunCx<'_>) -> Result<()> {
    let groups = size(cx.int("num_groups")?)?;
    let stash = if cx.version() < 21 { cx.dtype(0)? } else { stash_type(cx)? };
    for_type!(cx.dtype(0)?, floats, T => for_stage!(stash, S => by_group::<T, S>(cx, groups)))
}

/// Every channel is a group.
fn instance(cx: &mut RunCx<'_>) -> Result<()> {
    let (_, channels, _) = around(&cx.shape(0)?, 1);
    for_type!(cx.dtype(0)?, floats, T => by_group::<T, <T as Float>::Real>(cx, channels))
}

/// Rows are groups of neighbouring channels, with as many scales and biases for each.
fn by_group<T: Float, S: Real>(cx: &mut RunCx<'_>, groups: usize) -> Result<()> {
    let shape = cx.shape(0)?;
    let (_, channels, inner) = around(&shape, 1);
    let (scale, bias) = (reals::<T::Real>(cx, 1)?, reals::<T::Real>(cx, 2)?);
    let fits = |len: usize| len == channels || (len == groups && cx.version() < 21);
    let divides = channels.checked_rem(groups) == Some(0);
    if shape.len() < 2 || !divides || !fits(scale.len()) || bias.len() != scale.len() {
        let reason = format!(
            "{groups} groups of {} scales and {} biases for a tensor of shape {shape:?}",
            scale.len(),
            bias.len()
        );
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let epsilon = staged::<S>(cx.float_or("epsilon", 1e-5)?);
    let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    let (len, each) = ((channels / groups * inner).max(1), (scale.len() / groups).max(1));
    let rows = input.chunks_exact(len).zip(output.chunks_exact_mut(len));
    let parameters = scale.chunks_exact(each).zip(bias.chunks_exact(each)).cycle();
    let mut row = Vec::new();
    for ((x, y), (scale, bias)) in rows.zip(parameters) {
        stage_one(x, y, &mut row, |row| normalize::<S>(row, epsilon));
        let parts = y.chunks_exact_mut((len / each).max(1));
        for ((part, scale), bias) in parts.zip(scale).zip(bias) {
            part.iter_mut().for_each(|y| *y = y.map(|y| y * *scale).map(|y| y + *bias));
        }
    }
    Ok(())
}

/// Divides each line along `axis` by the sum of its absolute values, or by the root of the sum of
/// its squares; a line of zeros stays as it is.
fn lp(cx: &mut RunCx<'_>) -> Result<()> {
    let shape = cx.shape(0)?;
    let (_, dim, inner) = around(&shape, axis(cx.int_or("axis", -1)?, shape.len())?);
    let p = cx.int_or("p", 2)?;
    if p != 1 && p != 2 {
        let reason = format!("`p` is {p}, and norms of order 1 and 2 are known");
        return Err(Error::new(ErrorKind::Value, reason));
    }
    for_type!(cx.dtype(0)?, floats, T => {
        let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
        lines((input, dim), (output, dim), inner, |x, y| {
            let norm = norm(x, p);
            let by = |x: &T| if norm == 0.0 { T::ZERO } else { x.map(|x| x / norm) };
            y.iter_mut().zip(x).for_each(|(y, x)| *y = by(x));
        });
        Ok(())
    })
}

fn norm<T: Float>(line: &[T], p: i64) -> T::Real {
    let terms = line.iter().map(|x| x.widen());
    let zero = <T::Real as Number>::ZERO;
    match p {
        1 => terms.fold(zero, |sum, x| sum + x.abs()),
        _ => terms.fold(zero, |sum, x| sum + x * x).sqrt(),
    }
}
