//! Which weights optimizers fold: those of which nodes compute nothing but constants.
//!
//! A folded weight is gone, and the constant in its place is another weight, not the same one with
//! other elements.

use std::collections::HashSet;

use onnx_container::Container;
use onnx_container::proto::{AttributeProto, GraphProto, NodeProto, Str, TensorProto};

/// The places of the weights of the main graph that optimizers fold.
pub fn folded(container: &Container) -> HashSet<*const TensorProto> {
    let Some(graph) = container.model().graph.as_deref() else { return HashSet::new() };
    let constants = constants(graph);
    let (mut folded, mut needed) = (HashSet::new(), HashSet::new());
    needed.extend(graph.output.iter().filter_map(|info| info.name.as_ref()));
    for node in &graph.node {
        match is_constant(node, &constants) {
            true => folded.extend(&node.input),
            false => mention(node, &mut needed),
        }
    }
    let is_folded = |name: &Str| folded.contains(name) && !needed.contains(name);
    let named = graph.initializer.iter().filter(|it| it.name.as_ref().is_some_and(is_folded));
    let of_nodes = graph.node.iter().filter(|node| is_constant_node(node));
    let of_nodes = of_nodes.filter(|node| node.output.iter().any(is_folded));
    let values = of_nodes.flat_map(|node| &node.attribute).filter_map(|it| it.t.as_deref());
    named.chain(values).map(std::ptr::from_ref).collect()
}

/// The names of the values of `graph` that no input changes, and of shapes, which inputs with
/// fixed dimensions do not change.
fn constants(graph: &GraphProto) -> HashSet<&Str> {
    let inputs: HashSet<_> = graph.input.iter().filter_map(|info| info.name.as_ref()).collect();
    let tensors = graph.initializer.iter().filter_map(|tensor| tensor.name.as_ref());
    let mut constants: HashSet<_> = tensors.filter(|name| !inputs.contains(name)).collect();
    for node in &graph.node {
        if is_constant(node, &constants) {
            constants.extend(&node.output);
        }
    }
    constants
}

fn is_constant(node: &NodeProto, constants: &HashSet<&Str>) -> bool {
    let is_shape = node.op_type.as_ref().is_some_and(|op| *op == "Shape" || *op == "Size");
    let has_graphs = node.attribute.iter().any(|attribute| graphs(attribute).next().is_some());
    let mut inputs = node.input.iter().filter(|name| !name.is_empty()).peekable();
    let has_inputs = inputs.peek().is_some();
    let are_constants = has_inputs && inputs.all(|name| constants.contains(name));
    is_constant_node(node) || is_shape || (are_constants && !has_graphs)
}

fn is_constant_node(node: &NodeProto) -> bool {
    node.op_type.as_ref().is_some_and(|op| *op == "Constant")
}

fn graphs(attribute: &AttributeProto) -> impl Iterator<Item = &GraphProto> {
    attribute.g.as_deref().into_iter().chain(&attribute.graphs)
}

/// Adds the names that `node` takes, in its subgraphs too.
fn mention<'m>(node: &'m NodeProto, names: &mut HashSet<&'m Str>) {
    names.extend(&node.input);
    for graph in node.attribute.iter().flat_map(graphs) {
        names.extend(graph.output.iter().filter_map(|info| info.name.as_ref()));
        graph.node.iter().for_each(|node| mention(node, names));
    }
}
