//! The walk from graph to graph: the main graph, subgraphs, bodies of functions, training graphs.
//!
//! A change to a list of nodes has to reach all of them. One macro writes the walk over a shared and
//! over a mutable model, so that the two cannot drift apart.

use super::place::{Owner, Scope, Site};
use crate::error::Result;
use crate::proto::attribute_proto::AttributeMore;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TrainingInfoProto,
};

/// An owner of nodes: a graph, or the body of a local function.
#[derive(Debug, Clone, Copy)]
pub enum Body<'m> {
    /// The main graph, a subgraph or a training graph.
    Graph(&'m GraphProto),
    /// A local function, whose nodes see none of the values outside it.
    Function(&'m FunctionProto),
}

impl<'m> Body<'m> {
    /// The nodes.
    pub fn nodes(self) -> &'m [NodeProto] {
        match self {
            Self::Graph(graph) => &graph.node,
            Self::Function(function) => &function.node,
        }
    }
}

/// As [`Body`], mutable.
#[derive(Debug)]
pub enum BodyMut<'m> {
    /// The main graph, a subgraph or a training graph.
    Graph(&'m mut GraphProto),
    /// A local function, whose nodes see none of the values outside it.
    Function(&'m mut FunctionProto),
}

impl<'m> BodyMut<'m> {
    /// The nodes.
    pub fn nodes(self) -> &'m mut Vec<NodeProto> {
        match self {
            Self::Graph(graph) => &mut graph.node,
            Self::Function(function) => &mut function.node,
        }
    }
}

/// Calls `visit` for every graph and every body of a function, each before the subgraphs of its nodes:
/// the main graph, the functions, the training graphs.
///
/// ```
/// use onnx_container::proto::{AttributeProto, GraphProto, ModelProto, NodeProto};
/// use onnx_container::traversal;
///
/// let mut node = NodeProto::new("If", ["c"], ["y"]);
/// node.name = Some("if_node".into());
/// node.attribute.push(AttributeProto::graph("then_branch", GraphProto::new("then")));
/// let mut graph = GraphProto::new("main");
/// graph.node.push(node);
///
/// let mut found = Vec::new();
/// traversal::graphs(&ModelProto::new(graph), |scope, body| {
///     found.push((scope.path().to_owned(), body.nodes().len()));
///     Ok(())
/// })?;
/// assert_eq!(found, [(String::new(), 1), ("if_node.then_branch".to_owned(), 0)]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// The first error of `visit`, which ends the walk.
pub fn graphs(
    model: &ModelProto,
    mut visit: impl FnMut(&Scope, Body<'_>) -> Result<()>,
) -> Result<()> {
    Walk(&mut visit).model(model)
}

/// As [`graphs`], with mutable graphs and functions. Subgraphs that `visit` adds to a graph are visited
/// as well. Unlike a loop over `&mut attribute.graphs`, the walk does not allocate the rare fields.
///
/// ```
/// use onnx_container::proto::{GraphProto, ModelProto, NodeProto};
/// use onnx_container::traversal;
///
/// let mut graph = GraphProto::new("g");
/// graph.node.push(NodeProto::new("Identity", ["x"], ["y"]));
/// let mut model = ModelProto::new(graph);
/// traversal::graphs_mut(&mut model, |_, body| {
///     for node in body.nodes() {
///         node.doc_string = None;
///     }
///     Ok(())
/// })?;
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// The first error of `visit`, which ends the walk.
pub fn graphs_mut(
    model: &mut ModelProto,
    mut visit: impl FnMut(&Scope, BodyMut<'_>) -> Result<()>,
) -> Result<()> {
    WalkMut(&mut visit).model(model)
}

/// Generates the walk `$Walk`, which calls the visitor.
macro_rules! walk {
    ($Walk:ident, $Body:ident, $iter:ident, $as_deref:ident $(, $mut:ident)?) => {
        struct $Walk<'v>(&'v mut dyn FnMut(&Scope, $Body<'_>) -> Result<()>);

        impl $Walk<'_> {
            fn model(&mut self, model: &$($mut)? ModelProto) -> Result<()> {
                let ModelProto { graph, functions, training_info, .. } = model;
                if let Some(main) = graph.$as_deref() {
                    self.graph(&Scope::default(), main)?;
                }
                for function in functions.$iter() {
                    let scope = Scope::function(function);
                    (self.0)(&scope, $Body::Function(&$($mut)? *function))?;
                    self.nodes(&scope, &$($mut)? function.node)?;
                }
                let infos = training_info.$as_deref().into_iter().flat_map(|infos| infos.$iter());
                for (index, TrainingInfoProto { initialization, algorithm, .. }) in infos.enumerate() {
                    if let Some(part) = initialization.$as_deref() {
                        self.graph(&Scope::training(index, "initialization"), part)?;
                    }
                    if let Some(part) = algorithm.$as_deref() {
                        self.graph(&Scope::training(index, "algorithm"), part)?;
                    }
                }
                Ok(())
            }

            fn graph(&mut self, scope: &Scope, graph: &$($mut)? GraphProto) -> Result<()> {
                (self.0)(scope, $Body::Graph(&$($mut)? *graph))?;
                self.nodes(scope, &$($mut)? graph.node)
            }

            fn nodes(&mut self, scope: &Scope, nodes: &$($mut)? [NodeProto]) -> Result<()> {
                for NodeProto { name, op_type, output, attribute: attributes, .. } in nodes {
                    let (name, op_type) = (name.as_ref(), op_type.as_ref());
                    let owner = Owner { name, op_type, output: output.first(), site: Site::Attribute };
                    for AttributeProto { name, g, more, .. } in attributes {
                        let more = more.$as_deref();
                        let more = more.map(|AttributeMore { graphs, .. }| graphs.$iter());
                        let mut all = g.$as_deref().into_iter().chain(more.into_iter().flatten());
                        // The scope is only built when the attribute has a subgraph.
                        if let Some(first) = all.next() {
                            let inner = scope.subgraph(&owner, name.as_ref());
                            self.graph(&inner, first)?;
                            all.try_for_each(|subgraph| self.graph(&inner, subgraph))?;
                        }
                    }
                }
                Ok(())
            }
        }
    };
}

walk!(Walk, Body, iter, as_deref);
walk!(WalkMut, BodyMut, iter_mut, as_deref_mut, mut);
