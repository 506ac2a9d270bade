//! The order of a graph's nodes: each after those whose outputs it uses, else as they stand.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use onnx_container::proto::{GraphProto, NodeProto};

use super::text::text;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;

/// The indices of `nodes` in topological order.
///
/// # Errors
/// [`ErrorKind::InvalidModel`] when two nodes compute one value, or nodes depend on each other.
pub(super) fn topological(nodes: &[NodeProto]) -> Result<Vec<usize>> {
    let producers = producers(nodes)?;
    let mut waits = vec![0_usize; nodes.len()];
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (i, (node, waits)) in nodes.iter().zip(&mut waits).enumerate() {
        let mut needed: Vec<usize> = Vec::new();
        visit_names(node, &mut |name| needed.extend(producers.get(name)));
        needed.sort_unstable();
        needed.dedup();
        *waits = needed.len();
        for producer in needed {
            users.at_mut(producer)?.push(i);
        }
    }
    let ready = waits.iter().enumerate().filter(|(_, waits)| **waits == 0);
    let mut ready: BinaryHeap<_> = ready.map(|(i, _)| Reverse(i)).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(i)) = ready.pop() {
        order.push(i);
        for user in users.at(i)? {
            let waits = waits.at_mut(*user)?;
            *waits -= 1;
            if *waits == 0 {
                ready.push(Reverse(*user));
            }
        }
    }
    match waits.iter().position(|waits| *waits > 0).and_then(|i| nodes.get(i)) {
        Some(node) => {
            Err(Error::new(ErrorKind::InvalidModel, "the node depends on its own output")
                .at_node(text(node.name.as_ref()), text(node.op_type.as_ref())))
        }
        None => Ok(order),
    }
}

/// Which node computes each name.
fn producers(nodes: &[NodeProto]) -> Result<HashMap<&[u8], usize>> {
    let mut producers = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|output| !output.is_empty()) {
            if producers.insert(output.as_bytes(), i).is_some() {
                let reason = "two nodes compute the value";
                return Err(Error::new(ErrorKind::InvalidModel, reason)
                    .with_value(output.to_string_lossy()));
            }
        }
    }
    Ok(producers)
}

/// Every name that `node` uses from the graph it stands in: its inputs, and what its graphs may
/// capture.
fn visit_names<'n>(node: &'n NodeProto, visit: &mut impl FnMut(&'n [u8])) {
    node.input.iter().for_each(|input| visit(input.as_bytes()));
    for attribute in &node.attribute {
        for graph in attribute.g.as_deref().into_iter().chain(&attribute.graphs) {
            visit_captures(graph, &mut |name| visit(name));
        }
    }
}

/// Every name that `graph` uses and does not define itself.
fn visit_captures<'g>(graph: &'g GraphProto, visit: &mut dyn FnMut(&'g [u8])) {
    let inputs = graph.input.iter().filter_map(|input| input.name.as_ref());
    let sparse = graph.sparse_initializer.iter().filter_map(|tensor| tensor.values.as_deref());
    let weights = graph.initializer.iter().chain(sparse);
    let weights = weights.filter_map(|tensor| tensor.name.as_ref());
    let computed = graph.node.iter().flat_map(|node| &node.output);
    let own: std::collections::HashSet<_> =
        inputs.chain(weights).chain(computed).map(|name| name.as_bytes()).collect();
    let mut outer = |name: &'g [u8]| {
        if !own.contains(name) {
            visit(name);
        }
    };
    for node in &graph.node {
        visit_names(node, &mut outer);
    }
    for output in graph.output.iter().filter_map(|output| output.name.as_ref()) {
        outer(output.as_bytes());
    }
}
