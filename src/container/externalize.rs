//! [`Container::externalize`]: moves inline tensors out of the model, behind handles.
//!
//! Size alone does not decide: readers need some tensors inline at any size. `operands` finds the
//! tensors that shape inference reads; this module applies the caller's options and reports why a
//! large tensor is kept inline.

use std::collections::HashMap;
use std::fmt;

use crate::buffer::TensorBufferOptions;
use crate::container::{Container, Handle, HandleNames};
use crate::dtype::DataType;
use crate::error::{Error, Errors, Result};
use crate::files::external_data::{self, is_external};
use crate::graph::operands::{ShapeOperands, ShapeUse};
use crate::graph::traversal::{self, Place, Position};
use crate::proto::{ModelProto, TensorProto};
use crate::tensor::Tensor;
use crate::tensor::initializer::Initializer;

impl Container {
    /// Moves inline tensors of at least `min_bytes` out of the model, behind handles.
    ///
    /// The tensors that [`KeepReason`] lists are kept inline at any size, unless
    /// [`all_tensors`](ExternalizeOptions::all_tensors) is set. Only the elements of typed fields
    /// (such as `float_data`) are copied, because they are converted to raw bytes.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::new("w", TensorProto::FLOAT, [2]).with_raw_data(&[0; 8][..]));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// let report = container.externalize(8)?; // bytes
    /// assert_eq!((report.moved, report.moved_bytes), (1, 8));
    /// assert_eq!(container.get("#w").unwrap().byte_len(), 8);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// One error for all tensors that are not valid; the container is then unchanged.
    pub fn externalize(&mut self, options: impl Into<ExternalizeOptions>) -> Result<Externalized> {
        let (outgoing, kept) = self.outgoing(&options.into())?;
        let mut report = Externalized { kept, ..Externalized::default() };
        let mut handles = HashMap::with_capacity(outgoing.len());
        for Outgoing { position, handle, initializer } in outgoing {
            report.moved += 1;
            report.moved_bytes += initializer.byte_len();
            handles.insert(position, handle.clone());
            self.initializers.insert(handle, initializer);
        }
        set_handles(&mut self.model, &handles);
        Ok(report)
    }

    /// The tensors to move, in graph order, and the tensors to keep, with reasons.
    pub(crate) fn outgoing(
        &self,
        options: &ExternalizeOptions,
    ) -> Result<(Vec<Outgoing>, Vec<Kept>)> {
        self.check_nesting()?;
        let operands = ShapeOperands::of(&self.model);
        let mut names = HandleNames::with(self.initializers.keys());
        names.avoid(&self.model)?;
        let (mut outgoing, mut kept, mut errors) = (Vec::new(), Vec::new(), Errors::default());
        for (place, proto) in traversal::iter(&self.model) {
            let named = |error: Error| error.with_tensor(place.qualified_name(proto));
            match options.judge(&place, proto, &operands) {
                Ok(Verdict::Out) => match Tensor::try_from(proto) {
                    Ok(tensor) => outgoing.push(Outgoing {
                        position: place.position,
                        handle: names.name(&place, proto),
                        initializer: tensor.into(),
                    }),
                    Err(error) => errors.push(named(error)),
                },
                Ok(Verdict::Keep(reason, bytes)) => {
                    kept.push(Kept { tensor: place.qualified_name(proto), bytes, reason });
                }
                Ok(Verdict::Stay) => {}
                Err(error) => errors.push(named(error)),
            }
        }
        errors.join().map_or(Ok((outgoing, kept)), Err)
    }
}

/// An inline tensor that leaves the model.
pub(crate) struct Outgoing {
    pub(crate) position: Position,
    /// The handle that it gets, which no other tensor has.
    pub(crate) handle: Handle,
    pub(crate) initializer: Initializer,
}

/// Makes the tensors of `model` at these positions refer to their handles.
pub(crate) fn set_handles(model: &mut ModelProto, handles: &HashMap<Position, Handle>) {
    for (place, proto) in traversal::iter_mut(model) {
        if let Some(handle) = handles.get(&place.position) {
            external_data::set_handle(proto, handle.as_str());
        }
    }
}

/// Which inline tensors [`Container::externalize`] moves out. A number converts to these options as
/// `min_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "jobs", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "jobs", serde(deny_unknown_fields))]
pub struct ExternalizeOptions {
    min_bytes: u64,
    all_tensors: bool,
    attributes: bool,
    sparse: bool,
}

impl Default for ExternalizeOptions {
    fn default() -> Self {
        Self { min_bytes: 1024, all_tensors: false, attributes: true, sparse: true }
    }
}

impl From<TensorBufferOptions> for ExternalizeOptions {
    /// Moves tensors at or above the threshold. Their place in a file is decided by a save.
    fn from(buffers: TensorBufferOptions) -> Self {
        Self::from(buffers.raw_data_threshold)
    }
}

impl From<u64> for ExternalizeOptions {
    fn from(min_bytes: u64) -> Self {
        Self { min_bytes, ..Self::default() }
    }
}

/// The decision for one tensor.
pub(crate) enum Verdict {
    /// Not moved: external already, below the threshold, or not asked for.
    Stay,
    /// Large enough to be moved, but kept; with its length in bytes.
    Keep(KeepReason, u64),
    Out,
}

/// Integers of unknown use up to this length (bytes) are assumed to be shapes.
const SMALL: u64 = 1024;
/// The greatest length (bytes) at which onnxruntime was observed to merge equal integers.
const MERGED: u64 = 64;

