//! The names, contents and types of a model's parts, as values that can be compared.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use onnx_container::proto::tensor_shape_proto::DimensionValue;
use onnx_container::proto::type_proto::Value;
use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, Message, NodeProto, Str, TensorProto,
    TensorShapeProto, TypeProto,
};

pub type Digest = u64;
/// Domain, name, overload.
pub type Id = (Str, Str, Str);

pub fn digest(value: &impl Hash) -> Digest {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

pub fn encoded(message: &impl Message) -> Vec<u8> {
    message.encode_to_vec().unwrap()
}

pub fn text(field: &Option<Str>) -> Str {
    field.clone().unwrap_or_default()
}

/// `ai.onnx` is the ONNX domain, whose name is empty.
pub fn domain(field: &Option<Str>) -> Str {
    Some(text(field)).filter(|d| *d != "ai.onnx").unwrap_or_default()
}

pub fn id_of_node(node: &NodeProto) -> Id {
    (domain(&node.domain), text(&node.op_type), overload(node.overload.as_deref()))
}

pub fn id_of_function(function: &FunctionProto) -> Id {
    (domain(&function.domain), text(&function.name), overload(function.overload.as_deref()))
}

fn overload(field: Option<&Str>) -> Str {
    field.cloned().unwrap_or_default()
}

/// The attribute of the call that a body's attribute stands for.
pub fn reference(attribute: &AttributeProto) -> Option<&Str> {
    attribute.ref_attr_name.as_ref().filter(|name| !name.is_empty())
}

/// The version since which an operator of the ONNX domain is what it is at `version`; of others,
/// and of operators that are not in this table, nothing is known.
pub fn since(domain: &Str, op_type: &Str, version: i64) -> Option<i64> {
    let versions: &[i64] = match &*op_type.to_string_lossy() {
        _ if !domain.is_empty() => return None,
        "Add" | "Sub" | "Mul" => &[1, 6, 7, 13, 14],
        "Neg" | "Abs" => &[1, 6, 13],
        "Relu" => &[1, 6, 13, 14],
        "LeakyRelu" => &[1, 6, 16],
        "Concat" => &[1, 4, 11, 13],
        "Clip" => &[1, 6, 11, 12, 13],
        "Split" => &[1, 2, 11, 13, 18],
        "If" | "Loop" => &[1, 11, 13, 16, 19, 21, 23, 24, 25],
        "Scan" => &[8, 9, 11, 16, 19, 21, 23, 24, 25],
        "Constant" => &[1, 9, 11, 12, 13, 19, 21, 23, 24, 25],
        "Identity" => &[1, 13, 14, 16, 19, 21, 23, 24, 25],
        "Softmax" => &[1, 11, 13],
        "ReduceLogSum" => &[1, 11, 13, 18, 28],
        _ => return None,
    };
    versions.iter().rev().find(|v| **v <= version).copied()
}

/// The initializers of a graph by name, with digests of their contents.
pub fn constants(graph: &GraphProto) -> Vec<(Str, Digest)> {
    let dense = graph.initializer.iter().map(|t| (text(&t.name), digest(&nameless(t))));
    let sparse = graph.sparse_initializer.iter().map(|sparse| {
        let parts = [&sparse.values, &sparse.indices];
        let contents: Vec<_> = parts.into_iter().flatten().map(|t| nameless(t)).collect();
        let name = sparse.values.as_ref().map(|values| text(&values.name));
        (name.unwrap_or_default(), digest(&(contents, &sparse.dims)))
    });
    dense.chain(sparse).collect()
}

fn nameless(tensor: &TensorProto) -> Vec<u8> {
    let mut tensor = tensor.clone();
    (tensor.name, tensor.doc_string) = (None, None);
    encoded(&tensor)
}

/// A digest of the type in which each symbolic dimension is the same; `names` gets their names.
pub fn digest_of_type(r#type: &TypeProto, names: &mut Vec<Str>) -> Digest {
    let mut dims = |shape: &Option<Box<TensorShapeProto>>| {
        let shape = shape.as_ref()?;
        let dims = shape.dim.iter().map(|dim| match &dim.value {
            Some(DimensionValue::DimValue(value)) => (Some(*value), false),
            Some(DimensionValue::DimParam(name)) => {
                names.push(name.clone());
                (None, true)
            }
            _ => (None, false),
        });
        Some(dims.collect::<Vec<_>>())
    };
    match &r#type.value {
        Some(Value::TensorType(t)) => digest(&("tensor", t.elem_type, dims(&t.shape))),
        Some(Value::SparseTensorType(t)) => digest(&("sparse", t.elem_type, dims(&t.shape))),
        Some(Value::SequenceType(s)) => digest(&("sequence", inner(&s.elem_type, names))),
        Some(Value::OptionalType(o)) => digest(&("optional", inner(&o.elem_type, names))),
        Some(Value::MapType(m)) => digest(&("map", m.key_type, inner(&m.value_type, names))),
        _ => digest(&encoded(r#type)),
    }
}

fn inner(r#type: &Option<Box<TypeProto>>, names: &mut Vec<Str>) -> Option<Digest> {
    r#type.as_deref().map(|r#type| digest_of_type(r#type, names))
}
