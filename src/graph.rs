//! What the messages of a model say of its graph: pure functions on messages, which open no file
//! and read no weight.

pub(crate) mod called_functions;
pub(crate) mod declared_types;
mod fields;
pub(crate) mod inferred_types;
pub(crate) mod inline;
pub(crate) mod model_size;
pub(crate) mod operands;
pub(crate) mod opset;
pub(crate) mod outer_values;
pub(crate) mod stored_digests;
pub mod traversal;
pub(crate) mod value_names;

pub use operands::{ShapeOperands, ShapeUse};
