//! Texts of messages, and the domains and versions that a model imports.

use std::collections::HashMap;

use onnx_container::proto::{ModelProto, OperatorSetIdProto, Str};

/// The operator sets of a list: each domain with its version, which is 0 where it is not written.
pub(crate) fn operator_sets(
    imports: &[OperatorSetIdProto],
) -> impl Iterator<Item = (String, i64)> + '_ {
    let version = |import: &OperatorSetIdProto| import.version.unwrap_or(0);
    imports.iter().map(move |import| (domain(import.domain.as_ref()), version(import)))
}

/// The version of each domain that a model imports.
pub(super) fn imports(model: &ModelProto) -> HashMap<String, i64> {
    let mut imports: HashMap<_, _> = operator_sets(&model.opset_import).collect();
    if imports.is_empty() && model.ir_version.is_none_or(|version| version < 3) {
        imports.insert(String::new(), 1); // before operator sets there was one
    }
    imports
}

/// The canonical name of a domain: `ai.onnx` is the empty one.
pub(super) fn domain(name: Option<&Str>) -> String {
    let name = text(name);
    if name == "ai.onnx" { String::new() } else { name }
}

pub(super) fn text(string: Option<&Str>) -> String {
    string.map_or_else(String::new, |string| string.to_string_lossy().into_owned())
}
