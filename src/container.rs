//! [`Container`]: a model whose large tensors live beside it, by handle.
//!
//! The protobuf message stays small and editable; the weights stay where they are (a map, a
//! vector, an array) until a save writes them. This module holds the two together and moves
//! tensors between them; reading and writing files is left to `load` and `save`.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{self, ExternalData, is_external, is_handle};
use crate::initializer::Initializer;
use crate::operands::{ShapeOperands, ShapeUse};
use crate::proto::{ModelProto, TensorProto};
use crate::tensor::Tensor;
use crate::traversal::{self, Place};

/// The symbolic name of a large initializer: `#` and at least one more character.
///
/// ```
/// use onnx_container::Handle;
///
/// let handle: Handle = "#encoder.w".parse()?;
/// assert_eq!(handle.name(), "encoder.w");
/// assert!("encoder.w".parse::<Handle>().is_err());
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(String);

impl Handle {
    /// The handle with its `#`, as it stands in a tensor's `location`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The handle without its `#`.
    pub fn name(&self) -> &str {
        self.0.strip_prefix('#').unwrap_or(&self.0)
    }
}

impl FromStr for Handle {
    type Err = Error;

    fn from_str(handle: &str) -> Result<Self> {
        if handle.len() > 1 && is_handle(handle) {
            return Ok(Self(handle.to_owned()));
        }
        let reason = format!("handle {handle:?} does not start with `#` and a name");
        Err(Error::new(ErrorKind::InvalidArgument, reason))
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Borrow<str> for Handle {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Makes handles from the names of tensors, each once.
#[derive(Debug, Default)]
pub(crate) struct HandleNames {
    taken: HashSet<String>,
    /// For names that were numbered, the last number: a model can have one name many times.
    numbers: HashMap<String, u64>,
}

impl HandleNames {
    /// Names that avoid `handles`.
    pub(crate) fn with<'a>(handles: impl Iterator<Item = &'a Handle>) -> Self {
        let taken = handles.map(|handle| handle.0.clone()).collect();
        Self { taken, ..Self::default() }
    }

    /// Avoids also the handles that the external tensors of `model` name.
    fn avoid(&mut self, model: &ModelProto) -> Result<()> {
        traversal::tensors(model, |_, tensor| {
            if is_external(tensor)
                && let Ok(entry) = ExternalData::parse(tensor)
            {
                self.taken.insert(entry.location);
            }
            Ok(())
        })
    }

    /// `#name`, else qualified by its scope, else numbered.
    pub(crate) fn name(&mut self, place: &Place<'_>, tensor: &TensorProto) -> Handle {
        let name = format!("#{}", place.name_of(tensor));
        if self.taken.insert(name.clone()) {
            return Handle(name);
        }
        let qualified = format!("#{}", place.qualified_name(tensor));
        if self.taken.insert(qualified.clone()) {
            return Handle(qualified);
        }
        let number = self.numbers.entry(qualified.clone()).or_insert(1);
        loop {
            *number += 1;
            let numbered = format!("{qualified}_{number}");
            if self.taken.insert(numbered.clone()) {
                return Handle(numbered);
            }
        }
    }
}

/// A [`ModelProto`] whose external tensors name handles, and the large initializers behind them.
///
/// ```
/// use ndarray::array;
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// use onnx_container::{Container, DataType};
///
/// let mut graph = GraphProto::default();
/// graph.initializer.push(TensorProto::external("w", DataType::Float.number(), &[2, 2], "#w"));
/// let mut model = ModelProto::default();
/// model.graph = Some(Box::new(graph));
///
/// let mut container = Container::new(model);
/// container.insert("#w", array![[1.0_f32, 2.0], [3.0, 4.0]])?;
/// container.check()?;
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Container {
    pub(crate) model: ModelProto,
    pub(crate) initializers: HashMap<Handle, Initializer>,
    pub(crate) warnings: Vec<Error>,
}

impl Container {
    /// A container of `model`, with no large initializers yet.
    pub fn new(model: ModelProto) -> Self {
        Self { model, ..Self::default() }
    }

    /// The model; its external tensors have handles for locations.
    pub fn model(&self) -> &ModelProto {
        &self.model
    }

    /// The model, to change. What it and the initializers no longer agree on is found by
    /// [`check`](Self::check) and by every save.
    pub fn model_mut(&mut self) -> &mut ModelProto {
        &mut self.model
    }

    /// Puts a large initializer behind `handle` (with its `#`); what was there is returned.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when `handle` is not `#` and a name; the conversion's error.
    pub fn insert<I>(&mut self, handle: &str, initializer: I) -> Result<Option<Initializer>>
    where
        I: TryInto<Initializer>,
        I::Error: Into<Error>,
    {
        let handle: Handle = handle.parse()?;
        let initializer = initializer.try_into().map_err(Into::into);
        let initializer = initializer.map_err(|e| e.with_tensor(handle.as_str()))?;
        Ok(self.initializers.insert(handle, initializer))
    }

    /// The large initializer behind `handle` (with its `#`).
    pub fn get(&self, handle: &str) -> Option<&Initializer> {
        self.initializers.get(handle)
    }

    /// Takes out the large initializer behind `handle` (with its `#`).
    pub fn remove(&mut self, handle: &str) -> Option<Initializer> {
        self.initializers.remove(handle)
    }

    /// The large initializers, sorted by handle.
    pub fn iter(&self) -> impl Iterator<Item = (&Handle, &Initializer)> {
        let mut sorted: Vec<_> = self.initializers.iter().collect();
        sorted.sort_by_key(|(handle, _)| *handle);
        sorted.into_iter()
    }

    /// The number of large initializers.
    pub fn len(&self) -> usize {
        self.initializers.len()
    }

    /// Whether there are no large initializers.
    pub fn is_empty(&self) -> bool {
        self.initializers.is_empty()
    }

    /// What a load found odd but could live with, such as external data keys it does not know.
    pub fn warnings(&self) -> &[Error] {
        &self.warnings
    }

    /// Holds every external tensor against its initializer, as a save does first.
    ///
    /// # Errors
    /// One error for all tensors whose handle is missing ([`ErrorKind::MissingHandle`]), or whose
    /// initializer has another dtype or byte length.
    pub fn check(&self) -> Result<()> {
        let mut errors = Vec::new();
        traversal::tensors(&self.model, |place, tensor| {
            if is_external(tensor)
                && let Err(error) = self.initializer_of(tensor)
            {
                errors.push(error.with_tensor(place.qualified_name(tensor)));
            }
            Ok(())
        })?;
        Error::join(errors).map_or(Ok(()), Err)
    }

    /// The handle and initializer behind the external `tensor`, seen to fit it.
    pub(crate) fn initializer_of(&self, tensor: &TensorProto) -> Result<(&Handle, &Initializer)> {
        let entry = ExternalData::parse(tensor)?;
        let (dtype, len) = external_data::layout(tensor)?;
        let found = self.initializers.get_key_value(entry.location.as_str());
        let (handle, initializer) = found.ok_or_else(|| unresolved(&entry.location))?;
        if initializer.dtype() != dtype {
            let reason =
                format!("declared {dtype}, initializer `{handle}` is {}", initializer.dtype());
            return Err(Error::new(ErrorKind::DataType, reason));
        }
        if initializer.byte_len() != len {
            let reason = format!(
                "dtype {dtype} and dims {:?} need {len} bytes, initializer `{handle}` has {}",
                tensor.dims,
                initializer.byte_len()
            );
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        entry.range(len)?;
        if entry.offset > 0 {
            let reason = format!("initializer `{handle}` has just these {len} bytes");
            return Err(Error::new(ErrorKind::OutOfBounds, reason).with_offset(entry.offset));
        }
        Ok((handle, initializer))
    }

    /// Moves inline tensors of at least `min_bytes` out of the model, behind handles.
    ///
    /// Stays inline at any size, unless [`all_tensors`](ExternalizeOptions::all_tensors) says
    /// otherwise: what [`KeepReason`] lists. No bytes are copied but those of typed fields, which
    /// become raw.
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
        let options = options.into();
        let (verdicts, kept) = self.judge(&options)?;
        let mut report = Externalized { kept, ..Externalized::default() };
        let mut names = HandleNames::with(self.initializers.keys());
        names.avoid(&self.model)?;
        let Self { model, initializers, .. } = self;
        let mut verdicts = verdicts.into_iter();
        traversal::tensors_mut(model, |place, proto| {
            if let Some(tensor) = verdicts.next().flatten() {
                let handle = names.name(place, proto);
                external_data::set_handle(proto, handle.as_str());
                report.moved += 1;
                report.moved_bytes += byte_len(&tensor);
                initializers.insert(handle, tensor.into());
            }
            Ok(())
        })?;
        Ok(report)
    }

    /// For every tensor in graph order, its data when it goes out; and what is kept, with reasons.
    fn judge(&self, options: &ExternalizeOptions) -> Result<(Vec<Option<Tensor>>, Vec<Kept>)> {
        let operands = ShapeOperands::of(&self.model);
        let (mut verdicts, mut kept, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        traversal::tensors(&self.model, |place, proto| {
            let verdict = match options.judge(place, proto, &operands) {
                Ok(Verdict::Out) => Tensor::try_from(proto).map(Some),
                Ok(Verdict::Keep(reason, bytes)) => {
                    kept.push(Kept { tensor: place.qualified_name(proto), bytes, reason });
                    Ok(None)
                }
                Ok(Verdict::Stay) => Ok(None),
                Err(error) => Err(error),
            };
            verdicts.push(verdict.unwrap_or_else(|error| {
                errors.push(error.with_tensor(place.qualified_name(proto)));
                None
            }));
            Ok(())
        })?;
        Error::join(errors).map_or(Ok((verdicts, kept)), Err)
    }

    /// The model with every tensor inline: self-contained, of any size.
    ///
    /// Bytes are shared with the initializers, not copied, where these lie in one piece.
    ///
    /// ```
    /// use ndarray::array;
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", array![1_u8, 2])?;
    /// let model = container.embed()?;
    /// let tensor = &model.graph.as_ref().unwrap().initializer[0];
    /// assert_eq!(tensor.raw_data.as_deref(), Some(&[1, 2][..]));
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn embed(&self) -> Result<ModelProto> {
        self.check()?;
        let mut model = self.model.clone();
        traversal::tensors_mut(&mut model, |_, proto| {
            if is_external(proto) {
                let bytes = self.initializer_of(proto)?.1.to_buffer()?;
                external_data::clear_payload(proto);
                proto.raw_data = Some(bytes);
            }
            Ok(())
        })?;
        Ok(model)
    }
}

fn unresolved(location: &str) -> Error {
    let reason = if is_handle(location) {
        format!("unresolved handle `{location}`: no initializer of that name was inserted")
    } else {
        format!("`{location}` was not loaded: attach the weights first")
    };
    Error::new(ErrorKind::MissingHandle, reason)
}

fn byte_len(tensor: &Tensor) -> u64 {
    u64::try_from(tensor.byte_len()).unwrap_or(u64::MAX)
}

/// Which inline tensors [`Container::externalize`] moves out. A number converts: `min_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalizeOptions {
    min_bytes: u64,
    all_tensors: bool,
}

impl Default for ExternalizeOptions {
    fn default() -> Self {
        Self { min_bytes: 1024, all_tensors: false }
    }
}

impl From<u64> for ExternalizeOptions {
    fn from(min_bytes: u64) -> Self {
        Self { min_bytes, ..Self::default() }
    }
}

/// What becomes of one tensor.
enum Verdict {
    /// External already, or below the threshold.
    Stay,
    /// Large enough to go out, but kept; with its length in bytes.
    Keep(KeepReason, u64),
    Out,
}

/// Integers of unknown use up to this length (bytes) are taken for shapes.
const SMALL: u64 = 1024;
/// Up to this length (bytes) onnxruntime was seen to merge equal integers.
const MERGED: u64 = 64;

/// Whether shapes, axes and conditions are given in this type.
fn is_index(dtype: DataType) -> bool {
    matches!(dtype, DataType::Int64 | DataType::Int32 | DataType::Bool)
}

impl ExternalizeOptions {
    /// The defaults: 1024 bytes, and nothing out that mainstream readers want inline.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves tensors of this length in bytes or more. Default 1024.
    #[must_use]
    pub fn min_bytes(mut self, min_bytes: u64) -> Self {
        self.min_bytes = min_bytes;
        self
    }

    /// Moves also what readers want inline: shape operands, few integers, sparse indices, tensors of
    /// function bodies. Strings and empty tensors stay. Default off.
    #[must_use]
    pub fn all_tensors(mut self, all_tensors: bool) -> Self {
        self.all_tensors = all_tensors;
        self
    }

    fn judge(
        &self,
        place: &Place<'_>,
        tensor: &TensorProto,
        operands: &ShapeOperands,
    ) -> Result<Verdict> {
        if is_external(tensor) {
            return Ok(Verdict::Stay);
        }
        let dtype = DataType::try_from(tensor.data_type.unwrap_or(0))?;
        if dtype == DataType::String {
            let bytes = tensor.string_data.iter().map(|s| s.len());
            let bytes = bytes.fold(0, |sum, len| sum + u64::try_from(len).unwrap_or(0));
            let large = bytes >= self.min_bytes;
            return Ok(if large {
                Verdict::Keep(KeepReason::Strings, bytes)
            } else {
                Verdict::Stay
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

    fn reason_to_keep(
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
        if bytes == 0 {
            return Some(KeepReason::Empty);
        }
        if self.all_tensors {
            return None;
        }
        if place.site.is_sparse_indices() {
            return Some(KeepReason::SparseIndices);
        }
        if place.scope.in_function() {
            return Some(KeepReason::FunctionBody);
        }
        match operands.shape_use(tensor) {
            Some(ShapeUse::Operand | ShapeUse::Derived) => Some(KeepReason::ShapeOperand),
            Some(ShapeUse::Unknown) if small() => Some(KeepReason::ShapeOperand),
            _ if is_index(dtype) && bytes <= MERGED => Some(KeepReason::SmallInteger),
            _ => None,
        }
    }
}

/// Why a tensor stays inline although it is large enough to go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeepReason {
    /// Strings have no fixed width; the spec forbids them outside.
    Strings,
    /// There is nothing to move.
    Empty,
    /// Shape inference reads it, and does not open files.
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
            Self::ShapeOperand => "read by shape inference",
            Self::SmallInteger => "a few integers",
            Self::SparseIndices => "sparse indices",
            Self::FunctionBody => "inside a function",
        })
    }
}

/// A tensor that stays inline although it is large enough to go out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// Its name, with the scope before it.
    pub tensor: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Why it stays.
    pub reason: KeepReason,
}

/// What [`Container::externalize`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Externalized {
    /// The number of tensors moved.
    pub moved: usize,
    /// Their length in bytes.
    pub moved_bytes: u64,
    /// What stays inline although it is large enough.
    pub kept: Vec<Kept>,
}
