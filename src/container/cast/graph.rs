//! `Cast` nodes that turn weights back into the type that the graph computes in.
//!
//! A weight `w` that was cast has a new name, and a `Cast` node computes `w` from it. So no user of
//! `w`, in any subgraph, has to change, and the graph computes in the same type as before.

use std::collections::{HashMap, HashSet};

use super::convert::Float;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::traversal::{self, Body, BodyMut};
use crate::graph::value_names::{Names, Role};
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, Str,
    TensorProto,
};
use crate::util::names::UniqueNames;

/// Weights that were renamed, by their new names: the old name, and the type that it had.
pub(super) type Renamed = HashMap<Str, (Str, DataType)>;

/// The names of the values of a model.
#[derive(Default)]
pub(super) struct Values {
    /// All of them, in whatever graph, also those that only a declaration or an annotation has.
    pub(super) names: UniqueNames,
    /// The names of graph inputs, whose values the caller gives.
    pub(super) inputs: HashSet<Str>,
    /// The outputs of `Constant` nodes of the standard domain.
    pub(super) constants: HashSet<Str>,
    /// The initializers of subgraphs that have the name of a value around them, by their addresses.
    hiding: HashSet<*const TensorProto>,
}

/// The names that the graphs around the current one of a walk define, with the depths of these.
type Around = Vec<(usize, HashSet<Str>)>;

impl Values {
    pub(super) fn of(model: &ModelProto) -> Result<Self> {
        let (mut values, mut around) = (Self::default(), Around::new());
        traversal::graphs(model, |scope, body| {
            values.add(body);
            // A function sees no value from outside.
            let is_function = matches!(body, Body::Function(_));
            around.retain(|(outer, _)| *outer < scope.depth() && !is_function);
            if let Body::Graph(graph) = body {
                let is_around = |name: &Str| around.iter().any(|(_, names)| names.contains(name));
                let hides = |tensor: &&TensorProto| tensor.name.as_ref().is_some_and(is_around);
                values.hiding.extend(initializers(graph).filter(hides).map(std::ptr::from_ref));
            }
            around.push((scope.depth(), defined(body)));
            Ok(())
        })?;
        Ok(values)
    }

    /// Whether an initializer of a subgraph has the name of a value of a graph around it. Inputs
    /// and initializers may, outputs of nodes may not.
    pub(super) fn hides(&self, tensor: &TensorProto) -> bool {
        self.hiding.contains(&std::ptr::from_ref(tensor))
    }

    fn add(&mut self, body: Body<'_>) {
        let mut take = |_: Role, name: &Str| {
            self.names.take(&name.to_string_lossy());
        };
        // The walk visits the subgraphs.
        let mut names = Names { visit: &mut take, skip: &|_| true };
        match body {
            Body::Graph(graph) => names.graph(graph),
            Body::Function(function) => names.function(function),
        }
        if let Body::Graph(graph) = body {
            self.inputs.extend(graph.input.iter().filter_map(|input| input.name.clone()));
        }
        let constants = body.nodes().iter().filter(|node| is_constant(node));
        self.constants.extend(constants.filter_map(|node| node.output.first().cloned()));
    }
}

/// The initializers of a graph, and the values of the sparse ones.
pub(super) fn initializers(graph: &GraphProto) -> impl Iterator<Item = &TensorProto> {
    let sparse = graph.sparse_initializer.iter().filter_map(|one| one.values.as_deref());
    graph.initializer.iter().chain(sparse)
}

/// The names that `body` itself defines, where it has subgraphs that could see them.
fn defined(body: Body<'_>) -> HashSet<Str> {
    let is_outer = |node: &NodeProto| {
        node.attribute.iter().any(|attribute| attribute.g.is_some() || !attribute.graphs.is_empty())
    };
    let mut defined = HashSet::new();
    if body.nodes().iter().any(is_outer) {
        let mut visit = |role: Role, name: &Str| {
            if role == Role::Definition {
                defined.insert(name.clone());
            }
        };
        let mut names = Names { visit: &mut visit, skip: &|_| true };
        match body {
            Body::Graph(graph) => names.graph(graph),
            Body::Function(function) => names.function(function),
        }
    }
    defined
}

/// The names of the nodes of a model, none of which a new node may have.
pub(super) fn node_names(model: &ModelProto) -> Result<UniqueNames> {
    let mut names = UniqueNames::default();
    traversal::graphs(model, |_, body| {
        for name in body.nodes().iter().filter_map(|node| node.name.as_ref()) {
            names.take(&name.to_string_lossy());
        }
        Ok(())
    })?;
    Ok(names)
}

/// Adds the nodes for every weight of `model` that is in `renamed`.
pub(super) fn add_casts(model: &mut ModelProto, renamed: &Renamed) -> Result<()> {
    let mut names = node_names(model)?;
    traversal::graphs_mut(model, |_, body| {
        match body {
            BodyMut::Graph(graph) => {
                let casts =
                    initializers(graph).filter_map(|tensor| back(tensor, renamed, &mut names));
                let casts = casts.collect();
                put_into(&mut graph.node, casts, renamed, &mut names);
            }
            BodyMut::Function(function) => {
                put_into(&mut function.node, Vec::new(), renamed, &mut names);
            }
        }
        Ok(())
    })
}

