//! Constructors and builder methods of messages.

use super::tensor_shape_proto::{Dimension, DimensionValue};
use super::type_proto::{self, Value};
use super::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    SparseTensorProto, Str, StringStringEntryProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto,
};
use crate::buffer::Buffer;

fn strings<S: Into<Str>>(from: impl IntoIterator<Item = S>) -> Vec<Str> {
    from.into_iter().map(Into::into).collect()
}

impl ModelProto {
    /// A model with this graph, of the lowest IR version that has what is in the graph: readers
    /// refuse versions that are newer than they are. It has no operator sets yet, which every
    /// reader asks for: [`with_operator_set`](Self::with_operator_set).
    pub fn new(graph: GraphProto) -> Self {
        let mut model = Self { graph: Some(Box::new(graph)), ..Self::default() };
        model.raise_ir_version();
        model
    }
}

impl GraphProto {
    /// An empty graph.
    pub fn new(name: impl Into<Str>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }
}

impl FunctionProto {
    /// A function without nodes.
    pub fn new(domain: impl Into<Str>, name: impl Into<Str>) -> Self {
        Self { domain: Some(domain.into()), name: Some(name.into()), ..Self::default() }
    }
}

impl NodeProto {
    /// A node that applies the operator `op_type` of the ONNX domain.
    pub fn new<I: Into<Str>, O: Into<Str>>(
        op_type: impl Into<Str>,
        inputs: impl IntoIterator<Item = I>,
        outputs: impl IntoIterator<Item = O>,
    ) -> Self {
        let (input, output) = (strings(inputs), strings(outputs));
        Self { op_type: Some(op_type.into()), input, output, ..Self::default() }
    }
}

impl TensorProto {
    /// A tensor without elements; `data_type` is a [`DataType`](crate::DataType) or its number,
    /// such as [`TensorProto::FLOAT`].
    pub fn new(name: impl Into<Str>, data_type: impl Into<i32>, dims: impl Into<Vec<i64>>) -> Self {
        let (name, data_type) = (Some(name.into()), Some(data_type.into()));
        Self { name, data_type, dims: dims.into(), ..Self::default() }
    }

    /// An external tensor whose data is at `location`, a handle such as `#w` or a file.
    pub fn external(
        name: impl Into<Str>,
        data_type: impl Into<i32>,
        dims: impl Into<Vec<i64>>,
        location: impl Into<Str>,
    ) -> Self {
        let external_data = vec![StringStringEntryProto::new("location", location)];
        let data_location = Some(Self::EXTERNAL);
        Self { external_data, data_location, ..Self::new(name, data_type, dims) }
    }

    /// Sets `raw_data` to these little-endian bytes.
    #[must_use]
    pub fn with_raw_data(mut self, bytes: impl Into<Buffer>) -> Self {
        self.raw_data = Some(bytes.into());
        self
    }
}

impl SparseTensorProto {
    /// A tensor of shape `dims` that has `values` at `indices` and zero elsewhere.
    pub fn new(values: TensorProto, indices: TensorProto, dims: impl Into<Vec<i64>>) -> Self {
        let (values, indices) = (Some(Box::new(values)), Some(Box::new(indices)));
        Self { values, indices, dims: dims.into(), ..Self::default() }
    }
}

impl AttributeProto {
    /// An attribute of this kind, whose value `set` sets.
    fn of(kind: i32, name: impl Into<Str>, set: impl FnOnce(&mut Self)) -> Self {
        let mut attribute = Self::default();
        attribute.name = Some(name.into());
        attribute.r#type = Some(kind);
        set(&mut attribute);
        attribute
    }

    /// An attribute with an integer.
    pub fn int(name: impl Into<Str>, value: i64) -> Self {
        Self::of(Self::INT, name, |attribute| attribute.i = Some(value))
    }

    /// An attribute with a float.
    pub fn float(name: impl Into<Str>, value: f32) -> Self {
        Self::of(Self::FLOAT, name, |attribute| attribute.f = Some(value))
    }

    /// An attribute with a byte string.
    pub fn string(name: impl Into<Str>, value: impl AsRef<[u8]>) -> Self {
        let value = Buffer::from(value.as_ref());
        Self::of(Self::STRING, name, |attribute| attribute.s = Some(value))
    }

    /// An attribute with integers.
    pub fn ints(name: impl Into<Str>, values: impl Into<Vec<i64>>) -> Self {
        Self::of(Self::INTS, name, |attribute| attribute.ints = values.into().into())
    }

    /// An attribute with floats.
    pub fn floats(name: impl Into<Str>, values: impl Into<Vec<f32>>) -> Self {
        Self::of(Self::FLOATS, name, |attribute| attribute.floats = values.into().into())
    }

    /// An attribute with byte strings.
    pub fn strings<S: AsRef<[u8]>>(
        name: impl Into<Str>,
        values: impl IntoIterator<Item = S>,
    ) -> Self {
        let strings = values.into_iter().map(|s| Buffer::from(s.as_ref())).collect();
        Self::of(Self::STRINGS, name, |attribute| attribute.strings = strings)
    }

    /// An attribute with a tensor.
    pub fn tensor(name: impl Into<Str>, value: TensorProto) -> Self {
        Self::of(Self::TENSOR, name, |attribute| attribute.t = Some(Box::new(value)))
    }

    /// An attribute with tensors.
    pub fn tensors(name: impl Into<Str>, values: impl Into<Vec<TensorProto>>) -> Self {
        Self::of(Self::TENSORS, name, |attribute| attribute.tensors = values.into())
    }

