//! G as a machine runs it: a flat list of nodes in topological order over numbered values.
//!
//! Names are resolved here, once: a value of a graph is a [`ValueId`], and a graph inside a node (a
//! branch, the body of a loop) is a [`Block`] of its own, with the outer values that it uses as its
//! captures. Local functions are inlined by the library; a call that it leaves has the graph of its
//! function inside. Initializers and Constant nodes become constants; their bytes are shared with
//! the container. What a node does is left to its kernel, and what need not be a step to `ready`.

pub mod random_inputs;

mod build;
mod functions;
mod order;
mod room;
pub(crate) mod sizes;
mod sparse;
pub(crate) mod text;

pub(crate) use onnx_container_kernels::internal::program::{FUNCTION_BODY, schema};
pub use onnx_container_kernels::{Attribute, Attributes, Block, Declared, Dim, Node, ValueId};

pub(crate) use self::build::{block_of, dead_after, program};
use crate::memory::Weights;

/// A node that has no step, because what it gives was known when the program was made ready.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Folded {
    /// The path of its block: empty in the main graph, `3/then_branch/` in a graph of node 3.
    pub path: String,
    /// Its name; empty if it has none.
    pub node: String,
    /// The operator, with its domain unless that is ONNX's.
    pub op: String,
    /// The names of its outputs that are constants now; none where its input is read in its place.
    pub outputs: Vec<String>,
    /// The bytes of its results. A view of a weight, or one that is read in place, has none.
    pub bytes: u64,
}

/// A model as a machine runs it. `Program::new` makes it.
#[derive(Debug)]
pub struct Program {
    /// The main graph.
    pub main: Block,
    /// The bytes of all constants, of inner blocks too.
    pub weights: Weights,
    pub(crate) folded: Vec<Folded>,
}

impl Program {
    /// The nodes of the model that have no step, inner graphs included, in their order.
    pub fn folded(&self) -> &[Folded] {
        &self.folded
    }
}
