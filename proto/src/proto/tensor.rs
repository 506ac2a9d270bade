//! Messages for tensors.

use super::StringStringEntryProto;
use crate::buffer::Buffer;
use crate::proto::wire::{Packed, Rare, Str, messages};

messages! {
    /// A tensor: an element type, a shape and elements, which are inline or in another file.
    message TensorProto (replaceable) enum data_location 0..=1 {
        /// The shape.
        1 dims: Vec<i64>,
        /// The element type, such as [`TensorProto::FLOAT`].
        2 data_type: Option<i32>,
        /// The part of a larger tensor that this is.
        3 segment: Option<Box<Segment>>,
        /// The elements of FLOAT and COMPLEX64.
        4 float_data: Rare<Packed<f32>>,
        /// The elements of INT32 and of every narrower type.
        5 int32_data: Rare<Packed<i32>>,
        /// The elements of STRING.
        6 string_data: Rare<Vec<Buffer>>,
        /// The elements of INT64.
        7 int64_data: Rare<Packed<i64>>,
        /// The name.
        8 name: Option<Str>,
        /// The elements as little-endian bytes; then the typed fields are empty.
        9 raw_data: Option<Buffer>,
        /// The elements of DOUBLE and COMPLEX128.
        10 double_data: Rare<Packed<f64>>,
        /// The elements of UINT32 and UINT64.
        11 uint64_data: Rare<Packed<u64>>,
        /// A description for people.
        12 doc_string: Option<Box<Str>>,
        /// Where external elements are: `location`, `offset`, `length`, `checksum`.
        13 external_data: Vec<StringStringEntryProto>,
        /// Whether the elements are external: [`TensorProto::DEFAULT`] or
        /// [`TensorProto::EXTERNAL`].
        14 data_location: Option<i32>,
        /// Metadata: keys and values.
        16 metadata_props: Rare<Vec<StringStringEntryProto>>,
    }

    /// A part of a tensor that is stored in several.
    message Segment = "TensorProto.Segment" {
        /// The index of the first element.
        1 begin: Option<i64>,
        /// The index after the last element.
        2 end: Option<i64>,
    }

    /// A tensor of which only some elements are stored.
    message SparseTensorProto {
        /// The stored elements, in one dimension. Its name is the name of the sparse tensor.
        1 values: Option<Box<TensorProto>>,
        /// The index of each stored element: one linear index, or one row of indices.
        2 indices: Option<Box<TensorProto>>,
        /// The shape of the sparse tensor.
        3 dims: Vec<i64>,
    }
}
