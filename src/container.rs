//! [`Container`]: a model whose large tensors live beside it, by handle.
//!
//! The protobuf message stays small and editable; the weights stay where they are (a map, a
//! vector, an array) until a save writes them. This module holds the two together and moves
//! tensors between them; reading and writing files is left to `load` and `save`.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{self, ExternalData, is_external, is_handle};
use crate::initializer::Initializer;
use crate::inline::{InlineOptions, Inlined, inline_functions};
use crate::names::UniqueNames;
use crate::proto::{ModelProto, TensorProto};
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

/// Makes handles from the names of tensors, each once.
#[derive(Debug, Default)]
pub(crate) struct HandleNames(UniqueNames);

impl HandleNames {
    /// Names that avoid `handles`.
    pub(crate) fn with<'a>(handles: impl Iterator<Item = &'a Handle>) -> Self {
        let mut names = Self::default();
        handles.for_each(|handle| names.avoid_location(handle.as_str()));
        names
    }

    /// Avoids also the handles that the external tensors of `model` name.
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

    /// `#name`, else qualified by its scope, else numbered.
    pub(crate) fn name(&mut self, place: &Place<'_>, tensor: &TensorProto) -> Handle {
        let name = format!("#{}", place.name_of(tensor));
        if self.0.take(&name) {
            return Handle(name);
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
    /// initializer has another dtype or byte length, or other dims where both have several.
    pub fn check(&self) -> Result<()> {
        self.check_for(&self.model)
    }

    /// As [`check`](Self::check), for another `model` on the same initializers.
    pub(crate) fn check_for(&self, model: &ModelProto) -> Result<()> {
        let mut errors = Vec::new();
        traversal::tensors(model, |place, tensor| {
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
        // A vector may stand for any shape; two shapes that differ are a transpose that was missed.
        let (declared, given) = (&tensor.dims, initializer.dims());
        if declared.len() > 1 && given.len() > 1 && declared != given {
            let reason = format!("declared {declared:?}, initializer `{handle}` is {given:?}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        entry.range(len)?;
        if entry.offset > 0 {
            let reason = format!("initializer `{handle}` has just these {len} bytes");
            return Err(Error::new(ErrorKind::OutOfBounds, reason).with_offset(entry.offset));
        }
        Ok((handle, initializer))
    }

    /// Puts the local functions of the model into its graphs, as [`inline_functions`] does. Weights and
    /// handles stay: copies of a tensor name one handle.
    ///
    /// # Errors
    /// As [`inline_functions`]; the model is then as it was.
    pub fn inline_functions(&mut self, options: impl Into<InlineOptions>) -> Result<Inlined> {
        inline_functions(&mut self.model, options)
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
        traversal::tensors_mut(&mut model, |place, proto| {
            if is_external(proto) {
                let bytes = self.initializer_of(proto)?.1.to_buffer();
                let named = |error: Error| error.with_tensor(place.qualified_name(proto));
                external_data::set_inline(proto, bytes.map_err(named)?);
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
