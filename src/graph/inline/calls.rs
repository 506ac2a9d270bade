//! The call graph: which functions each function calls, an order in it, and the size of a copy of
//! each.
//!
//! People understand a limit in nodes, but it is memory and time that run out. So the limit also
//! applies to the bytes of copies and to the number of calls. Strings and payloads that a copy
//! shares with the original are not counted. Names are, because each copy has new ones, which
//! repeat only the beginning of a very long name. All sizes are known before the model changes.

use super::functions::{Functions, LONGEST, each_node_of, graphs};
use super::options::FunctionId;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::type_proto::Value;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, NodeDeviceConfigurationProto, NodeProto,
    ShardingSpecProto, SparseTensorProto, Str, StringStringEntryProto, TensorAnnotation,
    TensorProto, TypeProto, ValueInfoProto,
    tensor_shape_proto::{Dimension, DimensionValue},
};
use std::collections::HashSet;

/// The call graph.
pub(super) struct Calls {
    /// For each function, those that it calls, once for each call.
    callees: Vec<Vec<usize>>,
    /// For each function, the size of a copy without the bodies of the calls in it.
    sizes: Vec<Size>,
}

impl Calls {
    pub(super) fn new(functions: &Functions<'_>) -> Self {
        let mut calls = Self { callees: Vec::new(), sizes: Vec::new() };
        for (_, function) in functions.iter() {
            let mut callees = Vec::new();
            each_node_of(function, &mut |node| callees.extend(functions.callee(node)));
            calls.sizes.push(size_of_call(function, functions));
            calls.callees.push(callees);
        }
        calls
    }

    /// The functions that a function calls, once for each call.
    pub(super) fn callees(&self, function: usize) -> &[usize] {
        let callees = self.callees.get(function);
        debug_assert!(callees.is_some(), "the functions are those that the graph was made of");
        callees.map(Vec::as_slice).unwrap_or_default()
    }

    /// The functions in an order in which each comes after those that it calls.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`], with the cycle, when a function calls itself.
    pub(super) fn order(&self, functions: &Functions<'_>) -> Result<Vec<usize>> {
        let mut order = Vec::with_capacity(self.callees.len());
        let mut seen = vec![false; self.callees.len()];
        // The functions on the path to the present one, each with its next call. The model decides
        // how deep calls nest, so this is an explicit stack and not a recursion.
        let mut stack: Vec<(usize, usize)> = Vec::new();
        let mut on_stack = vec![false; self.callees.len()];
        for root in 0..self.callees.len() {
            enter(root, &mut seen, &mut on_stack, &mut stack);
            while let Some((function, next)) = stack.last_mut() {
                match self.callees(*function).get(*next) {
                    Some(callee) => {
                        *next += 1;
                        if on_stack.get(*callee) == Some(&true) {
                            return Err(recursion(functions, &stack, *callee));
                        }
                        enter(*callee, &mut seen, &mut on_stack, &mut stack);
                    }
                    None => {
                        let done = *function;
                        order.push(done);
                        set(&mut on_stack, done, false);
                        stack.pop();
                    }
                }
            }
        }
        Ok(order)
    }

    /// The size of a copy of `function`, without the bodies of the calls in it.
    pub(super) fn size(&self, function: usize) -> Size {
        // An unknown function counts as too large, so that the limit refuses it.
        self.sizes.get(function).copied().unwrap_or(Size::of_nodes(u64::MAX))
    }
}

/// How deep `functions` call each other; 1 where none calls another. Faults are left to those that
/// follow the calls.
pub(crate) fn call_depth(functions: &[FunctionProto]) -> u64 {
    let Ok(functions) = Functions::new(functions) else { return 0 };
    let calls = Calls::new(&functions);
    let Ok(order) = calls.order(&functions) else { return 0 };
    let mut depths = vec![0_u64; functions.iter().len()];
    for function in order {
        let callees = calls.callees(function).iter();
        let deepest = callees.filter_map(|callee| depths.get(*callee)).max().copied();
        if let Some(depth) = depths.get_mut(function) {
            *depth = deepest.unwrap_or_default().saturating_add(1);
        }
    }
    depths.into_iter().max().unwrap_or_default()
}

fn set(flags: &mut [bool], function: usize, flag: bool) {
    if let Some(place) = flags.get_mut(function) {
        *place = flag;
    }
}

fn enter(
    function: usize,
    seen: &mut [bool],
    on_stack: &mut [bool],
    stack: &mut Vec<(usize, usize)>,
) {
    let fresh = seen.get_mut(function).is_some_and(|seen| !std::mem::replace(seen, true));
    if fresh {
        stack.push((function, 0));
        set(on_stack, function, true);
    }
}

