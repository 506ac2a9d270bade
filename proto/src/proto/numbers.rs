//! The named constants of onnx.proto.

use super::{AttributeProto, TensorProto};
use crate::dtype::DataType;

/// The newest version of the format that this crate knows. A model states the lowest that it needs:
/// [`ModelProto::lowest_ir_version`](super::ModelProto::lowest_ir_version).
pub const IR_VERSION: i64 = 14;

macro_rules! numbers {
    ($Message:ident: $($(#[$doc:meta])* $NAME:ident = $number:expr;)*) => {
        impl $Message {
            $($(#[$doc])* pub const $NAME: i32 = $number;)*
        }
    };
}

numbers! { AttributeProto:
    /// The kind is not set.
    UNDEFINED = 0;
    /// `f`
    FLOAT = 1;
    /// `i`
    INT = 2;
    /// `s`
    STRING = 3;
    /// `t`
    TENSOR = 4;
    /// `g`
    GRAPH = 5;
    /// `floats`
    FLOATS = 6;
    /// `ints`
    INTS = 7;
    /// `strings`
    STRINGS = 8;
    /// `tensors`
    TENSORS = 9;
    /// `graphs`
    GRAPHS = 10;
    /// `sparse_tensor`
    SPARSE_TENSOR = 11;
    /// `sparse_tensors`
    SPARSE_TENSORS = 12;
    /// `tp`
    TYPE_PROTO = 13;
    /// `type_protos`
    TYPE_PROTOS = 14;
}

numbers! { TensorProto:
    /// The elements are in the message itself.
    DEFAULT = 0;
    /// The elements are in another file, at the location in `external_data`.
    EXTERNAL = 1;
}

/// The element types, for a field that holds a number.
macro_rules! element_types {
    ($($NAME:ident $Variant:ident;)*) => {
        impl TensorProto {
            $(
                #[doc = concat!("The number of [`DataType::", stringify!($Variant), "`].")]
                pub const $NAME: i32 = DataType::$Variant as i32;
            )*
        }
    };
}

element_types! {
    UNDEFINED Undefined;
    FLOAT Float;
    UINT8 Uint8;
    INT8 Int8;
    UINT16 Uint16;
    INT16 Int16;
    INT32 Int32;
    INT64 Int64;
    STRING String;
    BOOL Bool;
    FLOAT16 Float16;
    DOUBLE Double;
    UINT32 Uint32;
    UINT64 Uint64;
    COMPLEX64 Complex64;
    COMPLEX128 Complex128;
    BFLOAT16 Bfloat16;
    FLOAT8E4M3FN Float8E4M3Fn;
    FLOAT8E4M3FNUZ Float8E4M3Fnuz;
    FLOAT8E5M2 Float8E5M2;
    FLOAT8E5M2FNUZ Float8E5M2Fnuz;
    UINT4 Uint4;
    INT4 Int4;
    FLOAT4E2M1 Float4E2M1;
    FLOAT8E8M0 Float8E8M0;
    UINT2 Uint2;
    INT2 Int2;
    FLOAT6E2M3 Float6E2M3;
    FLOAT6E3M2 Float6E3M2;
}
