//! Refuses to compile where a message has a field that code elsewhere does not handle.
//!
//! Messages may get fields, so that outside of their crate a struct or a `match` cannot name all of
//! them. The code that has to handle every field is named here beside the number of fields that it
//! handles.

use crate::proto::{
    GraphProto, Message, NodeProto, SparseTensorProto, TensorProto, TensorShapeProto, TypeProto,
};

/// Copied in `graph/inline/copy.rs`, and without attributes in `digest/structure.rs`.
const _: () = assert!(NodeProto::FIELDS.len() == 10);

/// Copied in `graph/inline/graph.rs`.
const _: () = assert!(GraphProto::FIELDS.len() == 10);

/// Copied without elements in `files/external_data.rs`, its elements in
/// `container/consolidate/plan.rs`.
const _: () = assert!(TensorProto::FIELDS.len() == 15);

/// Digested in `digest/semantic/weights.rs`.
const _: () = assert!(SparseTensorProto::FIELDS.len() == 3);

/// Digested in `digest/semantic/types.rs`.
const _: () = assert!(TensorShapeProto::FIELDS.len() == 1);

/// Its alternatives are matched in `check/types.rs`, `digest/semantic/types.rs` and
/// `graph/model_size.rs`, and in `graph/inline/` in `calls.rs` and `rename.rs`.
const _: () = assert!(TypeProto::FIELDS.len() == 7);
