//! The values that a node needs: its inputs, and what its subgraphs use from outside.
//!
//! A branch or a loop body may use any value of the graphs around it without naming it as an input
//! of its node. So a graph that is cut apart has to look into the subgraphs.

use std::collections::HashSet;

use crate::graph::value_names::{Names, Role};
use crate::proto::attribute_proto::AttributeMore;
use crate::proto::{AttributeProto, GraphProto, NodeProto};
use crate::wire::Str;

/// The names of the values that `node` needs, in the order in which it names them; some several
/// times.
pub(crate) fn needed_by(node: &NodeProto) -> Vec<Str> {
    let mut needed: Vec<_> = node.input.iter().filter(|name| !name.is_empty()).cloned().collect();
    for graph in node.attribute.iter().flat_map(graphs) {
        needed.extend(from_outside(graph));
    }
    needed
}

/// The graphs in an attribute.
fn graphs(attribute: &AttributeProto) -> impl Iterator<Item = &GraphProto> {
    let AttributeProto { g, more, .. } = attribute;
    let more = more.as_deref().map(|AttributeMore { graphs, .. }| graphs.iter());
    g.as_deref().into_iter().chain(more.into_iter().flatten())
}

/// The values that `graph` uses and does not define.
fn from_outside(graph: &GraphProto) -> Vec<Str> {
    let mut defined = HashSet::new();
    let mut used = Vec::new();
    let mut visit = |role: Role, name: &Str| match role {
        Role::Definition => drop(defined.insert(name.clone())),
        Role::Use => used.push(name.clone()),
        Role::Mention => {}
    };
    Names { visit: &mut visit, skip: &|_| true }.graph(graph);
    for node in &graph.node {
        used.extend(node.attribute.iter().flat_map(graphs).flat_map(from_outside));
    }
    used.retain(|name| !defined.contains(name));
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::ValueInfoProto;

    fn names(node: &NodeProto) -> Vec<String> {
        needed_by(node).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_node_needs_what_its_subgraphs_use_from_outside() {
        let mut inner = GraphProto::new("inner");
        inner.node.push(NodeProto::new("Add", ["a", "own"], ["z"]));
        inner.output.push(ValueInfoProto::tensor("outer", 1, []));
        let mut branch = GraphProto::new("branch");
        branch.input.push(ValueInfoProto::tensor("own", 1, []));
        let mut nested = NodeProto::new("If", ["b", ""], ["y"]);
        nested.attribute.push(AttributeProto::graph("then_branch", inner));
        branch.node = vec![nested, NodeProto::new("Neg", ["y"], ["n"])];
        let mut node = NodeProto::new("If", ["c"], ["out"]);
        node.attribute.push(AttributeProto::graph("then_branch", branch));
        assert_eq!(names(&node), ["c", "b", "outer", "a"]);
        assert_eq!(names(&NodeProto::new("Add", ["x", "", "y"], ["z"])), ["x", "y"]);
    }
}
