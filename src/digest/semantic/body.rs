//! [`Body`]: what each name of a graph or function stands for.
//!
//! A name means what its own graph defines under it, wherever in the graph that is, else what the
//! graph around it defines. Two definitions of one name have no such meaning and are an error.
//! Following names from graph to graph is left to `scope`.

use std::cell::{Cell, OnceCell};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::error::{Error, ErrorKind, Result};
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, NodeProto, SparseTensorProto, Str, TensorProto,
    ValueInfoProto,
};

/// What a use of a body takes, in bytes: its scope, its frame, and what finds it again.
const USE: u64 = 300;
/// A node.
const NODE: u64 = 40;
/// An input, or an input or output of a node.
const PLACE: u64 = 40;
/// An attribute of a node.
const ATTRIBUTE: u64 = 64;

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Definition<'m> {
    /// The input of this index.
    Input(usize),
    Constant(Constant<'m>),
    /// An output of a node.
    Output {
        node: usize,
        index: usize,
    },
}

/// An initializer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Constant<'m> {
    Dense(&'m TensorProto),
    Sparse(&'m SparseTensorProto),
}

/// A graph or function with its names.
#[derive(Debug)]
pub(super) struct Body<'m> {
    pub(super) nodes: &'m [NodeProto],
    pub(super) inputs: Vec<&'m [u8]>,
    pub(super) outputs: Vec<&'m [u8]>,
    /// The initializers of inputs: what they are when nothing else is given.
    pub(super) defaults: HashMap<usize, Constant<'m>, RandomState>,
    definitions: HashMap<&'m [u8], Definition<'m>, RandomState>,
    /// The names that a node reads before, or while, a node of this body gives them.
    early: OnceCell<HashSet<&'m [u8], RandomState>>,
    /// Whether it is in use: what it takes once more is counted.
    used: Cell<bool>,
}

/// The bytes of a name that may be unset.
pub(super) fn bytes(name: Option<&Str>) -> &[u8] {
    name.map(Str::as_bytes).unwrap_or_default()
}

/// The graphs in an attribute.
pub(super) fn graphs(attribute: &AttributeProto) -> impl Iterator<Item = &GraphProto> {
    attribute.g.as_deref().into_iter().chain(&attribute.graphs)
}

