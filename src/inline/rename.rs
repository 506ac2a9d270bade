//! Another name for what a node gives, where an output of its graph is just that value.
//!
//! Older operator sets have no Identity for sequences and optionals. Such a value gets the output's
//! name where it is computed, and all that use it follow.

use std::collections::{HashMap, HashSet};

use super::calls::graphs_mut;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::type_proto::Value;
use crate::proto::{NodeProto, Str, TypeProto};

/// The new names of values, by the old.
pub(super) type Renames = HashMap<Str, Str>;

/// The version of the ONNX operators that has an Identity for values of a type; what is not known to be
/// something else is a tensor.
pub(super) fn identity_since(r#type: Option<&TypeProto>) -> i64 {
    match r#type.and_then(|r#type| r#type.value.as_ref()) {
        Some(Value::TensorType(_)) | None => 1,
        Some(Value::SequenceType(_)) => 14,
        _ => 16,
    }
}

/// Sees that each value is computed by a node of its graph, which gives `computed`, and is no output.
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
        "a function hands on `{value}`, which is no tensor, to an output: this version of the ONNX \
         operators has no Identity for it"
    );
    Err(Error::new(ErrorKind::Unsupported, reason))
}

/// Gives the new names to all that `nodes` use and compute, at any depth.
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
