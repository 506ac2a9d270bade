//! Whether a model has operators that may give something else each time.

use std::rc::Rc;

use super::attributes;
use super::operator::{self, Operator};
use super::scope::Imports;
use crate::graph::inline::Callable;
use crate::proto::{ModelProto, NodeProto};

/// Whether any node, of the main graph or of a function of `model`, may give something else each
/// time. `imports` are those of the main graph.
pub(super) fn draws_anywhere(
    model: &ModelProto,
    callable: &Callable<'_>,
    imports: &Rc<Imports<'_>>,
) -> bool {
    let ModelProto { graph, functions, .. } = model;
    // Without functions nothing is called, and the answer does not matter.
    if functions.is_empty() {
        return false;
    }
    let main = graph.as_deref().into_iter().flat_map(|graph| &graph.node);
    draws(main, callable, imports)
        || functions.iter().any(|function| {
            let imports = Imports::new(&function.opset_import, Some(imports));
            let defaults = function.attribute_proto.iter().flat_map(attributes::graphs);
            let nodes = function.node.iter().chain(defaults.flat_map(|graph| &graph.node));
            draws(nodes, callable, &imports)
        })
}

/// Whether any of `nodes`, or of the nodes in their graphs, may give something else each time.
fn draws<'m>(
    nodes: impl Iterator<Item = &'m NodeProto>,
    callable: &Callable<'_>,
    imports: &Imports<'_>,
) -> bool {
    let mut left: Vec<_> = nodes.collect();
    while let Some(node) = left.pop() {
        let graphs = node.attribute.iter().flat_map(attributes::graphs);
        left.extend(graphs.flat_map(|graph| &graph.node));
        if callable.callee(node).is_none() {
            // Where two versions are imported, nobody knows.
            let version = imports.version(operator::domain(node)).ok().flatten();
            let operator = Operator::new(node, version);
            if operator.draws(|i| node.input.get(i).is_some_and(|name| !name.is_empty())) {
                return true;
            }
        }
    }
    false
}
