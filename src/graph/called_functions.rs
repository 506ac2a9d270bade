//! The local functions that a graph calls, and those that these call in turn.

use std::collections::{HashMap, HashSet};

use crate::graph::opset;
use crate::proto::attribute_proto::AttributeMore;
use crate::proto::{AttributeProto, FunctionProto, NodeProto};
use crate::wire::Str;

/// Domain (that of ONNX is empty), name, overload.
pub(crate) type FunctionKey<'m> = (&'m [u8], &'m [u8], &'m [u8]);

/// What calls of `function` name.
pub(crate) fn key_of(function: &FunctionProto) -> FunctionKey<'_> {
    let FunctionProto { domain, name, overload, .. } = function;
    (opset::normalized(bytes(domain.as_ref())), bytes(name.as_ref()), bytes(overload.as_deref()))
}

/// The function that `node` calls, where the model has one of this key.
pub(crate) fn key_of_call(node: &NodeProto) -> FunctionKey<'_> {
    let domain = opset::normalized(bytes(node.domain.as_ref()));
    (domain, bytes(node.op_type.as_ref()), bytes(node.overload.as_deref()))
}

fn bytes(text: Option<&Str>) -> &[u8] {
    text.map(Str::as_bytes).unwrap_or_default()
}

/// Those of `functions` that the nodes of `bodies` call, directly or not, in their order.
pub(crate) fn called<'n, 'm>(
    bodies: impl Iterator<Item = &'n Vec<NodeProto>>,
    functions: &'m [FunctionProto],
) -> Vec<&'m FunctionProto> {
    let numbers: HashMap<_, _> =
        functions.iter().enumerate().map(|(i, f)| (key_of(f), i)).collect();
    let (mut found, mut pending) = (HashSet::new(), Vec::new());
    let mut call = |node: &NodeProto, pending: &mut Vec<usize>| {
        let number = numbers.get(&key_of_call(node));
        if let Some(number) = number.filter(|number| found.insert(**number)) {
            pending.push(*number);
        }
    };
    for nodes in bodies {
        each_node(nodes, &mut |node| call(node, &mut pending));
    }
    while let Some(function) = pending.pop().and_then(|number| functions.get(number)) {
        each_node(&function.node, &mut |node| call(node, &mut pending));
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_unstable();
    found.into_iter().filter_map(|number| functions.get(number)).collect()
}

/// Calls `visit` with every node of `nodes`, at any depth.
fn each_node(nodes: &[NodeProto], visit: &mut dyn FnMut(&NodeProto)) {
    for node in nodes {
        visit(node);
        for AttributeProto { g, more, .. } in &node.attribute {
            let more = more.as_deref().map(|AttributeMore { graphs, .. }| graphs.iter());
            for graph in g.as_deref().into_iter().chain(more.into_iter().flatten()) {
                each_node(&graph.node, visit);
            }
        }
    }
}
