//! Nodes, functions and subgraphs of a model, counted.

use std::collections::BTreeMap;

use super::text::domain;
use crate::proto::{GraphProto, ModelProto, NodeProto};

/// What a model has of graphs and nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Graphs {
    /// Nodes of the main graph.
    pub nodes: usize,
    /// Nodes of functions, of subgraphs and of training graphs.
    pub inner_nodes: usize,
    /// Local functions.
    pub functions: usize,
    /// Graphs in attributes of nodes.
    pub subgraphs: usize,
    /// How deep subgraphs nest: 0 without any.
    pub subgraph_depth: usize,
    /// How often each operator occurs, in all graphs: the most frequent first.
    pub operators: Vec<OperatorCount>,
}

/// How often an operator occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OperatorCount {
    /// Its name, with `domain::` before it where that is not ONNX's own.
    pub operator: String,
    /// The number of nodes.
    pub nodes: usize,
}

impl Graphs {
    /// Counts all graphs of `model`.
    pub(super) fn of(model: &ModelProto) -> Self {
        let mut walk = Walk::default();
        for_each_list(model, |nodes| walk.nodes(nodes, 0));
        let nodes = model.graph.as_ref().map_or(0, |graph| graph.node.len());
        Self {
            nodes,
            inner_nodes: walk.nodes.saturating_sub(nodes),
            functions: model.functions.len(),
            subgraphs: walk.subgraphs,
            subgraph_depth: walk.depth,
            operators: counts(walk.by_operator),
        }
    }
}

/// Calls `visit` with the nodes of the main graph, of each function and of each training graph.
pub(super) fn for_each_list<'m>(model: &'m ModelProto, mut visit: impl FnMut(&'m [NodeProto])) {
    model.graph.iter().for_each(|graph| visit(&graph.node));
    model.functions.iter().for_each(|function| visit(&function.node));
    for info in &model.training_info {
        let graphs = info.initialization.iter().chain(&info.algorithm);
        graphs.for_each(|graph| visit(&graph.node));
    }
}

/// The graphs in the attributes of `node`.
pub(super) fn subgraphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    let all = node.attribute.iter();
    all.flat_map(|attribute| attribute.g.iter().map(AsRef::as_ref).chain(&attribute.graphs))
}

/// The counts in a list, the largest first.
pub(super) fn counts(by_operator: BTreeMap<String, usize>) -> Vec<OperatorCount> {
    let counted = by_operator.into_iter();
    let mut counted: Vec<_> =
        counted.map(|(operator, nodes)| OperatorCount { operator, nodes }).collect();
    counted.sort_by_key(|operator| std::cmp::Reverse(operator.nodes));
    counted
}

#[derive(Default)]
struct Walk {
    nodes: usize,
    subgraphs: usize,
    depth: usize,
    by_operator: BTreeMap<String, usize>,
}

impl Walk {
    fn nodes(&mut self, nodes: &[NodeProto], depth: usize) {
        self.depth = self.depth.max(depth);
        self.nodes += nodes.len();
        for node in nodes {
            *self.by_operator.entry(operator(node)).or_default() += 1;
            for graph in subgraphs(node) {
                self.subgraphs += 1;
                self.nodes(&graph.node, depth + 1);
            }
        }
    }
}

/// The operator's name, with its domain where that is not ONNX's own.
pub(crate) fn operator(node: &NodeProto) -> String {
    let name = node.op_type.as_ref().map(|op| op.to_string_lossy()).unwrap_or_default();
    match domain(node.domain.as_ref()).as_str() {
        "ai.onnx" => name.into_owned(),
        domain => format!("{domain}::{name}"),
    }
}
