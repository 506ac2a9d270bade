//! The slots of a model that weights are put into, and which of them are tied.
//!
//! Tensors of one handle share its initializer, and tensors of one byte range of a file share these
//! bytes, whatever types and dimensions they have. A location without offset and length ties them too,
//! unless lengths or weights show that it is a placeholder. Matching weights with names is left to `fill`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::container::{Container, Handle};
use crate::dtype::{DataType, element_count};
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{self, ExternalData, is_external, is_handle, without_dots};
use crate::find::Names;
use crate::initializer::Initializer;
use crate::proto::TensorProto;
use crate::traversal::{self, Place, Position};
use crate::wire::Str;

/// A slot for one weight: a handle, a type and shape on a range of a file, or a single tensor.
#[derive(Debug)]
pub(super) struct Slot {
    /// The name of the slot's first tensor, for messages.
    pub(super) tensor: String,
    dtype: DataType,
    dims: Vec<i64>,
    /// The dimensions of other tensors on the same handle.
    other_dims: BTreeSet<Vec<i64>>,
    pub(super) inline: bool,
    /// Whether there is an initializer already, or the tensor is inline.
    full: bool,
    /// Whether weights were given that do not fit.
    pub(super) refused: bool,
    pub(super) handle: Option<Handle>,
    pub(super) given: Option<Initializer>,
    /// The weight's name.
    pub(super) given_as: String,
    /// The tensor that the weights were given for, one of those that share this slot.
    pub(super) given_for: String,
}

/// A byte range of a file that was not loaded. A load ties the tensors of one range.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Range {
    /// Without `.` components.
    location: String,
    offset: u64,
    len: u64,
}

/// The slots on one range.
#[derive(Debug, Default)]
struct Tie {
    /// In graph order.
    slots: Vec<usize>,
    /// Whether one of the tensors has an `offset` or `length` entry. If none has, the location may
    /// be a placeholder that many tensors of a structure share.
    explicit: bool,
}

/// Tensors with the same value share a slot.
#[derive(PartialEq, Eq, Hash)]
enum Shared {
    Handle(String),
    /// A range with a type and shape.
    Range(Range, DataType, Vec<i64>),
}

/// The slots of a model.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    pub(super) names: Names<'static, usize>,
    shared: HashMap<Shared, usize>,
    ties: BTreeMap<Range, Tie>,
    /// The index of the slot of every tensor in graph order.
    by_position: Vec<Option<usize>>,
    /// For a slot that is represented by another one of the same type, shape and bytes, the index of
    /// that one.
    stands_for: HashMap<usize, usize>,
}

impl Slots {
    pub(super) fn of(container: &Container) -> Result<Self> {
        let mut slots = Self::default();
        let mut errors = Vec::new();
        traversal::tensors(&container.model, |place, tensor| {
            let slot = slots.slot(container, place, tensor).unwrap_or_else(|error| {
                errors.push(error.with_tensor(place.qualified_name(tensor)));
                None
            });
            if let Some(slot) = slot {
                slots.names.add(place, tensor, slot);
            }
            slots.by_position.push(slot);
            Ok(())
        })?;
        Error::join(errors).map_or(Ok(slots), Err)
    }

    /// The slot of `tensor`; `None` for inline tensors whose elements have no fixed width.
    fn slot(
        &mut self,
        container: &Container,
        place: &Place<'_>,
        tensor: &TensorProto,
    ) -> Result<Option<usize>> {
        if !is_external(tensor) {
            let replaced = external_data::layout(tensor).is_ok();
            return replaced.then(|| self.add(place, tensor)).transpose();
        }
        // The entries matter here only because they tie tensors, so faulty ones are not an error.
        match ExternalData::parse(tensor) {
            Ok(entry) if is_handle(&entry.location) => {
                self.of_handle(container, entry.location, place, tensor).map(Some)
            }
            Ok(entry) => self.of_range(entry, place, tensor).map(Some),
            Err(_) => self.add(place, tensor).map(Some),
        }
    }

    fn of_handle(
        &mut self,
        container: &Container,
        location: String,
        place: &Place<'_>,
        tensor: &TensorProto,
    ) -> Result<usize> {
        let handle = location.parse::<Handle>().ok();
        let shared = Shared::Handle(location);
        if let Some(number) = self.shared.get(&shared) {
            self.slots.get_mut(*number).map_or(Ok(()), |slot| slot.share(tensor))?;
            return Ok(*number);
        }
        let number = self.add(place, tensor)?;
        if let Some(handle) = &handle {
            self.names.add_handle(handle.name().to_owned(), number);
        }
        if let Some(slot) = self.slots.get_mut(number) {
            slot.full = handle.as_ref().is_some_and(|h| container.initializers.contains_key(h));
            slot.handle = handle;
        }
        self.shared.insert(shared, number);
        Ok(number)
    }

