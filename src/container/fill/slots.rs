//! The slots of a model that weights are put into, one for each tensor, and which of them share
//! bytes.
//!
//! Tensors of one handle share its initializer, and tensors of one byte range of a file share these
//! bytes, whatever types and dimensions they have. Matching weights with names is left to `fill`;
//! what weights for one of several tensors do to the others is decided in `ties`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::container::fill::slot::WeightSlot;
use crate::container::lookup::Names;
use crate::container::{Container, Handle};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::external_data::{self, ExternalData, is_external, is_handle, without_dots};
use crate::graph::traversal::{self, Place, Position};
use crate::proto::TensorProto;
use crate::tensor::initializer::Initializer;
use crate::wire::Str;

/// A byte range of a file that was not loaded. A load ties the tensors of one range.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Range {
    /// Without `.` components.
    pub(super) location: String,
    offset: u64,
    len: u64,
}

/// The slots of one handle or range.
#[derive(Debug, Default)]
pub(super) struct Tie {
    /// In graph order.
    pub(super) slots: Vec<usize>,
    /// Whether one of the tensors has an `offset` or `length` entry, or a handle. If none has, the
    /// location may be a placeholder that many tensors of a structure share.
    pub(super) explicit: bool,
    /// Of a handle: the dimensions of its tensors.
    dims: BTreeSet<Vec<i64>>,
}

/// Tensors with the same value are one thing.
#[derive(PartialEq, Eq, Hash)]
enum Thing {
    Handle(String),
    /// A range with a type and shape.
    Range(Range, DataType, Vec<i64>),
}

/// The slots of a model.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<WeightSlot>,
    names: Names<'static, usize>,
    /// The first slot of each thing.
    things: HashMap<Thing, usize>,
    pub(super) ranges: BTreeMap<Range, Tie>,
    /// By the first slot.
    pub(super) handles: BTreeMap<usize, Tie>,
    /// The number of the slot of every tensor in graph order.
    by_position: Vec<Option<usize>>,
    /// For a slot that has the bytes, type and handle of another one: the number of that one.
    stands_for: HashMap<usize, usize>,
}

impl Slots {
    pub(super) fn of(container: &Container) -> Result<Self> {
        let mut slots = Self::default();
        let mut errors = Errors::default();
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
        errors.join().map_or(Ok(slots), Err)
    }

    /// The slot of `tensor`; `None` for inline tensors whose elements have no fixed width.
    fn slot(
        &mut self,
        container: &Container,
        place: &Place<'_>,
        tensor: &TensorProto,
    ) -> Result<Option<usize>> {
        if !is_external(tensor) && external_data::layout(tensor).is_err() {
            return Ok(None);
        }
        let slot = WeightSlot::new(place, tensor, self.slots.len())?;
        let inline = slot.inline;
        // The entries matter here only because they tie tensors, so faulty ones are not an error.
        let number = match ExternalData::parse(tensor) {
            _ if inline => self.add(slot),
            Ok(entry) if is_handle(&entry.location) => {
                self.of_handle(container, entry.location, slot)?
            }
            Ok(entry) => self.of_range(entry, has_offset(tensor), slot)?,
            Err(_) => self.add(slot),
        };
        Ok(Some(number))
    }

    fn of_handle(
        &mut self,
        container: &Container,
        location: String,
        mut slot: WeightSlot,
    ) -> Result<usize> {
        let thing = *self.things.entry(Thing::Handle(location.clone())).or_insert(slot.thing);
        if let Some(first) = self.slots.get(thing) {
            first.may_share(&slot)?;
        }
        let handle = location.parse::<Handle>().ok();
        slot.full = handle.as_ref().is_some_and(|h| container.initializers.contains_key(h));
        slot.thing = thing;
        slot.handle.clone_from(&handle);
        let tie = self.handles.entry(thing).or_default();
        tie.slots.push(self.slots.len());
        tie.explicit = true;
        if !tie.dims.contains(&slot.dims) {
            tie.dims.insert(slot.dims.clone());
        }
        let number = self.add(slot);
        if let Some(handle) = handle {
            self.names.add_handle(handle.name().to_owned(), number);
        }
        Ok(number)
    }

