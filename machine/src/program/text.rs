//! Texts of messages, and the domains and versions that a model imports.

use std::collections::HashMap;

use onnx_container::proto::{ModelProto, Str};

/// The version of each domain that a model imports.
pub(super) fn imports(model: &ModelProto) -> HashMap<String, i64> {
    let mut imports: HashMap<_, _> = model
        .opset_import
        .iter()
        .map(|import| (domain(import.domain.as_ref()), import.version.unwrap_or_default()))
        .collect();
    if imports.is_empty() && model.ir_version.unwrap_or_default() < 3 {
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
    string.map(|string| string.to_string_lossy().into_owned()).unwrap_or_default()
}
