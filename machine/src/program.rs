//! G as a machine runs it: a flat list of nodes in topological order over numbered values.
//!
//! Names are resolved here, once: a value of a graph is a [`ValueId`], and a graph inside a node (a
//! branch, the body of a loop) is a [`Block`] of its own, with the outer values that it uses as its
//! captures. Local functions are inlined by the library; a call that it leaves has the graph of its
//! function inside. Initializers and Constant nodes become constants; their bytes are shared with
//! the container. What a node does is left to its kernel, and what need not be a step to `ready`.

pub mod random_inputs;
pub(crate) mod schema;

mod attribute;
mod build;
mod functions;
mod meaning;
mod order;
mod room;
mod sizes;
mod sparse;
pub(crate) mod text;

use std::sync::Arc;

pub use self::attribute::{Attribute, Attributes};
pub(crate) use self::build::{block_of, dead_after, program};
pub(crate) use self::functions::FUNCTION_BODY;
use crate::memory::Weights;
use crate::memory::table::Entry;
pub use crate::memory::table::ValueId;
use crate::program::schema::Meaning;
use crate::value::Type;

/// A node `[op_type, inputs, outputs, attributes, subgraph]` of the definition.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Node {
    /// Its name; empty if it has none.
    pub name: String,
    /// The domain of the operator; that of ONNX is empty.
    pub domain: String,
    /// The operator.
    pub op_type: String,
    /// The version of the domain that the model imports. The operator is that of its latest version
    /// up to this one.
    pub version: i64,
    /// The inputs; `None` where an optional one is left out.
    pub inputs: Vec<Option<ValueId>>,
    /// The outputs; `None` where an optional one is left out.
    pub outputs: Vec<Option<ValueId>>,
    /// The attributes, graphs included.
    pub attributes: Attributes,
    /// What the schemas of ONNX say of it.
    pub(crate) meaning: Meaning,
}

impl Node {
    /// The operator as messages show it: with its domain, unless that is ONNX's.
    pub fn op(&self) -> String {
        if self.domain.is_empty() {
            self.op_type.clone()
        } else {
            format!("{}::{}", self.domain, self.op_type)
        }
    }
}

/// One dimension of a declared shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dim {
    /// A fixed size.
    Fixed(usize),
    /// A name that stands for the same size everywhere.
    Symbol(String),
    /// Not known.
    Unknown,
}

/// An input or output of a block, as the graph declares it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Declared {
    /// The value.
    pub value: ValueId,
    /// The type; `None` where the graph does not say it.
    pub ty: Option<Type>,
    /// The shape of a tensor; `None` where its rank is not known.
    pub dims: Option<Vec<Dim>>,
}

/// A graph as a list of steps.
#[derive(Debug)]
#[non_exhaustive]
pub struct Block {
    /// The name of every value.
    pub names: Arc<[String]>,
    /// The nodes, each after those whose outputs it uses.
    pub nodes: Vec<Node>,
    /// The inputs in the order of the graph.
    pub inputs: Vec<Declared>,
    /// The outputs in the order of the graph.
    pub outputs: Vec<Declared>,
    /// Constants: initializers, the outputs of Constant nodes, and those of nodes that were
    /// [folded](Program::folded).
    pub constants: Vec<(ValueId, Entry)>,
    /// Values of the block around this one: the outer value, and the inner one that stands for it.
    pub captures: Vec<(ValueId, ValueId)>,
    /// For each node, the values that no later node uses and that are no outputs.
    pub dead_after: Vec<Vec<ValueId>>,
}

impl Block {
    /// The name of a value.
    pub fn name(&self, value: ValueId) -> &str {
        self.names.get(value.index()).map_or("", String::as_str)
    }

    /// The value with this name.
    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.names.iter().position(|other| other == name).map(ValueId::new)
    }
}

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
