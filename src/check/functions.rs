//! Whether a local function has a name that calls find and that readers do not take for an
//! operator's, attributes with different names, and outputs that its nodes give.

use std::collections::HashSet;

use super::attributes::Fault;
use super::described::short;
use super::finding::Severity;
use crate::graph::opset::{has_operator, normalized};
use crate::proto::{FunctionProto, Str};

/// What is said of the name of `function`.
pub(super) fn faults(function: &FunctionProto) -> impl Iterator<Item = Fault> {
    let advice = |reason: &str| (Severity::Advice, reason.to_owned());
    let name = function.name.as_ref().map_or(&b""[..], Str::as_bytes);
    let domain = function.domain.as_ref().map(Str::as_bytes);
    let nameless = name.is_empty().then(|| advice("has no name, which onnx.checker refuses"));
    let homeless = domain.is_none().then(|| advice("has no domain, which onnx.checker refuses"));
    let domain = normalized(domain.unwrap_or_default());
    let shadowed = has_operator(domain, name).then(|| {
        advice(
            "has the name of an operator of ONNX: onnxruntime and onnx's reference evaluator run the operator in \
             place of it, `run`, `inline-functions` and semantic digests the function",
        )
    });
    let of_onnxruntime = (domain == b"com.microsoft" || domain.starts_with(b"com.microsoft."))
        .then(|| {
            advice(
                "is in a domain of onnxruntime's own operators: where it has one of this name, it runs that one",
            )
        });
    let inputs: HashSet<_> = function.input.iter().collect();
    let passed = |output: &&Str| !output.is_empty() && inputs.contains(output);
    let passed = function.output.iter().find(passed);
    let passed = passed.map(|name| {
        let name = short(name.as_bytes());
        let reason = format!(
            "has `{name}` as an input and an output: onnxruntime asks for an Identity between them"
        );
        (Severity::Error, reason)
    });
    let mut known = HashSet::new();
    let defaults = function.attribute_proto.iter().filter_map(|default| default.name.as_ref());
    let twice = function.attribute.iter().chain(defaults).find(|name| !known.insert(*name));
    let twice = twice.map(|name| {
        let name = short(name.as_bytes());
        advice(&format!("lists the attribute `{name}` twice, which onnx.checker refuses"))
    });
    let all = [nameless, homeless, shadowed, of_onnxruntime, passed, twice];
    all.into_iter().flatten()
}
