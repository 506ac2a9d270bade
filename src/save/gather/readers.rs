//! Warnings about a valid save: what some readers refuse in it.
//!
//! The caller may externalize anything, keep files that onnx does not open, or write a model file
//! of any length. None of that is an error, but the caller is warned before a reader fails. Which
//! tensors and files readers refuse is known to `reader_limits`; a graph is analysed only when a
//! tensor may be one of them.

use std::collections::HashSet;
use std::path::Path;

use crate::container::reader_limits::{self, MAX_PROTOBUF, Refusals};
use crate::error::{Error, ErrorKind};
use crate::files::external_data::is_external;
use crate::graph::traversal::{self, Position};
use crate::proto::ModelProto;
use crate::save::target::SaveTarget;
use crate::tensor::Tensor;
use crate::util::byte_size::ByteSize;
use crate::util::retry::retried;

/// What a reader refuses in what the model says of itself: versions.
pub(crate) fn versions(model: &ModelProto) -> Vec<Error> {
    let error = |reason| Error::new(ErrorKind::Unsupported, reason);
    reader_limits::of_model(model).into_iter().map(error).collect()
}

/// The tensors of `model` at the positions `external` that a reader refuses, or may refuse.
pub(crate) fn tensors(model: &ModelProto, external: &HashSet<Position>) -> Vec<Error> {
    if external.is_empty() {
        return Vec::new();
    }
    let refusals = Refusals::of(model);
    let there = traversal::iter(model).filter(|(place, _)| external.contains(&place.position));
    let refused = there.filter_map(|(place, tensor)| {
        let refusal = refusals.of_external(&place, tensor)?;
        let error = Error::new(ErrorKind::Unsupported, refusal.reason);
        Some(error.with_tensor(place.qualified_name(tensor)))
    });
    refused.collect()
}

/// The most malformed tensors that are named one by one.
const MOST_MALFORMED: usize = 1_000;

/// The tensors in `model` whose own elements do not fit their type and dimensions, or that have
/// none: they are written as they are. The first of very many.
pub(crate) fn malformed(model: &ModelProto) -> Vec<Error> {
    let inline = traversal::iter(model).filter(|(_, tensor)| !is_external(tensor));
    let malformed = inline.filter_map(|(place, tensor)| {
        let error = Tensor::try_from(tensor).err()?;
        Some(error.with_tensor(place.qualified_name(tensor)))
    });
    malformed.take(MOST_MALFORMED).collect()
}

/// The files at `locations` that onnx does not open, among those that the save does not write.
pub(crate) fn files<'l>(
    target: &SaveTarget,
    locations: impl Iterator<Item = &'l String>,
) -> Vec<Error> {
    let folder = Path::new(&target.directory);
    let refused = locations.filter_map(|location| {
        let path = folder.join(location);
        let reasons = reader_limits::of_file(location, folder, &retried(|| path.metadata()).ok()?)
            .collect::<Vec<_>>();
        let reason = reasons.join("; ");
        let error = Error::new(ErrorKind::UnsafePath, reason).with_path(path);
        (!reasons.is_empty()).then_some(error)
    });
    refused.collect()
}

/// A model file of `len` bytes that is too long for a message.
pub(crate) fn model_file(target: &SaveTarget, len: u64) -> Option<Error> {
    let reason = || {
        let size = ByteSize(len);
        format!("{len} bytes ({size}): onnx and onnxruntime refuse more than {MAX_PROTOBUF}")
    };
    let error = || Error::new(ErrorKind::ModelTooLarge, reason()).with_path(target.path());
    (len > MAX_PROTOBUF).then(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_file_is_too_long_from_two_gibibytes_on() {
        let target = SaveTarget::new(Path::new("m.onnx")).unwrap();
        for (len, refused) in [(0, false), ((1 << 31) - 1, false), (1 << 31, true)] {
            assert_eq!(model_file(&target, len).is_some(), refused, "{len}");
        }
    }
}
