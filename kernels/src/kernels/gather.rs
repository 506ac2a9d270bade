//! Operators that pick elements by index or condition: GatherElements, GatherND, Compress, NonZero,
//! OneHot.
//!
//! Operator `GatherND` is specified at <https://onnx.ai/onnx/operators/onnx__GatherND.html>, and
//! the others likewise. Gather itself is with the other operators in `movement`.

use onnx_container_proto::DataType;
use onnx_container_proto::num_complex::Complex;

use crate::error::{Error, ErrorKind, Result};
use crate::exact::{Exact, OrBug};
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{around, axis, count, index, offsets, size, strides};
use crate::numeric::{Number, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("GatherElements", gather_elements_infer, gather_elements),
    Builtin::new("GatherND", gather_nd_infer, gather_nd),
    Builtin::new("Compress", compress_infer, compress),
    Builtin::new("NonZero", non_zero_infer, non_zero),
    Builtin::new("OneHot", one_hot_infer, one_hot),
];

/// Where each element of `indices` points to in a tensor of `shape`: its own position, with the
/// index in place of that along axis `at`.
///
/// # Errors
/// [`ErrorKind::Shape`] when `of_indices` is not within `shape` beside the axis,
/// [`ErrorKind::Value`] for an index outside.
pub(super) fn positions(
    shape: &[usize],
    of_indices: &[usize],
    indices: &[i64],
    at: usize,
) -> Result<Vec<usize>> {
    let within = |(i, (dim, of)): (usize, (&usize, &usize))| i == at || of <= dim;
    if shape.len() != of_indices.len() || !shape.iter().zip(of_indices).enumerate().all(within) {
        let reason = format!("indices of shape {of_indices:?} into a tensor of shape {shape:?}");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let mut beside = strides(shape);
    let (along, dim) = (std::mem::take(beside.at_mut(at)?), *shape.at(at)?);
    let position = |(offset, i): (usize, &i64)| Ok(offset + index(*i, dim)? * along);
    offsets(of_indices, &beside).zip(indices).map(position).collect()
}

fn gather_elements_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(call.dtype(0)?, call.shape(1)?)])
}

fn gather_elements(cx: &mut RunCx<'_>) -> Result<()> {
    let shape = cx.shape(0)?;
    let at = axis(cx.int_or("axis", 0)?, shape.len())?;
    let positions = positions(&shape, &cx.shape(1)?, &cx.integers(1)?, at)?;
    arrange(cx, 0, positions.into_iter().map(|from| Run::one(0, from)))
}

/// Which slices of a tensor of `shape` the index tuples of `k` elements in `indices` name, counted
/// in slices of the dimensions behind `k`.
///
/// # Errors
/// [`ErrorKind::Value`] for an index outside.
pub(super) fn slices(shape: &[usize], indices: &[i64], k: usize) -> Result<Vec<usize>> {
    let dims = shape.part(..k)?;
    let position = |tuple: &[i64]| {
        let each = tuple.iter().zip(dims);
        each.map(|(i, dim)| Ok((index(*i, *dim)?, dim)))
            .try_fold(0, |at, step: Result<_>| step.map(|(i, dim): (usize, &usize)| at * dim + i))
    };
    indices.chunks_exact(k.max(1)).map(position).collect()
}

