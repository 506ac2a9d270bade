//! G as kernels see it: nodes over numbered values, with their attributes and the graphs in them.
//!
//! A value of a graph is a [`ValueId`], and a graph inside a node (a branch, the body of a loop) is
//! a [`Block`] of its own, with the outer values that it uses as its captures. How a model becomes
//! blocks is left to the machine, and what a node does to its kernel.

pub(crate) mod schema;

mod attribute;
mod meaning;

use std::sync::Arc;

pub use self::attribute::{Attribute, Attributes};
use crate::memory::table::Entry;
pub use crate::memory::table::ValueId;
use crate::program::schema::Meaning;
use crate::value::Type;

/// The name of the attribute that holds the graph of a call. A model that has an attribute of this
/// name is refused.
pub const FUNCTION_BODY: &str = "function body";

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
    #[doc(hidden)]
    pub meaning: Meaning,
}

impl Node {
    /// A node without a name, operands and attributes.
    #[doc(hidden)]
    pub fn new(domain: String, op_type: String, version: i64) -> Self {
        let meaning = Meaning::of(&domain, &op_type, version);
        let (inputs, outputs, attributes) = Default::default();
        Self { name: String::new(), domain, op_type, version, inputs, outputs, attributes, meaning }
    }

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

impl Declared {
    /// The declaration of `value`.
    #[doc(hidden)]
    pub fn new(value: ValueId, ty: Option<Type>, dims: Option<Vec<Dim>>) -> Self {
        Self { value, ty, dims }
    }
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
    /// Constants: initializers, the outputs of Constant nodes, and those of nodes that
    /// `Program::folded` names.
    pub constants: Vec<(ValueId, Entry)>,
    /// Values of the block around this one: the outer value, and the inner one that stands for it.
    pub captures: Vec<(ValueId, ValueId)>,
    /// For each node, the values that no later node uses and that are no outputs.
    pub dead_after: Vec<Vec<ValueId>>,
}

impl Block {
    /// A graph without constants and captures. What [dies](Self::dead_after) is not known yet.
    #[doc(hidden)]
    pub fn new(
        names: Arc<[String]>,
        nodes: Vec<Node>,
        inputs: Vec<Declared>,
        outputs: Vec<Declared>,
    ) -> Self {
        let (constants, captures, dead_after) = Default::default();
        Self { names, nodes, inputs, outputs, constants, captures, dead_after }
    }

    /// The name of a value.
    pub fn name(&self, value: ValueId) -> &str {
        self.names.get(value.index()).map_or("", String::as_str)
    }

    /// The value with this name.
    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.names.iter().position(|other| other == name).map(ValueId::new)
    }
}
