//! The walk from graph to graph: the main graph, subgraphs, bodies of functions, training graphs.
//!
//! A change to a list of nodes has to reach all of them. One macro writes the walk over a shared
//! and over a mutable model, so that the two cannot drift apart.

use std::slice::{Iter, IterMut};

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

/// Calls `visit` for every graph and every body of a function, each before the subgraphs of its
/// nodes: the main graph, the functions, the training graphs.
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

/// As [`graphs`], with mutable graphs and functions. Subgraphs that `visit` adds to a graph are
/// visited as well. Unlike a loop over `&mut attribute.graphs`, the walk does not allocate the rare
/// fields.
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

/// Generates the walk `$Walk`, which calls the visitor. Levels are in a list, so that no nesting is
/// too deep.
macro_rules! walk {
    ($Walk:ident, $Level:ident, $Body:ident, $Iter:ident, $iter:ident, $as_deref:ident $(, $mut:ident)?) => {
        /// What is left to be walked of one body, of the attributes of a node, and of the graphs of
        /// an attribute.
        enum $Level<'m> {
            Nodes(Scope, $Iter<'m, NodeProto>),
            Attributes(Scope, Owner<'m>, $Iter<'m, AttributeProto>),
            Graphs(Scope, Option<&'m $($mut)? GraphProto>, $Iter<'m, GraphProto>),
        }

        struct $Walk<'v>(&'v mut dyn FnMut(&Scope, $Body<'_>) -> Result<()>);

        impl $Walk<'_> {
            fn model(&mut self, model: &$($mut)? ModelProto) -> Result<()> {
                let ModelProto { graph, functions, training_info, .. } = model;
                if let Some(main) = graph.$as_deref() {
                    self.graph(Scope::default(), main)?;
                }
                for function in functions.$iter() {
                    let scope = Scope::function(function);
                    (self.0)(&scope, $Body::Function(&$($mut)? *function))?;
                    self.levels(vec![$Level::Nodes(scope, function.node.$iter())])?;
                }
                let infos = training_info.$as_deref().into_iter().flat_map(|infos| infos.$iter());
                for (index, TrainingInfoProto { initialization, algorithm, .. }) in infos.enumerate() {
                    if let Some(part) = initialization.$as_deref() {
                        self.graph(Scope::training(index, "initialization"), part)?;
                    }
                    if let Some(part) = algorithm.$as_deref() {
                        self.graph(Scope::training(index, "algorithm"), part)?;
                    }
                }
                Ok(())
            }

            fn graph(&mut self, scope: Scope, graph: &$($mut)? GraphProto) -> Result<()> {
                self.levels(vec![$Level::Graphs(scope, Some(graph), $Iter::default())])
            }

            fn levels<'m>(&mut self, mut levels: Vec<$Level<'m>>) -> Result<()> {
                while let Some(level) = levels.last_mut() {
                    let inner = match level {
                        $Level::Nodes(scope, nodes) => nodes.next().map(|node| {
                            let NodeProto { name, op_type, output, attribute, .. } = node;
                            let (name, op_type) = (name.as_ref(), op_type.as_ref());
                            let (output, site) = (output.first(), Site::Attribute);
                            let owner = Owner { name, op_type, output, site };
                            $Level::Attributes(scope.clone(), owner, attribute.$iter())
                        }),
                        $Level::Attributes(scope, owner, attributes) => attributes.find_map(|attribute| {
                            let AttributeProto { name, g, more, .. } = attribute;
                            let more = more.$as_deref();
                            let more = more.map(|AttributeMore { graphs, .. }| graphs.$iter());
                            let (g, more) = (g.$as_deref(), more.unwrap_or_default());
                            // The scope is only built when the attribute has a subgraph.
                            (g.is_some() || more.len() > 0).then(|| {
                                $Level::Graphs(scope.subgraph(owner, name.as_ref()), g, more)
                            })
                        }),
                        $Level::Graphs(scope, first, more) => match first.take().or_else(|| more.next()) {
                            Some(graph) => {
                                (self.0)(scope, $Body::Graph(&$($mut)? *graph))?;
                                Some($Level::Nodes(scope.clone(), graph.node.$iter()))
                            }
                            None => None,
                        },
                    };
                    match inner {
                        Some(inner) => levels.push(inner),
                        None => drop(levels.pop()),
                    }
                }
                Ok(())
            }
        }
    };
}

walk!(Walk, Level, Body, Iter, iter, as_deref);
walk!(WalkMut, LevelMut, BodyMut, IterMut, iter_mut, as_deref_mut, mut);
