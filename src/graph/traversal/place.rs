//! The place of a tensor: the graph that holds it, and its role there.
//!
//! A graph is identified by the nodes and functions around it, so a [`Scope`] is a path. All
//! tensors of a graph share one scope. The length of a path is bounded, because the same long name
//! may be in the paths of thousands of tensors.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::proto::{FunctionProto, TensorProto};
use crate::wire::Str;

/// The role of a tensor in the graph or node that holds it.
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

    /// Whether the tensor holds the values or the indices of a sparse tensor.
    pub const fn is_sparse(self) -> bool {
        self.is_sparse_indices() || matches!(self, Self::SparseValues | Self::SparseAttributeValues)
    }

    /// Whether the tensor is in an attribute, or is the default of one.
    pub const fn is_attribute(self) -> bool {
        matches!(
            self,
            Self::Attribute
                | Self::SparseAttributeValues
                | Self::SparseAttributeIndices
                | Self::AttributeDefault
        )
    }
}

/// The graph that holds a tensor, as a path from the main graph: `if_node.then_branch`.
///
/// The path of the main graph is empty. The path of a subgraph is that of the graph around it, the
/// node (its name, else its first output, else its operator) and the attribute; the path of a
/// function's body is `domain::name`; that of a training graph is, for example,
/// `training_info[0].algorithm`. Steps are joined by `/`. The name of a node or function over 200
/// bytes, and a path over 512 bytes, is shortened in the middle, where `~` stands for the part left
/// out.
///
/// All tensors of a graph share its scope, and a clone copies no text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Scope(Option<Arc<Path>>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Path {
    text: String,
    depth: usize,
    in_function: bool,
}

/// The longest name of a node or function in a path, in bytes.
const MAX_NAME: usize = 200;
/// The longest path, in bytes.
const MAX_PATH: usize = 512;

impl Scope {
    /// Whether this is the model's main graph.
    pub fn is_main(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the graph is the body of a local function, or a subgraph inside one.
    pub fn in_function(&self) -> bool {
        self.0.as_ref().is_some_and(|path| path.in_function)
    }

    /// The number of graphs around this one.
    pub fn depth(&self) -> usize {
        self.0.as_ref().map_or(0, |path| path.depth)
    }

    /// The path from the main graph, which is the empty text.
    pub fn path(&self) -> &str {
        self.0.as_ref().map_or("", |path| &path.text)
    }

    /// `name` with the path before it, as in reports and in
    /// [`Container::tensor`](crate::Container::tensor).
    pub fn qualify(&self, name: &str) -> String {
        if self.is_main() { name.to_owned() } else { format!("{}/{name}", self.path()) }
    }

    /// The scope of the graph that `step` leads to from here.
    fn enter(&self, step: &str, in_function: bool) -> Self {
        let text = shortened(self.qualify(step).as_bytes(), MAX_PATH).into_owned();
        let in_function = in_function || self.in_function();
        Self(Some(Arc::new(Path { text, depth: self.depth() + 1, in_function })))
    }

    /// The subgraphs in an attribute of a node: `node.attribute`.
    pub(super) fn subgraph(&self, owner: &Owner<'_>, attribute: Option<&Str>) -> Self {
        let names = [owner.name, owner.output, owner.op_type];
        let node = names.into_iter().flatten().find(|name| !name.is_empty());
        self.enter(&format!("{}.{}", step(node), step(attribute)), false)
    }

    /// The body of a function: `domain::name`, with its overload where it has one.
    pub(super) fn function(function: &FunctionProto) -> Self {
        let FunctionProto { domain, name, overload, .. } = function;
        let named = |name: &&Str| !name.is_empty();
        let domain = domain.as_ref().filter(named).map(|domain| step(Some(domain)) + "::");
        let overload = overload.as_deref().filter(named).map(|o| format!(":{}", step(Some(o))));
        let parts = [domain, Some(step(name.as_ref())), overload];
        Self::default().enter(&parts.into_iter().flatten().collect::<String>(), true)
    }

    /// A training graph: `training_info[0].algorithm`.
    pub(super) fn training(index: usize, part: &str) -> Self {
        Self::default().enter(&format!("training_info[{index}].{part}"), false)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.path())
    }
}

fn step(name: Option<&Str>) -> String {
    name.map_or_else(String::new, |name| shortened(name.as_bytes(), MAX_NAME).into_owned())
}

