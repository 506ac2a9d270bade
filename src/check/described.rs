//! What is said of nodes, values and domains in messages.

use std::borrow::Cow;

use crate::proto::{FunctionProto, NodeProto, ValueInfoProto};
use crate::wire::Str;

/// The bytes of a name; no name is the empty one, as in protobuf.
pub(super) fn text(name: &Option<Str>) -> &[u8] {
    name.as_ref().map_or(b"", Str::as_bytes)
}

pub(super) fn overload(function: &FunctionProto) -> &[u8] {
    function.overload.as_ref().map_or(b"", |overload| overload.as_bytes())
}

/// The beginning of a name, for messages: a hostile one may have megabytes.
pub(super) fn short(name: &[u8]) -> Cow<'_, str> {
    match name.get(..100) {
        Some(start) => Cow::Owned(format!("{}...", String::from_utf8_lossy(start))),
        None => String::from_utf8_lossy(name),
    }
}

/// What a domain is called in messages.
pub(super) fn domain_name(domain: &[u8]) -> Cow<'_, str> {
    if domain.is_empty() { "ai.onnx".into() } else { short(domain) }
}

pub(super) fn value_name(value: &ValueInfoProto) -> &[u8] {
    text(&value.name)
}

/// A node for messages: by its name, or its first output, with the operator.
pub(super) fn described(node: &NodeProto) -> String {
    let operator = short(text(&node.op_type));
    let output = node.output.first().map_or(&b""[..], Str::as_bytes);
    match (text(&node.name), output) {
        (b"", b"") => format!("a node ({operator})"),
        (b"", output) => format!("the node of `{}` ({operator})", short(output)),
        (name, _) => format!("node `{}` ({operator})", short(name)),
    }
}
