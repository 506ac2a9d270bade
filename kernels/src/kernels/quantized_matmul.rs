//! Products of quantized matrices:
//! [MatMulInteger](https://onnx.ai/onnx/operators/onnx__MatMulInteger.html) and
//! [QLinearMatMul](https://onnx.ai/onnx/operators/onnx__QLinearMatMul.html).
//!
//! Products and sums of integers are exact in INT32. A scale or zero point is a single one, or
//! there is one for each row of A or each column of B.

use half::{bf16, f16};
use onnx_container_proto::DataType;

use super::matmul::Sizes;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::narrow::{Rounding, decode, set_codes, values};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::count;
use crate::numeric::profile::Profile;
use crate::numeric::{Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("MatMulInteger", infer_integer, integer),
    Builtin::new("QLinearMatMul", infer_linear, linear),
];

/// What scales or zero points belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Along {
    Rows,
    Columns,
}

/// For every element of a tensor with as many `matrices` of `rows` and `columns`, its scale or zero
/// point: those in input `i`, which belong to rows or columns, or `default` where it is left out.
/// There is one for all, one for each line of a matrix, or one for each line of all.
fn spread(
    call: &Call<'_>,
    i: usize,
    default: f64,
    along: Along,
    [matrices, rows, columns]: [usize; 3],
) -> Result<impl Iterator<Item = f64> + use<>> {
    check_count(call, i, along, [matrices, rows, columns])?;
    let mut all = if call.has_input(i) { values(call, i)? } else { Vec::new() };
    if all.is_empty() {
        all.push(default);
    }
    let (rows, columns) = (rows.max(1), columns.max(1));
    let (matrix, count) = (rows * columns, all.len());
    Ok((0_usize..).map(move |at| {
        let line = match along {
            Along::Rows => at / columns,
            Along::Columns => at / matrix * columns + at % columns,
        };
        all.debug_at(line % count, default)
    }))
}

/// Whether input `i`, if it is there, has as many elements as [`spread`] takes.
fn check_count(
    call: &Call<'_>,
    i: usize,
    along: Along,
    [matrices, rows, columns]: [usize; 3],
) -> Result<()> {
    let found = if call.has_input(i) { count(&call.shape(i)?) } else { 1 };
    let lines = if along == Along::Rows { rows } else { columns };
    if found != 1 && found != lines && Some(found) != lines.checked_mul(matrices) {
        let reason = format!("input {i} has {found} elements, not one or {lines}");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok(())
}

/// The number and shape of the matrices of input `i`, of which a vector is a matrix of one row, or
/// of one column.
fn matrix(call: &Call<'_>, i: usize, along: Along) -> Result<[usize; 3]> {
    Ok(match *call.shape(i)? {
        [len] if along == Along::Rows => [1, 1, len],
        [len] => [1, len, 1],
        [ref outer @ .., rows, columns] => [count(outer), rows, columns],
        [] => [1, 1, 1],
    })
}

/// The elements of input `i` without their zero points, which are in input `zeros`.
fn centred<T: Number>(call: &Call<'_>, i: usize, zeros: usize, along: Along) -> Result<Vec<T>> {
    let zeros = spread(call, zeros, 0.0, along, matrix(call, i, along)?)?;
    let elements = values(call, i)?.into_iter().zip(zeros);
    Ok(elements.map(|(x, zero)| T::from_f64(x - zero)).collect())
}

fn infer_integer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let sizes = Sizes::of(&call.shape(0)?, &call.shape(1)?)?;
    check_count(call, 2, Along::Rows, matrix(call, 0, Along::Rows)?)?;
    check_count(call, 3, Along::Columns, matrix(call, 1, Along::Columns)?)?;
    Ok(vec![OutSpec::tensor(DataType::Int32, sizes.output)])
}