/// The number of batch dimensions, the shapes of the data and the indices, and the length of a
/// tuple.
fn gather_nd_shapes(call: &Call<'_>) -> Result<(usize, Vec<usize>, Vec<usize>, usize)> {
    let (shape, of_indices) = (call.shape(0)?, call.shape(1)?);
    let batch = size(call.int_or("batch_dims", 0)?)?;
    let fits =
        batch < shape.len().min(of_indices.len()) && shape.get(..batch) == of_indices.get(..batch);
    match of_indices.last() {
        Some(k) if fits && (1..=shape.len() - batch).contains(k) => {
            let k = *k;
            Ok((batch, shape, of_indices, k))
        }
        _ => {
            let reason = format!(
                "indices of shape {of_indices:?} into a tensor of shape {shape:?} with {batch} batch dimensions"
            );
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

fn gather_nd_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (batch, shape, of_indices, k) = gather_nd_shapes(call)?;
    let (_, tuples) = of_indices.split_last().or_bug("indices without tuples")?;
    let slice = shape.part(batch + k..)?;
    Ok(vec![OutSpec::tensor(call.dtype(0)?, [tuples, slice].concat())])
}

fn gather_nd(cx: &mut RunCx<'_>) -> Result<()> {
    let (batch, shape, of_indices, k) = gather_nd_shapes(cx)?;
    let (_, of_batch) = shape.split_at(batch);
    let len = count(of_batch.part(k..)?);
    let slices = slices(of_batch, &cx.integers(1)?, k)?;
    let tuples = count(of_indices.part(batch..)?) / k;
    let each = count(of_batch);
    let run = |(i, slice): (usize, usize)| {
        let from = i / tuples.max(1) * each + slice * len;
        Run::Copy { input: 0, from, len }
    };
    arrange(cx, 0, slices.into_iter().enumerate().map(run))
}

/// The axis, or `None` where the input is taken as one dimension, and the condition for each index.
fn condition<'a>(call: &Call<'a>) -> Result<(Option<usize>, &'a [bool])> {
    let shape = call.shape(0)?;
    let (at, dim) = match call.node().attributes.int("axis")? {
        Some(at) => {
            let at = axis(at, shape.len())?;
            (Some(at), *shape.at(at)?)
        }
        None => (None, count(&shape)),
    };
    let condition = call.input::<bool>(1)?;
    if condition.len() > dim {
        let reason = format!("{} conditions for {dim} elements", condition.len());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok((at, condition))
}

/// How many are true.
fn trues(conditions: &[bool]) -> usize {
    conditions.iter().filter(|holds| **holds).count()
}

/// The indices of what is true.
fn true_at(conditions: &[bool]) -> Vec<usize> {
    let all = conditions.iter().enumerate();
    all.filter(|(_, holds)| **holds).map(|(i, _)| i).collect()
}

fn compress_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (at, condition) = condition(call)?;
    let (chosen, mut shape) = (trues(condition), call.shape(0)?);
    match at.and_then(|at| shape.get_mut(at)) {
        Some(dim) => *dim = chosen,
        None => shape = vec![chosen],
    }
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

fn compress(cx: &mut RunCx<'_>) -> Result<()> {
    let (at, condition) = condition(cx)?;
    let (chosen, shape) = (true_at(condition), cx.shape(0)?);
    let (outer, dim, len) = at.map_or((1, count(&shape), 1), |at| around(&shape, at));
    let row = |o: usize| {
        let chosen = chosen.iter();
        chosen.map(move |i| Run::Copy { input: 0, from: (o * dim + i) * len, len })
    };
    arrange(cx, 0, (0..outer).flat_map(row))
}

/// Which elements are not zero, false or empty.
fn not_zero(call: &Call<'_>) -> Result<Vec<bool>> {
    Ok(match call.dtype(0)? {
        DataType::Bool => call.input::<bool>(0)?.to_vec(),
        DataType::String => call.strings(0)?.iter().map(|string| !string.is_empty()).collect(),
        DataType::Complex64 => {
            call.input::<Complex<f32>>(0)?.iter().map(|x| *x != Complex::ZERO).collect()
        }
        DataType::Complex128 => {
            call.input::<Complex<f64>>(0)?.iter().map(|x| *x != Complex::ZERO).collect()
        }
        dtype => for_type!(dtype, numbers, T => {
            Ok(call.input::<T>(0)?.iter().map(|x| *x != T::ZERO).collect())
        })?,
    })
}

fn non_zero_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(DataType::Int64, [call.rank(0)?, trues(&not_zero(call)?)])])
}

fn non_zero(cx: &mut RunCx<'_>) -> Result<()> {
    let (shape, positions) = (cx.shape(0)?, true_at(&not_zero(cx)?));
    let output = cx.output::<i64>(0)?;
    let rows = output.chunks_exact_mut(positions.len().max(1));
    for ((row, dim), stride) in rows.zip(&shape).zip(strides(&shape)) {
        for (index, position) in row.iter_mut().zip(&positions) {
            *index = i64::try_from(position / stride % dim).map_err(Error::internal)?;
        }
    }
    Ok(())
}

/// The axis of the output that has one element for each class, and the number of classes.
fn classes(call: &Call<'_>) -> Result<(usize, usize)> {
    let at = axis(call.int_or("axis", -1)?, call.rank(0)? + 1)?;
    let depth = for_type!(call.dtype(1)?, numbers, T => Ok(call.scalar::<T>(1)?.to_i128()))?;
    let depth = usize::try_from(depth)
        .map_err(|_| Error::new(ErrorKind::Value, format!("a depth of {depth} elements")))?;
    Ok((at, depth))
}

fn one_hot_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (at, depth) = classes(call)?;
    let mut shape = call.shape(0)?;
    shape.insert(at, depth);
    if call.shape(2)? != [2] {
        return Err(Error::new(ErrorKind::Shape, "the values are not two: off and on"));
    }
    Ok(vec![OutSpec::tensor(call.dtype(2)?, shape)])
}

/// Every class is off but the one that the index names; a negative one counts from the end, and one
/// outside names none.
fn one_hot(cx: &mut RunCx<'_>) -> Result<()> {
    let (at, depth) = classes(cx)?;
    let indices: Vec<Option<usize>> = for_type!(cx.dtype(0)?, numbers, T => {
        let number = |i: &T| <i64 as Number>::from_i128(i.to_i128());
        Ok(cx.input::<T>(0)?.iter().map(|i| index(number(i), depth).ok()).collect())
    })?;
    let (_, _, inner) = around(cx.out_shape(0)?, at);
    let of_outer = indices.chunks_exact(inner.max(1));
    let runs = of_outer.flat_map(|indices| (0..depth).map(move |class| (indices, class)));
    let of_class = |index: &Option<usize>, class| usize::from(*index == Some(class));
    let runs = runs.flat_map(|(indices, class)| {
        indices.iter().map(move |index| Run::one(2, of_class(index, class)))
    });
    arrange(cx, 0, runs)
}