    /// An attribute with a graph.
    pub fn graph(name: impl Into<Str>, value: GraphProto) -> Self {
        Self::of(Self::GRAPH, name, |attribute| attribute.g = Some(Box::new(value)))
    }

    /// An attribute with graphs.
    pub fn graphs(name: impl Into<Str>, values: impl Into<Vec<GraphProto>>) -> Self {
        Self::of(Self::GRAPHS, name, |attribute| attribute.graphs = values.into())
    }

    /// An attribute with a sparse tensor.
    pub fn sparse_tensor(name: impl Into<Str>, value: SparseTensorProto) -> Self {
        let value = Some(Box::new(value));
        Self::of(Self::SPARSE_TENSOR, name, |attribute| attribute.sparse_tensor = value)
    }

    /// An attribute with sparse tensors.
    pub fn sparse_tensors(name: impl Into<Str>, values: impl Into<Vec<SparseTensorProto>>) -> Self {
        let values = values.into();
        Self::of(Self::SPARSE_TENSORS, name, |attribute| attribute.sparse_tensors = values)
    }
}

impl ValueInfoProto {
    /// A tensor with these dimensions; a negative dimension is unknown.
    pub fn tensor(
        name: impl Into<Str>,
        elem_type: impl Into<i32>,
        dims: impl IntoIterator<Item = i64>,
    ) -> Self {
        Self::tensor_with(name, elem_type, dims.into_iter().map(Dimension::from))
    }

    /// A tensor with these dimensions, some of which may be symbolic (names).
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::DataType;
    /// use onnx_container::proto::ValueInfoProto;
    ///
    /// let x = ValueInfoProto::tensor_with("x", DataType::Float, ["batch".into(), 3.into()]);
    /// # assert_ne!(x, ValueInfoProto::tensor("x", DataType::Float, [-1, 3]));
    /// ```
    pub fn tensor_with(
        name: impl Into<Str>,
        elem_type: impl Into<i32>,
        dims: impl IntoIterator<Item = Dimension>,
    ) -> Self {
        let r#type = Some(Box::new(TypeProto::tensor_with(elem_type, dims)));
        Self { name: Some(name.into()), r#type, ..Self::default() }
    }
}

impl TypeProto {
    /// The type of a tensor with these dimensions; a negative dimension is unknown.
    pub fn tensor(elem_type: impl Into<i32>, dims: impl IntoIterator<Item = i64>) -> Self {
        Self::tensor_with(elem_type, dims.into_iter().map(Dimension::from))
    }

    /// The type of a tensor with these dimensions, some of which may be symbolic (names).
    pub fn tensor_with(
        elem_type: impl Into<i32>,
        dims: impl IntoIterator<Item = Dimension>,
    ) -> Self {
        let shape = TensorShapeProto { dim: dims.into_iter().collect(), ..Default::default() };
        let (elem_type, shape) = (Some(elem_type.into()), Some(Box::new(shape)));
        let tensor = type_proto::Tensor { elem_type, shape, ..Default::default() };
        Self { value: Some(Value::TensorType(Box::new(tensor))), ..Self::default() }
    }
}

impl TensorShapeProto {
    /// A shape; a negative dimension is unknown.
    pub fn new(dims: impl IntoIterator<Item = i64>) -> Self {
        Self { dim: dims.into_iter().map(Dimension::from).collect(), ..Self::default() }
    }
}

impl From<i64> for Dimension {
    /// A fixed dimension; a negative one is unknown.
    fn from(dim: i64) -> Self {
        let value = Some(dim).filter(|dim| *dim >= 0).map(DimensionValue::DimValue);
        Self { value, ..Self::default() }
    }
}

impl From<&str> for Dimension {
    /// A symbolic dimension: the same name stands for the same size everywhere.
    fn from(name: &str) -> Self {
        Self { value: Some(DimensionValue::DimParam(name.into())), ..Self::default() }
    }
}

impl OperatorSetIdProto {
    /// The operator set of `domain` at `version`.
    pub fn new(domain: impl Into<Str>, version: i64) -> Self {
        Self { domain: Some(domain.into()), version: Some(version), ..Self::default() }
    }
}

impl StringStringEntryProto {
    /// An entry with this key and value.
    pub fn new(key: impl Into<Str>, value: impl Into<Str>) -> Self {
        Self { key: Some(key.into()), value: Some(value.into()), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DataType;

    #[test]
    fn types_are_given_as_such_or_by_number() {
        let by_number = TensorProto::external("w", TensorProto::INT4, [3], "#w");
        assert_eq!(TensorProto::external("w", DataType::Int4, [3], "#w"), by_number);
        assert_eq!(TensorProto::new("w", DataType::Int4, [3]).data_type, Some(22));
        let scalar = ValueInfoProto::tensor("x", DataType::Float, []);
        assert_eq!(scalar, ValueInfoProto::tensor("x", TensorProto::FLOAT, []));
    }

    #[test]
    fn dimensions_are_numbers_or_names_or_not_known() {
        let dims = ["batch".into(), 3.into(), (-1).into()];
        let value = ValueInfoProto::tensor_with("x", DataType::Float, dims);
        let Some(Value::TensorType(tensor)) = value.r#type.and_then(|r#type| r#type.value) else {
            panic!("not a tensor")
        };
        let dims = tensor.shape.map(|shape| shape.dim).unwrap_or_default();
        let values: Vec<_> = dims.into_iter().map(|dim| dim.value).collect();
        let name = DimensionValue::DimParam("batch".into());
        assert_eq!(values, [Some(name), Some(DimensionValue::DimValue(3)), None]);
    }
}
