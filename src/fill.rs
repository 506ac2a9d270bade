//! [`Container::fill`]: weights by name into a model that has only their places.
//!
//! A pipeline exports the structure of a model in one place and has the weights in another: a
//! checkpoint, a module in memory. What joins them is names, and names are where it goes wrong: a
//! prefix, a transposed matrix, a tensor that was forgotten. So every name is accounted for, and a
//! tensor is taken only when type and dimensions are the declared ones.

mod options;

use std::collections::{BTreeSet, HashMap, HashSet};

pub use options::FillOptions;

use crate::container::{Container, Handle, HandleNames};
use crate::dtype::{DataType, element_count};
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{self, ExternalData, is_external, is_handle};
use crate::find::Names;
use crate::initializer::Initializer;
use crate::proto::TensorProto;
use crate::traversal::{self, Place};

/// What [`Container::fill`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filled {
    /// The number of weights that were taken; each may stand for several tied tensors.
    pub filled: usize,
    /// Their length in bytes.
    pub bytes: u64,
    /// Weights that no tensor asks for, in the order in which they came.
    pub unused: Vec<String>,
    /// External tensors that still have no weights, in graph order; see [`FillOptions::partial`].
    pub missing: Vec<String>,
}

impl Container {
    /// Puts weights behind the external tensors of their names.
    ///
    /// A weight's name is looked up among the tensors by scope and name (`if_node.then_branch/w`), by name
    /// alone, then among the handles. Tensors of one handle, or of one range of a file that was not
    /// loaded, are filled together. Weights that were there are replaced: what is inline, the value of
    /// a `Constant` among it, is replaced inline.
    ///
    /// `UINT8` weights of the right length stand for the packed bytes of types that a weights format
    /// may not know: narrower than a byte, 8-bit floats, complex numbers.
    ///
    /// ```
    /// use ndarray::Array2;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, FillOptions};
    ///
    /// let mut graph = GraphProto::new("structure");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [4, 8], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    ///
    /// let weights = [("model.w".to_owned(), Array2::<f32>::ones((4, 8)).into())];
    /// let filled = container.fill(weights, FillOptions::new().strip_prefix("model."))?;
    /// assert_eq!((filled.filled, filled.bytes), (1, 128));
    /// container.check()?;
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// One error for all of: external tensors without weights ([`ErrorKind::MissingHandle`]),
    /// another dtype ([`ErrorKind::DataType`]), other dims, transposed ones included
    /// ([`ErrorKind::Shape`]), names that mean several tensors or that a rename has wrong
    /// ([`ErrorKind::InvalidArgument`]), and with [`FillOptions::strict`] weights left over. The
    /// container is then unchanged.
    pub fn fill(
        &mut self,
        weights: impl IntoIterator<Item = (String, Initializer)>,
        options: impl Into<FillOptions>,
    ) -> Result<Filled> {
        self.fill_with_spares(weights, [], options)
    }

    /// As [`fill`](Self::fill), with weights that nobody has to ask for: other names of some that
    /// are among `weights`.
    pub(crate) fn fill_with_spares(
        &mut self,
        weights: impl IntoIterator<Item = (String, Initializer)>,
        spares: impl IntoIterator<Item = (String, Initializer)>,
        options: impl Into<FillOptions>,
    ) -> Result<Filled> {
        let options = options.into();
        let slots = Slots::of(self)?;
        let mut filling = Filling::new(&options, slots);
        for (name, initializer) in weights {
            filling.take(name, initializer, false);
        }
        for (name, initializer) in spares {
            filling.take(name, initializer, true);
        }
        let (report, slots) = filling.finish()?;
        self.put(slots)?;
        Ok(report)
    }

    /// Puts what the slots were given into the model and behind its handles.
    fn put(&mut self, slots: Slots) -> Result<()> {
        let mut names = HandleNames::with(self.initializers.keys());
        names.avoid(&self.model)?;
        let Slots { mut slots, by_tensor, .. } = slots;
        let mut by_tensor = by_tensor.into_iter();
        let Self { model, initializers, .. } = self;
        traversal::tensors_mut(model, |place, tensor| {
            let slot = by_tensor.next().flatten().and_then(|i| slots.get_mut(i));
            if let Some(slot) = slot
                && let Some(given) = &slot.given
            {
                if slot.inline {
                    external_data::clear_payload(tensor);
                    tensor.raw_data = given.as_buffer();
                } else {
                    let handle = slot.handle.get_or_insert_with(|| names.name(place, tensor));
                    external_data::set_handle(tensor, handle.as_str());
                    initializers.insert(handle.clone(), given.clone());
                }
            }
            Ok(())
        })
    }
}

/// A place for one weight: a handle, a range of a file, or one tensor.
#[derive(Debug)]
struct Slot {
    /// The first tensor that asks for it, for messages.
    tensor: String,
    dtype: DataType,
    dims: Vec<i64>,
    /// The dimensions of other tensors on the same handle.
    other_dims: BTreeSet<Vec<i64>>,
    inline: bool,
    /// Whether there is an initializer already, or the tensor is inline.
    full: bool,
    handle: Option<Handle>,
    given: Option<Initializer>,
    /// The weight's name.
    given_as: String,
}