/// `text` shortened to about `max` bytes, with its beginning and its end. One name may be in the
/// paths of thousands of tensors, each of which is reported with it.
fn shortened(text: &[u8], max: usize) -> Cow<'_, str> {
    let half = max / 2;
    let ends = text.split_at_checked(half).zip(text.len().checked_sub(half));
    match ends.and_then(|((head, _), tail)| Some((head, text.get(tail..)?))) {
        Some((head, tail)) if text.len() > max => {
            // A character that the cut divides is decoded as `U+FFFD`, which is removed.
            let head = String::from_utf8_lossy(head);
            let tail = String::from_utf8_lossy(tail);
            let cut = |c: char| c == char::REPLACEMENT_CHARACTER;
            format!("{}~{}", head.trim_end_matches(cut), tail.trim_start_matches(cut)).into()
        }
        _ => String::from_utf8_lossy(text),
    }
}

/// The position of a tensor in graph order: the first tensor of a walk has position 0.
///
/// It identifies a tensor as long as no tensor is added, removed or moved: names need not be
/// unique.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(super) usize);

impl Position {
    /// The number of tensors before this one.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Where in the model a tensor was found.
#[derive(Debug, Clone)]
pub struct Place<'a> {
    /// Its position in graph order.
    pub position: Position,
    /// The graph that holds it.
    pub scope: Scope,
    /// Its role there.
    pub site: Site,
    /// The operator of the node that holds it, for tensors in attributes.
    pub op_type: Option<&'a Str>,
    /// The first output of that node: the value that a Constant's tensor becomes.
    pub output: Option<&'a Str>,
    /// The name of the attribute that holds it.
    pub attribute: Option<&'a Str>,
    /// For the indices of a sparse tensor, which are nameless as a rule: the name of its values.
    pub(super) values: Option<Str>,
}

impl<'a> Place<'a> {
    /// A place at `site` outside any node; the walk adds position and scope.
    pub(super) fn at(site: Site) -> Self {
        let (position, scope) = (Position::default(), Scope::default());
        Self { position, scope, site, op_type: None, output: None, attribute: None, values: None }
    }

    /// A name for the tensor: its own, else its node's first output, else the attribute's. A name
    /// that is not the tensor's own and is longer than 512 bytes is shortened in the middle.
    pub fn name_of(&self, tensor: &TensorProto) -> String {
        self.borrowed_name(tensor).into_owned()
    }

    /// As [`name_of`](Self::name_of), borrowed from the model where possible.
    pub(crate) fn borrowed_name<'t>(&self, tensor: &'t TensorProto) -> Cow<'t, str>
    where
        'a: 't,
    {
        let named = |name: &&Str| !name.is_empty();
        if let Some(own) = tensor.name.as_ref().filter(named) {
            return own.to_string_lossy();
        }
        if let Some(output) = self.output.filter(named) {
            return shortened(output.as_bytes(), MAX_PATH);
        }
        if let Some(values) = self.values.as_ref().filter(named) {
            return shortened(values.as_bytes(), MAX_PATH).into_owned().into();
        }
        let attribute = self.attribute.filter(named);
        attribute.map_or("tensor".into(), |name| shortened(name.as_bytes(), MAX_PATH))
    }

    /// The name with the scope before it, as in reports and errors: `if_node.then_branch/w` for a
    /// tensor `w` in the branch of an `If` called `if_node`. In the main graph it is the name
    /// alone.
    pub fn qualified_name(&self, tensor: &TensorProto) -> String {
        self.borrowed_qualified_name(tensor).into_owned()
    }

    /// As [`qualified_name`](Self::qualified_name), borrowed from the model where possible.
    pub(crate) fn borrowed_qualified_name<'t>(&self, tensor: &'t TensorProto) -> Cow<'t, str>
    where
        'a: 't,
    {
        let name = self.borrowed_name(tensor);
        if self.scope.is_main() { name } else { self.scope.qualify(&name).into() }
    }

    /// Whether the tensor is the value of a `Constant` node.
    pub fn is_constant(&self) -> bool {
        self.site == Site::Attribute && self.op_type.is_some_and(|op| *op == "Constant")
    }
}

/// The node, or function, that an attribute belongs to.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) name: Option<&'a Str>,
    pub(super) op_type: Option<&'a Str>,
    pub(super) output: Option<&'a Str>,
    pub(super) site: Site,
}

impl<'a> Owner<'a> {
    /// The function whose attributes have defaults.
    pub(super) const FUNCTION: Self =
        Self { name: None, op_type: None, output: None, site: Site::AttributeDefault };

    pub(super) fn place(self, attribute: Option<&'a Str>) -> Place<'a> {
        let Self { op_type, output, site, .. } = self;
        Place { op_type, output, attribute, ..Place::at(site) }
    }
}