/// The error that prints the cycle: the functions from `first` on, and `first` again.
fn recursion(functions: &Functions<'_>, stack: &[(usize, usize)], first: usize) -> Error {
    let cycle = stack.iter().map(|(function, _)| *function).skip_while(|f| *f != first);
    let closed = cycle.chain([first]).filter_map(|f| functions.get(f));
    let names: Vec<_> = closed.map(|function| FunctionId::from(function).to_string()).collect();
    let reason = format!("functions call themselves: {}", shortened(&names).join(" -> "));
    Error::new(ErrorKind::InvalidModel, reason)
}

/// `names`; of many, only the first and the last few.
fn shortened(names: &[String]) -> Vec<String> {
    const SHOWN: usize = 8;
    match (names.get(..SHOWN), names.get(names.len().saturating_sub(SHOWN)..)) {
        (Some(head), Some(tail)) if names.len() > 2 * SHOWN => {
            let more = format!("... {} more ...", names.len() - 2 * SHOWN);
            [head, &[more], tail].concat()
        }
        _ => names.to_vec(),
    }
}

/// This many bytes that are copied with nodes count as one node.
const NODE: u64 = 512;

/// The size of what is made. Sums saturate instead of overflowing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    /// Nodes, at any depth.
    pub(super) nodes: u64,
    /// Calls that are replaced.
    pub(super) calls: u64,
    /// What is copied in addition to the nodes' own structs, in bytes.
    bytes: u64,
}

impl Size {
    /// The size of a call that is kept.
    pub(super) const KEPT: Self = Self::of_nodes(1);

    pub(super) const fn of_nodes(nodes: u64) -> Self {
        Self { nodes, calls: 0, bytes: 0 }
    }

