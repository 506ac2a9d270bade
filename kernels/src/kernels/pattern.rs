//! Operators whose elements follow a pattern of indices: Range, EyeLike, Trilu, ReverseSequence.
//!
//! Operator `Trilu` is specified at <https://onnx.ai/onnx/operators/onnx__Trilu.html>, and the
//! others likewise.

use onnx_container_proto::DataType;

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{count, saturated, size};
use crate::numeric::{Number, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("Range", range_infer, range),
    Builtin::new("EyeLike", eye_like_infer, eye_like),
    Builtin::new("Trilu", trilu_infer, trilu),
    Builtin::new("ReverseSequence", reverse_infer, reverse_sequence),
];

/// How many numbers there are from `start` to below `limit` in steps of `delta`.
fn steps<T: Number>(call: &Call<'_>) -> Result<usize> {
    let (start, limit, delta) = (call.scalar::<T>(0)?, call.scalar::<T>(1)?, call.scalar::<T>(2)?);
    if delta == T::ZERO || delta.is_nan() {
        return Err(Error::new(ErrorKind::Value, "the step is 0 or not a number"));
    }
    let whole = if T::DTYPE.is_integer() {
        let (span, step) = (limit.to_i128() - start.to_i128(), delta.to_i128());
        let towards_zero = span / step;
        towards_zero + i128::from(span % step != 0 && (span < 0) == (step < 0))
    } else {
        let steps = (limit.to_f64() - start.to_f64()) / delta.to_f64();
        if steps.is_nan() {
            return Err(Error::new(ErrorKind::Value, "the number of elements is not a number"));
        }
        steps.ceil().to_i128()
    };
    usize::try_from(whole.max(0))
        .map_err(|_| Error::new(ErrorKind::Shape, format!("a range of {whole} elements")))
}

fn range_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let dtype = call.dtype(0)?;
    let steps = for_type!(dtype, numbers, T => steps::<T>(call))?;
    Ok(vec![OutSpec::tensor(dtype, [steps])])
}

/// `start + i * delta`; FLOAT16 and BFLOAT16 in FLOAT with one rounding.
fn range(cx: &mut RunCx<'_>) -> Result<()> {
    for_type!(cx.dtype(0)?, numbers, T => {
        let (start, delta) = (cx.scalar::<T>(0)?.to_sum(), cx.scalar::<T>(2)?.to_sum());
        for (i, element) in cx.output::<T>(0)?.iter_mut().enumerate() {
            let i = <<T as Number>::Sum>::from_i128(i as i128);
            *element = T::from_sum(start.add(i.mul(delta)));
        }
        Ok(())
    })
}

fn eye_like_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shape = call.shape(0)?;
    if shape.len() != 2 {
        let reason = format!("the shape {shape:?} does not have two dimensions");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok(vec![OutSpec::tensor(out_type(call)?.map_or_else(|| call.dtype(0), Ok)?, shape)])
}

/// The element type that attribute `dtype` names.
pub(super) fn out_type(call: &Call<'_>) -> Result<Option<DataType>> {
    let Some(number) = call.node().attributes.int("dtype")? else { return Ok(None) };
    let number = i32::try_from(number).map_err(|_| {
        Error::new(ErrorKind::InvalidModel, "attribute `dtype` is not an element type")
    })?;
    Ok(Some(DataType::try_from(number)?))
}

/// The element type that attribute `dtype` names, or the operator's default.
pub(super) fn out_type_or(call: &Call<'_>, default: DataType) -> Result<DataType> {
    Ok(out_type(call)?.unwrap_or(default))
}

/// The elements on diagonal `k` of a matrix of `rows` by `columns`.
fn diagonal(rows: usize, columns: usize, k: i64) -> impl Iterator<Item = usize> {
    let (first, skipped) = (saturated(k.max(0)), saturated(k.min(0).unsigned_abs()));
    let pairs = (skipped..rows).zip(first..columns);
    pairs.map(move |(row, column)| row * columns + column)
}

