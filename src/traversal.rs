//! Every tensor of a model, in graph order.
//!
//! Tensors hide in more places than initializers: node attributes, subgraphs at any depth, function
//! bodies and the defaults of function attributes, sparse tensors, training graphs. A tool that
//! misses one of them loses weights. This module knows the list (`save::neighbours` has its
//! numbers on the wire); what is done with a tensor is left to the visitor.

use std::fmt;

use crate::error::Result;
use crate::proto::attribute_proto::AttributeMore;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto,
    TensorProto, TrainingInfoProto,
};
use crate::wire::Str;

/// What a tensor is to the graph or node that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Site {
    /// A graph's initializer.
    Initializer,
    /// The values of a sparse initializer.
    SparseValues,
    /// The indices of a sparse initializer.
    SparseIndices,
    /// A node's attribute: a tensor or one of a list.
    Attribute,
    /// The values of a sparse tensor in a node's attribute.
    SparseAttributeValues,
    /// The indices of a sparse tensor in a node's attribute.
    SparseAttributeIndices,
    /// The default of a function's attribute.
    AttributeDefault,
}

impl Site {
    /// Whether the tensor holds the indices of a sparse tensor.
    pub const fn is_sparse_indices(self) -> bool {
        matches!(self, Self::SparseIndices | Self::SparseAttributeIndices)
    }
}

/// The graph that holds a tensor, as a path from the main graph.
///
/// `Display` joins the steps by `/`; the main graph is the empty path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    steps: Vec<String>,
    in_function: bool,
}

impl Scope {
    /// Whether this is the model's main graph.
    pub fn is_main(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether the graph is the body of a local function, or a subgraph inside one.
    pub fn in_function(&self) -> bool {
        self.in_function
    }

    /// The number of graphs around this one.
    pub fn depth(&self) -> usize {
        self.steps.len()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.steps.join("/"))
    }
}

/// The place of a tensor in graph order: the first one that a walk meets has position 0.
///
/// It identifies a tensor as long as no tensor is added, removed or moved: names need not be unique.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(usize);

impl Position {
    /// The number of tensors before this one.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Where in the model a tensor was found.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Its position in graph order.
    pub position: Position,
    /// The graph that holds it.
    pub scope: &'a Scope,
    /// What it is there.
    pub site: Site,
    /// The operator of the node that holds it, for tensors in attributes.
    pub op_type: Option<&'a Str>,
    /// The first output of that node: the value that a Constant's tensor becomes.
    pub output: Option<&'a Str>,
    /// The name of the attribute that holds it.
    pub attribute: Option<&'a Str>,
}

