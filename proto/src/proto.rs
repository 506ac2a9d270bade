//! The messages of onnx.proto, as of onnx 1.23 (IR version 14).
//!
//! Each struct has the fields of its message under their names in onnx.proto, and
//! [`unknown`](ModelProto::unknown) for fields that a later version may add. An optional field is
//! an `Option`, so an unset field differs from one that is set to its default. An enum is its
//! number, known or not, with constants such as [`AttributeProto::TENSOR`]. Decoded strings, bytes
//! and packed numbers are slices of the input. Rarely set fields of nodes and attributes are in
//! [`NodeMore`](node_proto::NodeMore) and [`AttributeMore`](attribute_proto::AttributeMore), and
//! are used like fields of the message itself: `attribute.tensors`.
//!
//! ```
//! # use onnx_container_proto as onnx_container;
//! use onnx_container::proto::{GraphProto, Message, ModelProto, NodeProto};
//!
//! let mut graph = GraphProto::new("main");
//! graph.node.push(NodeProto::new("Relu", ["x"], ["y"]));
//! let model = ModelProto::new(graph).with_operator_set("", 21);
//! assert_eq!(model.graph.as_ref().unwrap().node[0].op_type.as_ref().unwrap(), &"Relu");
//! # assert!(model.encoded_len() > 0);
//! ```

pub(crate) mod wire;

mod build;
mod device;
mod graph;
mod ir_version;
mod model;
mod numbers;
mod release;
mod tensor;
mod types;

pub use self::device::{
    DeviceConfigurationProto, IntIntListEntryProto, NodeDeviceConfigurationProto, ShardedDimProto,
    ShardingSpecProto, SimpleShardedDimProto,
};
pub use self::graph::{AttributeProto, GraphProto, NodeProto, TensorAnnotation, ValueInfoProto};
pub use self::model::{
    FunctionProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TrainingInfoProto,
};
pub use self::numbers::IR_VERSION;
pub use self::tensor::{SparseTensorProto, TensorProto};
pub use self::types::{TensorShapeProto, TypeProto};
pub use crate::proto::wire::{DecodeOptions, Message, Packed, Rare, Str, Unknown};

/// Types that are nested in [`NodeProto`].
pub mod node_proto {
    pub use super::graph::NodeMore;
}

/// Types that are nested in [`AttributeProto`].
pub mod attribute_proto {
    pub use super::graph::AttributeMore;
}

/// Types that are nested in [`TensorProto`].
pub mod tensor_proto {
    pub use super::tensor::Segment;
}

/// Types that are nested in [`TypeProto`].
pub mod type_proto {
    pub use super::types::{Map, Opaque, Optional, Sequence, SparseTensor, Tensor, Value};
}

/// Types that are nested in [`TensorShapeProto`].
pub mod tensor_shape_proto {
    pub use super::types::{Dimension, DimensionValue};
}

/// Types that are nested in [`SimpleShardedDimProto`].
pub mod simple_sharded_dim_proto {
    pub use super::device::Dim;
}

/// Each message's name and fields, for the test that compares them with onnx.proto.
#[doc(hidden)]
pub const MESSAGES: &[(&str, &[crate::proto::wire::FieldInfo])] = &[
    (AttributeProto::NAME, AttributeProto::FIELDS),
    (DeviceConfigurationProto::NAME, DeviceConfigurationProto::FIELDS),
    (FunctionProto::NAME, FunctionProto::FIELDS),
    (GraphProto::NAME, GraphProto::FIELDS),
    (IntIntListEntryProto::NAME, IntIntListEntryProto::FIELDS),
    (ModelProto::NAME, ModelProto::FIELDS),
    (NodeDeviceConfigurationProto::NAME, NodeDeviceConfigurationProto::FIELDS),
    (NodeProto::NAME, NodeProto::FIELDS),
    (OperatorSetIdProto::NAME, OperatorSetIdProto::FIELDS),
    (ShardedDimProto::NAME, ShardedDimProto::FIELDS),
    (ShardingSpecProto::NAME, ShardingSpecProto::FIELDS),
    (SimpleShardedDimProto::NAME, SimpleShardedDimProto::FIELDS),
    (SparseTensorProto::NAME, SparseTensorProto::FIELDS),
    (StringStringEntryProto::NAME, StringStringEntryProto::FIELDS),
    (TensorAnnotation::NAME, TensorAnnotation::FIELDS),
    (TensorProto::NAME, TensorProto::FIELDS),
    (tensor_proto::Segment::NAME, tensor_proto::Segment::FIELDS),
    (TensorShapeProto::NAME, TensorShapeProto::FIELDS),
    (tensor_shape_proto::Dimension::NAME, tensor_shape_proto::Dimension::FIELDS),
    (TrainingInfoProto::NAME, TrainingInfoProto::FIELDS),
    (TypeProto::NAME, TypeProto::FIELDS),
    (type_proto::Map::NAME, type_proto::Map::FIELDS),
    (type_proto::Opaque::NAME, type_proto::Opaque::FIELDS),
    (type_proto::Optional::NAME, type_proto::Optional::FIELDS),
    (type_proto::Sequence::NAME, type_proto::Sequence::FIELDS),
    (type_proto::SparseTensor::NAME, type_proto::SparseTensor::FIELDS),
    (type_proto::Tensor::NAME, type_proto::Tensor::FIELDS),
    (ValueInfoProto::NAME, ValueInfoProto::FIELDS),
];
