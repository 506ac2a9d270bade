//! [`Container`]: a model whose large tensors are stored beside it, by handle.
//!
//! The protobuf message stays small and editable; the weights are kept where they are (a map, a
//! vector, an array) until a save writes them. This module holds the two together and moves tensors
//! between them; reading and writing files is left to `load` and `save`.

pub(crate) mod add_delete;
pub(crate) mod cast;
pub(crate) mod consolidate;
mod declare;
mod declare_type;
pub(crate) mod externalize;
pub(crate) mod extract_model;
pub(crate) mod fill;
pub(crate) mod lookup;
#[cfg(feature = "safetensors")]
pub(crate) mod match_weights;
pub(crate) mod merge;
pub(crate) mod metadata;
pub(crate) mod part;
pub(crate) mod pieces;
pub(crate) mod reader_limits;
pub(crate) mod rename;
pub(crate) mod replace;
pub(crate) mod strip;
pub(crate) mod tensors;

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::vec;

use foldhash::fast::RandomState;

use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::external_data::{
    self, ExternalData, is_external, is_handle, is_stripped, stripped,
};
use crate::graph::inline::{InlineOptions, Inlined, inline_functions};
use crate::graph::stored_digests;
use crate::graph::traversal::{self, Place};
use crate::limits::Limits;
use crate::proto::{ModelProto, TensorProto};
use crate::tensor::initializer::Initializer;
use crate::util::cancel;
use crate::util::names::UniqueNames;
use crate::wire::Message;

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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Handle(String);

/// Initializers by handle.
pub(crate) type Initializers = HashMap<Handle, Initializer, RandomState>;

impl Handle {
    /// `#name`.
    pub(crate) fn of_name(name: &str) -> Self {
        let mut handle = String::with_capacity("#".len().saturating_add(name.len()));
        handle.push('#');
        handle.push_str(name);
        Self(handle)
    }

    /// The handle with its `#`, as in a tensor's `location`.
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
        let reason = format!("handle {handle:?} is not `#` and a name, such as `#w`");
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

/// Makes unique handles from the names of tensors.
#[derive(Debug, Default)]
pub(crate) struct HandleNames(UniqueNames);

impl HandleNames {
    /// Names that avoid `handles`.
    pub(crate) fn with<'a>(handles: impl Iterator<Item = &'a Handle>) -> Self {
        let mut names = Self::default();
        handles.for_each(|handle| names.avoid_location(handle.as_str()));
        names
    }

    /// Also avoids the handles that the external tensors of `model` name.
    pub(crate) fn avoid(&mut self, model: &ModelProto) -> Result<()> {
        traversal::tensors(model, |_, tensor| {
            if is_external(tensor)
                && let Ok(entry) = ExternalData::parse(tensor)
            {
                self.avoid_location(&entry.location);
            }
            Ok(())
        })
    }

    fn avoid_location(&mut self, location: &str) {
        self.0.take(location);
    }

    /// `#name`, or with a number where that is taken.
    pub(crate) fn of(&mut self, name: &str) -> Handle {
        Handle(self.0.name(&format!("#{name}"), ""))
    }

    /// `#name`; where that is taken, qualified by its scope; where that is taken too, with a
    /// number.
    pub(crate) fn name(&mut self, place: &Place<'_>, tensor: &TensorProto) -> Handle {
        let handle = Handle::of_name(&place.borrowed_name(tensor));
        if self.0.take(handle.as_str()) {
            return handle;
        }
        Handle(self.0.name(&format!("#{}", place.qualified_name(tensor)), ""))
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
    pub(crate) model: SharedModel,
    pub(crate) initializers: Initializers,
    pub(crate) warnings: Vec<Error>,
    /// The files that its weights were loaded from.
    pub(crate) weights_files: Vec<PathBuf>,
    /// The files that the container was filled from, which a save does not replace.
    pub(crate) attached: Vec<PathBuf>,
    /// Whether only what holds tensors was decoded: see [`Outline`](crate::Outline).
    pub(crate) is_outline: bool,
    /// Whether digests were stored with the model that was loaded.
    pub(crate) had_digests: bool,
    /// How deep its messages may nest.
    pub(crate) limits: Limits,
}

/// A shared model, copied on write: the result of a save shows the graph that was written, also
/// when the container's model changes later.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedModel(Arc<ModelProto>);

impl SharedModel {
    /// The model to change, copied first where it is shared.
    fn into_inner(self) -> ModelProto {
        Arc::unwrap_or_clone(self.0)
    }

