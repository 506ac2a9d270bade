//! What two models have to agree on, beside their graphs, before they are merged: operator sets,
//! functions, device configurations and metadata.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::container::lookup::list;
use crate::error::{Error, ErrorKind};
use crate::files::external_data;
use crate::graph::called_functions::{called, key_of};
use crate::graph::opset;
use crate::graph::stored_digests::is_digest;
use crate::graph::traversal;
use crate::proto::{FunctionProto, ModelProto, OperatorSetIdProto, StringStringEntryProto};
use crate::wire::Str;

pub(super) fn domain(set: &OperatorSetIdProto) -> &[u8] {
    opset::normalized(set.domain.as_ref().map(Str::as_bytes).unwrap_or_default())
}

fn shown(domain: &[u8]) -> String {
    match domain {
        b"" => "ai.onnx".to_owned(),
        domain => String::from_utf8_lossy(domain).into_owned(),
    }
}

/// What the two models, without their graphs, do not agree on.
pub(super) fn check_models(first: &ModelProto, second: &ModelProto) -> Vec<Error> {
    let mut errors = Vec::new();
    let invalid = |reason: String| Error::new(ErrorKind::InvalidArgument, reason);
    if !first.training_info.is_empty() || !second.training_info.is_empty() {
        let reason = "a model with training graphs cannot be merged";
        errors.push(Error::new(ErrorKind::Unsupported, reason));
    }
    let version = |set: &OperatorSetIdProto| set.version.unwrap_or_default();
    let sets: HashMap<_, _> = second.opset_import.iter().map(|set| (domain(set), set)).collect();
    for set in &first.opset_import {
        let other = sets.get(domain(set));
        if let Some(other) = other.filter(|other| version(other) != version(set)) {
            errors.push(invalid(format!(
                "the first model uses version {} of the operators of {}, the second version {}: \
                 convert one of them first (onnx.version_converter, or export it again)",
                version(set),
                shown(domain(set)),
                version(other)
            )));
        }
    }
    errors.extend(clashing_functions(first, second));
    let groups: HashMap<_, _> = second.configuration.iter().map(|one| (&one.name, one)).collect();
    for group in first.configuration.iter() {
        if groups.get(&group.name).is_some_and(|other| *other != group) {
            let name = group.name.clone().unwrap_or_default();
            errors.push(invalid(format!(
                "both models have a device configuration `{name}`, and the two differ"
            )));
        }
    }
    let lists = [(&first.metadata_props, &second.metadata_props)];
    let graphs = first.graph.as_ref().zip(second.graph.as_ref());
    let graphs = graphs.map(|(a, b)| (&a.metadata_props, &b.metadata_props));
    for (first, second) in lists.into_iter().chain(graphs) {
        errors.extend(differing_metadata(first, second));
    }
    errors
}

/// An error for each function that would mean something else in the merged model: one that both
/// models have with other contents, and one that the other model calls as an operator.
fn clashing_functions(first: &ModelProto, second: &ModelProto) -> Vec<Error> {
    let of_second: HashMap<_, _> = second.functions.iter().map(|one| (key_of(one), one)).collect();
    let of_first: HashSet<_> = first.functions.iter().map(key_of).collect();
    let error = |function: &FunctionProto, what: &str| {
        let (of, name, _) = key_of(function);
        let name = format!("{}::{}", shown(of), String::from_utf8_lossy(name));
        let reason = format!(
            "the function `{name}` {what}: inline the functions of one model first \
             (`inline-functions`)"
        );
        Error::new(ErrorKind::InvalidArgument, reason)
    };
    let mut errors = Vec::new();
    for function in &first.functions {
        // Messages of equal handles say nothing of the weights that these stand for.
        let differs = |other: &&FunctionProto| *other != function || has_weights(function);
        if of_second.get(&key_of(function)).is_some_and(differs) {
            errors.push(error(function, "is in both models, and the two may differ"));
        }
    }
    let is_new = |function: &&FunctionProto| !of_first.contains(&key_of(function));
    let new: Vec<_> = second.functions.iter().filter(is_new).cloned().collect();
    for function in called_in(first, &new) {
        errors.push(error(function, "of the second model is an operator that the first one calls"));
    }
    let is_gone = |function: &&FunctionProto| !of_second.contains_key(&key_of(function));
    let old: Vec<_> = first.functions.iter().filter(is_gone).cloned().collect();
    for function in called_in(second, &old) {
        errors.push(error(function, "of the first model is an operator that the second one calls"));
    }
    errors
}

/// Those of `functions` that the graph or a function of `model` calls.
fn called_in<'f>(model: &ModelProto, functions: &'f [FunctionProto]) -> Vec<&'f FunctionProto> {
    if functions.is_empty() {
        return Vec::new();
    }
    let bodies = model.functions.iter().map(|function| &function.node);
    called(model.graph.iter().map(|graph| &graph.node).chain(bodies), functions)
}

/// Whether weights of `function` are outside of its message.
fn has_weights(function: &FunctionProto) -> bool {
    let mut alone = ModelProto::default();
    alone.functions.push(function.clone());
    traversal::iter(&alone).any(|(_, tensor)| external_data::is_external(tensor))
}

fn differing_metadata(
    first: &[StringStringEntryProto],
    second: &[StringStringEntryProto],
) -> Option<Error> {
    let others: HashMap<_, _> = second.iter().map(|entry| (&entry.key, &entry.value)).collect();
    let differs = |entry: &&StringStringEntryProto| {
        let is_other = others.get(&entry.key).is_some_and(|value| **value != entry.value);
        is_other && !is_digest(entry)
    };
    let key =
        |entry: &StringStringEntryProto| format!("`{}`", entry.key.clone().unwrap_or_default());
    let keys: BTreeSet<_> = first.iter().filter(differs).map(key).collect();
    (!keys.is_empty()).then(|| {
        let reason = format!(
            "both models have this metadata with different values: {}; remove it from one of them \
             first (`edit --remove-metadata`)",
            list(keys.into_iter().collect::<Vec<_>>().into_iter())
        );
        Error::new(ErrorKind::InvalidArgument, reason)
    })
}
