//! [`Container::attach_model`]: the weights of one model for another that was stripped of them.
//!
//! Weights of another model that fit by chance would make a model that computes nonsense. So what
//! the two models both have is compared: names, types and dimensions of all tensors, the elements
//! of those that were not stripped, and the digests that are stored with the stripped model.
//! Weights by name for any model, from anywhere, are left to `fill`.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::buffer::Buffer;
use crate::container::part::Share;
use crate::container::strip::is_without_elements;
use crate::container::{Container, Handle, HandleNames};
use crate::digest::{self, Compared, External, Origin, Stored};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::external_data::{self, is_external};
use crate::graph::traversal::{self, Place, Position};
use crate::proto::TensorProto;
use crate::tensor::Tensor;
use crate::tensor::initializer::{Address, Initializer};
use crate::util::did_you_mean::did_you_mean;

/// How [`Container::attach_model`] compares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttachOptions {
    edited: bool,
}

impl AttachOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the model was edited since it was stripped: tensors that it has and that differ are
    /// its own, weights that none of its tensors uses are left out, and of stored digests only
    /// those of tensors are compared. Default false.
    #[must_use]
    pub fn edited(mut self, edited: bool) -> Self {
        self.edited = edited;
        self
    }
}

/// What [`Container::attach_model`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct AttachedWeights {
    /// The number of tensors that have their elements again.
    pub attached: usize,
    /// The length of these in bytes, those of tied tensors once.
    pub bytes: u64,
    /// Tensors that both models have with different elements: the model keeps its own. Only where
    /// it was [edited](AttachOptions::edited).
    pub differing: Vec<String>,
    /// Tensors of the other model that the model does not have; as above.
    pub unused: Vec<String>,
    /// What was compared with digests that are stored with the stripped model. Without digests no
    /// weight is read.
    pub digests: Compared,
}

