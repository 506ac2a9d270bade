//! What differs in the messages and is in no list by its name: each kind is counted.

use std::collections::BTreeMap;

use crate::digest::{Bare, digest_of_node};
use crate::error::{Error, Result};
use crate::proto::{FunctionProto, GraphProto, NodeProto, Str, ValueInfoProto};
use crate::util::cancel;

/// A kind of things that differ, and how many of them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OtherChange {
    /// What it is: `value_types`, the types that the graph declares for values between its nodes;
    /// `node_order`, the order of the nodes of the graph; `attribute_order`, that of the attributes
    /// of a node; `documentation`, the texts of the graph, its values and its tensors; `fields`,
    /// something else, which is not counted.
    pub what: &'static str,
    /// How many B has and A has not.
    pub added: usize,
    /// How many A has and B has not.
    pub removed: usize,
    /// How many are other ones in B: of the order of nodes how many places have another node, of
    /// that of attributes how many nodes have another one.
    pub changed: usize,
}

impl OtherChange {
    fn new(what: &'static str) -> Self {
        Self { what, added: 0, removed: 0, changed: 0 }
    }

    /// Something that is not counted.
    pub(super) fn of_fields() -> Self {
        Self::new("fields")
    }

    fn is_none(&self) -> bool {
        (self.added, self.removed, self.changed) == (0, 0, 0)
    }

    /// Counts what differs in `a` and `b`, each by its name.
    fn count<K: Ord, V: PartialEq>(
        what: &'static str,
        a: &BTreeMap<K, V>,
        b: &BTreeMap<K, V>,
    ) -> Self {
        let mut change = Self::new(what);
        for (name, value) in a {
            match b.get(name) {
                None => change.removed += 1,
                Some(other) => change.changed += usize::from(value != other),
            }
        }
        change.added = b.keys().filter(|name| !a.contains_key(name)).count();
        change
    }
}

/// Functions of A and of B.
type Pairs<'m> = [(&'m FunctionProto, &'m FunctionProto)];

/// Counts what differs in the graphs of two models and is in no other list. With `reordered`, the
/// functions that differ in the order of attributes alone, the models have the same nodes, and only
/// the order of these and of their attributes may differ.
pub(super) fn find(
    a: &Bare<'_>,
    b: &Bare<'_>,
    reordered: Option<&Pairs<'_>>,
) -> Result<Vec<OtherChange>> {
    let (none_a, none_b) = (GraphProto::default(), GraphProto::default());
    let graph_a = a.model().graph.as_deref().unwrap_or(&none_a);
    let graph_b = b.model().graph.as_deref().unwrap_or(&none_b);
    let mut found = vec![
        OtherChange::count("value_types", &types(graph_a), &types(graph_b)),
        OtherChange::count("documentation", &texts(graph_a), &texts(graph_b)),
    ];
    if let Some(reordered) = reordered {
        found.extend(orders([a, b], [graph_a, graph_b], reordered)?);
    }
    found.retain(|change| !change.is_none());
    Ok(found)
}

/// Counts the places that have another node, and those where the attributes have another order.
fn orders(
    [a, b]: [&Bare<'_>; 2],
    graphs: [&GraphProto; 2],
    reordered: &Pairs<'_>,
) -> Result<[OtherChange; 2]> {
    let mut of_nodes = OtherChange::new("node_order");
    let mut of_attributes = OtherChange::new("attribute_order");
    let [nodes_a, nodes_b] = graphs.map(|graph| &graph.node);
    let mut count = |pairs: &mut dyn Iterator<Item = (&NodeProto, &NodeProto)>| {
        for (one, other) in pairs {
            cancel::check()?;
            if a.digest(one)? == b.digest(other)? {
                continue;
            }
            // Most other nodes are told by their outputs.
            let is_one =
                one.output == other.output && digest_of_node(one)? == digest_of_node(other)?;
            (if is_one { &mut of_attributes } else { &mut of_nodes }).changed += 1;
        }
        Ok::<_, Error>(())
    };
    count(&mut nodes_a.iter().zip(nodes_b))?;
    for (one, other) in reordered {
        count(&mut one.node.iter().zip(&other.node))?;
    }
    Ok([of_nodes, of_attributes])
}

/// The declared types of the values between the nodes, by their names.
fn types(graph: &GraphProto) -> BTreeMap<Option<&Str>, impl PartialEq> {
    let declared = |value: &ValueInfoProto| (value.r#type.clone(), value.metadata_props.clone());
    graph.value_info.iter().map(|value| (value.name.as_ref(), declared(value))).collect()
}

/// The texts about the graph, its values and its tensors, by what they are about.
fn texts(graph: &GraphProto) -> BTreeMap<(u8, Option<&Str>), &Str> {
    let own = [(0, None, graph.doc_string.as_deref())];
    let values = [(1, &graph.input), (2, &graph.output), (3, &graph.value_info)];
    let values = values.into_iter().flat_map(|(kind, values)| {
        values.iter().map(move |value| (kind, value.name.as_ref(), value.doc_string.as_deref()))
    });
    let tensors = graph.initializer.iter();
    let tensors = tensors.map(|tensor| (4, tensor.name.as_ref(), tensor.doc_string.as_deref()));
    let all = own.into_iter().chain(values).chain(tensors);
    all.filter_map(|(kind, name, text)| Some(((kind, name), text?))).collect()
}
