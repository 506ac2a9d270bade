//! Whether an attribute has a name, a type, and no value but one of its type.

use super::finding::Severity;
use crate::graph::inline::is_reference;
use crate::proto::AttributeProto;
use crate::proto::attribute_proto::AttributeMore;
use crate::wire::has_no_value;

/// What is wrong with an attribute, and how bad it is.
pub(super) type Fault = (Severity, String);

/// What is wrong with `attribute`: that of a node, or the default of one of a function, which needs
/// no name.
pub(super) fn fault(attribute: &AttributeProto, is_default: bool) -> Option<Fault> {
    let error = |reason: String| Some((Severity::Error, reason));
    let is_reference = is_reference(attribute);
    if has_no_value::<AttributeProto>(&attribute.unknown) {
        return error("has a type that ONNX does not have: readers disagree on its value".into());
    }
    if !is_default && attribute.name.as_ref().is_none_or(|name| name.is_empty()) {
        return error("has no name, which onnx.checker and onnxruntime refuse".into());
    }
    let r#type = attribute.r#type.unwrap_or_default();
    if r#type == AttributeProto::UNDEFINED {
        return match is_reference {
            true => Some((Severity::Advice, "has no type, which onnx.checker refuses".into())),
            false => error("has no type, which onnx.checker and onnxruntime refuse".into()),
        };
    }
    // The value of a reference is the caller's.
    if is_reference {
        return None;
    }
    let filled = filled(attribute);
    let wrong = filled.iter().find(|(kind, _, filled)| *filled && *kind != r#type);
    let right = filled.iter().find(|(kind, _, _)| *kind == r#type);
    match (right?, wrong) {
        ((_, right, true), Some((_, wrong, _))) => {
            error(format!("has values in both `{right}` and `{wrong}`: readers refuse it"))
        }
        ((_, right, false), Some((_, wrong, _))) => error(format!(
            "has its value in `{wrong}`, and its type says `{right}`: readers refuse it"
        )),
        ((kind, right, false), None) if MESSAGES.contains(kind) => {
            error(format!("has no value, and its type says `{right}`: readers refuse it"))
        }
        _ => None,
    }
}

/// The types whose one value is a message: that of others has a default, and a list may be empty.
const MESSAGES: [i32; 4] = [
    AttributeProto::TENSOR,
    AttributeProto::GRAPH,
    AttributeProto::SPARSE_TENSOR,
    AttributeProto::TYPE_PROTO,
];

/// The fields of values: the type that each is for, its name, and whether it has a value.
fn filled(attribute: &AttributeProto) -> [(i32, &'static str, bool); 14] {
    let AttributeProto { f, i, s, t, g, floats, ints, .. } = attribute;
    let more = attribute.more.as_deref();
    let has = |is_filled: fn(&AttributeMore) -> bool| more.is_some_and(is_filled);
    [
        (AttributeProto::FLOAT, "f", f.is_some()),
        (AttributeProto::INT, "i", i.is_some()),
        (AttributeProto::STRING, "s", s.is_some()),
        (AttributeProto::TENSOR, "t", t.is_some()),
        (AttributeProto::GRAPH, "g", g.is_some()),
        (AttributeProto::FLOATS, "floats", !floats.is_empty()),
        (AttributeProto::INTS, "ints", !ints.is_empty()),
        (AttributeProto::STRINGS, "strings", has(|more| !more.strings.is_empty())),
        (AttributeProto::TENSORS, "tensors", has(|more| !more.tensors.is_empty())),
        (AttributeProto::GRAPHS, "graphs", has(|more| !more.graphs.is_empty())),
        (AttributeProto::SPARSE_TENSOR, "sparse_tensor", has(|more| more.sparse_tensor.is_some())),
        (AttributeProto::SPARSE_TENSORS, "sparse_tensors", {
            has(|more| !more.sparse_tensors.is_empty())
        }),
        (AttributeProto::TYPE_PROTO, "tp", has(|more| more.tp.is_some())),
        (AttributeProto::TYPE_PROTOS, "type_protos", has(|more| !more.type_protos.is_empty())),
    ]
}
