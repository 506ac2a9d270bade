//! [Cast](https://onnx.ai/onnx/operators/onnx__Cast.html) and
//! [CastLike](https://onnx.ai/onnx/operators/onnx__CastLike.html) between numbers and BOOL.
//!
//! Integers wrap to a narrower type. Floats round to the nearest float, and towards zero to an integer; one
//! that is too large for it becomes the nearest one.

use onnx_container::DataType;

use super::elementwise::map;
use crate::call::{Call, OutSpec, RunCx};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::numeric::{Number, for_type};

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::new("Cast", infer, cast), Builtin::new("CastLike", infer_like, cast)];

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let number = i32::try_from(call.int("to")?).map_err(|_| {
        Error::new(ErrorKind::InvalidModel, "attribute `to` is not an element type")
    })?;
    Ok(vec![OutSpec::tensor(DataType::try_from(number)?, call.shape(0)?)])
}

fn infer_like(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(call.dtype(1)?, call.shape(0)?)])
}

fn cast(cx: &mut RunCx<'_>) -> Result<()> {
    let (from, to) = (cx.dtype(0)?, cx.out_dtype(0)?);
    if from == to {
        return crate::arrange::arrange(cx, 0, whole(cx)?);
    }
    match (from, to) {
        (DataType::Bool, _) => for_type!(to, numbers, D => {
            map(cx, |x: bool| if x { D::ONE } else { D::ZERO })
        }),
        (_, DataType::Bool) => for_type!(from, numbers, S => map(cx, |x: S| x != S::ZERO)),
        _ => for_type!(from, numbers, S => for_type!(to, numbers, D => map(cx, convert::<S, D>))),
    }
}

/// All elements of input 0.
fn whole(cx: &RunCx<'_>) -> Result<[crate::arrange::Run; 1]> {
    let len = crate::broadcast::count(&cx.shape(0)?);
    Ok([crate::arrange::Run::Copy { input: 0, from: 0, len }])
}

fn convert<S: Number, D: Number>(x: S) -> D {
    if S::DTYPE.is_integer() { D::from_i128(x.to_i128()) } else { D::from_f64(x.to_f64()) }
}
