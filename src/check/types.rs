//! Whether the inputs and outputs of the main graph declare types that readers accept, and values
//! types that there are.
//!
//! onnx.checker requires a type, an element type and a shape (whose dimensions may be unknown) of
//! each of them, and looks deeper than the outermost type only with `full_check`. onnxruntime
//! infers what an output lacks, except an element type. Neither requires types of values inside the
//! graph or in subgraphs.

use super::finding::{Finding, Severity};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind};
use crate::proto::tensor_shape_proto::{Dimension, DimensionValue};
use crate::proto::{
    GraphProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};

/// What a declared type lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    Type,
    ElementType,
    KeyType,
    ValueType,
    Shape,
    OpaqueName,
}

impl Lack {
    fn name(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::ElementType => "element type",
            Self::KeyType => "type for the keys of its map",
            Self::ValueType => "type for the values of its map",
            Self::Shape => "shape",
            Self::OpaqueName => "name for its opaque type",
        }
    }
}

/// The findings for the inputs and outputs of the main graph.
pub(super) fn check(graph: &GraphProto) -> impl Iterator<Item = Finding> {
    let inputs = graph.input.iter().filter_map(|value| finding("input", value));
    let outputs = graph.output.iter().filter_map(|value| finding("output", value));
    inputs.chain(outputs)
}

fn finding(what: &str, value: &ValueInfoProto) -> Option<Finding> {
    let lack = lack(value.r#type.as_deref())?;
    let taken_by_onnxruntime = match lack {
        Lack::Type => what == "output",
        Lack::Shape | Lack::OpaqueName => true,
        Lack::ElementType | Lack::KeyType | Lack::ValueType => false,
    };
    let (severity, readers) = match taken_by_onnxruntime {
        true => (Severity::Advice, "onnx.checker refuses"),
        false => (Severity::Error, "onnx.checker and onnxruntime refuse"),
    };
    let reason = format!("this graph {what} declares no {}, which {readers}", lack.name());
    let error = Error::new(ErrorKind::InvalidModel, reason);
    let name = value.name.as_ref().map(|name| super::described::short(name.as_bytes()));
    Some(Finding { severity, error: error.with_tensor(name.unwrap_or_default()) })
}

/// The number of an element type in `declared`, at any depth, that ONNX does not have.
pub(super) fn unknown_element(declared: Option<&TypeProto>) -> Option<i32> {
    use type_proto::Value;
    let unknown = |number: Option<i32>| {
        number.filter(|number| {
            DataType::try_from(*number).map_or(true, |of| of == DataType::Undefined)
        })
    };
    match declared?.value.as_ref()? {
        Value::TensorType(tensor) => unknown(tensor.elem_type),
        Value::SparseTensorType(tensor) => unknown(tensor.elem_type),
        Value::SequenceType(sequence) => unknown_element(sequence.elem_type.as_deref()),
        Value::OptionalType(optional) => unknown_element(optional.elem_type.as_deref()),
        Value::MapType(map) => {
            unknown(map.key_type).or_else(|| unknown_element(map.value_type.as_deref()))
        }
        _ => None,
    }
}

/// The type of the keys of a map in `declared`, at any depth, where keys cannot have it.
///
/// Source: `TypeProto.Map.key_type` in onnx.proto, an integer type or STRING.
pub(super) fn unusual_key(declared: Option<&TypeProto>) -> Option<DataType> {
    use type_proto::Value;
    match declared?.value.as_ref()? {
        Value::SequenceType(sequence) => unusual_key(sequence.elem_type.as_deref()),
        Value::OptionalType(optional) => unusual_key(optional.elem_type.as_deref()),
        Value::MapType(map) => {
            let key = map.key_type.and_then(|key| DataType::try_from(key).ok());
            let key = key.filter(|key| !is_key(*key) && *key != DataType::Undefined);
            key.or_else(|| unusual_key(map.value_type.as_deref()))
        }
        _ => None,
    }
}

fn is_key(of: DataType) -> bool {
    use DataType as D;
    let is_signed = matches!(of, D::Int8 | D::Int16 | D::Int32 | D::Int64);
    is_signed || matches!(of, D::Uint8 | D::Uint16 | D::Uint32 | D::Uint64 | D::String)
}

/// What an initializer is unlike the type that the input of its name declares in, if it is.
pub(super) fn unlike(
    initializer: &TensorProto,
    declared: Option<&TypeProto>,
) -> Option<&'static str> {
    let Some(type_proto::Value::TensorType(declared)) = declared?.value.as_ref() else {
        return None;
    };
    if declared.elem_type.is_some_and(|of| initializer.data_type.is_some_and(|own| own != of)) {
        return Some("element type");
    }
    let dims = &declared.shape.as_deref()?.dim;
    let fits = |(dim, own): (&Dimension, &i64)| match dim.value {
        Some(DimensionValue::DimValue(of)) => of < 0 || of == *own,
        _ => true,
    };
    let is_like =
        dims.len() == initializer.dims.len() && dims.iter().zip(&initializer.dims).all(fits);
    (!is_like).then_some("shape")
}

fn lack(declared: Option<&TypeProto>) -> Option<Lack> {
    use type_proto::Value;
    match declared.and_then(|declared| declared.value.as_ref()) {
        None => Some(Lack::Type),
        Some(Value::TensorType(tensor)) => of_tensor(tensor.elem_type, tensor.shape.as_deref()),
        Some(Value::SparseTensorType(tensor)) => {
            of_tensor(tensor.elem_type, tensor.shape.as_deref())
        }
        Some(Value::SequenceType(sequence)) => {
            (!is_whole(sequence.elem_type.as_deref())).then_some(Lack::ElementType)
        }
        Some(Value::OptionalType(optional)) => {
            (!is_whole(optional.elem_type.as_deref())).then_some(Lack::ElementType)
        }
        Some(Value::MapType(map)) if map.key_type.is_none() => Some(Lack::KeyType),
        Some(Value::MapType(map)) => {
            (!is_whole(map.value_type.as_deref())).then_some(Lack::ValueType)
        }
        Some(Value::OpaqueType(opaque)) => {
            let named = opaque.name.as_ref().is_some_and(|name| !name.is_empty());
            (!named).then_some(Lack::OpaqueName)
        }
        Some(_) => None,
    }
}

/// Whether the type inside another one lacks nothing at any depth. A tensor there needs no shape.
fn is_whole(inner: Option<&TypeProto>) -> bool {
    match lack(inner) {
        None | Some(Lack::Shape | Lack::OpaqueName) => true,
        Some(Lack::Type | Lack::ElementType | Lack::KeyType | Lack::ValueType) => false,
    }
}

fn of_tensor(elem_type: Option<i32>, shape: Option<&TensorShapeProto>) -> Option<Lack> {
    match (elem_type, shape) {
        (None, _) => Some(Lack::ElementType),
        (_, None) => Some(Lack::Shape),
        _ => None,
    }
}
