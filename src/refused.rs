//! Which external tensors single readers refuse where every entry is right.
//!
//! Shape operands that onnxruntime reads without opening files, sparse indices that onnx.checker
//! wants inline, tensors without elements at an offset: `externalize` keeps such tensors inline, but
//! a model may come with them outside, or be told to put them there. `check` reports them, and a save
//! can warn before it writes such a model.

use crate::dtype::DataType;
use crate::external_data::ExternalData;
use crate::externalize::{ExternalizeOptions, KeepReason};
use crate::operands::{ShapeOperands, ShapeUse};
use crate::proto::{ModelProto, TensorProto};
use crate::traversal::Place;

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

fn has_offset(tensor: &TensorProto) -> bool {
    ExternalData::parse(tensor).is_ok_and(|entry| entry.offset > 0)
}
