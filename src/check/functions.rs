//! Whether a local function has a name that calls find, and one that readers do not take for an operator's.

use super::attributes::Fault;
use super::finding::Severity;
use crate::opset::{has_operator, normalized};
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
    [nameless, homeless, shadowed, of_onnxruntime].into_iter().flatten()
}
