//! The weights of a model: every external tensor, resolved once.
//!
//! One walk over the model holds each external tensor against its initializer, which is the check that
//! every save begins with, and notes what the steps after it need: which initializers are in use, which
//! tensors show them, and where their bytes lie in memory, so that shared bytes are known. From here on
//! a weight is a number, and nobody looks up a handle again. An external tensor that names a file was
//! not loaded: it can stay as it is.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use crate::container::{Container, Handle};
use crate::error::{Error, Result};
use crate::external_data::{self, ExternalData, check_location, is_external, is_handle};
use crate::initializer::{Address, Initializer};
use crate::proto::{ModelProto, TensorProto};
use crate::traversal::{self, Place, Position, Site};

/// The external tensors of a model, and the initializers behind them.
pub(crate) struct Weights<'c> {
    /// The initializers that tensors refer to, each once, in the graph order of their first tensor. A
    /// weight's number is its index here.
    pub(crate) used: Vec<Weight<'c>>,
    /// The tensors that refer to them, in graph order.
    pub(crate) tensors: Vec<WeightTensor>,
    /// The data files of tensors that were not loaded, without `.` components.
    pub(crate) not_loaded: BTreeSet<String>,
    container: &'c Container,
}

/// An initializer in use.
#[derive(Clone, Copy)]
pub(crate) struct Weight<'c> {
    pub(crate) handle: &'c Handle,
    pub(crate) initializer: &'c Initializer,
    /// In bytes.
    pub(crate) len: u64,
    /// Where its bytes are, when that can be told.
    pub(crate) address: Option<Address>,
}

/// A tensor of the model that refers to a weight.
pub(crate) struct WeightTensor {
    pub(crate) position: Position,
    /// The address of the message, which tells it from all others while it is encoded.
    pub(crate) address: usize,
    /// The message without values and without external entries.
    pub(crate) header: TensorProto,
    /// The number of its weight.
    pub(crate) weight: usize,
    /// Whether it is inline in the model as written.
    pub(crate) inline: bool,
    /// Whether onnxruntime takes its data from memory: that of a main-graph initializer or Constant. In
    /// subgraphs, functions and sparse tensors it looks for files.
    pub(crate) from_memory: bool,
}

/// What becomes of external tensors that name a file, because they were not loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotLoaded {
    /// They stay as they are.
    Stay,
    /// They are an error: the bytes are needed.
    Refuse,
}

impl<'c> Weights<'c> {
    /// Resolves the external tensors of `model` among the initializers of `container`.
    pub(crate) fn resolve(
        container: &'c Container,
        model: &ModelProto,
        not_loaded: NotLoaded,
    ) -> Result<Self> {
        let (used, tensors, files) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut weights = Self { used, tensors, not_loaded: files, container };
        let (mut numbers, mut errors) = (HashMap::new(), Vec::new());
        traversal::tensors(model, |place, tensor| {
            if is_external(tensor)
                && let Err(error) = weights.add(place, tensor, not_loaded, &mut numbers)
            {
                errors.push(error.with_tensor(place.qualified_name(tensor)));
            }
            Ok(())
        })?;
        Error::join(errors).map_or(Ok(weights), Err)
    }

    fn add(
        &mut self,
        place: &Place<'_>,
        tensor: &TensorProto,
        not_loaded: NotLoaded,
        numbers: &mut HashMap<&'c Handle, usize>,
    ) -> Result<()> {
        let entry = ExternalData::parse(tensor)?;
        if not_loaded == NotLoaded::Stay && !is_handle(&entry.location) {
            return self.add_not_loaded(&entry, tensor);
        }
        let (handle, initializer) = self.container.initializer_at(&entry, tensor)?;
        let weight = *numbers.entry(handle).or_insert_with(|| {
            self.used.push(Weight::new(handle, initializer));
            self.used.len() - 1
        });
        let mut header = tensor.clone();
        external_data::clear_payload(&mut header);
        self.tensors.push(WeightTensor {
            position: place.position,
            address: std::ptr::from_ref(tensor).addr(),
            header,
            weight,
            inline: false,
            from_memory: place.scope.is_main()
                && (place.site == Site::Initializer || place.is_constant()),
        });
        Ok(())
    }

    /// Holds what the tensor says of its file against the rules that a load has.
    fn add_not_loaded(&mut self, entry: &ExternalData, tensor: &TensorProto) -> Result<()> {
        check_location(&entry.location)?;
        let (_, len) = external_data::layout(tensor)?;
        entry.range(len)?;
        self.not_loaded.insert(external_data::without_dots(&entry.location));
        Ok(())
    }

    /// Leaves every tensor inline for which `inline` holds.
    pub(crate) fn make_inline(&mut self, inline: impl Fn(&WeightTensor) -> bool) {
        for tensor in &mut self.tensors {
            tensor.inline = tensor.inline || inline(tensor);
        }
    }

    /// For every weight, whether a tensor refers to it that is not inline.
    pub(crate) fn are_external(&self) -> Result<Vec<bool>> {
        let mut external = vec![false; self.used.len()];
        for tensor in self.tensors.iter().filter(|tensor| !tensor.inline) {
            *external.get_mut(tensor.weight).ok_or_else(no_weight)? = true;
        }
        Ok(external)
    }

    /// The large initializers that no tensor refers to.
    pub(crate) fn unused(&self) -> Vec<Handle> {
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

/// That a number is not one of a weight.
pub(crate) fn no_weight() -> Error {
    Error::internal("a tensor refers to a weight that was not resolved")
}

/// Where a tensor without elements lies: onnxruntime reads no bytes only at the start of a file.
pub(crate) const NO_BYTES: Range<u64> = 0..0;