impl Place<'_> {
    /// A name for the tensor: its own, else its node's first output, else the attribute's.
    pub fn name_of(&self, tensor: &TensorProto) -> String {
        let own = tensor.name.as_ref();
        [own, self.output, self.attribute]
            .into_iter()
            .flatten()
            .find(|name| !name.is_empty())
            .map_or_else(|| "tensor".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// The name with the scope before it, for messages: `then_branch/w`.
    pub fn qualified_name(&self, tensor: &TensorProto) -> String {
        let name = self.name_of(tensor);
        if self.scope.is_main() { name } else { format!("{}/{name}", self.scope) }
    }

    /// Whether the tensor is the value of a `Constant` node.
    pub fn is_constant(&self) -> bool {
        self.site == Site::Attribute && self.op_type.is_some_and(|op| *op == "Constant")
    }
}

/// The step of a scope that a node's subgraph adds: `node.attribute`.
fn step(
    name: Option<&Str>,
    output: Option<&Str>,
    op_type: Option<&Str>,
    attr: Option<&Str>,
) -> String {
    let node = [name, output, op_type].into_iter().flatten().find(|n| !n.is_empty());
    let text = |s: Option<&Str>| s.map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{}.{}", text(node), text(attr))
}

/// The step of a scope that a function adds: `domain::name`, with its overload where it has one.
fn function_step(function: &FunctionProto) -> String {
    let text = |s: &Str| s.to_string_lossy().into_owned();
    let name = function.name.as_ref().map(text).unwrap_or_default();
    let mut step = match function.domain.as_ref().filter(|d| !d.is_empty()) {
        Some(domain) => format!("{}::{name}", text(domain)),
        None => name,
    };
    if let Some(overload) = function.overload.as_deref().filter(|o| !o.is_empty()) {
        step.push(':');
        step.push_str(&text(overload));
    }
    step
}

/// Writes the walk twice, over `&` and over `&mut`, so that the two cannot drift apart.
macro_rules! walk {
    ($module:ident, $doc:literal, $iter:ident, $as_ref:ident $(, $mut:ident)?) => {
        #[doc = $doc]
        mod $module {
            use super::*;

            pub(super) type Visit<'v> =
                &'v mut dyn FnMut(&Place<'_>, &$($mut)? TensorProto) -> Result<()>;

            pub(super) fn model(model: &$($mut)? ModelProto, visit: Visit<'_>) -> Result<()> {
                let mut scope = Scope::default();
                if let Some(main) = model.graph.$as_ref() {
                    graph(main, &mut scope, visit)?;
                }
                for function_proto in model.functions.$iter() {
                    function(function_proto, &mut scope, visit)?;
                }
                if !model.training_info.is_empty() {
                    for (i, info) in model.training_info.$iter().enumerate() {
                        training(info, i, &mut scope, visit)?;
                    }
                }
                Ok(())
            }

            fn function(
                function: &$($mut)? FunctionProto,
                scope: &mut Scope,
                visit: Visit<'_>,
            ) -> Result<()> {
                scope.steps.push(function_step(function));
                scope.in_function = true;
                for node_proto in function.node.$iter() {
                    node(node_proto, scope, visit)?;
                }
                if !function.attribute_proto.is_empty() {
                    for attribute_proto in function.attribute_proto.$iter() {
                        let owner = Owner { name: None, op_type: None, output: None, default: true };
                        attribute(attribute_proto, &owner, scope, visit)?;
                    }
                }
                scope.in_function = false;
                scope.steps.pop();
                Ok(())
            }

            fn training(
                info: &$($mut)? TrainingInfoProto,
                index: usize,
                scope: &mut Scope,
                visit: Visit<'_>,
            ) -> Result<()> {
                let TrainingInfoProto { initialization, algorithm, .. } = info;
                for (part, name) in [(initialization, "initialization"), (algorithm, "algorithm")] {
                    if let Some(part) = part.$as_ref() {
                        scope.steps.push(format!("training_info[{index}].{name}"));
                        graph(part, scope, visit)?;
                        scope.steps.pop();
                    }
                }
                Ok(())
            }

            fn graph(
                graph: &$($mut)? GraphProto,
                scope: &mut Scope,
                visit: Visit<'_>,
            ) -> Result<()> {
                for tensor in graph.initializer.$iter() {
                    visit(&place(scope, Site::Initializer), tensor)?;
                }
                if !graph.sparse_initializer.is_empty() {
                    for tensor in graph.sparse_initializer.$iter() {
                        let values = place(scope, Site::SparseValues);
                        sparse(tensor, values, Site::SparseIndices, visit)?;
                    }
                }
                for node_proto in graph.node.$iter() {
                    node(node_proto, scope, visit)?;
                }
                Ok(())
            }

            fn node(node: &$($mut)? NodeProto, scope: &mut Scope, visit: Visit<'_>) -> Result<()> {
                let NodeProto { name, op_type, output, attribute: attributes, .. } = node;
                let owner = Owner {
                    name: name.as_ref(),
                    op_type: op_type.as_ref(),
                    output: output.first(),
                    default: false,
                };
                for attribute_proto in attributes.$iter() {
                    attribute(attribute_proto, &owner, scope, visit)?;
                }
                Ok(())
            }

            fn attribute(
                attribute: &$($mut)? AttributeProto,
                owner: &Owner<'_>,
                scope: &mut Scope,
                visit: Visit<'_>,
            ) -> Result<()> {
                // The rare fields are not made where there are none.
                let AttributeProto { name, t, g, more, .. } = attribute;
                let (name, mut later) = (name.as_ref(), None);
                if let Some(tensor) = t.$as_ref() {
                    visit(&owner.place(name, scope), tensor)?;
                }
                if let Some(more) = more.$as_ref() {
                    let AttributeMore { tensors, sparse_tensor, sparse_tensors, graphs, .. } = more;
                    for tensor in tensors.$iter() {
                        visit(&owner.place(name, scope), tensor)?;
                    }
                    for tensor in sparse_tensor.$as_ref().into_iter().chain(sparse_tensors) {
                        sparse_attribute(tensor, owner, name, scope, visit)?;
                    }
                    later = Some(graphs);
                }
                for subgraph in g.$as_ref().into_iter().chain(later.into_iter().flatten()) {
                    enter(subgraph, owner, name, scope, visit)?;
                }
                Ok(())
            }

            fn enter(
                subgraph: &$($mut)? GraphProto,
                owner: &Owner<'_>,
                attribute: Option<&Str>,
                scope: &mut Scope,
                visit: Visit<'_>,
            ) -> Result<()> {
                scope.steps.push(step(owner.name, owner.output, owner.op_type, attribute));
                graph(subgraph, scope, visit)?;
                scope.steps.pop();
                Ok(())
            }

            fn sparse_attribute(
                tensor: &$($mut)? SparseTensorProto,
                owner: &Owner<'_>,
                attribute: Option<&Str>,
                scope: &Scope,
                visit: Visit<'_>,
            ) -> Result<()> {
                let values =
                    Place { site: Site::SparseAttributeValues, ..owner.place(attribute, scope) };
                sparse(tensor, values, Site::SparseAttributeIndices, visit)
            }

            fn sparse(
                tensor: &$($mut)? SparseTensorProto,
                place: Place<'_>,
                indices_site: Site,
                visit: Visit<'_>,
            ) -> Result<()> {
                let SparseTensorProto { values, indices, .. } = tensor;
                let name = values.as_ref().and_then(|values| values.name.clone());
                if let Some(values) = values.$as_ref() {
                    visit(&place, values)?;
                }
                if let Some(indices) = indices.$as_ref() {
                    // Nameless as a rule: the values' name stands in.
                    let output = place.output.or(name.as_ref());
                    visit(&Place { site: indices_site, output, ..place }, indices)?;
                }
                Ok(())
            }
        }
    };
}

