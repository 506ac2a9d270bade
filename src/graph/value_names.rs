//! The places of a graph that name a value.
//!
//! Values are identified by name, and a name is in many places: inputs and outputs of nodes and
//! graphs, initializers, declared types, quantization annotations, sharding specifications, and
//! subgraphs that use a value from outside. Renaming and deleting have to cover all of them. One
//! macro generates the visit for a shared and for a mutable graph. What is done with a name is left
//! to the visitor.

use crate::graph::traversal::Body;
use crate::proto::attribute_proto::AttributeMore;
use crate::proto::node_proto::NodeMore;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, SparseTensorProto};
use crate::wire::Str;

/// The role of a name in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It defines the value: a graph input, an initializer, an output of a node.
    Definition,
    /// It uses the value: an input of a node, an output of a graph, a quantization parameter.
    Use,
    /// It annotates the value: its type, its quantization, its sharding.
    Mention,
}

/// Whether `body` itself defines a value of this name; its subgraphs are not searched.
pub(crate) fn defines(body: Body<'_>, name: &[u8]) -> bool {
    let named = |other: &Str| other.as_bytes() == name;
    let outer = match body {
        Body::Graph(graph) => {
            let sparse = graph.sparse_initializer.iter();
            let sparse = sparse.filter_map(|tensor| tensor.values.as_ref()?.name.as_ref());
            let inputs = graph.input.iter().filter_map(|input| input.name.as_ref());
            let initializers = graph.initializer.iter().filter_map(|tensor| tensor.name.as_ref());
            inputs.chain(initializers).chain(sparse).any(named)
        }
        Body::Function(function) => function.input.iter().any(named),
    };
    outer || body.nodes().iter().flat_map(|node| &node.output).any(named)
}

/// Whether `name` occurs in `body`, or in one of its subgraphs, in one of `roles`.
pub(crate) fn says(body: Body<'_>, name: &str, roles: &[Role]) -> bool {
    let mut said = false;
    let mut visit = |role: Role, other: &Str| said |= *other == name && roles.contains(&role);
    let mut names = Names { visit: &mut visit, skip: &|_| false };
    match body {
        Body::Graph(graph) => names.graph(graph),
        Body::Function(function) => names.function(function),
    }
    said
}

/// Generates the visit `$Visit`.
macro_rules! names {
    ($doc:literal, $Visit:ident, $iter:ident, $as_mut:ident, $as_deref:ident $(, $mut:ident)?) => {
        #[doc = $doc]
        pub(crate) struct $Visit<'v> {
            /// Called for every name that is not empty.
            pub(crate) visit: &'v mut dyn FnMut(Role, &$($mut)? Str),
            /// Whether a subgraph is skipped.
            pub(crate) skip: &'v dyn Fn(&GraphProto) -> bool,
        }

        impl $Visit<'_> {
            /// Visits the names in `graph` and in those of its subgraphs that are not skipped.
            pub(crate) fn graph(&mut self, graph: &$($mut)? GraphProto) {
                let GraphProto { input, output, value_info, initializer, node, .. } = graph;
                for (role, infos) in
                    [(Role::Definition, input), (Role::Use, output), (Role::Mention, value_info)]
                {
                    infos.$iter().for_each(|info| self.name(role, info.name.$as_mut()));
                }
                for tensor in initializer.$iter() {
                    self.name(Role::Definition, tensor.name.$as_mut());
                }
                let sparse = graph.sparse_initializer.$as_deref();
                for SparseTensorProto { values, .. } in sparse.into_iter().flat_map(|s| s.$iter()) {
                    let name = values.$as_deref().and_then(|values| values.name.$as_mut());
                    self.name(Role::Definition, name);
                }
                let annotations = graph.quantization_annotation.$as_deref();
                for annotation in annotations.into_iter().flat_map(|all| all.$iter()) {
                    self.name(Role::Mention, annotation.tensor_name.$as_mut());
                    for parameter in annotation.quant_parameter_tensor_names.$iter() {
                        self.name(Role::Use, parameter.value.$as_mut());
                    }
                }
                self.nodes(node);
            }

            /// Visits the names in `function` and in those subgraphs of its nodes that are not
            /// skipped.
            pub(crate) fn function(&mut self, function: &$($mut)? FunctionProto) {
                let FunctionProto { input, output, value_info, node, .. } = function;
                input.$iter().for_each(|name| self.name(Role::Definition, Some(name)));
                output.$iter().for_each(|name| self.name(Role::Use, Some(name)));
                value_info.$iter().for_each(|info| self.name(Role::Mention, info.name.$as_mut()));
                self.nodes(node);
            }

            fn nodes(&mut self, nodes: &$($mut)? [NodeProto]) {
                for NodeProto { input, output, attribute, more, .. } in nodes {
                    input.$iter().for_each(|name| self.name(Role::Use, Some(name)));
                    output.$iter().for_each(|name| self.name(Role::Definition, Some(name)));
                    let more = more.$as_deref();
                    let devices = more.map(|NodeMore { device_configurations, .. }| {
                        device_configurations.$iter()
                    });
                    for device in devices.into_iter().flatten() {
                        for spec in device.sharding_spec.$iter() {
                            self.name(Role::Mention, spec.tensor_name.$as_mut());
                        }
                    }
                    attribute.$iter().for_each(|attribute| self.attribute(attribute));
                }
            }

            fn attribute(&mut self, attribute: &$($mut)? AttributeProto) {
                let AttributeProto { g, more, .. } = attribute;
                let graphs = more.$as_deref().map(|AttributeMore { graphs, .. }| graphs.$iter());
                for graph in g.$as_deref().into_iter().chain(graphs.into_iter().flatten()) {
                    if !(self.skip)(graph) {
                        self.graph(graph);
                    }
                }
            }

            pub(crate) fn name(&mut self, role: Role, name: Option<&$($mut)? Str>) {
                if let Some(name) = name.filter(|name| !name.is_empty()) {
                    (self.visit)(role, name);
                }
            }
        }
    };
}

names!("Visits the names of values.", Names, iter, as_ref, as_deref);
names!(
    "Visits the names of values, to change them.",
    NamesMut,
    iter_mut,
    as_mut,
    as_deref_mut,
    mut
);
