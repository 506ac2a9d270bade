//! QGemm: a product of two quantized matrices, transposed or not, plus integers.
//!
//! See <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. Products and
//! sums of integers are exact in INT32. With a scale the result is quantized, else it is FLOAT.

use std::iter::repeat_n;

use onnx_container_proto::DataType;

use super::qlinear::{Linear, for_codes};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::narrow::values;
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{broadcast, broadcast_strides, count, offsets};
use crate::numeric::gemm::{Matrix, gemm};
use crate::numeric::profile::Profile;
use crate::numeric::{Number, Real, not_taken};

pub(super) const KERNELS: &[Builtin] = &[Builtin::of_onnxruntime("QGemm", infer, run)];

// The numbers of the inputs.
const A: usize = 0;
const B: usize = 3;
const C: usize = 6;
const Y_SCALE: usize = 7;
const Y_ZERO: usize = 8;

/// The rows and columns of input `i`, exchanged where attribute `transposed` is set.
fn matrix(call: &Call<'_>, i: usize, transposed: &str) -> Result<[usize; 2]> {
    match *call.shape(i)? {
        [rows, columns] if call.flag(transposed, false)? => Ok([columns, rows]),
        [rows, columns] => Ok([rows, columns]),
        _ => Err(Error::new(ErrorKind::Shape, format!("input {i} is not a matrix"))),
    }
}

/// The sizes of the product.
fn sizes(call: &Call<'_>) -> Result<[usize; 3]> {
    let ([m, k], [l, n]) = (matrix(call, A, "transA")?, matrix(call, B, "transB")?);
    if k == l {
        return Ok([m, k, n]);
    }
    let reason = format!("a matrix of {k} columns and one of {l} rows have no product");
    Err(Error::new(ErrorKind::Shape, reason))
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let [m, _, n] = sizes(call)?;
    let fits = |i: usize, most: usize| {
        let found = count(&call.shape(i)?);
        match found == 1 || found == most {
            true => Ok(()),
            false => {
                let reason = format!("input {i} has {found} elements, not one or {most}");
                Err(Error::new(ErrorKind::Shape, reason))
            }
        }
    };
    [(1, 1), (2, 1), (4, n), (5, n)].into_iter().try_for_each(|(i, most)| fits(i, most))?;
    if call.has_input(C) && broadcast(&[call.shape(C)?, vec![m, n]])? != [m, n] {
        let reason = format!("the shape {:?} does not broadcast to {:?}", call.shape(C)?, [m, n]);
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let dtype = match (call.has_input(Y_SCALE), call.has_input(Y_ZERO)) {
        (true, true) => call.dtype(Y_ZERO)?,
        (false, false) => DataType::Float,
        _ => {
            let reason = "a quantized result has both `y_scale` and `y_zero_point`";
            return Err(Error::new(ErrorKind::Input, reason));
        }
    };
    Ok(vec![OutSpec::tensor(dtype, [m, n])])
}

/// The elements of input `i` without its zero points: one for all, or one for each column of B as
/// it enters the product.
fn centred(cx: &RunCx<'_>, i: usize, is_transposed: bool) -> Result<Vec<i32>> {
    let zeros: Vec<i32> = values(cx, i + 2)?.into_iter().map(Number::from_f64).collect();
    let (elements, len) = (values(cx, i)?, cx.shape(i)?.last().map_or(1, |len| (*len).max(1)));
    let repeat = if zeros.len() > 1 && is_transposed { len } else { 1 };
    let zeros = zeros.iter().flat_map(|zero| repeat_n(*zero, repeat)).cycle();
    Ok(elements.into_iter().zip(zeros).map(|(x, zero)| i32::from_f64(x) - zero).collect())
}

/// The matrix of `elements` as it enters the product.
fn oriented(
    elements: &[i32],
    [rows, columns]: [usize; 2],
    transposed: bool,
) -> Result<Matrix<'_, i32>> {
    match transposed {
        true => Ok(Matrix::new(elements, columns, rows)?.transposed()),
        false => Matrix::new(elements, rows, columns),
    }
}

/// The sums of products, and of what is added to them.
fn sums(cx: &RunCx<'_>, [m, k, n]: [usize; 3]) -> Result<Vec<i32>> {
    let (trans_a, trans_b) = (cx.flag("transA", false)?, cx.flag("transB", false)?);
    let (a, b) = (centred(cx, A, trans_a)?, centred(cx, B, trans_b)?);
    let mut sums = vec![0; m * n];
    if let Some(c) = cx.input_if::<i32>(C)? {
        let (own, shape) = (cx.shape(C)?, [m, n]);
        let places = offsets(&shape, &broadcast_strides(&own, &shape)).collect::<Vec<_>>();
        for (sum, at) in sums.iter_mut().zip(places) {
            *sum = *c.at(at)?;
        }
    }
    let (a, b) = (oriented(&a, [m, k], trans_a)?, oriented(&b, [k, n], trans_b)?);
    gemm(Profile::Strict, a, &b, &mut sums)?;
    Ok(sums)
}

fn run(cx: &mut RunCx<'_>) -> Result<()> {
    let sums = sums(cx, sizes(cx)?)?;
    let factor = cx.float_or("alpha", 1.0)? * cx.scalar::<f32>(1)?;
    let scales: Vec<f32> =
        values(cx, 4)?.into_iter().map(|scale| factor * f32::of(scale)).collect();
    // One for all, or one for each column.
    let results =
        sums.iter().zip(scales.iter().cycle()).map(|(sum, scale)| f32::of(f64::from(*sum)) * scale);
    if !cx.has_input(Y_SCALE) {
        cx.output::<f32>(0)?.iter_mut().zip(results).for_each(|(y, x)| *y = x);
        return Ok(());
    }
    let to = Linear::new(cx, Y_SCALE, Y_ZERO)?;
    for_codes!(cx.out_dtype(0)?, Q => {
        cx.output::<Q>(0)?.iter_mut().zip(results).for_each(|(y, x)| *y = to.code(x));
        Ok(())
    })
}
