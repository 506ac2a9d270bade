//! Local functions whose calls stay when a model is inlined: each call gets the function's graph
//! inside.
//!
//! The inliner leaves a call where a node of the function would be another operator at the versions
//! that the model imports. A block has operator versions of its own. So the body of such a call is
//! made by inlining a model which imports what the function imports, and contains nothing but the
//! call.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use onnx_container::inline::{FunctionSelector, InlineOptions};
use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, Message, ModelProto, NodeProto, OperatorSetIdProto,
    Str, ValueInfoProto,
};

use super::room::Room;
use super::text::{domain, imports, operator_sets, text};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::{Exact, OrBug};

/// Domain, name and overload of a function.
type Id = [String; 3];

/// Whether no node of `model` has an attribute twice. An inliner would take one of them.
pub(super) fn check_attributes(model: &ModelProto) -> Result<()> {
    let main = model.graph.as_deref().map_or(&[][..], |graph| &graph.node);
    let mut graphs: Vec<&[NodeProto]> = vec![main];
    graphs.extend(model.functions.iter().map(|function| function.node.as_slice()));
    while let Some(nodes) = graphs.pop() {
        for node in nodes {
            let mut names = HashSet::new();
            let is_again = |one: &&AttributeProto| !names.insert(text(one.name.as_ref()));
            if let Some(again) = node.attribute.iter().find(is_again) {
                let error = twice(&text(again.name.as_ref()));
                return Err(error.at_node(text(node.name.as_ref()), text(node.op_type.as_ref())));
            }
            let attributes = node.attribute.iter();
            let inner = attributes.flat_map(|one| one.g.as_deref().into_iter().chain(&one.graphs));
            graphs.extend(inner.map(|graph| graph.node.as_slice()));
        }
    }
    Ok(())
}

/// The error of an attribute that a node has twice.
pub(super) fn twice(name: &str) -> Error {
    Error::new(ErrorKind::InvalidModel, format!("the node has attribute `{name}` twice"))
}

/// The local functions of a model that is inlined.
#[derive(Default)]
pub(super) struct Functions {
    list: Vec<FunctionProto>,
    by_id: HashMap<Id, usize>,
    ir_version: Option<i64>,
    /// Domain and name of the functions whose calls stay in every body.
    keep: Vec<(String, String)>,
    /// What was expanded so far, by the model around the call.
    expanded: HashMap<Vec<u8>, Arc<Expanded>>,
}

/// What computes a call: a graph over the distinct inputs that the call has, with nodes of these
/// versions.
pub(super) struct Expanded {
    pub(super) graph: GraphProto,
    pub(super) imports: HashMap<String, i64>,
}

impl Functions {
    pub(super) fn of(model: &ModelProto, keep: &[(String, String)]) -> Self {
        let list = model.functions.clone();
        let by_id = list.iter().enumerate().map(|(i, function)| (id(function), i)).collect();
        let keep = keep.to_vec();
        Self { list, by_id, ir_version: model.ir_version, keep, ..Self::default() }
    }

    /// What computes `call` in a graph that imports `imports`; `None` when it calls no function.
    /// `room` is charged for each expanded body; the caller charges it once per call.
    pub(super) fn expand(
        &mut self,
        call: &NodeProto,
        imports: &HashMap<String, i64>,
        room: &Room,
    ) -> Result<Option<Arc<Expanded>>> {
        let Some(callee) = self.callee(call) else { return Ok(None) };
        let model = self.around(call, callee, imports)?;
        let key = model.encode_to_vec()?;
        let expanded = match self.expanded.get(&key) {
            Some(expanded) => Arc::clone(expanded),
            None => {
                let expanded = Arc::new(self.inline(model, callee, room)?);
                self.expanded.insert(key, Arc::clone(&expanded));
                expanded
            }
        };
        Ok(Some(expanded))
    }