    fn of_range(
        &mut self,
        entry: ExternalData,
        place: &Place<'_>,
        tensor: &TensorProto,
    ) -> Result<usize> {
        let (dtype, len) = external_data::layout(tensor)?;
        let explicit = entry.length.is_some() || has_offset(tensor);
        let (location, offset) = (without_dots(&entry.location), entry.offset);
        let range = Range { location, offset, len };
        let shared = Shared::Range(range.clone(), dtype, tensor.dims.clone());
        if let Some(number) = self.shared.get(&shared).filter(|_| explicit) {
            return Ok(*number);
        }
        let number = self.add(place, tensor)?;
        let tie = self.ties.entry(range).or_default();
        tie.slots.push(number);
        tie.explicit |= explicit;
        if explicit {
            self.shared.insert(shared, number);
        }
        Ok(number)
    }

    fn add(&mut self, place: &Place<'_>, tensor: &TensorProto) -> Result<usize> {
        let (dtype, _) = external_data::layout(tensor)?;
        let inline = !is_external(tensor);
        self.slots.push(Slot {
            tensor: place.qualified_name(tensor),
            dtype,
            dims: tensor.dims.clone(),
            other_dims: BTreeSet::new(),
            inline,
            full: inline,
            refused: false,
            handle: None,
            given: None,
            given_as: String::new(),
            given_for: String::new(),
        });
        Ok(self.slots.len() - 1)
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut Slot> {
        self.slots.get_mut(number)
    }

    /// The slot of the tensor at `position`.
    pub(super) fn at(&self, position: Position) -> Option<&Slot> {
        self.slots.get((*self.by_position.get(position.index())?)?)
    }

    /// The slot that the tensor at `position` gets its weights from.
    pub(super) fn at_mut(&mut self, position: Position) -> Option<&mut Slot> {
        let number = (*self.by_position.get(position.index())?)?;
        self.slots.get_mut(*self.stands_for.get(&number).unwrap_or(&number))
    }

    /// The names of the tensors that had no weights and got none.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        let missing = self.slots.iter().filter(|slot| !slot.full && !slot.answered());
        missing.map(|slot| slot.tensor.as_str())
    }

    /// Copies the weights of a slot to the others on the same range of a file; returns an error for
    /// each slot that got different weights.
    pub(super) fn tie(&mut self) -> Vec<Error> {
        let ties = std::mem::take(&mut self.ties);
        let mut lengths: HashMap<&str, usize> = HashMap::new();
        for (range, _) in ties.iter().filter(|(_, tie)| !tie.explicit) {
            *lengths.entry(&range.location).or_default() += 1;
        }
        // Tensors of several lengths cannot all begin at the first byte of one file, so a location
        // that they share is a placeholder.
        let is_placeholder =
            |range: &Range| lengths.get(range.location.as_str()).is_some_and(|count| *count > 1);
        let meant = ties.iter().filter(|(range, tie)| tie.explicit || !is_placeholder(range));
        meant.flat_map(|(_, tie)| self.tie_together(tie)).collect()
    }

    fn tie_together(&mut self, tie: &Tie) -> Vec<Error> {
        let is_given = |slot: &usize| self.slots.get(*slot).is_some_and(|s| s.given.is_some());
        let (given, others): (Vec<usize>, Vec<usize>) =
            tie.slots.iter().copied().partition(is_given);
        let Some(first) = given.first().copied() else { return Vec::new() };
        let differing = given.into_iter().filter_map(|other| self.differ(first, other));
        let mut errors: Vec<_> = differing.collect();
        if !errors.is_empty() && !tie.explicit {
            // The weights show that the location was a placeholder.
            return Vec::new();
        }
        errors.extend(others.into_iter().filter_map(|other| self.copy(first, other).err()));
        errors
    }

    /// Copies the weights of the slot `from` to the slot `to`, which got none.
    fn copy(&mut self, from: usize, to: usize) -> Result<()> {
        let source = self.slots.get(from).and_then(|slot| Some((slot, slot.given.as_ref()?)));
        let Some((source, given)) = source else { return Ok(()) };
        let Some(target) = self.slots.get(to) else { return Ok(()) };
        let is_equal = (source.dtype, &source.dims) == (target.dtype, &target.dims);
        let copy =
            if is_equal { given.clone() } else { given.retyped(target.dtype, &target.dims)? };
        let (name, tensor) = (source.given_as.clone(), source.given_for.clone());
        if is_equal {
            self.stands_for.insert(to, from);
        }
        if let Some(target) = self.slots.get_mut(to) {
            (target.given, target.given_as, target.given_for) = (Some(copy), name, tensor);
        }
        Ok(())
    }

    /// The error when both slots were given weights that differ.
    fn differ(&self, one: usize, other: usize) -> Option<Error> {
        let (one, other) = (self.slots.get(one)?, self.slots.get(other)?);
        if same_bytes(one.given.as_ref()?, other.given.as_ref()?) {
            return None;
        }
        Some(one.differs(&other.given_for, &other.given_as))
    }
}