/// Whether shapes, axes and conditions are given in this type.
fn is_index(dtype: DataType) -> bool {
    matches!(dtype, DataType::Int64 | DataType::Int32 | DataType::Bool)
}

impl ExternalizeOptions {
    /// The defaults: 1024 bytes, and tensors that mainstream readers need inline are kept.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves tensors of this length in bytes or more. Default 1024.
    #[must_use]
    pub fn min_bytes(mut self, min_bytes: u64) -> Self {
        self.min_bytes = min_bytes;
        self
    }

    /// Also moves the tensors that readers need inline: shape operands, small integer tensors,
    /// sparse indices, tensors of function bodies. Strings, empty tensors and tensors whose names
    /// are not UTF-8 are kept. Default off.
    #[must_use]
    pub fn all_tensors(mut self, all_tensors: bool) -> Self {
        self.all_tensors = all_tensors;
        self
    }

    /// Whether tensors in attributes, such as the values of `Constant` nodes, are moved too, or
    /// initializers alone. Default true.
    #[must_use]
    pub fn attributes(mut self, attributes: bool) -> Self {
        self.attributes = attributes;
        self
    }

    /// Whether the values of sparse tensors are moved too. onnxruntime reads them from files; onnx
    /// does not, and leaves such a tensor without elements. Without them, indices stay too. Default
    /// true.
    #[must_use]
    pub fn sparse(mut self, sparse: bool) -> Self {
        self.sparse = sparse;
        self
    }

    /// Whether `tensor` leaves the model.
    pub(crate) fn judge(
        &self,
        place: &Place<'_>,
        tensor: &TensorProto,
        operands: &ShapeOperands,
    ) -> Result<Verdict> {
        let unasked =
            !self.attributes && place.site.is_attribute() || !self.sparse && place.site.is_sparse();
        if is_external(tensor) || unasked {
            return Ok(Verdict::Stay);
        }
        let dtype = DataType::try_from(tensor.data_type.unwrap_or(0))?;
        if dtype == DataType::String {
            let bytes = tensor.string_data.iter().map(|string| string.len() as u64).sum();
            return Ok(match bytes >= self.min_bytes {
                true => Verdict::Keep(KeepReason::Strings, bytes),
                false => Verdict::Stay,
            });
        }
        let bytes = dtype.byte_len(&tensor.dims)?;
        if bytes < self.min_bytes {
            return Ok(Verdict::Stay);
        }
        Ok(match self.reason_to_keep(place, tensor, operands, dtype, bytes) {
            Some(reason) => Verdict::Keep(reason, bytes),
            None => Verdict::Out,
        })
    }

    /// Why readers need a tensor of this type and length (bytes) inline at this place.
    pub(crate) fn reason_to_keep(
        &self,
        place: &Place<'_>,
        tensor: &TensorProto,
        operands: &ShapeOperands,
        dtype: DataType,
        bytes: u64,
    ) -> Option<KeepReason> {
        let small = || {
            (dtype.is_integer() || dtype == DataType::Bool)
                && tensor.dims.len() < 2
                && bytes <= SMALL
        };
        if !has_text_name(tensor) {
            return Some(KeepReason::NameNotText);
        }
        if bytes == 0 {
            return Some(KeepReason::Empty);
        }
        if self.all_tensors {
            return None;
        }
        if place.site.is_sparse_indices() {
            return Some(KeepReason::SparseIndices);
        }
        match operands.shape_use(tensor) {
            Some(ShapeUse::Operand | ShapeUse::Derived) => Some(KeepReason::ShapeOperand),
            _ if place.scope.in_function() => Some(KeepReason::FunctionBody),
            Some(ShapeUse::Unknown) if small() => Some(KeepReason::ShapeOperand),
            _ if is_index(dtype) && bytes <= MERGED => Some(KeepReason::SmallInteger),
            _ => None,
        }
    }
}

/// Whether the name of `tensor` is UTF-8, or missing.
pub(crate) fn has_text_name(tensor: &TensorProto) -> bool {
    tensor.name.as_ref().is_none_or(|name| name.to_str().is_ok())
}

/// Why a tensor is kept inline although it is large enough to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeepReason {
    /// Strings have no fixed width; the specification forbids external strings.
    Strings,
    /// The tensor has no elements.
    Empty,
    /// The name is not UTF-8; onnx does not load external data for such a name.
    NameNotText,
    /// Shape inference reads the tensor, and does not open files.
    ShapeOperand,
    /// onnxruntime merges equal small integers of the whole graph, shape operands among them.
    SmallInteger,
    /// `onnx.checker` refuses external sparse indices.
    SparseIndices,
    /// onnx_ir looks for a function's external tensors in the current directory.
    FunctionBody,
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Strings => "strings",
            Self::Empty => "empty",
            Self::NameNotText => "a name that is not UTF-8",
            Self::ShapeOperand => "read by shape inference",
            Self::SmallInteger => "a few integers",
            Self::SparseIndices => "sparse indices",
            Self::FunctionBody => "inside a function",
        })
    }
}

/// A tensor that is kept inline although it is large enough to be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Kept {
    /// Its name, with the scope before it.
    pub tensor: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Why it is kept.
    pub reason: KeepReason,
}

/// What [`Container::externalize`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Externalized {
    /// The number of tensors moved.
    pub moved: usize,
    /// Their length in bytes.
    pub moved_bytes: u64,
    /// The tensors that are kept inline although they are large enough.
    pub kept: Vec<Kept>,
}

#[cfg(feature = "serde")]
crate::util::as_text::serialize_as_text!(KeepReason);
