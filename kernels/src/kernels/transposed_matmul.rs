//! TransposedMatMul, an internal operator that no model has: a MatMul of which one factor is
//! transposed in memory.
//!
//! Attribute `transA` or `transB` says which one; it is a matrix. The sums are those of MatMul.
//! `ready` puts this node in the place of a Transpose of a weight and a MatMul.

use super::matmul::Sizes;
use bytemuck::{cast_slice, cast_slice_mut};

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::gemm::{Matrix, gemm};
use crate::numeric::profile::Profile;
use crate::numeric::{Number, for_type};

/// The domain of the operators that only programs have.
pub const INTERNAL_DOMAIN: &str = "onnx_container";
/// The name of the operator.
pub const TRANSPOSED_MATMUL: &str = "TransposedMatMul";

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::new(TRANSPOSED_MATMUL, infer, |cx| run(cx, Profile::Strict))
        .domain(INTERNAL_DOMAIN)
        .without_nans()];
pub(super) const FAST: &[Builtin] =
    &[Builtin::new(TRANSPOSED_MATMUL, infer, |cx| run(cx, Profile::Fast))
        .domain(INTERNAL_DOMAIN)
        .without_nans()];

/// The sizes of the product, and whether its first factor is the transposed one.
fn sizes(call: &Call<'_>) -> Result<(Sizes, bool)> {
    let first = call.flag("transA", false)?;
    let (mut a, mut b) = (call.shape(0)?, call.shape(1)?);
    let transposed = if first { &mut a } else { &mut b };
    if transposed.len() != 2 {
        return Err(Error::new(ErrorKind::Shape, "the transposed factor is not a matrix"));
    }
    transposed.reverse();
    Ok((Sizes::of(&a, &b)?, first))
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(call.dtype(0)?, sizes(call)?.0.output)])
}

fn run(cx: &mut RunCx<'_>, profile: Profile) -> Result<()> {
    let (sizes, first) = sizes(cx)?;
    for_type!(cx.dtype(0)?, products, T as C => {
        let (a, b) = (cast_slice(cx.input::<T>(0)?), cast_slice(cx.input::<T>(1)?));
        let by = if first { by_left::<C> } else { by_right::<C> };
        by(profile, &sizes, a, b, cast_slice_mut(cx.output::<T>(0)?))
    })
}

/// The product of the transpose of `a` and each matrix of `b`.
fn by_left<T: Number>(
    profile: Profile,
    sizes: &Sizes,
    a: &[T],
    b: &[T],
    c: &mut [T],
) -> Result<()> {
    let Sizes { m, k, n, .. } = *sizes;
    let left = Matrix::new(a, k, m)?.transposed();
    let each = c.chunks_exact_mut((m * n).max(1)).enumerate();
    for (i, c) in each {
        let b = Matrix::new(b.part(i * k * n..(i + 1) * k * n)?, k, n)?;
        T::fill_sums(c, |sums| gemm(profile, left, &b, sums))?;
    }
    Ok(())
}

/// The product of all rows of `a` at once and the transpose of `b`.
fn by_right<T: Number>(
    profile: Profile,
    sizes: &Sizes,
    a: &[T],
    b: &[T],
    c: &mut [T],
) -> Result<()> {
    let Sizes { k, n, .. } = *sizes;
    let Some(rows) = c.len().checked_div(n) else { return Ok(()) };
    let (a, b) = (Matrix::new(a, rows, k)?, Matrix::new(b, n, k)?.transposed());
    T::fill_sums(c, |sums| gemm(profile, a, &b, sums))
}
