//! Messages for types and shapes.

use crate::proto::wire::{Str, messages};

messages! {
    /// A type.
    message TypeProto (recursive) {
        oneof value: Value {
            /// A tensor.
            1 tensor_type: TensorType(Box<Tensor>),
            /// A sequence.
            4 sequence_type: SequenceType(Box<Sequence>),
            /// A map.
            5 map_type: MapType(Box<Map>),
        }
        /// What the value means, such as `IMAGE`.
        6 denotation: Option<Box<Str>>,
        and {
            /// An opaque type, which only a runtime knows.
            7 opaque_type: OpaqueType(Box<Opaque>),
            /// A sparse tensor.
            8 sparse_tensor_type: SparseTensorType(Box<SparseTensor>),
            /// A value that may be missing.
            9 optional_type: OptionalType(Box<Optional>),
        }
    }

    /// The type of a tensor.
    message Tensor = "TypeProto.Tensor" {
        /// The element type, such as [`TensorProto::FLOAT`](super::TensorProto::FLOAT).
        1 elem_type: Option<i32>,
        /// The shape; unset if the rank is unknown.
        2 shape: Option<Box<TensorShapeProto>>,
    }

    /// The type of a sequence.
    message Sequence = "TypeProto.Sequence" {
        /// The type of each element.
        1 elem_type: Option<Box<TypeProto>>,
    }

    /// The type of a map.
    message Map = "TypeProto.Map" {
        /// The type of the keys: an integer type or STRING.
        1 key_type: Option<i32>,
        /// The type of the values.
        2 value_type: Option<Box<TypeProto>>,
    }

    /// The type of a value that may be missing.
    message Optional = "TypeProto.Optional" {
        /// The type of the value if it is present.
        1 elem_type: Option<Box<TypeProto>>,
    }

    /// The type of a sparse tensor.
    message SparseTensor = "TypeProto.SparseTensor" {
        /// The element type, such as [`TensorProto::FLOAT`](super::TensorProto::FLOAT).
        1 elem_type: Option<i32>,
        /// The shape; unset if the rank is unknown.
        2 shape: Option<Box<TensorShapeProto>>,
    }

    /// An opaque type, which only a runtime knows.
    message Opaque = "TypeProto.Opaque" {
        /// The domain of its name.
        1 domain: Option<Str>,
        /// Its name.
        2 name: Option<Str>,
    }

    /// A shape.
    message TensorShapeProto {
        /// The dimensions, outermost first.
        1 dim: Vec<Dimension>,
    }

    /// A dimension; without a value if it is unknown.
    message Dimension = "TensorShapeProto.Dimension" {
        oneof value: DimensionValue {
            /// A fixed size.
            1 dim_value: DimValue(i64),
            /// A symbolic size: the same name stands for the same size everywhere.
            2 dim_param: DimParam(Str),
        }
        /// What the dimension means, such as `DATA_BATCH`.
        3 denotation: Option<Box<Str>>,
    }
}