    fn of_bytes(bytes: usize) -> Self {
        Self { bytes: u64::try_from(bytes).unwrap_or(u64::MAX), ..Self::default() }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_add(other.nodes),
            calls: self.calls.saturating_add(other.calls),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// The size of `metadata`, copied to each of these nodes.
    pub(super) fn metadata(self, metadata: &[StringStringEntryProto]) -> Self {
        let each = u64::try_from(entries(metadata)).unwrap_or(u64::MAX);
        Self { bytes: each.saturating_mul(self.nodes), ..Self::default() }
    }

    /// The number to compare with a limit in nodes: the nodes, the calls, or the bytes in units of
    /// [`NODE`], whichever is greatest.
    pub(super) fn in_nodes(self) -> u64 {
        self.nodes.max(self.calls).max(self.bytes / NODE)
    }
}

/// The size of a copy of `node`, without the nodes in its subgraphs.
pub(super) fn size_of_node(node: &NodeProto) -> Size {
    Size::of_nodes(1).plus(Size::of_bytes(bytes(node)))
}

/// The size of what replaces a call of `function`, without the bodies of the calls in it.
pub(super) fn size_of_call(function: &FunctionProto, functions: &Functions<'_>) -> Size {
    let mut size = Size { calls: 1, ..Size::of_nodes(passed_through(function)) };
    each_node_of(function, &mut |node| {
        // A call takes memory while its body is copied.
        let call = functions.callee(node).is_some();
        size = size.plus(if call { Size::of_bytes(bytes(node)) } else { size_of_node(node) });
    });
    let infos: usize = function.value_info.iter().map(info).sum();
    let attributes = function.attribute_proto.iter().map(attribute).sum::<usize>();
    let names = (function.input.len() + function.output.len()) * size_of::<Str>();
    size.plus(Size::of_bytes(infos + attributes + names))
}

/// The size of a copy of `graph`, without the nodes in it.
pub(super) fn size_of_graph(graph: &GraphProto) -> Size {
    Size { calls: 1, ..Size::of_bytes(own(graph)) }
}

/// The number of outputs that may need an Identity: those that are inputs, or repeat an earlier
/// output.
pub(super) fn passed_through(function: &FunctionProto) -> u64 {
    let mut seen: HashSet<&Str> = function.input.iter().collect();
    let repeated = function.output.iter().filter(|output| !seen.insert(output)).count();
    u64::try_from(repeated).unwrap_or(u64::MAX)
}

pub(super) fn bytes(node: &NodeProto) -> usize {
    let names = node.input.iter().chain(&node.output).chain(&node.name).map(text).sum::<usize>();
    let attributes = node.attribute.iter().map(attribute).sum::<usize>();
    let devices = node.device_configurations.iter().map(device).sum::<usize>();
    names + attributes + devices + entries(&node.metadata_props)
}

fn text(name: &Str) -> usize {
    size_of::<Str>() + name.span().min(LONGEST)
}

pub(super) fn entries(list: &[StringStringEntryProto]) -> usize {
    size_of_val(list)
}

pub(super) fn attribute(attribute: &AttributeProto) -> usize {
    let numbers = attribute.ints.len() * 8 + attribute.floats.len() * 4;
    let strings = attribute.strings.len() * size_of::<Str>();
    let all_tensors = attribute.t.as_deref().into_iter().chain(&attribute.tensors);
    let tensors = all_tensors.map(tensor).sum::<usize>();
    let all_sparse =
        attribute.sparse_tensor.as_deref().into_iter().chain(&attribute.sparse_tensors);
    let sparse = all_sparse.map(sparse_tensor).sum::<usize>();
    let all_types = attribute.tp.as_deref().into_iter().chain(&attribute.type_protos);
    let types = all_types.map(r#type).sum::<usize>();
    let graphs = graphs(attribute).map(own).sum::<usize>();
    size_of::<AttributeProto>() + numbers + strings + tensors + sparse + types + graphs
}

/// The bytes of a graph without its nodes.
fn own(graph: &GraphProto) -> usize {
    let all_infos = [&graph.input, &graph.output, &graph.value_info].into_iter().flatten();
    let infos = all_infos.map(info).sum::<usize>();
    let tensors = graph.initializer.iter().map(tensor).sum::<usize>();
    let sparse = graph.sparse_initializer.iter().map(sparse_tensor).sum::<usize>();
    let notes = graph.quantization_annotation.iter().map(annotation).sum::<usize>();
    let metadata = entries(&graph.metadata_props);
    size_of::<GraphProto>() + infos + tensors + sparse + notes + metadata
}

pub(super) fn info(info: &ValueInfoProto) -> usize {
    let name = info.name.as_ref().map_or(0, text);
    let r#type = info.r#type.as_deref().map_or(0, r#type);
    size_of::<ValueInfoProto>() + name + r#type + entries(&info.metadata_props)
}

fn r#type(proto: &TypeProto) -> usize {
    let inner = match &proto.value {
        Some(Value::TensorType(tensor)) => tensor.shape.as_deref().map_or(0, |s| dims(&s.dim)),
        Some(Value::SparseTensorType(tensor)) => {
            tensor.shape.as_deref().map_or(0, |shape| dims(&shape.dim))
        }
        Some(Value::SequenceType(list)) => list.elem_type.as_deref().map_or(0, r#type),
        Some(Value::OptionalType(optional)) => optional.elem_type.as_deref().map_or(0, r#type),
        Some(Value::MapType(map)) => map.value_type.as_deref().map_or(0, r#type),
        _ => 0,
    };
    3 * size_of::<TypeProto>() + inner
}

/// The bytes of dimensions; a symbolic one gets a new name, which is a string of its own.
fn dims(dims: &[Dimension]) -> usize {
    const OWN_STRING: usize = 256;
    let name = |dim: &Dimension| match &dim.value {
        // A long name is read whole for each of its fresh names, so it is counted whole.
        Some(DimensionValue::DimParam(name)) => OWN_STRING + name.span(),
        _ => 0,
    };
    size_of_val(dims) + dims.iter().map(name).sum::<usize>()
}

fn tensor(tensor: &TensorProto) -> usize {
    let lists = tensor.dims.len() * 8 + tensor.string_data.len() * size_of::<Str>();
    let metadata = entries(&tensor.external_data) + entries(&tensor.metadata_props);
    size_of::<TensorProto>() + lists + metadata
}

fn sparse_tensor(sparse: &SparseTensorProto) -> usize {
    let tensors = sparse.values.as_deref().into_iter().chain(sparse.indices.as_deref());
    size_of::<SparseTensorProto>() + sparse.dims.len() * 8 + tensors.map(tensor).sum::<usize>()
}

fn annotation(annotation: &TensorAnnotation) -> usize {
    size_of::<TensorAnnotation>() + entries(&annotation.quant_parameter_tensor_names)
}

fn device(device: &NodeDeviceConfigurationProto) -> usize {
    let specs = device.sharding_spec.iter().map(sharding).sum::<usize>();
    2 * size_of::<NodeDeviceConfigurationProto>() + specs
}

fn sharding(spec: &ShardingSpecProto) -> usize {
    let cuts = spec.sharded_dim.iter().map(|dim| 64 + size_of_val(dim.simple_sharding.as_slice()));
    let groups = spec.index_to_device_group_map.iter().map(|group| 64 + group.value.len() * 8);
    let lists = cuts.chain(groups).sum::<usize>();
    size_of::<ShardingSpecProto>() + spec.device.len() * 8 + lists
}