    fn of_range(
        &mut self,
        entry: ExternalData,
        offset: bool,
        mut slot: WeightSlot,
    ) -> Result<usize> {
        let explicit = entry.length.is_some() || offset;
        let range = Range {
            location: without_dots(&entry.location),
            offset: entry.offset,
            len: slot.byte_len()?,
        };
        if explicit {
            let thing = Thing::Range(range.clone(), slot.dtype, slot.dims.clone());
            slot.thing = *self.things.entry(thing).or_insert(slot.thing);
        }
        let number = self.add(slot);
        let tie = self.ranges.entry(range).or_default();
        tie.slots.push(number);
        tie.explicit |= explicit;
        Ok(number)
    }

    fn add(&mut self, slot: WeightSlot) -> usize {
        self.slots.push(slot);
        self.slots.len() - 1
    }

    /// The slots that `name` means, which are one thing; none where nothing has that name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when it means several things.
    pub(super) fn find(&self, name: &str) -> Result<Vec<usize>> {
        let found = self.names.meanings(name);
        let things = found.iter().filter_map(|slot| Some(self.slots.get(*slot)?.thing));
        let mut things: Vec<_> = things.collect();
        things.sort_unstable();
        things.dedup();
        if things.len() > 1 {
            let reason = format!("`{name}` is the name of {} tensors", things.len());
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        Ok(found.to_vec())
    }

    pub(super) fn get(&self, number: usize) -> Option<&WeightSlot> {
        self.slots.get(number)
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut WeightSlot> {
        self.slots.get_mut(number)
    }

    /// `initializer` as the slot `number` declares it; weights for a handle may have the dimensions
    /// of any of its tensors.
    pub(super) fn fit(&self, number: usize, initializer: Initializer) -> Result<Initializer> {
        let slot = self.get(number).ok_or_else(no_slot)?;
        let none = BTreeSet::new();
        let others = self.handles.get(&slot.thing).map_or(&none, |tie| &tie.dims);
        slot.fit(initializer, others)
    }

    /// The slot of the tensor at `position`.
    pub(super) fn at(&self, position: Position) -> Option<&WeightSlot> {
        self.slots.get((*self.by_position.get(position.index())?)?)
    }

    /// The slot that the tensor at `position` gets its weights from.
    pub(super) fn at_mut(&mut self, position: Position) -> Option<&mut WeightSlot> {
        let number = (*self.by_position.get(position.index())?)?;
        self.slots.get_mut(*self.stands_for.get(&number).unwrap_or(&number))
    }

    /// Makes the slot `one` get the weights and the handle of the slot `leader`.
    pub(super) fn stand_for(&mut self, one: usize, leader: usize) {
        self.stands_for.insert(one, leader);
    }

    /// The slot whose weights the slot `number` gets.
    pub(super) fn leader(&self, number: usize) -> usize {
        *self.stands_for.get(&number).unwrap_or(&number)
    }

    /// The names of the external tensors that keep the weights that they had.
    pub(super) fn own(&self) -> impl Iterator<Item = &str> {
        let own = self.slots.iter().filter(|slot| slot.full && !slot.inline && !slot.answered());
        own.map(|slot| slot.tensor.as_str())
    }

    /// The names of the tensors that had no weights and got none.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        let missing = self.slots.iter().filter(|slot| !slot.full && !slot.answered());
        missing.map(|slot| slot.tensor.as_str())
    }
}

/// Whether the external `tensor` has an `offset` entry.
fn has_offset(tensor: &TensorProto) -> bool {
    let is_offset = |key: &Str| *key == "offset";
    tensor.external_data.iter().any(|entry| entry.key.as_ref().is_some_and(is_offset))
}

pub(super) fn no_slot() -> Error {
    Error::internal("a slot is missing")
}
