//! Constants that both models have under one name and with equal elements, such as a weight that
//! both halves of a model use: the result has each once.

use std::collections::{HashMap, HashSet};

use crate::container::Container;
use crate::container::merge::defaults::{Constant, are_equal, name_of_sparse};
use crate::graph::opset;
use crate::proto::{GraphProto, NodeProto};
use crate::wire::Str;

/// The names of the constants of `first` that `second` has too. `container` has the weights of
/// both.
pub(super) fn equal_constants(
    container: &Container,
    first: &GraphProto,
    second: &GraphProto,
) -> HashSet<Str> {
    let of_first = constants(first);
    let outputs: HashSet<_> = first.output.iter().filter_map(|info| info.name.as_ref()).collect();
    let is_output_of_both = |name: &Str| {
        let mut of_second = second.output.iter().filter_map(|info| info.name.as_ref());
        outputs.contains(name) && of_second.any(|other| other == name)
    };
    let is_equal = |(name, other): &(&Str, Constant<'_>)| {
        // What cannot be read is not known to be equal.
        let is_same = |one| are_equal((container, one), (container, *other)).unwrap_or(false);
        of_first.get(*name).is_some_and(|one| is_same(*one)) && !is_output_of_both(name)
    };
    let of_second = constants(second).into_iter();
    of_second.filter(is_equal).map(|(name, _)| name.clone()).collect()
}

/// Removes these constants of `graph`, which takes those of the other graph.
pub(super) fn remove_constants(graph: &mut GraphProto, names: &HashSet<Str>) {
    if names.is_empty() {
        return;
    }
    let is_one = |name: Option<&Str>| name.is_some_and(|name| names.contains(name));
    graph.initializer.retain(|tensor| !is_one(tensor.name.as_ref()));
    if graph.sparse_initializer.iter().any(|one| is_one(name_of_sparse(one))) {
        graph.sparse_initializer.retain(|one| !is_one(name_of_sparse(one)));
    }
    graph.node.retain(|node| !is_one(node.output.first()));
}

/// The initializers of `graph` that are no inputs, and its `Constant` nodes, by name.
fn constants(graph: &GraphProto) -> HashMap<&Str, Constant<'_>> {
    let inputs: HashSet<_> = graph.input.iter().filter_map(|info| info.name.as_ref()).collect();
    let dense = graph.initializer.iter();
    let dense = dense.filter_map(|it| Some((it.name.as_ref()?, Constant::Dense(it))));
    let sparse = graph.sparse_initializer.iter();
    let sparse = sparse.filter_map(|it| Some((name_of_sparse(it)?, Constant::Sparse(it))));
    let nodes = graph.node.iter().filter_map(of_node);
    let all = dense.chain(sparse).chain(nodes);
    all.filter(|(name, _)| !name.is_empty() && !inputs.contains(name)).collect()
}

/// The constant that a `Constant` node is.
fn of_node(node: &NodeProto) -> Option<(&Str, Constant<'_>)> {
    let domain = node.domain.as_ref().map(Str::as_bytes).unwrap_or_default();
    let is_constant = opset::normalized(domain).is_empty()
        && node.op_type.as_ref().is_some_and(|op| *op == "Constant");
    let ([output], [attribute]) = (node.output.as_slice(), node.attribute.as_slice()) else {
        return None;
    };
    let constant = match (attribute.t.as_deref(), attribute.sparse_tensor.as_deref()) {
        (Some(tensor), _) => Constant::Dense(tensor),
        (None, Some(sparse)) => Constant::Sparse(sparse),
        (None, None) => Constant::Attribute(attribute),
    };
    is_constant.then_some((output, constant))
}
