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

mod machine;
pub mod plan;
mod program;
mod ready;
mod runnable;
pub mod trace;

pub use program::random_inputs;

pub use machine::{Machine, RunLimits, StepRecord, Touched};
pub use program::{Folded, Program};
pub use ready::ProgramOptions;

// The operators and what they work on, which are a crate of their own.
#[doc(inline)]
pub use onnx_container_kernels::{
    ALIGNMENT, Alias, Attribute, Attributes, Block, Call, Declared, Dim, Entry, Error, ErrorKind,
    Kernel, Map, Memory, Node, Operand, OutSpec, Profile, Registry, Result, RunCx, Slot,
    TensorTable, Type, Value, ValueId, Weights, compare, data,
};
#[doc(hidden)]
pub use onnx_container_kernels::{Builtin, Granted, Span, WEIGHTS};

// What modules here name as `crate::error`, as they name modules of this crate.
use onnx_container_kernels::internal::{error, exact, kernel, kernels, memory, numeric, value};