impl Container {
    /// Puts the elements of the tensors that were [stripped](Self::strip) back, from the model
    /// `weights`: from the tensor of the same scope and name, which has to have the same type and
    /// dimensions. Of several tensors of one name, the order counts.
    ///
    /// Compared besides: the elements of tensors that were not stripped, and that each tensor of
    /// `weights` is one of the model; where digests are stored with the stripped model, all
    /// tensors with these. Weights are shared, not copied.
    ///
    /// # Errors
    /// One error for all that do not belong together: [`ErrorKind::MissingTensor`],
    /// [`ErrorKind::DataType`], [`ErrorKind::Shape`], [`ErrorKind::WrongDigest`], and
    /// [`ErrorKind::InvalidArgument`] for elements that differ and weights that no tensor uses.
    /// [`ErrorKind::InvalidArgument`] for a model that was not stripped, and
    /// [`ErrorKind::MissingHandle`] where `weights` has no weights either. The container is then
    /// unchanged.
    pub fn attach_model(
        &mut self,
        weights: &Self,
        options: AttachOptions,
    ) -> Result<AttachedWeights> {
        self.check_nesting()?;
        weights.check_nesting()?;
        if !self.is_stripped() {
            let reason = "this model was not stripped: each of its tensors has its weights";
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let mut matching = Matching::new(weights, options);
        for (place, tensor) in traversal::iter(&self.model) {
            matching.tensor(&place, tensor);
        }
        let Matched { given, names, mut report } = matching.finish()?;
        let stored = Stored::of(&self.model);
        let mut attached = self.clone();
        attached.put_back(given)?;
        if !stored.is_empty() {
            // Where the model was edited, its own tensors and its graph may have other digests.
            let counts = |error: &Error| {
                !options.edited || error.tensor().is_some_and(|name| names.contains(name))
            };
            report.digests = compared(&attached, &stored, counts)?;
        }
        *self = attached;
        Ok(report)
    }

    /// Puts the elements at their positions.
    fn put_back(&mut self, mut given: HashMap<Position, Given>) -> Result<()> {
        let mut names = HandleNames::with(self.initializers.keys());
        names.avoid(&self.model)?;
        let mut tied: HashMap<Handle, Handle> = HashMap::new();
        let Self { model, initializers, .. } = self;
        for (place, tensor) in traversal::iter_mut(model) {
            match given.remove(&place.position) {
                Some(Given::Inline(bytes)) => external_data::set_inline(tensor, bytes),
                Some(Given::External(of, initializer)) => {
                    let handle = tied.entry(of).or_insert_with(|| names.name(&place, tensor));
                    external_data::set_handle(tensor, handle.as_str());
                    initializers.entry(handle.clone()).or_insert(initializer);
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// Compares all tensors of `container` with the digests that were `stored` with it. Only errors for
/// which `counts` holds are such.
fn compared(
    container: &Container,
    stored: &Stored,
    counts: impl Fn(&Error) -> bool,
) -> Result<Compared> {
    let external = |tensor| container.initializer_of(tensor).map(|(_, it)| External::of(it));
    let mut done = Compared::default();
    let origin = |_| Origin::default();
    let compared =
        digest::verify((&container.model, &Share::ALL), stored, external, origin, &mut done);
    let Err(error) = compared else { return Ok(done) };
    let errors: Vec<_> = error.each().filter(|error| counts(error)).cloned().collect();
    let said = "these are not the weights that were stripped";
    Error::join(errors).map_or(Ok(done), |error| Err(error.because(said)))
}

/// The elements for a tensor, as the other model has them.
enum Given {
    Inline(Buffer),
    /// The handle that the initializer has there: tensors of one handle are tied.
    External(Handle, Initializer),
}

struct Matched {
    given: HashMap<Position, Given>,
    /// The names of the tensors that have their elements again.
    names: HashSet<String>,
    report: AttachedWeights,
}

/// For how many tensors names are looked for that may have been meant.
const HINTS: usize = 3;

/// The tensors of the other model, which are matched one after the other.
struct Matching<'w> {
    weights: &'w Container,
    options: AttachOptions,
    /// By scope and name, the tensors of this name that were not matched yet, in graph order.
    left: BTreeMap<String, VecDeque<&'w TensorProto>>,
    given: HashMap<Position, Given>,
    names: HashSet<String>,
    /// How many errors had a hint at names that may have been meant: finding them takes long.
    hints: usize,
    /// Where the elements are that were given so far, or their handles.
    places: HashSet<(Address, u64)>,
    handles: HashSet<Handle>,
    report: AttachedWeights,
    errors: Errors,
}

impl<'w> Matching<'w> {
    fn new(weights: &'w Container, options: AttachOptions) -> Self {
        let mut left: BTreeMap<String, VecDeque<_>> = BTreeMap::new();
        for (place, tensor) in traversal::iter(&weights.model) {
            left.entry(place.qualified_name(tensor)).or_default().push_back(tensor);
        }
        let (given, report) = (HashMap::new(), AttachedWeights::default());
        let (names, places, handles) = (HashSet::new(), HashSet::new(), HashSet::new());
        let (hints, errors) = (0, Errors::default());
        Self { weights, options, left, given, names, hints, places, handles, report, errors }
    }

    fn tensor(&mut self, place: &Place<'_>, tensor: &TensorProto) {
        let name = place.qualified_name(tensor);
        let found = self.left.get_mut(&name).and_then(VecDeque::pop_front);
        let is_stripped = is_without_elements(tensor);
        let done = match found {
            Some(found) if is_stripped => self.give(place, tensor, found),
            Some(found) if !is_external(tensor) => self.compare(&name, tensor, found),
            Some(_) => Ok(()),
            None if is_stripped => Err(self.missing(&name)),
            None => Ok(()),
        };
        if let Err(error) = done {
            self.errors.push(error.with_tensor(name));
        }
    }

    /// Gives the elements of `found` to the stripped `tensor`.
    fn give(&mut self, place: &Place<'_>, tensor: &TensorProto, found: &TensorProto) -> Result<()> {
        let (dtype, len) = external_data::layout(tensor)?;
        let other = DataType::try_from(found.data_type.unwrap_or(0))?;
        if other != dtype {
            let reason = format!("the stripped tensor is {dtype}, the one with weights is {other}");
            return Err(Error::new(ErrorKind::DataType, reason));
        }
        if tensor.dims != found.dims {
            let (own, dims) = (&tensor.dims, &found.dims);
            let reason =
                format!("the stripped tensor is {own:?}, the one with weights is {dims:?}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        let given = match is_external(found) {
            true => {
                let (handle, initializer) = self.weights.initializer_of(found)?;
                Given::External(handle.clone(), initializer.clone())
            }
            false => {
                let bytes = Tensor::try_from(found)?.buffer().cloned();
                Given::Inline(bytes.ok_or_else(|| Error::internal("stripped strings"))?)
            }
        };
        self.report.attached += 1;
        if self.is_first(&given) {
            self.report.bytes = self.report.bytes.saturating_add(len);
        }
        self.given.insert(place.position, given);
        self.names.insert(place.qualified_name(tensor));
        Ok(())
    }

    /// Whether no tensor before has the same elements in the same place.
    fn is_first(&mut self, given: &Given) -> bool {
        match given {
            Given::Inline(_) => true,
            Given::External(handle, weight) => match weight.address() {
                Some(address) => self.places.insert((address, weight.byte_len())),
                None => self.handles.insert(handle.clone()),
            },
        }
    }

    /// Compares the elements that the model has with those of `found`.
    fn compare(&mut self, name: &str, tensor: &TensorProto, found: &TensorProto) -> Result<()> {
        let (own, other) = (Tensor::try_from(tensor)?, self.weights.resolve(found)?);
        let form = |tensor: &Tensor| (tensor.dtype(), tensor.dims().to_vec());
        if form(&own) == form(&other) && has_elements_of(&own, &other) {
            return Ok(());
        }
        if self.options.edited {
            self.report.differing.push(name.to_owned());
            return Ok(());
        }
        let reason = "was not stripped, and the model with weights has other elements there: they are of two models";
        Err(Error::new(ErrorKind::InvalidArgument, reason))
    }

    fn missing(&mut self, name: &str) -> Error {
        let left = self.left.iter().filter(|(_, tensors)| !tensors.is_empty());
        let names = left.map(|(name, _)| name.as_str());
        let reason = "was stripped, and the model with weights has no tensor of this name";
        self.hints += 1;
        let hint = (self.hints <= HINTS).then(|| did_you_mean(name, names)).flatten();
        let reason = match hint {
            Some(hint) => format!("{reason}: {hint}"),
            None => reason.to_owned(),
        };
        Error::new(ErrorKind::MissingTensor, reason)
    }

    fn finish(mut self) -> Result<Matched> {
        let unused = self.left.iter().filter(|(_, tensors)| !tensors.is_empty());
        let mut unused: Vec<_> = unused.map(|(name, _)| name.clone()).collect();
        if !self.options.edited {
            for name in std::mem::take(&mut unused) {
                let reason = "the model with weights has this tensor, the stripped model does not";
                let error = Error::new(ErrorKind::InvalidArgument, reason);
                self.errors.push(error.with_tensor(name));
            }
        }
        self.report.unused = unused;
        let Self { given, names, report, errors, .. } = self;
        errors.join().map_or(Ok(Matched { given, names, report }), Err)
    }
}

/// Whether both have the same bytes, or the same strings.
fn has_elements_of(one: &Tensor, other: &Tensor) -> bool {
    one.as_bytes() == other.as_bytes() && one.strings() == other.strings()
}
