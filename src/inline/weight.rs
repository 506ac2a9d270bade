//! How much a copy takes.
//!
//! A limit in nodes is what people understand, and memory is what runs out. So a node whose copy is
//! larger than most counts as several. What a copy shares with the original (strings, payloads) is not
//! counted, but for names, which become fresh.

use std::collections::HashSet;

use super::calls::{Functions, each_node_of, graphs};
use crate::proto::type_proto::Value;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, NodeDeviceConfigurationProto, NodeProto,
    ShardingSpecProto, SparseTensorProto, Str, StringStringEntryProto, TensorAnnotation,
    TensorProto, TypeProto, ValueInfoProto, tensor_shape_proto::Dimension,
};

/// The bytes that the copy of a node may take and still count as one.
const NODE: usize = 512;

/// How many nodes a copy of `node` counts as, without the nodes in its subgraphs.
pub(super) fn weight(node: &NodeProto) -> u64 {
    in_nodes(bytes(node)).saturating_add(1)
}

/// How many nodes a call of `function` makes, without those of whom it calls.
pub(super) fn of_function(function: &FunctionProto, functions: &Functions<'_>) -> u64 {
    let mut sum = 0_u64;
    each_node_of(function, &mut |node| {
        let callee = functions.callee(node);
        // A call takes memory while its body is copied.
        let own = if callee.is_some() { in_nodes(bytes(node)) } else { weight(node) };
        sum = sum.saturating_add(own);
    });
    let info: usize = function.value_info.iter().map(info).sum();
    let attributes = function.attribute_proto.iter().map(attribute).sum::<usize>();
    let names = (function.input.len() + function.output.len()) * size_of::<Str>();
    sum.saturating_add(in_nodes(info + attributes + names)).saturating_add(handed_on(function))
}

/// How many nodes a paste of `graph` makes, without those inside it.
pub(super) fn of_graph(graph: &GraphProto) -> u64 {
    in_nodes(own(graph))
}

/// The outputs that may need an Identity: inputs, and those that are there again.
fn handed_on(function: &FunctionProto) -> u64 {
    let mut seen: HashSet<&Str> = function.input.iter().collect();
    let again = function.output.iter().filter(|output| !seen.insert(output)).count();
    u64::try_from(again).unwrap_or(u64::MAX)
}

fn in_nodes(bytes: usize) -> u64 {
    u64::try_from(bytes / NODE).unwrap_or(u64::MAX)
}

fn bytes(node: &NodeProto) -> usize {
    let names = node.input.iter().chain(&node.output).chain(&node.name).map(text).sum::<usize>();
    let attributes = node.attribute.iter().map(attribute).sum::<usize>();
    let devices = node.device_configurations.iter().map(device).sum::<usize>();
    names + attributes + devices + entries(&node.metadata_props)
}

fn text(name: &Str) -> usize {
    size_of::<Str>() + name.span()
}

fn entries(list: &[StringStringEntryProto]) -> usize {
    size_of_val(list)
}

fn attribute(attribute: &AttributeProto) -> usize {
    let numbers = attribute.ints.len() * 8 + attribute.floats.len() * 4;
    let strings = attribute.strings.len() * size_of::<Str>();
    let tensors = attribute.t.as_deref().into_iter().chain(&attribute.tensors);
    let tensors = tensors.map(tensor).sum::<usize>();
    let sparse = attribute.sparse_tensor.as_deref().into_iter().chain(&attribute.sparse_tensors);
    let sparse = sparse.map(sparse_tensor).sum::<usize>();
    let types = attribute.tp.as_deref().into_iter().chain(&attribute.type_protos);
    let types = types.map(r#type).sum::<usize>();
    let graphs = graphs(attribute).map(own).sum::<usize>();
    size_of::<AttributeProto>() + numbers + strings + tensors + sparse + types + graphs
}

/// A graph without its nodes.
fn own(graph: &GraphProto) -> usize {
    let infos = [&graph.input, &graph.output, &graph.value_info];
    let infos = infos.into_iter().flatten().map(info).sum::<usize>();
    let tensors = graph.initializer.iter().map(tensor).sum::<usize>();
    let sparse = graph.sparse_initializer.iter().map(sparse_tensor).sum::<usize>();
    let notes = graph.quantization_annotation.iter().map(annotation).sum::<usize>();
    let remarks = entries(&graph.metadata_props);
    size_of::<GraphProto>() + infos + tensors + sparse + notes + remarks
}

fn info(info: &ValueInfoProto) -> usize {
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
        Some(Value::OpaqueType(_)) | None => 0,
    };
    3 * size_of::<TypeProto>() + inner
}

/// A dimension's fresh name is a string of its own.
fn dims(dims: &[Dimension]) -> usize {
    const OWN_STRING: usize = 256;
    dims.len() * (size_of::<Dimension>() + OWN_STRING)
}

fn tensor(tensor: &TensorProto) -> usize {
    let lists = tensor.dims.len() * 8 + tensor.string_data.len() * size_of::<Str>();
    let remarks = entries(&tensor.external_data) + entries(&tensor.metadata_props);
    size_of::<TensorProto>() + lists + remarks
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
