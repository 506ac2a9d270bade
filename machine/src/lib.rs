//! The ONNX runtime as a state machine: a graph G, a linear memory M, and a tensor table T between them.
//!
//! A model is made into a flat program, every tensor of a run has a place in one byte-addressable
//! memory `[0, N)`, and a public step reads a node's inputs from M through T, applies its operator and
//! writes its outputs back. Weights are ranges borrowed from the container and are never copied.

#[cfg(target_endian = "big")]
compile_error!("onnx-container-machine reads little-endian elements in place");

mod ahead;
mod arrange;
mod bodies;
mod broadcast;
mod call;
pub mod compare;
pub mod data;
mod decimal;
mod elements;
mod error;
mod gemm;
mod in_place;
mod kernel;
mod kernels;
mod lines;
mod machine;
mod memory;
mod nan;
mod narrow;
mod numeric;
pub mod plan;
mod profile;
mod program;
mod random;
pub mod random_inputs;
mod ready;
mod registry;
mod rounding;
mod runnable;
mod schema;
mod table;
pub mod trace;
mod value;
mod widen;

pub use call::{Call, Operand, OutSpec, RunCx};
pub use error::{Error, ErrorKind, Result};
pub use kernel::{Alias, Builtin, Kernel};
pub use machine::{Limits, Machine, StepRecord, Touched};
pub use memory::{ALIGNMENT, Granted, Memory, Span, WEIGHTS, Weights};
pub use profile::Profile;
pub use program::{Attribute, Attributes, Block, Declared, Dim, Folded, Node, Program, ValueId};
pub use ready::ProgramOptions;
pub use registry::Registry;
pub use table::{Entry, Slot, TensorTable};
pub use value::{Map, Type, Value};
