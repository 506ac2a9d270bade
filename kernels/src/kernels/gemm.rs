//! [Gemm](https://onnx.ai/onnx/operators/onnx__Gemm.html): a product of two matrices, transposed or
//! not, plus a third one that broadcasts.

use bytemuck::{Pod, cast_slice, cast_slice_mut};

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{broadcast, broadcast_strides, offsets};
use crate::numeric::gemm::{Matrix, gemm};
use crate::numeric::profile::Profile;
use crate::numeric::{Number, for_type};

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::new("Gemm", infer, |cx| run(cx, Profile::Strict))];
pub(super) const FAST: &[Builtin] = &[Builtin::new("Gemm", infer, |cx| run(cx, Profile::Fast))];

/// The rows and columns of input `i`, exchanged where attribute `transposed` is set.
fn matrix(call: &Call<'_>, i: usize, transposed: &str) -> Result<[usize; 2]> {
    match *call.shape(i)? {
        [rows, columns] => {
            Ok(if call.flag(transposed, false)? { [columns, rows] } else { [rows, columns] })
        }
        _ => Err(Error::new(ErrorKind::Shape, format!("input {i} is not a matrix"))),
    }
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let ([m, k], [l, n]) = (matrix(call, 0, "transA")?, matrix(call, 1, "transB")?);
    if k != l {
        let reason = format!("a matrix of {k} columns and one of {l} rows have no product");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    if call.has_input(2) && broadcast(&[call.shape(2)?, vec![m, n]])? != [m, n] {
        let reason = format!("the shape {:?} does not broadcast to {:?}", call.shape(2)?, [m, n]);
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok(vec![OutSpec::tensor(call.dtype(0)?, [m, n])])
}

fn run(cx: &mut RunCx<'_>, profile: Profile) -> Result<()> {
    for_type!(cx.dtype(0)?, products, T as C => compute::<T, C>(cx, profile))
}

/// The product of elements of `T`, computed as `C` and scaled as `T`.
fn compute<T, C>(cx: &mut RunCx<'_>, profile: Profile) -> Result<()>
where
    T: Number<Sum: Pod> + Pod,
    C: Number<Sum: Pod> + Pod,
{
    let (alpha, beta) = (cx.float_or("alpha", 1.0)?, cx.float_or("beta", 1.0)?);
    let [m, k] = matrix(cx, 0, "transA")?;
    let n = matrix(cx, 1, "transB")?[1];
    let a = oriented(cast_slice::<T, C>(cx.input::<T>(0)?), [m, k], cx.flag("transA", false)?)?;
    let b = oriented(cast_slice::<T, C>(cx.input::<T>(1)?), [k, n], cx.flag("transB", false)?)?;
    // What is multiplied by 0 is not read, so a NaN there does not count.
    let c = if beta == 0.0 { None } else { cx.input_if::<T>(2)? };
    let shape = cx.out_shape(0)?;
    let strides = if c.is_some() { broadcast_strides(&cx.shape(2)?, shape) } else { vec![0, 0] };
    T::fill_sums(cx.output::<T>(0)?, |sums| {
        gemm(profile, a, &b, cast_slice_mut::<T::Sum, C::Sum>(sums))?;
        sums.iter_mut().for_each(|sum| *sum = scaled(*sum, alpha));
        let Some(c) = c else { return Ok(()) };
        for (sum, at) in sums.iter_mut().zip(offsets(shape, &strides)) {
            *sum = sum.add(scaled(c.at(at)?.to_sum(), beta));
        }
        Ok(())
    })
}

/// The matrix of `rows` and `columns` that lies in `elements` as it is or transposed.
fn oriented<T>(elements: &[T], [rows, columns]: [usize; 2], turned: bool) -> Result<Matrix<'_, T>> {
    match turned {
        false => Matrix::new(elements, rows, columns),
        true => Ok(Matrix::new(elements, columns, rows)?.transposed()),
    }
}

/// `x` times `factor`, rounded once: the product of two `f32` is exact in `f64`.
fn scaled<T: Number>(x: T, factor: f32) -> T {
    match factor {
        1.0 => x,
        _ => T::from_f64(x.to_f64() * f64::from(factor)),
    }
}
