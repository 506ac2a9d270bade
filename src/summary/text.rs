//! Texts of messages, as a summary has them.

use crate::proto::Str;

/// The domain's name; the empty one is ONNX's own.
pub(super) fn domain(domain: Option<&Str>) -> String {
    text_of(domain).unwrap_or_else(|| "ai.onnx".to_owned())
}

/// The text, unless it is empty.
pub(super) fn text_of(text: Option<&Str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(|text| text.to_string_lossy().into_owned())
}
