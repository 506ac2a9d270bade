//! The ONNX runtime as a state machine: a graph G, a linear memory M, and a tensor table T between
//! them.
//!
//! A model is made into a flat program, every tensor of a run has a place in one byte-addressable
//! memory `[0, N)`, and a public step reads a node's inputs from M through T, applies its operator
//! and writes its outputs back. Weights are ranges borrowed from the container and are never
//! copied.
//!
//! # Example
//!
//! ```
//! use onnx_container::Container;
//! use onnx_container::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
//! use onnx_container_machine::{Machine, Program, ProgramOptions, Registry, RunLimits, Value};
//!
//! // y = x + x, in two elements of FLOAT. `Container::load` reads a model from a file.
//! let mut graph = GraphProto::new("demo");
//! graph.input.push(ValueInfoProto::tensor("x", TensorProto::FLOAT, [2]));
//! graph.node.push(NodeProto::new("Add", ["x", "x"], ["y"]));
//! graph.output.push(ValueInfoProto::tensor("y", TensorProto::FLOAT, [2]));
//! let container = Container::new(ModelProto::new(graph).with_operator_set("", 21));
//!
//! let program = Program::new(&container, ProgramOptions::new())?;
//! let mut machine = Machine::new(program, Registry::new(), RunLimits::new());
//! machine.bind("x", Value::from_elements([2], &[1.0_f32, 3.0])?)?;
//! machine.run()?;
//! assert_eq!(machine.value("y")?.tensor()?.as_slice::<f32>()?, [2.0, 6.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Types and modules
//!
//! | type or module | what it is |
//! |---|---|
//! | [`Program`], [`ProgramOptions`] | the nodes of a model in the order of a run, with its weights |
//! | [`Machine`] | a program with its memory and table: [`bind`](Machine::bind), [`step`](Machine::step), [`run`](Machine::run), [`value`](Machine::value) |
//! | [`Registry`], [`Profile`] | which kernel computes an operator; whether bits or speed come first |
//! | [`Value`], [`Type`] | tensors, sequences, maps and optionals |
//! | [`RunLimits`] | how much a run may take |
//! | [`StepRecord`], [`Touched`] | what a step read and wrote, and where |
//! | [`Kernel`], [`Call`] | an operator of your own |
//! | [`Memory`], [`TensorTable`] | M, and which range of it each tensor has |
//! | [`mod@plan`] | places for all tensors before the first step |
//! | [`mod@trace`] | a run written down, and two runs compared |

#[cfg(target_endian = "big")]
compile_error!("onnx-container-machine reads little-endian elements in place");

mod error;
mod exact;
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
#[doc(hidden)]
pub use kernel::Builtin;
pub use kernel::call::{Call, Operand, OutSpec};
pub use kernel::run_cx::RunCx;
pub use kernel::{Alias, Kernel};
pub use kernels::registry::Registry;
pub use machine::{Machine, RunLimits, StepRecord, Touched};
pub use memory::table::{Entry, Slot, TensorTable};
pub use memory::{ALIGNMENT, Memory, Weights};
#[doc(hidden)]
pub use memory::{Granted, Span, WEIGHTS};
pub use numeric::profile::Profile;
pub use program::{Attribute, Attributes, Block, Declared, Dim, Folded, Node, Program, ValueId};
pub use ready::ProgramOptions;
pub use value::{Map, Type, Value};