/// What makes tensors share a slot.
#[derive(PartialEq, Eq, Hash)]
enum Shared {
    Handle(String),
    Range { location: String, offset: u64, length: u64, dtype: DataType, dims: Vec<i64> },
}

/// The slots of a model.
#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    names: Names<usize>,
    shared: HashMap<Shared, usize>,
    /// For every tensor in graph order.
    by_tensor: Vec<Option<usize>>,
}

impl Slots {
    fn of(container: &Container) -> Result<Self> {
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
            slots.by_tensor.push(slot);
            Ok(())
        })?;
        Error::join(errors).map_or(Ok(slots), Err)
    }

    /// The slot of `tensor`; `None` for inline tensors that are no initializers.
    fn slot(
        &mut self,
        container: &Container,
        place: &Place<'_>,
        tensor: &TensorProto,
    ) -> Result<Option<usize>> {
        if !is_external(tensor) {
            let replaced = external_data::layout(tensor).is_ok();
            return replaced.then(|| self.add(place, tensor, None, true)).transpose();
        }
        // What its entries say matters only as far as it ties tensors.
        let shared = ExternalData::parse(tensor).ok().and_then(|entry| shared(entry, tensor));
        if let Some(number) = shared.as_ref().and_then(|shared| self.shared.get(shared)) {
            let slot = self.slots.get_mut(*number).filter(|slot| slot.dims != tensor.dims);
            slot.map(|slot| slot.other_dims.insert(tensor.dims.clone()));
            return Ok(Some(*number));
        }
        let handle = match &shared {
            Some(Shared::Handle(handle)) => handle.parse::<Handle>().ok(),
            _ => None,
        };
        let full = handle.as_ref().is_some_and(|h| container.initializers.contains_key(h));
        if let Some(handle) = &handle {
            self.names.add_handle(handle.name(), self.slots.len());
        }
        if let Some(shared) = shared {
            self.shared.insert(shared, self.slots.len());
        }
        self.add(place, tensor, handle, full).map(Some)
    }

    fn add(
        &mut self,
        place: &Place<'_>,
        tensor: &TensorProto,
        handle: Option<Handle>,
        full: bool,
    ) -> Result<usize> {
        let (dtype, _) = external_data::layout(tensor)?;
        self.slots.push(Slot {
            tensor: place.qualified_name(tensor),
            dtype,
            dims: tensor.dims.clone(),
            other_dims: BTreeSet::new(),
            inline: !is_external(tensor),
            full,
            handle,
            given: None,
            given_as: String::new(),
        });
        Ok(self.slots.len() - 1)
    }
}

/// Tensors of one handle share its initializer. Tensors of one range of a file are tied, but a
/// location alone says nothing: a structure-only model may have the same one everywhere.
fn shared(entry: ExternalData, tensor: &TensorProto) -> Option<Shared> {
    if is_handle(&entry.location) {
        return Some(Shared::Handle(entry.location));
    }
    let ExternalData { location, offset, length: Some(length), .. } = entry else { return None };
    let dtype = DataType::try_from(tensor.data_type?).ok()?;
    Some(Shared::Range { location, offset, length, dtype, dims: tensor.dims.clone() })
}

impl Slot {
    /// `initializer` as this slot declares it.
    fn fit(&self, initializer: Initializer) -> Result<Initializer> {
        let mut fitting = self.as_declared(initializer)?;
        // A vector stands for every shape.
        if !self.other_dims.is_empty() {
            let count = i64::try_from(element_count(&self.dims)?).unwrap_or(i64::MAX);
            fitting = fitting.retyped(self.dtype, &[count])?;
        }
        // What stays inline needs its bytes in one piece.
        if self.inline { Ok(fitting.to_tensor()?.into()) } else { Ok(fitting) }
    }

