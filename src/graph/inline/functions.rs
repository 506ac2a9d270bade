//! The local functions of a model, and which of them a node calls.
//!
//! A function is looked up by the triple of domain, name and overload: joined to one string, two
//! different triples could be equal. The small helpers on nodes and types are here too: the walk
//! over all nodes at any depth, references, shardings, the beginning of a long name.

use super::options::FunctionId;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::opset;
use crate::proto::type_proto::Value;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, Str, TypeProto};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Domain (that of ONNX is empty), name, overload.
type Id<'m> = (&'m [u8], &'m [u8], &'m [u8]);

/// With more domains than this, the check of a node's domain before the look-up does not pay.
const FEW: usize = 8;

/// The local functions of a model.
pub(super) struct Functions<'m> {
    list: &'m [FunctionProto],
    by_id: HashMap<Id<'m>, usize, RandomState>,
    /// The domains of the functions, if they are few. Most nodes are of other domains and are no
    /// calls.
    domains: Option<Vec<&'m [u8]>>,
}

impl<'m> Functions<'m> {
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when two functions have one id.
    pub(super) fn new(list: &'m [FunctionProto]) -> Result<Self> {
        let mut by_id = HashMap::with_capacity_and_hasher(list.len(), RandomState::default());
        let repeated = list.iter().enumerate().filter(|(i, f)| by_id.insert(id(f), *i).is_some());
        let errors = repeated.map(|(_, f)| invalid(f, "is defined twice"));
        if let Some(error) = Error::join(errors) {
            return Err(error);
        }
        let mut domains: Vec<_> = list.iter().map(|f| id(f).0).collect();
        domains.sort_unstable();
        domains.dedup();
        Ok(Self { list, by_id, domains: (domains.len() <= FEW).then_some(domains) })
    }

    pub(super) fn get(&self, index: usize) -> Option<&'m FunctionProto> {
        self.list.get(index)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (usize, &'m FunctionProto)> {
        self.list.iter().enumerate()
    }

    /// The function that `node` calls, if it is a call.
    pub(super) fn callee(&self, node: &NodeProto) -> Option<usize> {
        let domain = domain_of(node);
        if self.domains.as_ref().is_some_and(|known| !known.contains(&domain)) {
            return None;
        }
        let overload = node.overload.as_deref();
        self.by_id.get(&(domain, bytes(node.op_type.as_ref()), bytes(overload))).copied()
    }
}

fn bytes(text: Option<&Str>) -> &[u8] {
    text.map(Str::as_bytes).unwrap_or_default()
}

/// The domain of a node's operator; that of ONNX is empty.
pub(super) fn domain_of(node: &NodeProto) -> &[u8] {
    opset::normalized(bytes(node.domain.as_ref()))
}

fn id(function: &FunctionProto) -> Id<'_> {
    let domain = opset::normalized(bytes(function.domain.as_ref()));
    (domain, bytes(function.name.as_ref()), bytes(function.overload.as_deref()))
}

/// An error about `function`.
pub(super) fn invalid(function: &FunctionProto, reason: &str) -> Error {
    Error::new(
        ErrorKind::InvalidModel,
        format!("function `{}` {reason}", FunctionId::from(function)),
    )
}

/// The graphs in an attribute.
pub(super) fn graphs(attribute: &AttributeProto) -> impl Iterator<Item = &GraphProto> {
    attribute.g.as_deref().into_iter().chain(&attribute.graphs)
}

/// The graphs in an attribute, mutably.
pub(super) fn graphs_mut(attribute: &mut AttributeProto) -> impl Iterator<Item = &mut GraphProto> {
    let AttributeProto { g, more, .. } = attribute;
    let more = more.as_deref_mut().into_iter().flat_map(|more| &mut more.graphs);
    g.as_deref_mut().into_iter().chain(more)
}

/// Calls `visit` with every node of `nodes`, at any depth.
pub(super) fn each_node<'n>(nodes: &'n [NodeProto], visit: &mut dyn FnMut(&'n NodeProto)) {
    for node in nodes {
        visit(node);
        for graph in node.attribute.iter().flat_map(graphs) {
            each_node(&graph.node, visit);
        }
    }
}

/// Calls `visit` with every node of a function, those in the defaults of its attributes included.
pub(super) fn each_node_of<'n>(function: &'n FunctionProto, visit: &mut dyn FnMut(&'n NodeProto)) {
    each_node(&function.node, visit);
    for graph in function.attribute_proto.iter().flat_map(graphs) {
        each_node(&graph.node, visit);
    }
}

/// The name of an attribute.
pub(super) fn name_of(attribute: &AttributeProto) -> &[u8] {
    attribute.name.as_ref().map(Str::as_bytes).unwrap_or_default()
}

/// Whether the attribute takes its value from an attribute of the call.
pub(crate) fn is_reference(attribute: &AttributeProto) -> bool {
    attribute.ref_attr_name.as_ref().is_some_and(|name| !name.is_empty())
}

/// The name of the tensor of each sharding of a node, in order.
pub(super) fn sharded(node: &NodeProto) -> impl Iterator<Item = Option<&Str>> {
    let specs = node.device_configurations.iter().flat_map(|device| &device.sharding_spec);
    specs.map(|spec| spec.tensor_name.as_ref())
}

/// The first version of the ONNX operators whose Identity takes values of this type. A value of
/// unknown type is taken for a tensor.
pub(super) fn identity_since(r#type: Option<&TypeProto>) -> i64 {
    match r#type.and_then(|r#type| r#type.value.as_ref()) {
        Some(Value::TensorType(_)) | None => 1,
        Some(Value::SequenceType(_)) => 14,
        _ => 16,
    }
}

/// The most bytes of a name that its fresh names repeat.
pub(super) const LONGEST: usize = 1024;

/// The part of `name` that its fresh names repeat: [`LONGEST`] bytes, without a part of a
/// character.
pub(super) fn shortened(name: &[u8]) -> &[u8] {
    let Some(cut) = name.get(..LONGEST).filter(|_| name.len() > LONGEST) else { return name };
    let starts = (LONGEST - 3..=LONGEST).rev().find(|at| name.get(*at).is_some_and(is_start));
    starts.and_then(|at| cut.get(..at)).unwrap_or(cut)
}

/// Whether a character of UTF-8 begins with this byte.
fn is_start(byte: &u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}