    /// A model with `call` alone, at the versions of the callee, without functions.
    fn around(
        &self,
        call: &NodeProto,
        callee: usize,
        imports: &HashMap<String, i64>,
    ) -> Result<ModelProto> {
        let mut versions: BTreeMap<_, _> =
            imports.iter().map(|(domain, version)| (domain.clone(), *version)).collect();
        versions.extend(operator_sets(&self.list.at(callee)?.opset_import));
        let mut model = ModelProto::new(graph_of(call));
        model.ir_version = self.ir_version;
        let imports = versions.iter();
        let imports =
            imports.map(|(domain, version)| OperatorSetIdProto::new(domain.as_str(), *version));
        model.opset_import = imports.collect();
        Ok(model)
    }

    /// Inlines the only call of `model`.
    fn inline(&self, mut model: ModelProto, callee: usize, room: &Room) -> Result<Expanded> {
        model.functions = self.reachable(callee);
        room.inline(&mut model, self.inlining(callee)?)?;
        let graph = *model.graph.take().or_bug("a model without a graph")?;
        if graph.node.iter().any(|node| self.callee(node) == Some(callee)) {
            let reason = "the function that it calls cannot be put in its place";
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        Ok(Expanded { graph, imports: imports(&model) })
    }

    /// The number of the function that `node` calls.
    fn callee(&self, node: &NodeProto) -> Option<usize> {
        if self.list.is_empty() {
            return None;
        }
        let id = [
            domain(node.domain.as_ref()),
            text(node.op_type.as_ref()),
            text(node.overload.as_deref()),
        ];
        self.by_id.get(&id).copied()
    }

    /// The function `callee` and those that it calls, directly or not, in the order of the model.
    fn reachable(&self, callee: usize) -> Vec<FunctionProto> {
        let (mut found, mut open) = (HashSet::from([callee]), vec![callee]);
        while let Some(function) = open.pop().and_then(|i| self.list.get(i)) {
            let mut graphs: Vec<&[NodeProto]> = vec![&function.node];
            while let Some(nodes) = graphs.pop() {
                for node in nodes {
                    open.extend(self.callee(node).filter(|callee| found.insert(*callee)));
                    let attributes = node.attribute.iter();
                    let inner =
                        attributes.flat_map(|one| one.g.as_deref().into_iter().chain(&one.graphs));
                    graphs.extend(inner.map(|graph| graph.node.as_slice()));
                }
            }
        }
        let called = self.list.iter().enumerate().filter(|(i, _)| found.contains(i));
        called.map(|(_, function)| function.clone()).collect()
    }

    /// Inlines all functions but those that stay; the callee is inlined even if it is one of these.
    fn inlining(&self, callee: usize) -> Result<InlineOptions> {
        let callee = id(self.list.at(callee)?);
        let others =
            self.keep.iter().filter(|(domain, name)| [domain, name] != [&callee[0], &callee[1]]);
        Ok(InlineOptions::new()
            .except(others.map(|(domain, name)| FunctionSelector::name(domain, name))))
    }
}

fn id(function: &FunctionProto) -> Id {
    [
        domain(function.domain.as_ref()),
        text(function.name.as_ref()),
        text(function.overload.as_deref()),
    ]
}

/// A graph with `call` alone, from its inputs to its outputs. They have names by their numbers, so
/// that equal calls are equal here, unless a graph in an attribute uses outer values by their
/// names.
fn graph_of(call: &NodeProto) -> GraphProto {
    let captures = call.attribute.iter().any(|one| one.g.is_some() || !one.graphs.is_empty());
    let mut call = call.clone();
    call.name = None;
    let mut graph = GraphProto::new("call");
    let numbers = &mut HashMap::new();
    let mut number = |names: &mut Vec<Str>, what: &str, values: &mut Vec<ValueInfoProto>| {
        for name in names.iter_mut().filter(|name| !name.is_empty()) {
            let next = Str::from(format!("{what} {}", numbers.len()));
            let next = if captures { name.clone() } else { next };
            if let Some(known) = numbers.get(name.as_bytes()).cloned() {
                *name = known;
                continue;
            }
            numbers.insert(name.as_bytes().to_vec(), next.clone());
            let mut value = ValueInfoProto::default();
            value.name = Some(next.clone());
            values.push(value);
            *name = next;
        }
    };
    number(&mut call.input, "input", &mut graph.input);
    number(&mut call.output, "output", &mut graph.output);
    graph.node = vec![call];
    graph
}