impl<'m> Body<'m> {
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when a name is defined twice.
    pub(super) fn of_graph(graph: &'m GraphProto) -> Result<Self> {
        let names = |infos: &'m [ValueInfoProto]| {
            infos.iter().map(|info| bytes(info.name.as_ref())).collect()
        };
        let mut body = Self::new(&graph.node, names(&graph.input), names(&graph.output))?;
        for tensor in &graph.initializer {
            body.constant(bytes(tensor.name.as_ref()), Constant::Dense(tensor))?;
        }
        for tensor in &graph.sparse_initializer {
            let name = tensor.values.as_deref().and_then(|values| values.name.as_ref());
            body.constant(bytes(name), Constant::Sparse(tensor))?;
        }
        Ok(body)
    }

    /// # Errors
    /// As [`of_graph`](Self::of_graph).
    pub(super) fn of_function(function: &'m FunctionProto) -> Result<Self> {
        let names = |names: &'m [Str]| names.iter().map(Str::as_bytes).collect();
        Self::new(&function.node, names(&function.input), names(&function.output))
    }

    fn new(nodes: &'m [NodeProto], inputs: Vec<&'m [u8]>, outputs: Vec<&'m [u8]>) -> Result<Self> {
        let definitions = HashMap::with_capacity_and_hasher(nodes.len(), RandomState::default());
        let defaults = HashMap::default();
        let (inputs_of, early, used) = (Vec::new(), OnceCell::new(), Cell::new(false));
        let mut body =
            Self { nodes, inputs: inputs_of, outputs, defaults, definitions, early, used };
        for (i, name) in inputs.iter().enumerate() {
            body.define(name, Definition::Input(i))?;
        }
        body.inputs = inputs;
        for (node, proto) in nodes.iter().enumerate() {
            for (index, name) in proto.output.iter().enumerate() {
                body.define(name.as_bytes(), Definition::Output { node, index })?;
            }
        }
        Ok(body)
    }

    fn constant(&mut self, name: &'m [u8], constant: Constant<'m>) -> Result<()> {
        match self.definitions.get(name) {
            Some(Definition::Input(input)) => match self.defaults.insert(*input, constant) {
                None => Ok(()),
                Some(_) => Err(defined_twice(name)),
            },
            _ => self.define(name, Definition::Constant(constant)),
        }
    }

    fn define(&mut self, name: &'m [u8], definition: Definition<'m>) -> Result<()> {
        // Nothing can refer to what has no name.
        if name.is_empty() {
            return Ok(());
        }
        match self.definitions.entry(name) {
            Entry::Vacant(place) => {
                place.insert(definition);
                Ok(())
            }
            Entry::Occupied(_) => Err(defined_twice(name)),
        }
    }

    /// Whether a node, or a node in its graphs, reads `name` where no node has given it yet.
    pub(super) fn is_read_early(&self, name: &[u8]) -> bool {
        self.early.get_or_init(|| self.early()).contains(name)
    }

    fn early(&self) -> HashSet<&'m [u8], RandomState> {
        let mut early = HashSet::default();
        for (i, node) in self.nodes.iter().enumerate() {
            let is_later = |name: &[u8]| matches!(self.find(name), Some(Definition::Output { node, .. }) if node >= i);
            reads(node, &mut |name| {
                if is_later(name) {
                    early.insert(name);
                }
            });
        }
        early
    }

    /// How many bytes this use of the body takes, if it is not the first, which the length of the
    /// model allows.
    pub(super) fn take(&self) -> u64 {
        if self.used.replace(true) { self.size() } else { 0 }
    }

    /// How many bytes one use of the body takes. Text takes time and no memory: it is read again.
    fn size(&self) -> u64 {
        let node = |node: &NodeProto| {
            let names = node.input.iter().chain(&node.output);
            let texts = [&node.op_type, &node.domain].into_iter().flatten().chain(names);
            let attributes = node.attribute.iter();
            let text: usize = texts.map(|text| text.as_bytes().len()).sum();
            let named = |a: &AttributeProto| bytes(a.name.as_ref()).len();
            let text = text + attributes.map(named).sum::<usize>();
            let places = node.input.len() + node.output.len();
            NODE + PLACE * places as u64 + ATTRIBUTE * node.attribute.len() as u64 + text as u64 / 4
        };
        USE + PLACE * self.inputs.len() as u64 + self.nodes.iter().map(node).sum::<u64>()
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<Definition<'m>> {
        self.definitions.get(name).copied()
    }
}

/// Calls `visit` with every name that `node` reads of the graph that it stands in: its inputs, and
/// what its graphs read and do not define themselves.
fn reads<'m>(node: &'m NodeProto, visit: &mut dyn FnMut(&'m [u8])) {
    node.input.iter().for_each(|name| visit(name.as_bytes()));
    for graph in node.attribute.iter().flat_map(graphs) {
        let own = defined_in(graph);
        let mut outer = |name: &'m [u8]| {
            if !own.contains(name) {
                visit(name);
            }
        };
        graph.node.iter().for_each(|node| reads(node, &mut outer));
        graph.output.iter().for_each(|info| outer(bytes(info.name.as_ref())));
    }
}

/// The names that a graph defines, without those of the graphs in it.
fn defined_in(graph: &GraphProto) -> HashSet<&[u8], RandomState> {
    let sparse = graph.sparse_initializer.iter().filter_map(|tensor| tensor.values.as_deref());
    let constants = graph.initializer.iter().chain(sparse).map(|tensor| &tensor.name);
    let names = graph.input.iter().map(|info| &info.name).chain(constants).flatten();
    let computed = graph.node.iter().flat_map(|node| &node.output);
    names.chain(computed).map(Str::as_bytes).collect()
}

fn defined_twice(name: &[u8]) -> Error {
    let name = String::from_utf8_lossy(name);
    Error::new(ErrorKind::InvalidModel, format!("the value `{name}` is defined twice"))
}
