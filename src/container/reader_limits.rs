//! Valid external data that particular readers refuse.
//!
//! Shape operands that onnxruntime reads without opening files, sparse indices that onnx.checker
//! wants inline, tensors without elements at an offset, names that are not UTF-8: `externalize`
//! keeps such tensors inline, but a model may come with them outside, or be told to put them there.
//! Files that onnx does not open: links, and names with `..` in them. Versions that are newer than
//! a reader. `check` reports all of them, and a save warns of those that it writes or goes on to
//! refer to.

use std::fs::Metadata;
use std::path::Path;

use crate::container::externalize::{ExternalizeOptions, KeepReason, has_text_name};
use crate::dtype::DataType;
use crate::files::external_data::{ExternalData, check_location};
use crate::graph::operands::{ShapeOperands, ShapeUse};
use crate::graph::opset::normalized;
use crate::graph::traversal::Place;
use crate::proto::{ModelProto, TensorProto};
use crate::util::file_id;
use crate::util::retry::is_link;

/// The length in bytes over which a protobuf message is refused by protobuf libraries, and so by
/// onnx and onnxruntime.
pub const MAX_PROTOBUF: u64 = 0x7FFF_FFFF;

/// The newest IR version that onnxruntime 1.32 takes.
const ONNXRUNTIME_IR: i64 = 14;

/// The newest operator sets that onnxruntime 1.32 takes, by domain. Of any other domain it takes
/// all.
const ONNXRUNTIME_SETS: [(&str, i64); 5] = [
    ("ai.onnx", 28),
    ("ai.onnx.ml", 5),
    ("ai.onnx.training", 1),
    ("ai.onnx.preview.training", 1),
    ("com.microsoft", 1),
];

/// Floats that are shape operands, such as the scales of a Resize, have at most this length in
/// bytes.
const SMALL: u64 = 1024;

/// Why a reader refuses a tensor that is external, or may refuse it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Whether it always does.
    pub(crate) certain: bool,
    pub(crate) reason: &'static str,
}

/// What readers say of the external tensors of one model.
#[derive(Debug)]
pub(crate) struct Refusals {
    operands: ShapeOperands,
}

impl Refusals {
    /// Looks through the graphs of `model`; the answers are about its own tensors.
    pub(crate) fn of(model: &ModelProto) -> Self {
        Self { operands: ShapeOperands::of(model) }
    }

    /// Whether a reader may refuse `tensor` at this place, without a look at the graph that uses
    /// it: weights are not shapes. Of what [`of_external`](Self::of_external) is certain nothing is
    /// left out.
    pub(crate) fn are_possible(place: &Place<'_>, tensor: &TensorProto) -> bool {
        let Ok(dtype) = DataType::try_from(tensor.data_type.unwrap_or_default()) else {
            return false;
        };
        let bytes = dtype.byte_len(&tensor.dims).unwrap_or(u64::MAX);
        let is_list = tensor.dims.len() < 2 && (dtype.is_integer() || dtype == DataType::Bool);
        let by_place = place.site.is_sparse_indices() || place.scope.in_function();
        by_place || is_list || bytes <= SMALL || !has_text_name(tensor)
    }

    /// Why a reader refuses `tensor` at this place, if it is or would be external.
    pub(crate) fn of_external(&self, place: &Place<'_>, tensor: &TensorProto) -> Option<Refusal> {
        let dtype = DataType::try_from(tensor.data_type.unwrap_or_default()).ok()?;
        let bytes = dtype.byte_len(&tensor.dims).ok()?;
        let options = ExternalizeOptions::new();
        let why = options.reason_to_keep(place, tensor, &self.operands, dtype, bytes)?;
        let required = self.operands.shape_use(tensor) == Some(ShapeUse::Operand);
        let certain = |reason| Some(Refusal { certain: true, reason });
        let possible = |reason| Some(Refusal { certain: false, reason });
        match why {
            KeepReason::NameNotText => {
                certain("external, and its name is not UTF-8: onnx cannot load such a tensor")
            }
            KeepReason::SparseIndices => {
                certain("external sparse indices, which onnx.checker refuses")
            }
            KeepReason::ShapeOperand if required => {
                certain("an external shape operand, which onnxruntime refuses")
            }
            KeepReason::ShapeOperand => {
                possible("an external tensor that shape inference reads: onnxruntime may refuse it")
            }
            KeepReason::SmallInteger => {
                possible("a few external integers, which onnxruntime may merge with shape operands")
            }
            KeepReason::FunctionBody => {
                possible("external inside a function: onnx_ir looks in the current directory")
            }
            KeepReason::Empty if has_offset(tensor) => possible(
                "an external tensor without elements at an offset other than 0, which onnxruntime \
                 refuses",
            ),
            KeepReason::Empty | KeepReason::Strings => None,
        }
    }
}

/// Why onnxruntime refuses `model` for what it says of itself.
pub(crate) fn of_model(model: &ModelProto) -> Vec<String> {
    let mut reasons = Vec::new();
    match model.ir_version {
        None => reasons.push("no ir_version, which every reader asks for".to_owned()),
        Some(version) if version < 1 => {
            reasons.push(format!("ir_version {version}, which onnx.checker refuses"));
        }
        Some(version) if version > ONNXRUNTIME_IR => {
            reasons.push(format!(
                "ir_version {version}: onnxruntime 1.32 takes versions up to {ONNXRUNTIME_IR}"
            ));
        }
        Some(version) if version >= 3 && model.opset_import.is_empty() => {
            reasons.push("no operator set (opset_import), which every reader asks for".to_owned());
        }
        Some(_) => {}
    }
    for set in &model.opset_import {
        let domain = set.domain.as_ref().map_or(&b""[..], |domain| domain.as_bytes());
        let version = set.version.unwrap_or_default();
        let known = |(name, _): &&(&str, i64)| normalized(name.as_bytes()) == normalized(domain);
        match ONNXRUNTIME_SETS.iter().find(known) {
            Some((name, newest)) if version > *newest => {
                reasons.push(format!(
                    "operator set {version} of {name}: onnxruntime 1.32 takes sets up to {newest}"
                ));
            }
            _ => {}
        }
    }
    reasons
}

fn has_offset(tensor: &TensorProto) -> bool {
    ExternalData::parse(tensor).is_ok_and(|entry| entry.offset > 0)
}

/// Why onnx (since 1.21) refuses the file at `location` in `directory`, which every rule of ours
/// accepts.
pub(crate) fn of_file(
    location: &str,
    directory: &Path,
    metadata: &Metadata,
) -> impl Iterator<Item = &'static str> {
    let parts = || Path::new(location).ancestors().filter(|part| !part.as_os_str().is_empty());
    let names = file_id::name_count_at(&directory.join(location), metadata);
    let link = parts().any(|part| is_link(&directory.join(part)));
    let dots = check_location(location).is_ok() && location.contains("..");
    [
        link.then_some("a symbolic link, or a folder that is one, which onnx refuses to follow"),
        names
            .is_some_and(|names| names > 1)
            .then_some("a file with other names (hard links), which onnx refuses"),
        dots.then_some("a name with `..` in it, which onnx refuses"),
    ]
    .into_iter()
    .flatten()
}