fn eye_like(cx: &mut RunCx<'_>) -> Result<()> {
    let [rows, columns] = *cx.out_shape(0)? else { return Err(Error::internal("no matrix")) };
    let mut ones = diagonal(rows, columns, cx.int_or("k", 0)?);
    if cx.out_dtype(0)? == DataType::Bool {
        let output = cx.output::<bool>(0)?;
        return ones.try_for_each(|at| output.at_mut(at).map(|one| *one = true));
    }
    for_type!(cx.out_dtype(0)?, numbers, T => {
        let output = cx.output::<T>(0)?;
        output.fill(T::ZERO);
        ones.try_for_each(|at| output.at_mut(at).map(|one| *one = T::ONE))
    })
}

/// The output has the type and shape of the input, which has at least two dimensions.
fn trilu_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shape = call.shape(0)?;
    if shape.len() < 2 {
        let reason = format!("the shape {shape:?} has less than two dimensions");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

/// The elements of a row that are kept are one run, with zeros at one side of it.
fn trilu(cx: &mut RunCx<'_>) -> Result<()> {
    let shape = cx.shape(0)?;
    let [batch @ .., rows, columns] = &*shape else {
        return Err(Error::internal("fewer than two dimensions"));
    };
    let (rows, columns) = (*rows, *columns);
    let (is_upper, k) =
        (cx.flag("upper", true)?, if cx.has_input(1) { cx.scalar::<i64>(1)? } else { 0 });
    let matrices = count(batch);
    // The first column on or above the diagonal, or behind it for the lower part.
    let border = |row: usize| {
        let behind = i128::from(k) + row as i128 + i128::from(!is_upper);
        saturated(behind.max(0)).min(columns)
    };
    let row = |i: usize| {
        let (border, start) = (border(i % rows), i * columns);
        let copy = |from, len| Run::Copy { input: 0, from: start + from, len };
        if is_upper {
            [Run::Zero { len: border }, copy(border, columns - border)]
        } else {
            [copy(0, border), Run::Zero { len: columns - border }]
        }
    };
    let all = matrices.saturating_mul(rows);
    arrange(cx, 0, (0..all).flat_map(row))
}

/// The time axis and the batch axis: the first two, in any order.
fn sequence_axes(call: &Call<'_>) -> Result<(i64, i64)> {
    let (time, batch) = (call.int_or("time_axis", 0)?, call.int_or("batch_axis", 1)?);
    if matches!((time, batch), (0, 1) | (1, 0)) {
        return Ok((time, batch));
    }
    let reason = format!("the time axis is {time} and the batch axis {batch}, not 0 and 1");
    Err(Error::new(ErrorKind::InvalidModel, reason))
}

fn reverse_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    sequence_axes(call)?;
    trilu_infer(call)
}

/// The first elements along the time axis in reverse, as many as each batch has, and the others
/// after them.
fn reverse_sequence(cx: &mut RunCx<'_>) -> Result<()> {
    let (shape, lens) = (cx.shape(0)?, cx.integers(1)?);
    let (time, _) = sequence_axes(cx)?;
    let [first, second, inner @ ..] = &*shape else {
        return Err(Error::internal("fewer than two dimensions"));
    };
    let (first, second, len) = (*first, *second, count(inner));
    let (times, batches) = if time == 0 { (first, second) } else { (second, first) };
    let lens = lens.iter().map(|len| size(*len)).collect::<Result<Vec<_>>>()?;
    if lens.len() != batches || lens.iter().any(|len| *len > times) {
        let reason = format!("the lengths {lens:?} for {batches} sequences of {times} elements");
        return Err(Error::new(ErrorKind::Value, reason));
    }
    let reversed = |t: usize, b: usize| match lens.get(b) {
        Some(len) if t < *len => len - 1 - t,
        _ => t,
    };
    let run = |i: usize| {
        let (a, b) = (i / second, i % second);
        let (a, b) = if time == 0 { (reversed(a, b), b) } else { (a, reversed(b, a)) };
        Run::Copy { input: 0, from: (a * second + b) * len, len }
    };
    arrange(cx, 0, (0..first.saturating_mul(second)).map(run))
}