fn integer(cx: &mut RunCx<'_>) -> Result<()> {
    let sizes = Sizes::of(&cx.shape(0)?, &cx.shape(1)?)?;
    let a = centred::<i32>(cx, 0, 2, Along::Rows)?;
    let b = centred::<i32>(cx, 1, 3, Along::Columns)?;
    sizes.products(Profile::Strict, &a, &b, cx.output::<i32>(0)?)
}

/// The inputs are A, its scale and zero point, those of B, and the scale and zero point of the
/// output.
fn infer_linear(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let sizes = Sizes::of(&call.shape(0)?, &call.shape(3)?)?;
    let product = product(&sizes);
    check_count(call, 2, Along::Rows, matrix(call, 0, Along::Rows)?)?;
    check_count(call, 5, Along::Columns, matrix(call, 3, Along::Columns)?)?;
    for (i, along) in [(1, Along::Rows), (4, Along::Columns), (6, Along::Rows), (7, Along::Rows)] {
        check_count(call, i, along, product)?;
    }
    Ok(vec![OutSpec::tensor(call.dtype(7)?, sizes.output)])
}

/// The number and shape of the matrices of a product.
fn product(sizes: &Sizes) -> [usize; 3] {
    // Without elements there is nothing to spread over matrices, and one is enough.
    let matrices = count(&sizes.output).checked_div(sizes.m * sizes.n).unwrap_or(1);
    [matrices, sizes.m, sizes.n]
}

fn linear(cx: &mut RunCx<'_>) -> Result<()> {
    if cx.dtype(0)?.is_integer() { linear_as::<i32>(cx) } else { linear_as::<f32>(cx) }
}

fn linear_as<T: Number>(cx: &mut RunCx<'_>) -> Result<()> {
    let (a, b) = (centred::<T>(cx, 0, 2, Along::Rows)?, centred::<T>(cx, 3, 5, Along::Columns)?);
    let sizes = Sizes::of(&cx.shape(0)?, &cx.shape(3)?)?;
    let mut sums = vec![T::ZERO; count(&sizes.output)];
    sizes.products(Profile::Strict, &a, &b, &mut sums)?;
    let size = product(&sizes);
    let factors = match cx.dtype(1)? {
        DataType::Float16 => factors::<f16>(cx, size, sums.len()),
        DataType::Bfloat16 => factors::<bf16>(cx, size, sums.len()),
        _ => factors::<f32>(cx, size, sums.len()),
    }?;
    let zeros = spread(cx, 7, 0.0, Along::Rows, size)?;
    let results = sums.iter().zip(factors).zip(zeros).map(|((sum, factor), zero)| {
        let scaled = sum.to_f64() * factor;
        if T::DTYPE.is_integer() { scaled.round_even() + zero } else { scaled + zero }
    });
    let to = cx.out_dtype(0)?;
    if decode(to).is_some() {
        let encode = Rounding { saturate: true, ..Rounding::of(cx)? }.encode(to)?;
        let codes: Vec<u8> = results.map(encode).collect();
        return set_codes(cx, 0, codes.into_iter());
    }
    for_type!(to, integers, O => {
        cx.output::<O>(0)?.iter_mut().zip(results).for_each(|(y, x)| *y = O::from_f64(x));
        Ok(())
    })
}

/// For every element of the product, the product of the scales of A and B divided by that of the
/// output, in the type of the scales.
fn factors<S: Number>(cx: &RunCx<'_>, size: [usize; 3], len: usize) -> Result<Vec<f64>> {
    let of_a = spread(cx, 1, 1.0, Along::Rows, size)?;
    let of_b = spread(cx, 4, 1.0, Along::Columns, size)?;
    let of_y = spread(cx, 6, 1.0, Along::Rows, size)?;
    let factor = |((a, b), y)| {
        let [a, b, y] = [a, b, y].map(S::from_f64);
        a.mul(b).div(y).to_f64()
    };
    Ok(of_a.zip(of_b).zip(of_y).map(factor).take(len).collect())
}
