//! A program made ready to run: nodes that do not need a step have none.
//!
//! The blocks come from `program` as the model has them. Here transposed weights are read where
//! they lie (`transposed`), and nodes of constants become constants (`fold`). Both change which
//! steps there are, and never a bit of a result.

mod fold;
mod transposed;

use std::collections::HashMap;

use onnx_container::{Container, Limits};

use self::fold::NodeFolder;
use crate::error::Result;
use crate::kernels::registry::Registry;
use crate::memory::table::Entry;
use crate::program::{self, Block, Program, ValueId, dead_after};

/// The most bytes of folded results, unless an option says otherwise: 16 MiB.
const FOLDED_BYTES: u64 = 16 << 20;

/// How a program is made.
#[derive(Debug, Clone)]
#[must_use]
pub struct ProgramOptions {
    keep: Vec<(String, String)>,
    fold_bytes: Option<u64>,
    limits: Limits,
}

impl Default for ProgramOptions {
    fn default() -> Self {
        Self { keep: Vec::new(), fold_bytes: Some(FOLDED_BYTES), limits: Limits::new() }
    }
}

impl ProgramOptions {
    /// Every local function is inlined, and nodes that depend on weights alone have no step.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls of the local function `name` of `domain` stay nodes. They run a kernel that is
    /// registered for them, or else the function.
    pub fn keep(mut self, domain: impl Into<String>, name: impl Into<String>) -> Self {
        self.keep.push((domain.into(), name.into()));
        self
    }

    /// Results of nodes that depend on weights alone become constants while they have at most this
    /// many bytes together. Default: 16 MiB.
    pub fn fold_bytes(mut self, bytes: u64) -> Self {
        self.fold_bytes = Some(bytes);
        self
    }

    /// Every node of the model except Constant is a step. Use this if a kernel of your own has to
    /// run for nodes that depend on weights alone, too: by default, the built-in kernels fold
    /// these.
    pub fn unfolded(mut self) -> Self {
        self.fold_bytes = None;
        self
    }

    /// How much memory the program may take:
    /// [`Limit::Program`](onnx_container::load::Limit::Program). Its default is enough for 25,000
    /// nodes without attributes or 13,000 with some, and for any number of nodes that take at least
    /// 160 bytes each of the model (300 with attributes).
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

impl Program {
    /// The program of the container's model. Nodes that depend on weights alone have no step:
    /// [`folded`](Self::folded) names them.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto};
    /// use onnx_container_machine::{Program, ProgramOptions};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.input.push(ValueInfoProto::tensor("x", onnx_container::DataType::Float, [2]));
    /// graph.node.push(NodeProto::new("Relu", ["x"], ["y"]));
    /// graph.output.push(ValueInfoProto::tensor("y", onnx_container::DataType::Float, [2]));
    /// let mut model = ModelProto::new(graph);
    /// model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    ///
    /// let program = Program::new(&Container::new(model), ProgramOptions::new())?;
    /// assert_eq!(program.main.nodes[0].op(), "Relu");
    /// # Ok::<(), onnx_container_machine::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidModel`](crate::ErrorKind::InvalidModel) when a node uses a value that nothing
    /// computes, two nodes compute one value, nodes depend on each other in a circle, or no version
    /// of an operator is imported; [`Container`](crate::ErrorKind::Container) when weights cannot
    /// be read or functions cannot be inlined, or when the program takes more memory than
    /// [`limits`](ProgramOptions::limits) allow.
    pub fn new(container: &Container, options: ProgramOptions) -> Result<Self> {
        let mut program = program::program(container, &options.keep, options.limits)?;
        if let Some(left) = options.fold_bytes {
            let registry = Registry::new();
            let Self { main, weights, folded } = &mut program;
            let mut folder = NodeFolder { registry: &registry, weights, left, folded };
            make_ready(main, "", &Constants::new(), &mut folder);
        }
        Ok(program)
    }
}

/// The entries of the values of a block that never change.
type Constants = HashMap<ValueId, Entry>;

/// Makes `block` ready, whose path is `path` and which may capture `outer`, and the blocks in it.
fn make_ready(block: &mut Block, path: &str, outer: &Constants, folder: &mut NodeFolder<'_>) {
    let mut constants = constants(block, outer);
    transposed::read_in_place(block, path, &constants, folder.folded);
    let nodes = std::mem::take(&mut block.nodes);
    for mut node in nodes {
        let index = block.nodes.len();
        for (name, inner) in node.attributes.graphs_mut() {
            make_ready(inner, &format!("{path}{index}/{name}/"), &constants, folder);
        }
        match folder.fold(&node, &constants, block, path) {
            Some(entries) => {
                constants.extend(entries.iter().cloned());
                block.constants.extend(entries);
            }
            None => block.nodes.push(node),
        }
    }
    block.dead_after = dead_after(&block.nodes, &block.outputs);
}

/// The constants of `block`. An input that has a default value is not a constant.
fn constants(block: &Block, outer: &Constants) -> Constants {
    let captured = block.captures.iter().filter_map(|(outside, inside)| {
        let entry = outer.get(outside)?;
        Some((*inside, entry.clone()))
    });
    let mut constants: Constants = block.constants.iter().cloned().chain(captured).collect();
    for input in &block.inputs {
        constants.remove(&input.value);
    }
    constants
}