    /// Removes the digests that are stored with the model, where its weights change and the message
    /// does not.
    pub(crate) fn forget_digests(&mut self) {
        if stored_digests::has_own_digest(self) {
            // To reach for the model to change it is enough.
            let _: &mut ModelProto = self;
        }
    }
}

impl From<ModelProto> for SharedModel {
    fn from(model: ModelProto) -> Self {
        Self(Arc::new(model))
    }
}

impl Deref for SharedModel {
    type Target = ModelProto;

    fn deref(&self) -> &ModelProto {
        &self.0
    }
}

/// A change of a model makes its stored digests wrong, so they are removed here,
/// where all changes begin.
impl DerefMut for SharedModel {
    fn deref_mut(&mut self) -> &mut ModelProto {
        let model = Arc::make_mut(&mut self.0);
        if stored_digests::has_own_digest(model) {
            stored_digests::remove_digests(model);
        }
        model
    }
}

impl<'c> IntoIterator for &'c Container {
    type Item = (&'c Handle, &'c Initializer);
    type IntoIter = vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Container {
    /// A container of `model`, with no large initializers yet.
    pub fn new(model: ModelProto) -> Self {
        Self { model: model.into(), ..Self::default() }
    }

    /// The model; its external tensors have handles for locations.
    pub fn model(&self) -> &ModelProto {
        &self.model
    }

    /// The model, to change. Disagreements between the model and the initializers are found by
    /// [`check`](Self::check) and by every save.
    pub fn model_mut(&mut self) -> &mut ModelProto {
        &mut self.model
    }

    /// Puts a large initializer behind `handle` (with its `#`) and returns the one that was there.
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
        self.model.forget_digests();
        Ok(self.initializers.insert(handle, initializer))
    }

    /// The large initializer behind `handle`, with or without its `#`.
    pub fn get(&self, handle: &str) -> Option<&Initializer> {
        if is_handle(handle) {
            return self.initializers.get(handle);
        }
        self.initializers.get(format!("#{handle}").as_str())
    }

    /// Removes and returns the large initializer behind `handle`, with or without its `#`. Tensors
    /// of the model that name the handle are kept: [`delete_initializer`](Self::delete_initializer)
    /// removes both.
    pub fn remove(&mut self, handle: &str) -> Option<Initializer> {
        self.model.forget_digests();
        if is_handle(handle) {
            return self.initializers.remove(handle);
        }
        self.initializers.remove(format!("#{handle}").as_str())
    }

    /// The large initializers, sorted by handle. [`tensors`](Self::tensors) has every tensor of the
    /// model, inline ones as well.
    pub fn iter(&self) -> vec::IntoIter<(&Handle, &Initializer)> {
        let mut sorted: Vec<_> = self.initializers.iter().collect();
        sorted.sort_by_key(|(handle, _)| *handle);
        sorted.into_iter()
    }

    /// The number of large initializers, which is the number of handles. The model may have more
    /// tensors (inline), and several on one handle: `tensors().len()` counts those.
    pub fn len(&self) -> usize {
        self.initializers.len()
    }

    /// Whether there are no large initializers, that is, no handles.
    pub fn is_empty(&self) -> bool {
        self.initializers.is_empty()
    }

    /// Warnings of the load: what did not prevent it, such as unknown external data keys.
    pub fn warnings(&self) -> &[Error] {
        &self.warnings
    }

    /// Whether digests were stored with the model that was loaded: see
    /// [`SaveOptions::digests`](crate::SaveOptions::digests). A container with weights has none of
    /// them any more, and a save stores new ones only where its options say so.
    pub fn had_digests(&self) -> bool {
        self.had_digests
    }

    /// Of these limits, [`Limit::Nesting`](crate::load::Limit::Nesting) holds for the model: what
    /// goes through a model that is deeper is an error, as loading it would be. A container that
    /// was loaded has the [limits of the load](crate::LoadOptions::limits), any other the defaults.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Refuses a model that is too deep to be gone through, or to be loaded again.
    pub(crate) fn check_nesting(&self) -> Result<()> {
        self.model.check_nesting(&self.limits)
    }

    /// Compares every external tensor with its initializer, as a save does first.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when the model nests deeper than its [limits](Self::set_limits)
    /// allow. One error for all tensors whose handle is missing ([`ErrorKind::MissingHandle`]), or
    /// whose initializer has another dtype or byte length, or other dims where both have several.
    pub fn check(&self) -> Result<()> {
        self.check_for(&self.model)
    }

