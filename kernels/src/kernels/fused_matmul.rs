//! FusedMatMul: a product of stacks of matrices of which each may be transposed, times a number.
//!
//! See <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. Sums are
//! those of MatMul; each is multiplied by `alpha` before it is rounded to the type of the output.

use std::borrow::Cow;

use super::matmul::Sizes;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{offsets, strides};
use crate::numeric::gemm::{Matrix, gemm};
use crate::numeric::profile::Profile;
use crate::numeric::{Float, Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::of_onnxruntime("FusedMatMul", infer, |cx| run(cx, Profile::Strict))];
pub(super) const FAST: &[Builtin] =
    &[Builtin::of_onnxruntime("FusedMatMul", infer, |cx| run(cx, Profile::Fast))];

/// How an input becomes a stack of matrices.
struct Factor {
    /// The shape of the stack, with each matrix as it enters the product.
    shape: Vec<usize>,
    /// Whether the matrices lie transposed in memory.
    is_transposed: bool,
    /// The shape and the distances of elements of the stack as its matrices lie in memory, where it
    /// has to be copied.
    copy: Option<[Vec<usize>; 2]>,
}

impl Factor {
    /// Input `i`, whose attributes have `letter` at their ends.
    fn new(call: &Call<'_>, i: usize, letter: &str) -> Result<Self> {
        let mut shape = call.shape(i)?;
        let copy = match call.flag(&format!("transBatch{letter}"), false)? {
            true => Some(batched(&mut shape, i)?),
            false => None,
        };
        // A vector stays a row or a column.
        let is_transposed = call.flag(&format!("trans{letter}"), false)? && shape.len() > 1;
        if let ([.., rows, columns], true) = (shape.as_mut_slice(), is_transposed) {
            std::mem::swap(rows, columns);
        }
        Ok(Self { shape, is_transposed, copy })
    }

    /// The elements, with each matrix in one piece.
    fn stack<'e, T: Copy>(&self, elements: &'e [T]) -> Result<Cow<'e, [T]>> {
        let Some([shape, strides]) = &self.copy else { return Ok(Cow::Borrowed(elements)) };
        offsets(shape, strides).map(|at| elements.at(at).copied()).collect()
    }

    fn matrix<'e, T>(
        &self,
        elements: &'e [T],
        [rows, columns]: [usize; 2],
    ) -> Result<Matrix<'e, T>> {
        match self.is_transposed {
            true => Ok(Matrix::new(elements, columns, rows)?.transposed()),
            false => Matrix::new(elements, rows, columns),
        }
    }
}

/// Moves the first dimension of `shape` behind those of the batch: in front of the last one. The
/// new shape, and how far apart its elements lie.
fn batched(shape: &mut [usize], i: usize) -> Result<[Vec<usize>; 2]> {
    if shape.len() < 3 {
        let reason = format!("input {i} of shape {shape:?} has no batch to exchange with its rows");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let mut strides = strides(shape);
    for dims in [&mut *shape, &mut strides] {
        if let [outer @ .., _] = dims {
            outer.rotate_left(1);
        }
    }
    Ok([shape.to_vec(), strides])
}

fn factors(call: &Call<'_>) -> Result<(Factor, Factor, Sizes)> {
    let (a, b) = (Factor::new(call, 0, "A")?, Factor::new(call, 1, "B")?);
    let sizes = Sizes::of(&a.shape, &b.shape)?;
    Ok((a, b, sizes))
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (_, _, sizes) = factors(call)?;
    Ok(vec![OutSpec::tensor(call.dtype(0)?, sizes.output)])
}

fn run(cx: &mut RunCx<'_>, profile: Profile) -> Result<()> {
    for_type!(cx.dtype(0)?, floats, T => compute::<T>(cx, profile))
}

fn compute<T: Float<Sum: Real>>(cx: &mut RunCx<'_>, profile: Profile) -> Result<()> {
    let (of_a, of_b, sizes) = factors(cx)?;
    let alpha = <T::Sum as Real>::of(f64::from(cx.float_or("alpha", 1.0)?));
    let (a, b) = (of_a.stack(cx.input::<T>(0)?)?, of_b.stack(cx.input::<T>(1)?)?);
    sizes.each(&a, &b, cx.output::<T>(0)?, |a, b, c| {
        let a = of_a.matrix(a, [sizes.m, sizes.k])?;
        let b = of_b.matrix(b, [sizes.k, sizes.n])?;
        T::fill_sums(c, |sums| {
            gemm(profile, a, &b, sums)?;
            sums.iter_mut().for_each(|sum| *sum = Number::mul(*sum, alpha));
            Ok(())
        })
    })
}
