//! Tensors.

use super::StringStringEntryProto;
use crate::buffer::Buffer;
use crate::wire::{Packed, Rare, Str, messages};

messages! {
    /// A tensor: a type, a shape and numbers, here or in another file.
    message TensorProto {
        /// The shape.
        1 dims: Vec<i64>,
        /// The element type, such as [`TensorProto::FLOAT`].
        2 data_type: Option<i32>,
        /// Which part of a larger tensor it is.
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
        /// The elements as little-endian bytes, instead of in one of the typed fields.
        9 raw_data: Option<Buffer>,
        /// The elements of DOUBLE and COMPLEX128.
        10 double_data: Rare<Packed<f64>>,
        /// The elements of UINT32 and UINT64.
        11 uint64_data: Rare<Packed<u64>>,
        /// A description for people.
        12 doc_string: Option<Box<Str>>,
        /// Where the elements lie: `location`, `offset`, `length`, `checksum`.
        13 external_data: Vec<StringStringEntryProto>,
        /// Whether they lie elsewhere: [`TensorProto::DEFAULT`] or [`TensorProto::EXTERNAL`].
        14 data_location: Option<i32>,
        /// Named remarks.
        16 metadata_props: Rare<Vec<StringStringEntryProto>>,
    }

    /// A part of a tensor that is stored in several.
    message Segment = "TensorProto.Segment" {
        /// The first element.
        1 begin: Option<i64>,
        /// The element after the last.
        2 end: Option<i64>,
    }

    /// A tensor of which only some elements are stored.
    message SparseTensorProto {
        /// The elements, in one dimension; its name is the name of the whole.
        1 values: Option<Box<TensorProto>>,
        /// Where they are: one number or one row of numbers for each.
        2 indices: Option<Box<TensorProto>>,
        /// The shape of the whole.
        3 dims: Vec<i64>,
    }
}