walk!(shared, "The walk over a shared model.", iter, as_deref);
walk!(exclusive, "The walk over a model that is changed.", iter_mut, as_deref_mut, mut);

/// The node, or function, that an attribute belongs to.
struct Owner<'a> {
    name: Option<&'a Str>,
    op_type: Option<&'a Str>,
    output: Option<&'a Str>,
    default: bool,
}

impl<'a> Owner<'a> {
    fn place(&self, attribute: Option<&'a Str>, scope: &'a Scope) -> Place<'a> {
        let site = if self.default { Site::AttributeDefault } else { Site::Attribute };
        let Self { op_type, output, .. } = *self;
        Place { attribute, op_type, output, ..place(scope, site) }
    }
}

fn place(scope: &Scope, site: Site) -> Place<'_> {
    // The position is set by the walk, which counts the tensors that it meets.
    let position = Position::default();
    Place { position, scope, site, op_type: None, output: None, attribute: None }
}

/// Calls `visit` for every tensor of `model`, in graph order: a graph's initializers, its sparse
/// initializers, then its nodes with their subgraphs; after the main graph the functions, then the
/// training graphs.
///
/// ```
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// use onnx_container::{DataType, traversal};
///
/// let mut graph = GraphProto::default();
/// graph.initializer.push(TensorProto::new("w", DataType::Float.number(), &[2]));
/// let mut model = ModelProto::default();
/// model.graph = Some(Box::new(graph));
///
/// let mut names = Vec::new();
/// traversal::tensors(&model, |place, tensor| {
///     names.push(place.name_of(tensor));
///     Ok(())
/// })?;
/// assert_eq!(names, ["w"]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// The first error of `visit`, which ends the walk.
pub fn tensors(
    model: &ModelProto,
    mut visit: impl FnMut(&Place<'_>, &TensorProto) -> Result<()>,
) -> Result<()> {
    let mut next = 0;
    shared::model(model, &mut |place, tensor| {
        let position = Position(next);
        next += 1;
        visit(&Place { position, ..*place }, tensor)
    })
}

/// As [`tensors`], with tensors that may be changed.
///
/// # Errors
/// The first error of `visit`, which ends the walk.
pub fn tensors_mut(
    model: &mut ModelProto,
    mut visit: impl FnMut(&Place<'_>, &mut TensorProto) -> Result<()>,
) -> Result<()> {
    let mut next = 0;
    exclusive::model(model, &mut |place, tensor| {
        let position = Position(next);
        next += 1;
        visit(&Place { position, ..*place }, tensor)
    })
}
