//! Types of values under other names.

use super::names::Dimensions;
use crate::proto::tensor_shape_proto::DimensionValue;
use crate::proto::type_proto::Value;
use crate::proto::{Str, TypeProto, ValueInfoProto};

/// A copy under another name; its symbolic dimensions become those of the call whose body it is from.
pub(super) fn renamed(
    info: &ValueInfoProto,
    name: Option<Str>,
    call: Option<u64>,
    taken: &Dimensions,
) -> ValueInfoProto {
    let mut copy = ValueInfoProto { name, ..info.clone() };
    if let (Some(call), Some(r#type)) = (call, &mut copy.r#type) {
        dimensions(r#type, &mut |dimension| *dimension = taken.fresh(dimension, call));
    }
    copy
}

/// Calls `visit` with every symbolic dimension of a type.
pub(super) fn dimensions(r#type: &mut TypeProto, visit: &mut dyn FnMut(&mut Str)) {
    let shape = match &mut r#type.value {
        Some(Value::TensorType(tensor)) => tensor.shape.as_deref_mut(),
        Some(Value::SparseTensorType(tensor)) => tensor.shape.as_deref_mut(),
        Some(Value::SequenceType(list)) => return inner(&mut list.elem_type, visit),
        Some(Value::OptionalType(optional)) => return inner(&mut optional.elem_type, visit),
        Some(Value::MapType(map)) => return inner(&mut map.value_type, visit),
        Some(Value::OpaqueType(_)) | None => None,
    };
    for dimension in shape.into_iter().flat_map(|shape| &mut shape.dim) {
        if let Some(DimensionValue::DimParam(name)) = &mut dimension.value
            && !name.is_empty()
        {
            visit(name);
        }
    }
}

fn inner(r#type: &mut Option<Box<TypeProto>>, visit: &mut dyn FnMut(&mut Str)) {
    if let Some(inner) = r#type {
        dimensions(inner, visit);
    }
}