/// Puts `casts` before `nodes`, any of which may use a weight, and one behind each `Constant` that
/// was renamed.
fn put_into(
    nodes: &mut Vec<NodeProto>,
    casts: Vec<NodeProto>,
    renamed: &Renamed,
    names: &mut UniqueNames,
) {
    let constant = |node: &NodeProto, names: &mut UniqueNames| {
        let mut tensors = node.attribute.iter().filter_map(tensor_of).filter(|_| is_constant(node));
        tensors.find_map(|tensor| back(tensor, renamed, names))
    };
    let mut all = casts;
    for mut node in std::mem::take(nodes) {
        let cast = constant(&node, names);
        if let Some(cast) = &cast {
            node.output.clone_from(&cast.input);
        }
        all.push(node);
        all.extend(cast);
    }
    *nodes = all;
}

pub(super) fn is_standard(domain: Option<&Str>) -> bool {
    domain.is_none_or(|domain| domain.is_empty() || *domain == "ai.onnx")
}

pub(super) fn is_constant(node: &NodeProto) -> bool {
    is_standard(node.domain.as_ref()) && node.op_type.as_ref().is_some_and(|op| *op == "Constant")
}

/// The tensor, or the values of the sparse tensor, in an attribute.
pub(super) fn tensor_of(attribute: &AttributeProto) -> Option<&TensorProto> {
    let sparse = || attribute.sparse_tensor.as_deref()?.values.as_deref();
    attribute.t.as_deref().or_else(sparse)
}

/// The node that converts `tensor` back to its old type. It gets a name that no node has.
fn back(tensor: &TensorProto, renamed: &Renamed, names: &mut UniqueNames) -> Option<NodeProto> {
    let new = tensor.name.as_ref()?;
    let (old, dtype) = renamed.get(new)?;
    let mut node = NodeProto::new("Cast", [new.clone()], [old.clone()]);
    node.name = Some(names.name(&new.to_string_lossy(), "_cast").into());
    node.attribute = vec![AttributeProto::int("to", i64::from(dtype.number()))];
    Some(node)
}

/// Refuses a model without the standard operator set, and one where the model or a function imports
/// a version of it that has no `Cast` from `from` to `to`.
pub(super) fn check_opsets(model: &ModelProto, from: &[Float], to: Float) -> Result<()> {
    let brain = to == Float::Bf16 || from.contains(&Float::Bf16);
    let least = if brain { 13 } else { 6 };
    let functions = model.functions.iter().flat_map(|function| {
        function.opset_import.iter().map(move |import| (import, Some(function)))
    });
    let all = model.opset_import.iter().map(|import| (import, None)).chain(functions);
    let standard = all.filter(|(import, _)| is_standard(import.domain.as_ref()));
    let version = |import: &OperatorSetIdProto| import.version.unwrap_or(0);
    let reason = match standard.min_by_key(|(import, _)| version(import)) {
        None => format!(
            "the model imports no operator set for the domain `ai.onnx`: {least} or later is needed, \
             which has Cast for these types"
        ),
        Some((import, function)) if version(import) < least => {
            no_cast(version(import), function, least, to)
        }
        Some(_) => return Ok(()),
    };
    Err(Error::new(ErrorKind::Unsupported, reason))
}

/// That the operator set of the model, or of a function, is too old, and what to do.
fn no_cast(found: i64, function: Option<&FunctionProto>, least: i64, to: Float) -> String {
    let of = function.map_or_else(String::new, |function| {
        let name = function.name.as_ref().map(ToString::to_string).unwrap_or_default();
        format!(" of function `{name}`")
    });
    let types = if least == 13 { "with BFLOAT16" } else { "between float types" };
    let or = if to == Float::Bf16 && found >= 6 { ", or cast to FLOAT16" } else { "" };
    format!(
        "operator set {found}{of} has no Cast {types}: convert the model to {least} or later, such as \
         by onnx.version_converter{or}"
    )
}

/// The version of the standard domain that is imported, 0 for none.
pub(super) fn version(imports: &[OperatorSetIdProto]) -> i64 {
    let standard = imports.iter().find(|import| is_standard(import.domain.as_ref()));
    standard.and_then(|import| import.version).unwrap_or(0)
}

/// The node's name in a report.
pub(super) fn called(node: &NodeProto) -> String {
    let name = node.name.as_ref().filter(|name| !name.is_empty());
    let op_type = node.op_type.as_ref().map(ToString::to_string).unwrap_or_default();
    let output = node.output.first().map(ToString::to_string).unwrap_or_default();
    name.map_or_else(|| format!("{op_type} {output}"), ToString::to_string)
}

/// The names that are not empty, with their indexes.
pub(super) fn named(names: &[Str]) -> impl Iterator<Item = (usize, &Str)> {
    names.iter().enumerate().filter(|(_, name)| !name.is_empty())
}
