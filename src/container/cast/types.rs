//! The element types of values: as a graph states them, in declarations and attributes of nodes,
//! and in names and tables.

use super::convert::Float;
use super::graph::{is_standard, tensor_of};
use crate::dtype::DataType;
use crate::proto::type_proto::Value;
use crate::proto::{NodeProto, ValueInfoProto};

/// The bit of a type in the table of signatures.
pub(super) fn bit(float: Float) -> u8 {
    match float {
        Float::F32 => 1,
        Float::F16 => 2,
        Float::Bf16 => 4,
    }
}

/// How the name of a value ends that is another one's form of this type.
pub(super) fn suffix_of(dtype: i32) -> String {
    let name = DataType::try_from(dtype).map_or("", DataType::name);
    format!("_{}", name.to_lowercase())
}

pub(super) fn elem_type(info: &ValueInfoProto) -> Option<i32> {
    match info.r#type.as_deref()?.value.as_ref()? {
        Value::TensorType(tensor) => tensor.elem_type.filter(|dtype| *dtype != 0),
        _ => None,
    }
}

pub(super) fn retype(info: &mut ValueInfoProto, dtype: i32) {
    if let Some(Value::TensorType(tensor)) =
        info.r#type.as_deref_mut().and_then(|one| one.value.as_mut())
    {
        tensor.elem_type = Some(dtype);
    }
}

/// The type that an attribute of the node gives its output.
pub(super) fn attribute_type(node: &NodeProto) -> Option<i32> {
    let op_type = node.op_type.as_ref().filter(|_| is_standard(node.domain.as_ref()))?;
    let of = |name: &str| {
        let found = node.attribute.iter().find(|one| one.name.as_ref().is_some_and(|n| *n == name));
        found.filter(|one| one.ref_attr_name.is_none())
    };
    let number = |name: &str| of(name)?.i.and_then(|dtype| i32::try_from(dtype).ok());
    let float = DataType::Float.number();
    match op_type.as_bytes() {
        b"Cast" => number("to"),
        b"EyeLike" | b"Bernoulli" | b"RandomNormalLike" | b"RandomUniformLike" => number("dtype"),
        b"RandomNormal" | b"RandomUniform" => number("dtype").or(Some(float)),
        b"BlackmanWindow" | b"HammingWindow" | b"HannWindow" | b"MelWeightMatrix" => {
            number("output_datatype").or(Some(float))
        }
        b"ConstantOfShape" => of("value").map_or(Some(float), |one| one.t.as_deref()?.data_type),
        b"Constant" => {
            let tensor = node.attribute.iter().find_map(tensor_of);
            let is_float = of("value_float").or(of("value_floats")).is_some();
            tensor.map_or(is_float.then_some(float), |tensor| tensor.data_type)
        }
        _ => None,
    }
}
