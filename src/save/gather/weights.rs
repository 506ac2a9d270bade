//! The weights of a model: every external tensor, resolved once.
//!
//! One walk over the model checks each external tensor against its initializer, as every save must,
//! and records what the later steps need: which initializers are in use, which tensors refer to
//! them, and where their bytes are in memory, so that shared bytes are known. After this walk a
//! weight is a number, and handles are not looked up again. An external tensor that names a file
//! was not loaded; it can be written unchanged.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use crate::container::reader_limits::Refusals;
use crate::container::{Container, Handle};
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::external_data::{
    self, ExternalData, check_location, is_external, is_handle, is_stripped,
};
use crate::graph::traversal::{self, Place, Position, Site};
use crate::proto::{ModelProto, TensorProto};
use crate::tensor::initializer::{Address, Initializer};

/// The external tensors of a model and their initializers.
pub(crate) struct GatheredWeights<'c> {
    /// The initializers that tensors refer to, each once, in the graph order of their first tensor.
    /// A weight's number is its index here.
    pub(crate) used: Vec<Weight<'c>>,
    /// The tensors that refer to them, in graph order.
    pub(crate) tensors: Vec<WeightTensor>,
    /// The data files of tensors that were not loaded, without `.` components.
    pub(crate) not_loaded: BTreeSet<String>,
    /// The tensors that were not loaded, if a reader may refuse them.
    refusable: Vec<Position>,
    container: &'c Container,
    /// Tensors that are inline in the model and behind a handle in what is written.
    moved: &'c HashMap<Position, Handle>,
}

/// An initializer in use.
#[derive(Clone, Copy)]
pub(crate) struct Weight<'c> {
    pub(crate) handle: &'c Handle,
    pub(crate) initializer: &'c Initializer,
    /// In bytes.
    pub(crate) len: u64,
    /// Where its bytes are in memory, when that is known.
    pub(crate) address: Option<Address>,
}

/// A tensor of the model that refers to a weight.
pub(crate) struct WeightTensor {
    pub(crate) position: Position,
    /// The address of the message, which identifies it while the model is encoded.
    pub(crate) address: usize,
    /// The number of its weight.
    pub(crate) weight: usize,
    /// Whether it is inline in the model as written.
    pub(crate) inline: bool,
    /// Whether a reader may refuse it when it is external.
    refusable: bool,
    /// Whether onnxruntime accepts its data from memory: it does for initializers and Constants of
    /// the main graph. In subgraphs, functions and sparse tensors it opens files.
    pub(crate) from_memory: bool,
}

/// The numbers of the weights so far, by the addresses of their handles in the container.
type Numbers = foldhash::HashMap<usize, usize>;

/// What happens to external tensors that name a file because they were not loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotLoaded {
    /// They are written unchanged.
    Stay,
    /// They are an error: the bytes are needed.
    Refuse,
}

impl<'c> GatheredWeights<'c> {
    /// Resolves the external tensors of `model` among the initializers of `container`, and with
    /// them the inline tensors that are written behind a handle, `moved`.
    pub(crate) fn resolve(
        container: &'c Container,
        model: &ModelProto,
        moved: &'c HashMap<Position, Handle>,
        not_loaded: NotLoaded,
    ) -> Result<Self> {
        let (used, tensors, files) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut weights =
            Self { used, tensors, not_loaded: files, refusable: Vec::new(), container, moved };
        let (mut numbers, mut errors) = (Numbers::default(), Errors::default());
        traversal::tensors(model, |place, tensor| {
            if let Err(error) = weights.resolve_one(place, tensor, not_loaded, &mut numbers) {
                errors.push(error.with_tensor(place.qualified_name(tensor)));
            }
            Ok(())
        })?;
        errors.join().map_or(Ok(weights), Err)
    }

    fn resolve_one(
        &mut self,
        place: &Place<'_>,
        tensor: &TensorProto,
        not_loaded: NotLoaded,
        numbers: &mut Numbers,
    ) -> Result<()> {
        if let Some(handle) = self.moved.get(&place.position) {
            let found = self.container.initializers.get_key_value(handle);
            let found = found.ok_or_else(|| Error::internal("a moved tensor has no elements"));
            return found.map(|weight| self.add(place, tensor, weight, numbers));
        }
        if !is_external(tensor) {
            return Ok(());
        }
        let entry = ExternalData::parse(tensor)?;
        if not_loaded == NotLoaded::Stay && !is_handle(&entry.location) {
            return self.add_not_loaded(&entry, place, tensor);
        }
        let weight = self.container.initializer_at(&entry, tensor)?;
        self.add(place, tensor, weight, numbers);
        Ok(())
    }

