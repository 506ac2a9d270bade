//! Nodes, functions and subgraphs of a model, counted.

use std::collections::BTreeMap;

use onnx_container::proto::{GraphProto, ModelProto, NodeProto};
use serde::Serialize;

use super::domain;

/// What a model has of graphs and nodes.
#[derive(Debug, Default, Serialize)]
pub struct Graphs {
    /// Nodes of the main graph.
    pub nodes: usize,
    /// Nodes of functions, of subgraphs and of training graphs.
    pub inner_nodes: usize,
    pub functions: usize,
    pub subgraphs: usize,
    /// How deep subgraphs nest: 0 without any.
    pub subgraph_depth: usize,
    /// How often each operator occurs, in all graphs: the most frequent first.
    pub operators: Vec<Operator>,
}

#[derive(Debug, Serialize)]
pub struct Operator {
    pub operator: String,
    pub nodes: usize,
}

impl Graphs {
    /// Counts all graphs of `model`.
    pub fn of(model: &ModelProto) -> Self {
        let mut walk = Walk::default();
        model.graph.iter().for_each(|graph| walk.nodes(&graph.node, 0));
        for function in &model.functions {
            walk.nodes(&function.node, 0);
        }
        for info in &model.training_info {
            let graphs = info.initialization.iter().chain(&info.algorithm);
            graphs.for_each(|graph| walk.nodes(&graph.node, 0));
        }
        let nodes = model.graph.as_ref().map_or(0, |graph| graph.node.len());
        Self {
            nodes,
            inner_nodes: walk.nodes - nodes,
            functions: model.functions.len(),
            subgraphs: walk.subgraphs,
            subgraph_depth: walk.depth,
            operators: walk.operators(),
        }
    }
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
            for attribute in &node.attribute {
                let graphs = attribute.g.iter().map(AsRef::as_ref).chain(&attribute.graphs);
                graphs.for_each(|graph| self.subgraph(graph, depth + 1));
            }
        }
    }

    fn subgraph(&mut self, graph: &GraphProto, depth: usize) {
        self.subgraphs += 1;
        self.nodes(&graph.node, depth);
    }

    fn operators(self) -> Vec<Operator> {
        let operators = self.by_operator.into_iter();
        let mut operators: Vec<_> =
            operators.map(|(operator, nodes)| Operator { operator, nodes }).collect();
        operators.sort_by_key(|operator| std::cmp::Reverse(operator.nodes));
        operators
    }
}

/// The operator's name, with its domain where that is not ONNX's own.
fn operator(node: &NodeProto) -> String {
    let name = node.op_type.as_ref().map(|op| op.to_string_lossy()).unwrap_or_default();
    match domain(node.domain.as_ref()).as_str() {
        "ai.onnx" => name.into_owned(),
        domain => format!("{domain}::{name}"),
    }
}
