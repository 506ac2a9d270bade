//! The ONNX runtime as a state machine: a graph G, a linear memory M, and a tensor table T between
//! them.
//!
//! A model is made into a flat program, every tensor of a run has a place in one byte-addressable
//! memory `[0, N)`, and a public step reads a node's inputs from M through T, applies its operator
//! and writes its outputs back. Weights are ranges borrowed from the container and are never
//! copied.

#[cfg(target_endian = "big")]
compile_error!("onnx-container-machine reads little-endian elements in place");

mod error;
mod kernel;
mod kernels;
mod machine;
mod memory;
mod numeric;
pub mod plan;
mod program;
mod ready;
pub mod trace;
mod value;

pub use program::random_inputs;
pub use value::compare;
pub use value::data;

pub use error::{Error, ErrorKind, Result};
pub use kernel::call::{Call, Operand, OutSpec, RunCx};
pub use kernel::{Alias, Builtin, Kernel};
pub use kernels::registry::Registry;
pub use machine::{Limits, Machine, StepRecord, Touched};
pub use memory::table::{Entry, Slot, TensorTable};
pub use memory::{ALIGNMENT, Granted, Memory, Span, WEIGHTS, Weights};
pub use numeric::profile::Profile;
pub use program::{Attribute, Attributes, Block, Declared, Dim, Folded, Node, Program, ValueId};
pub use ready::ProgramOptions;
pub use value::{Map, Type, Value};