    fn as_declared(&self, initializer: Initializer) -> Result<Initializer> {
        let (dtype, dims) = (initializer.dtype(), initializer.dims());
        if dtype == DataType::Uint8 && self.dtype.may_be_bytes() {
            let wanted = self.dtype.byte_len(&self.dims)?;
            if initializer.byte_len() == wanted {
                return initializer.retyped(self.dtype, &self.dims);
            }
        }
        if dtype != self.dtype {
            let reason = format!("the weights are {dtype}, the model declares {}", self.dtype);
            return Err(Error::new(ErrorKind::DataType, reason));
        }
        if dims != self.dims && !self.other_dims.contains(dims) {
            let mut reason =
                format!("the weights are {dims:?}, the model declares {:?}", self.dims);
            if dims.len() > 1 && dims.iter().rev().eq(&self.dims) {
                reason += ": the exporter stored them transposed; transpose the weights first";
            }
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        Ok(initializer)
    }
}

/// Whether both read the same; an initializer that cannot be read equals none.
fn same_bytes(one: &Initializer, other: &Initializer) -> bool {
    const CHUNK: usize = 1 << 20;
    if (one.dtype(), one.dims()) != (other.dtype(), other.dims()) {
        return false;
    }
    let address = |initializer: &Initializer| initializer.as_buffer().map(|b| b.as_ptr().addr());
    if address(one).is_some_and(|one| Some(one) == address(other)) {
        return true;
    }
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    let len = one.byte_len();
    (0..len).step_by(CHUNK).all(|at| {
        let n = usize::try_from(len - at).map_or(CHUNK, |left| left.min(CHUNK));
        match (left.get_mut(..n), right.get_mut(..n)) {
            (Some(left), Some(right)) => {
                one.read_at(at, left).is_ok() && other.read_at(at, right).is_ok() && left == right
            }
            _ => false,
        }
    })
}

/// A fill under way.
struct Filling<'o> {
    options: &'o FillOptions,
    slots: Slots,
    report: Filled,
    /// Renames that no weights have answered.
    renames: HashSet<&'o str>,
    errors: Vec<Error>,
}

impl<'o> Filling<'o> {
    fn new(options: &'o FillOptions, slots: Slots) -> Self {
        let renames = options.renames.keys().map(String::as_str).collect();
        Self { options, slots, report: Filled::default(), renames, errors: Vec::new() }
    }

    /// Puts one weight into the slots that it is for, or notes why not.
    fn take(&mut self, name: String, initializer: Initializer, spare: bool) {
        self.renames.remove(name.as_str());
        if self.options.ignored.contains(&name) {
            return;
        }
        let bytes = initializer.byte_len();
        let (tensors, named) = self.options.tensors(&name);
        let (mut asked_for, mut filled) = (spare, false);
        for tensor in &tensors {
            match self.slots.names.find(tensor) {
                Ok(None) if !named => continue,
                Ok(None) => {
                    let reason = format!("renamed to `{tensor}`, which the model does not have");
                    self.wrong(&name, Error::new(ErrorKind::InvalidArgument, reason));
                }
                Ok(Some(slot)) => filled |= self.give(slot, &name, initializer.clone(), spare),
                Err(error) => self.wrong(&name, error),
            }
            asked_for = true;
        }
        if filled {
            self.report.filled += 1;
            self.report.bytes = self.report.bytes.saturating_add(bytes);
        }
        drop(tensors);
        if !asked_for {
            self.report.unused.push(name);
        }
    }

    /// Whether the slot took the weights called `name`, and had none.
    fn give(&mut self, slot: usize, name: &str, initializer: Initializer, spare: bool) -> bool {
        let Some(slot) = self.slots.slots.get_mut(slot) else { return false };
        match (slot.fit(initializer), &slot.given) {
            // A checkpoint may list tied weights under both names.
            (Ok(initializer), Some(given)) if same_bytes(given, &initializer) => {}
            (_, Some(_)) => {
                let (tensor, given) = (&slot.tensor, &slot.given_as);
                let reason = format!("`{tensor}` has the weights `{given}` already");
                self.wrong(name, Error::new(ErrorKind::InvalidArgument, reason));
            }
            (Ok(initializer), None) => {
                slot.given = Some(initializer);
                name.clone_into(&mut slot.given_as);
                return true;
            }
            (Err(error), None) => {
                // Not also reported as missing.
                slot.full = true;
                let error = match spare {
                    true => error
                        .because(&format!("weights `{name}`, which the metadata tie to others")),
                    // A name that is the tensor's is said once.
                    false if name == slot.tensor => error,
                    false => error.because(&format!("weights `{name}`")),
                };
                self.errors.push(error.with_tensor(slot.tensor.as_str()));
            }
        }
        false
    }

    fn wrong(&mut self, name: &str, error: Error) {
        self.errors.push(error.because(&format!("weights `{name}`")));
    }

    fn finish(mut self) -> Result<(Filled, Slots)> {
        let missing = self.slots.slots.iter().filter(|slot| !slot.full && slot.given.is_none());
        self.report.missing = missing.map(|slot| slot.tensor.clone()).collect();
        if !self.options.partial {
            self.errors.extend(self.report.missing.iter().map(|tensor| {
                let reason = "no weights of this name were given";
                Error::new(ErrorKind::MissingHandle, reason).with_tensor(tensor.as_str())
            }));
        }
        let mut renames: Vec<_> = self.renames.drain().collect();
        renames.sort_unstable();
        self.errors.extend(renames.into_iter().map(|name| {
            let reason = format!("there are no weights `{name}` to rename");
            Error::new(ErrorKind::InvalidArgument, reason)
        }));
        if self.options.strict {
            self.errors.extend(self.report.unused.iter().map(|name| {
                let reason = format!("weights `{name}`: no such tensor");
                Error::new(ErrorKind::InvalidArgument, reason)
            }));
        }
        match Error::join(self.errors) {
            Some(error) => Err(error),
            None => Ok((self.report, self.slots)),
        }
    }
}
