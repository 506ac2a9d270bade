//! Renames values that get the name of an output, and symbolic dimensions in types of copied
//! bodies.
//!
//! Older operator sets have no Identity for sequences and optionals. A value of such a type that is
//! passed through to an output gets the output's name where it is computed and wherever it is used.

use std::collections::{HashMap, HashSet};

use super::functions::graphs_mut;
use super::names::Dimensions;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::tensor_shape_proto::DimensionValue;
use crate::proto::type_proto::Value;
use crate::proto::{NodeProto, Str, TypeProto, ValueInfoProto};

/// The new names of values, by the old names.
pub(super) type Renames = HashMap<Str, Str>;

/// Checks that each value to be renamed is among the `computed` values of the graph's nodes, and is
/// not one of its `outputs`.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for one that is not.
pub(super) fn check<'n>(
    renames: &Renames,
    computed: impl Iterator<Item = &'n Str>,
    outputs: &HashSet<&[u8]>,
) -> Result<()> {
    let computed: HashSet<&Str> = computed.collect();
    let fails = |value: &&Str| !computed.contains(value) || outputs.contains(value.as_bytes());
    let Some(value) = renames.keys().filter(fails).min() else { return Ok(()) };
    let reason = format!(
        "a function passes `{value}`, which is not a tensor, through to an output: this version of the \
         ONNX operators has no Identity for its type"
    );
    Err(Error::new(ErrorKind::Unsupported, reason))
}

/// Renames what `nodes` use and compute, at any depth.
pub(super) fn apply(renames: &Renames, nodes: &mut [NodeProto]) {
    if renames.is_empty() {
        return;
    }
    for node in nodes {
        node.input.iter_mut().chain(&mut node.output).for_each(|name| rename(renames, name));
        if !node.device_configurations.is_empty() {
            let devices = node.device_configurations.iter_mut();
            let specs = devices.flat_map(|device| &mut device.sharding_spec);
            specs.flat_map(|spec| &mut spec.tensor_name).for_each(|name| rename(renames, name));
        }
        for graph in node.attribute.iter_mut().flat_map(graphs_mut) {
            apply(renames, &mut graph.node);
        }
    }
}

fn rename(renames: &Renames, name: &mut Str) {
    if let Some(new) = renames.get(name) {
        name.clone_from(new);
    }
}

/// A copy of `info` with this name. Its symbolic dimensions get fresh names for `call`, the call
/// whose body it is from, if any.
pub(super) fn renamed(
    info: &ValueInfoProto,
    name: Option<Str>,
    call: Option<u64>,
    taken: &Dimensions,
) -> ValueInfoProto {
    let mut copy = info.clone();
    copy.name = name;
    if let (Some(call), Some(r#type)) = (call, &mut copy.r#type) {
        dimensions(r#type, &mut |dimension| *dimension = taken.fresh(dimension, call));
    }
    copy
}

/// Calls `visit` with every symbolic dimension of a type.
pub(super) fn dimensions(r#type: &mut TypeProto, visit: &mut dyn FnMut(&mut Str)) {
    let shape = match &mut r#type.value {
        Some(Value::TensorType(tensor)) => tensor.shape.as_deref_mut(),
        Some(Value::SparseTensorType(tensor)) => tensor.shape.as_deref_mut(),
        Some(Value::SequenceType(list)) => return inner(&mut list.elem_type, visit),
        Some(Value::OptionalType(optional)) => return inner(&mut optional.elem_type, visit),
        Some(Value::MapType(map)) => return inner(&mut map.value_type, visit),
        _ => None,
    };
    for dimension in shape.into_iter().flat_map(|shape| &mut shape.dim) {
        if let Some(DimensionValue::DimParam(name)) = &mut dimension.value
            && !name.is_empty()
        {
            visit(name);
        }
    }
}

fn inner(r#type: &mut Option<Box<TypeProto>>, visit: &mut dyn FnMut(&mut Str)) {
    if let Some(inner) = r#type {
        dimensions(inner, visit);
    }
}
