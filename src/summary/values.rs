//! The inputs and outputs of the main graph, with the types that the model declares for them.

use std::collections::HashSet;
use std::fmt;

use crate::dtype::DataType;
use crate::proto::tensor_shape_proto::{Dimension, DimensionValue};
use crate::proto::type_proto::Value as Type;
use crate::proto::{GraphProto, ModelProto, TensorShapeProto, TypeProto, ValueInfoProto};

/// An input or output of the main graph.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ValueSummary {
    /// The name.
    pub name: String,
    /// The whole declared type, such as `sequence(tensor(FLOAT))`; `None` when none is declared.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub declared: Option<String>,
    /// The element type of a tensor or sparse tensor.
    pub dtype: Option<String>,
    /// The shape of a tensor or sparse tensor; `None` when its rank is not declared.
    pub shape: Option<Vec<Dim>>,
    /// Whether an initializer gives an input its value, unless the caller does.
    pub has_initializer: bool,
}

/// A dimension: in JSON a number, a name, or null when it is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(untagged))]
pub enum Dim {
    /// Its size.
    Fixed(i64),
    /// A name, for a size that a run decides.
    Symbolic(String),
    /// Neither is declared.
    Unknown,
}

impl From<&Dimension> for Dim {
    fn from(dimension: &Dimension) -> Self {
        match &dimension.value {
            Some(DimensionValue::DimValue(size)) => Self::Fixed(*size),
            Some(DimensionValue::DimParam(name)) if !name.is_empty() => {
                Self::Symbolic(name.to_string_lossy().into_owned())
            }
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Symbolic(name) => f.write_str(name),
            Self::Unknown => f.write_str("?"),
        }
    }
}

/// The inputs of the main graph of `model`.
pub(super) fn inputs(model: &ModelProto) -> Vec<ValueSummary> {
    let Some(graph) = model.graph.as_deref() else { return Vec::new() };
    let initialized = initialized(graph);
    let input = |value: &ValueInfoProto| {
        let mut input = ValueSummary::of(value);
        input.has_initializer = initialized.contains(input.name.as_str());
        input
    };
    graph.input.iter().map(input).collect()
}

/// The outputs of the main graph of `model`.
pub(super) fn outputs(model: &ModelProto) -> Vec<ValueSummary> {
    model.graph.iter().flat_map(|graph| &graph.output).map(ValueSummary::of).collect()
}

/// The names of the initializers of `graph`, sparse ones too.
fn initialized(graph: &GraphProto) -> HashSet<String> {
    let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_deref());
    let names = graph.initializer.iter().chain(sparse).filter_map(|tensor| tensor.name.as_ref());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

impl ValueSummary {
    /// Type and shape in words: `FLOAT [batch,3]`.
    pub fn declaration(&self) -> String {
        let declared = self.dtype.as_ref().or(self.declared.as_ref());
        let declared = declared.map_or("no type", String::as_str);
        let Some(shape) = &self.shape else { return declared.to_owned() };
        let dims: Vec<_> = shape.iter().map(ToString::to_string).collect();
        format!("{declared} [{}]", dims.join(","))
    }

    fn of(value: &ValueInfoProto) -> Self {
        let name = value.name.as_ref().map(|name| name.to_string_lossy().into_owned());
        let declared = value.r#type.as_deref().filter(|declared| declared.value.is_some());
        let tensor = match declared.and_then(|declared| declared.value.as_ref()) {
            Some(Type::TensorType(tensor)) => Some((tensor.elem_type, tensor.shape.as_deref())),
            Some(Type::SparseTensorType(tensor)) => {
                Some((tensor.elem_type, tensor.shape.as_deref()))
            }
            _ => None,
        };
        Self {
            name: name.unwrap_or_default(),
            declared: declared.map(type_name),
            dtype: tensor.and_then(|(elem_type, _)| elem_type).map(dtype_name),
            shape: tensor.and_then(|(_, shape)| shape).map(dims),
            has_initializer: false,
        }
    }
}

fn dims(shape: &TensorShapeProto) -> Vec<Dim> {
    shape.dim.iter().map(Dim::from).collect()
}

/// The name of the element type `number`, or the number when no type has it.
fn dtype_name(number: i32) -> String {
    DataType::try_from(number).map_or_else(|_| number.to_string(), |dtype| dtype.to_string())
}

/// A declared type in words, without shapes.
fn type_name(declared: &TypeProto) -> String {
    let dtype = |number: Option<i32>| number.map_or("?".to_owned(), dtype_name);
    let inner = |inner: Option<&TypeProto>| inner.map_or("?".to_owned(), type_name);
    match &declared.value {
        Some(Type::TensorType(tensor)) => format!("tensor({})", dtype(tensor.elem_type)),
        Some(Type::SparseTensorType(tensor)) => {
            format!("sparse_tensor({})", dtype(tensor.elem_type))
        }
        Some(Type::SequenceType(of)) => format!("sequence({})", inner(of.elem_type.as_deref())),
        Some(Type::OptionalType(of)) => format!("optional({})", inner(of.elem_type.as_deref())),
        Some(Type::MapType(map)) => {
            format!("map({}, {})", dtype(map.key_type), inner(map.value_type.as_deref()))
        }
        Some(Type::OpaqueType(opaque)) => {
            let name = opaque.name.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("opaque({name})")
        }
        // A kind of type that a later version of ONNX added.
        Some(_) | None => "?".to_owned(),
    }
}
