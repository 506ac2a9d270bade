//! The forms of Gelu that are operators of onnxruntime: Gelu, BiasGelu, FastGelu, QuickGelu.
//!
//! Each operator is specified at
//! <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. The functions of
//! one number are those of `activation`; a bias is added in the type they are computed in.

use super::activation::{gelu_erf, gelu_tanh, sigmoid};
use super::elementwise::same;
use super::loops::{map, zip};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::{Float, Real, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    elementwise(
        "Gelu",
        same,
        |cx| for_type!(cx.dtype(0)?, floats, T => map(cx, |x: T| Float::map(x, gelu_erf))),
    ),
    elementwise(
        "BiasGelu",
        infer_biased,
        |cx| for_type!(cx.dtype(0)?, floats, T => biased::<T>(cx, gelu_erf)),
    ),
    elementwise(
        "FastGelu",
        infer_biased,
        |cx| for_type!(cx.dtype(0)?, floats, T => biased::<T>(cx, gelu_tanh)),
    ),
    elementwise("QuickGelu", same, quick),
];

/// An elementwise kernel, whose loops write the one NaN.
const fn elementwise(
    op_type: &'static str,
    infer: fn(&Call<'_>) -> Result<Vec<OutSpec>>,
    run: fn(&mut RunCx<'_>) -> Result<()>,
) -> Builtin {
    Builtin::of_onnxruntime(op_type, infer, run).elementwise().without_nans()
}

/// The type and shape of input 0. The bias, input 1, has an element for each of the last dimension.
fn infer_biased(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shape = call.shape(0)?;
    if call.has_input(1)
        && shape.last().is_none_or(|last| call.shape(1).is_ok_and(|b| b != [*last]))
    {
        let reason = format!("a bias of shape {:?} for an input of {shape:?}", call.shape(1)?);
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    same(call)
}

/// `f` of the sum of each element and its bias.
fn biased<T: Float>(cx: &mut RunCx<'_>, f: fn(T::Real) -> T::Real) -> Result<()> {
    if !cx.has_input(1) {
        return map(cx, |x: T| x.map(f));
    }
    let shapes = [cx.shape(0)?, cx.shape(1)?];
    zip(cx, &shapes, |x: T, bias: T| T::round_from(f(x.widen() + bias.widen())))
}

/// `x * sigmoid(alpha * x)`.
fn quick(cx: &mut RunCx<'_>) -> Result<()> {
    let alpha = f64::from(cx.float_or("alpha", 1.702)?);
    for_type!(cx.dtype(0)?, floats, T => {
        let alpha = <T as Float>::Real::of(alpha);
        map(cx, |x: T| Float::map(x, |x| x * sigmoid(alpha * x)))
    })
}