    /// As [`check`](Self::check), for another `model` on the same initializers.
    pub(crate) fn check_for(&self, model: &ModelProto) -> Result<()> {
        model.check_nesting(&self.limits)?;
        let mut errors = Errors::default();
        traversal::tensors(model, |place, tensor| {
            if is_external(tensor)
                && let Err(error) = self.initializer_of(tensor)
            {
                errors.push(error.with_tensor(place.qualified_name(tensor)));
            }
            Ok(())
        })?;
        errors.join().map_or(Ok(()), Err)
    }

    /// The handle and initializer of the external `tensor`, after checking that they fit it.
    pub(crate) fn initializer_of(&self, tensor: &TensorProto) -> Result<(&Handle, &Initializer)> {
        self.initializer_at(&ExternalData::parse(tensor)?, tensor)
    }

    /// As [`initializer_of`](Self::initializer_of), for a tensor whose `entry` was parsed.
    pub(crate) fn initializer_at(
        &self,
        entry: &ExternalData,
        tensor: &TensorProto,
    ) -> Result<(&Handle, &Initializer)> {
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
        // A one-dimensional initializer fits any shape; two differing shapes are a sign of a missed
        // transpose.
        let (declared, given) = (&tensor.dims, initializer.dims());
        if declared.len() > 1 && given.len() > 1 && declared != given {
            let reason = format!("declared {declared:?}, initializer `{handle}` is {given:?}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        entry.range(len)?;
        if entry.offset > 0 {
            let reason =
                format!("the offset must be 0: initializer `{handle}` has exactly {len} bytes");
            return Err(Error::new(ErrorKind::OutOfBounds, reason).with_offset(entry.offset));
        }
        Ok((handle, initializer))
    }

    /// Puts the local functions of the model into its graphs, as [`inline_functions`] does. Weights
    /// and handles are kept: copies of a tensor name the same handle.
    ///
    /// # Errors
    /// As [`inline_functions`]; the model is then unchanged.
    pub fn inline_functions(&mut self, options: impl Into<InlineOptions>) -> Result<Inlined> {
        inline_functions(&mut self.model, options.into().limits(self.limits))
    }

    /// The model with every tensor inline: self-contained, of any size.
    ///
    /// Bytes are shared with the initializers, not copied, where these are contiguous in memory.
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
        self.embed_in(ModelProto::clone(&self.model))
    }

    /// As [`embed`](Self::embed), without a copy of the message either.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn into_embedded(mut self) -> Result<ModelProto> {
        self.check()?;
        let model = std::mem::take(&mut self.model).into_inner();
        self.embed_in(model)
    }

    /// The message; its external tensors name handles. The large initializers are dropped.
    pub fn into_model(self) -> ModelProto {
        self.model.into_inner()
    }

    /// The message and the large initializers behind its handles.
    ///
    /// ```
    /// use onnx_container::Container;
    ///
    /// let mut container = Container::default();
    /// container.add_initializer("w", vec![1.0_f32])?;
    /// let (model, initializers) = container.into_parts();
    /// assert_eq!(model.graph.unwrap().initializer.len(), 1);
    /// assert_eq!(initializers.first_key_value().unwrap().0.as_str(), "#w");
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    pub fn into_parts(self) -> (ModelProto, BTreeMap<Handle, Initializer>) {
        (self.model.into_inner(), self.initializers.into_iter().collect())
    }

    /// `model`, whose external tensors name handles of this container, with every tensor inline.
    fn embed_in(&self, mut model: ModelProto) -> Result<ModelProto> {
        for (place, proto) in traversal::iter_mut(&mut model).filter(|(_, p)| is_external(p)) {
            cancel::check()?;
            let bytes = self.initializer_of(proto).and_then(|(_, found)| found.to_buffer());
            let bytes = bytes.map_err(|error| error.with_tensor(place.qualified_name(proto)))?;
            external_data::set_inline(proto, bytes);
        }
        Ok(model)
    }
}

fn unresolved(location: &str) -> Error {
    if is_stripped(location) {
        return stripped();
    }
    let reason = if is_handle(location) {
        format!("unresolved handle `{location}`: no initializer of that name was inserted")
    } else {
        format!("`{location}` was not loaded: attach the weights first")
    };
    Error::new(ErrorKind::MissingHandle, reason)
}