/// Whether the external `tensor` has an `offset` entry.
fn has_offset(tensor: &TensorProto) -> bool {
    let is_offset = |key: &Str| *key == "offset";
    tensor.external_data.iter().any(|entry| entry.key.as_ref().is_some_and(is_offset))
}

impl Slot {
    /// Whether weights were given for this slot, whether they fit or not.
    pub(super) fn answered(&self) -> bool {
        self.given.is_some() || self.refused
    }

    /// Adds another `tensor` on the same handle, which has to have the same type and length.
    fn share(&mut self, tensor: &TensorProto) -> Result<()> {
        let (dtype, len) = external_data::layout(tensor)?;
        let this = self.dtype.byte_len(&self.dims)?;
        if dtype != self.dtype {
            let reason = format!(
                "declared {dtype}, and `{}` on the same handle {}",
                self.tensor, self.dtype
            );
            return Err(Error::new(ErrorKind::DataType, reason));
        }
        if len != this {
            let reason =
                format!("needs {len} bytes, and `{}` on the same handle {this}", self.tensor);
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        if self.dims != tensor.dims {
            self.other_dims.insert(tensor.dims.clone());
        }
        Ok(())
    }

    /// `initializer` with the type and dimensions that this slot declares.
    pub(super) fn fit(&self, initializer: Initializer) -> Result<Initializer> {
        let declared = self.as_declared(initializer)?;
        // A one-dimensional initializer fits every shape.
        let fitting = if self.other_dims.is_empty() {
            declared
        } else {
            let count = i64::try_from(element_count(&self.dims)?);
            let count = count.map_err(|_| Error::internal("more elements than bytes"))?;
            declared.retyped(self.dtype, &[count])?
        };
        // An inline tensor needs its bytes in one piece.
        if self.inline { Ok(fitting.to_tensor()?.into()) } else { Ok(fitting) }
    }

    fn as_declared(&self, initializer: Initializer) -> Result<Initializer> {
        let (dtype, dims) = (initializer.dtype(), initializer.dims());
        if dtype == DataType::Uint8 && self.dtype.may_be_bytes() {
            let has_length = initializer.byte_len() == self.dtype.byte_len(&self.dims)?;
            if has_length && self.all_dims().any(|declared| self.dtype.fits_bytes(declared, dims)) {
                return initializer.retyped(self.dtype, &self.dims);
            }
        }
        if dtype != self.dtype {
            let mut reason = format!("the weights are {dtype}, the model declares {}", self.dtype);
            if dtype == DataType::Uint8 && self.dtype.may_be_bytes() {
                reason = format!(
                    "the weights are {dtype} {dims:?}, the model declares {} {:?}, whose bytes have \
                     one dimension, or these with the last one in bytes",
                    self.dtype, self.dims
                );
            }
            return Err(Error::new(ErrorKind::DataType, reason));
        }
        if self.all_dims().all(|declared| dims != declared) {
            let mut reason =
                format!("the weights are {dims:?}, the model declares {:?}", self.dims);
            if dims.len() > 1 && dims.iter().rev().eq(&self.dims) {
                reason += ": the exporter stored them transposed; transpose the weights first";
            }
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        Ok(initializer)
    }

    /// The error for weights called `given` that differ from the weights of this slot: for the same
    /// tensor, or for a `tensor` that is tied to it.
    pub(super) fn differs(&self, tensor: &str, given: &str) -> Error {
        let Self { given_as, given_for, .. } = self;
        let reason = if tensor == given_for {
            format!("two weights are given for it, `{given_as}` and `{given}`, and they differ")
        } else {
            format!(
                "tied to `{given_for}` in the model (both have the same bytes), but the weights \
                 `{given}` differ from the weights `{given_as}`"
            )
        };
        Error::new(ErrorKind::InvalidArgument, reason).with_tensor(tensor)
    }

    /// The dimensions of every tensor of this slot.
    fn all_dims(&self) -> impl Iterator<Item = &[i64]> {
        std::iter::once(&self.dims).chain(&self.other_dims).map(Vec::as_slice)
    }
}

/// Whether both have the same bytes; an initializer that cannot be read equals no other.
pub(super) fn same_bytes(one: &Initializer, other: &Initializer) -> bool {
    const CHUNK: u64 = 1 << 20;
    let len = one.byte_len();
    if len != other.byte_len() {
        return false;
    }
    if one.address().is_some_and(|address| Some(address) == other.address()) {
        return true;
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < len {
        let Ok(n) = usize::try_from(CHUNK.min(len - at)) else { return false };
        left.resize(n, 0);
        right.resize(n, 0);
        let read = one.read_at(at, &mut left).and_then(|()| other.read_at(at, &mut right)).is_ok();
        if !read || left != right {
            return false;
        }
        at += CHUNK;
    }
    true
}