    fn add(
        &mut self,
        place: &Place<'_>,
        tensor: &TensorProto,
        (handle, initializer): (&'c Handle, &'c Initializer),
        numbers: &mut Numbers,
    ) {
        let weight = *numbers.entry(std::ptr::from_ref(handle).addr()).or_insert_with(|| {
            self.used.push(Weight::new(handle, initializer));
            self.used.len() - 1
        });
        self.tensors.push(WeightTensor {
            position: place.position,
            address: std::ptr::from_ref(tensor).addr(),
            weight,
            inline: false,
            refusable: Refusals::are_possible(place, tensor),
            from_memory: place.scope.is_main()
                && (place.site == Site::Initializer || place.is_constant()),
        });
    }

    /// Checks the tensor's external entries by the rules of a load.
    fn add_not_loaded(
        &mut self,
        entry: &ExternalData,
        place: &Place<'_>,
        tensor: &TensorProto,
    ) -> Result<()> {
        check_location(&entry.location)?;
        let (_, len) = external_data::layout(tensor)?;
        entry.range(len)?;
        if is_stripped(&entry.location) {
            return Ok(());
        }
        self.not_loaded.insert(external_data::without_dots(&entry.location));
        if Refusals::are_possible(place, tensor) {
            self.refusable.push(place.position);
        }
        Ok(())
    }

    /// Makes every tensor inline for which `inline` holds.
    pub(crate) fn make_inline(&mut self, inline: impl Fn(&WeightTensor) -> bool) {
        for tensor in &mut self.tensors {
            tensor.inline = tensor.inline || inline(tensor);
        }
    }

    /// For every weight, whether at least one tensor that refers to it is external.
    pub(crate) fn are_external(&self) -> Result<Vec<bool>> {
        let mut external = vec![false; self.used.len()];
        for tensor in self.tensors.iter().filter(|tensor| !tensor.inline) {
            *external.get_mut(tensor.weight).ok_or_else(no_weight)? = true;
        }
        Ok(external)
    }

    /// The tensors that a reader may refuse because they are external. The weights for which
    /// `in_model` holds are in the model.
    pub(crate) fn refusable(&self, in_model: impl Fn(usize) -> bool) -> HashSet<Position> {
        let external = |tensor: &&WeightTensor| !tensor.inline && !in_model(tensor.weight);
        let refusable = self.tensors.iter().filter(|tensor| tensor.refusable).filter(external);
        refusable.map(|tensor| tensor.position).chain(self.refusable.iter().copied()).collect()
    }

    /// Refuses weights that have no bytes to be written: one error for all of them.
    pub(crate) fn refuse_declared(&self) -> Result<()> {
        let declared = self.used.iter().filter(|weight| weight.initializer.is_declared());
        let errors = declared.map(|weight| {
            let reason = "the weight is only declared: put its elements into the container first";
            Error::new(ErrorKind::MissingHandle, reason).with_tensor(weight.handle.name())
        });
        Error::join(errors).map_or(Ok(()), Err)
    }

    /// The large initializers that no tensor refers to.
    pub(crate) fn unused(&self) -> Vec<Handle> {
        if self.used.len() == self.container.len() {
            return Vec::new();
        }
        let used: HashSet<_> = self.used.iter().map(|used| used.handle).collect();
        let all = self.container.iter().map(|(handle, _)| handle);
        all.filter(|handle| !used.contains(handle)).cloned().collect()
    }
}

impl<'c> Weight<'c> {
    fn new(handle: &'c Handle, initializer: &'c Initializer) -> Self {
        let (len, address) = (initializer.byte_len(), initializer.address());
        Self { handle, initializer, len, address }
    }
}

/// The error of a number that belongs to no weight.
pub(crate) fn no_weight() -> Error {
    Error::internal("a tensor refers to a weight that was not resolved")
}

/// The error of a weight that has fewer bytes than when the save was planned.
pub(crate) fn became_shorter() -> Error {
    Error::new(ErrorKind::OutOfBounds, "an initializer became shorter while it was saved")
}

/// The range of a tensor without elements: onnxruntime accepts an empty range only at offset 0.
pub(crate) const NO_BYTES: Range<u64> = 0..0;
