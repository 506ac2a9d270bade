//! Optionals: [Optional](https://onnx.ai/onnx/operators/onnx__Optional.html),
//! [OptionalGetElement](https://onnx.ai/onnx/operators/onnx__OptionalGetElement.html) and
//! [OptionalHasElement](https://onnx.ai/onnx/operators/onnx__OptionalHasElement.html).

use onnx_container_proto::DataType;

use super::sequence::{give, spec_of};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, Operand, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::value::{Type, Value};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("Optional", optional_infer, optional),
    Builtin::new("OptionalGetElement", get_infer, get),
    Builtin::new("OptionalHasElement", |_| Ok(vec![OutSpec::tensor(DataType::Bool, [])]), has),
];

/// The type of the element: that of the input, or attribute `type`.
fn element_type(call: &Call<'_>) -> Result<Type> {
    let named = call.node().attributes.ty("type")?;
    call.ty(0).or_else(|| named.cloned()).ok_or_else(|| {
        Error::new(ErrorKind::InvalidModel, "attribute `type` and the input are both missing")
    })
}

fn optional_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::Outside(Type::Optional(Box::new(element_type(call)?)))])
}

fn optional(cx: &mut RunCx<'_>) -> Result<()> {
    let element = if cx.has_input(0) { Some(Box::new(cx.to_value(0)?)) } else { None };
    cx.set(0, Value::Optional(element_type(cx)?, element))
}

/// The element of an optional; any other value as it is.
fn get_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![match call.operand(0) {
        Operand::Outside(Value::Optional(_, Some(value))) => spec_of(value),
        Operand::Outside(Value::Optional(_, None)) => {
            return Err(Error::new(ErrorKind::Value, "the optional has no element"));
        }
        Operand::Outside(value) => spec_of(value),
        Operand::Unknown(Type::Optional(element)) if !matches!(**element, Type::Tensor(_)) => {
            OutSpec::Outside((**element).clone())
        }
        Operand::Unknown(_) => return call.outside(0).map(|_| Vec::new()),
        _ => OutSpec::tensor(call.dtype(0)?, call.shape(0)?),
    }])
}

fn get(cx: &mut RunCx<'_>) -> Result<()> {
    match cx.operand(0) {
        Operand::Outside(Value::Optional(_, Some(value))) => give(cx, 0, value),
        _ => give(cx, 0, &cx.to_value(0)?),
    }
}

fn has(cx: &mut RunCx<'_>) -> Result<()> {
    let has = match cx.operand(0) {
        Operand::Absent => false,
        Operand::Outside(Value::Optional(_, element)) => element.is_some(),
        _ => true,
    };
    cx.output::<bool>(0)?.fill(has);
    Ok(())
}
