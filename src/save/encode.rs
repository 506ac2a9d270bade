//! The model as written: the container's graph, with the new places of its weights as an overlay.
//!
//! A save changes a few entries of a graph that can have hundreds of thousands of nodes. So the
//! graph is not cloned: while it is encoded, each external tensor is written as `new_tensor` has
//! it. The whole message is built only by [`WrittenModel::to_message`].

pub(in crate::save) mod checksums;
pub(in crate::save) mod new_tensor;

use std::fmt;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::{HashMap, HashMapExt};

use crate::buffer::Buffer;
use crate::container::SharedModel;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::traversal::{self, Position};
use crate::proto::ModelProto;
use crate::save::encode::checksums::Checksums;
use crate::save::encode::new_tensor::{File, NewTensor};
use crate::save::gather::kept::KeptFiles;
use crate::save::gather::weights::{GatheredWeights, WeightTensor, no_weight};
use crate::save::plan::{Plan, WeightPlace};
use crate::wire::{self, Message, Overlay, Replacement};

/// A model whose external tensors name their places in files.
pub(crate) struct WrittenModel {
    model: SharedModel,
    /// Whether only what holds tensors was decoded of the model.
    is_outline: bool,
    changes: Changes,
}

/// The tensors that are written in place of the graph's own.
struct Changes {
    /// In graph order.
    tensors: Vec<(Position, NewTensor)>,
    /// Their indices by the addresses of the tensors that they replace. The addresses remain valid:
    /// the model is copied before it is changed, and tensors are on the heap.
    by_address: HashMap<usize, usize>,
}

impl fmt::Debug for WrittenModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.changes.tensors.len();
        f.debug_struct("WrittenModel").field("changed_tensors", &changed).finish_non_exhaustive()
    }
}

impl WrittenModel {
    /// `model`, with the tensors of `weights` at the places that `plan` and `kept` give them, in
    /// files of these `checksums`.
    pub(crate) fn new(
        model: SharedModel,
        weights: GatheredWeights<'_>,
        plan: &Plan<'_>,
        kept: &KeptFiles,
        checksums: &Checksums,
    ) -> Result<Self> {
        let GatheredWeights { used, tensors, .. } = weights;
        let written = File::all(plan.files.iter().map(|file| &file.name), &checksums.written);
        let stays = File::all(kept.files.iter().map(|file| &file.location), &checksums.kept);
        let mut changes = Changes {
            tensors: Vec::with_capacity(tensors.len()),
            by_address: HashMap::with_capacity(tensors.len()),
        };
        for WeightTensor { position, address, weight, inline, .. } in tensors {
            let place = plan.places.get(weight).ok_or_else(no_weight)?;
            let in_file = |files: &[Arc<File>], file: usize, range: &Range<u64>| {
                let file = files.get(file).cloned();
                let file =
                    file.ok_or_else(|| Error::internal("a weight is in no file of the plan"))?;
                Ok::<_, Error>(NewTensor::InFile(file, range.clone()))
            };
            let tensor = match place {
                WeightPlace::File(file, range) if !inline => in_file(&written, *file, range)?,
                WeightPlace::Kept(file, range) if !inline => in_file(&stays, *file, range)?,
                _ => NewTensor::inline(used.get(weight).ok_or_else(no_weight)?),
            };
            changes.by_address.insert(address, changes.tensors.len());
            changes.tensors.push((position, tensor));
        }
        Ok(Self { model, is_outline: false, changes })
    }

    /// The same model with the weights file `old` called `new`.
    pub(crate) fn rename_file(&mut self, old: &str, new: &str) {
        let mut renamed = None;
        let files = self.changes.tensors.iter_mut().filter_map(|(_, tensor)| tensor.file_mut());
        for file in files.filter(|file| file.is_at(old)) {
            *file = renamed.get_or_insert_with(|| Arc::new(file.renamed(new))).clone();
        }
    }

    /// Refuses weights that are stored in the model and have no elements to be stored.
    pub(crate) fn refuse_declared(&self) -> Result<()> {
        let tensors = self.changes.tensors.iter().map(|(_, tensor)| tensor.refuse_declared());
        Error::join(tensors.filter_map(Result::err)).map_or(Ok(()), Err)
    }

    /// Remembers whether only what holds tensors was decoded of the model.
    pub(crate) fn of_outline(self, is_outline: bool) -> Self {
        Self { is_outline, ..self }
    }

    /// The graph, whose external tensors name handles.
    pub(crate) fn model(&self) -> &ModelProto {
        &self.model
    }

    /// The length of the encoded model in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the encoder did not meet every tensor that is to be replaced.
    pub(crate) fn encoded_len(&self) -> Result<u64> {
        let counting = Counting { changes: &self.changes, replaced: AtomicUsize::new(0) };
        let len = wire::encoded_len_over(&*self.model, &counting);
        match counting.replaced.into_inner() == self.changes.tensors.len() {
            true => Ok(len),
            false => Err(lost()),
        }
    }

    /// Writes the encoded model to `out`.
    pub(crate) fn encode(&self, out: &mut impl Write) -> Result<()> {
        wire::encode_over(&*self.model, Some(&self.changes), out)
    }

    /// The encoded model in memory.
    pub(crate) fn encode_to_vec(&self) -> Result<Vec<u8>> {
        wire::encode_over_to_vec(&*self.model, Some(&self.changes))
    }

    /// The message that is written, built by this call.
    pub(crate) fn to_message(&self) -> Result<ModelProto> {
        if self.is_outline {
            return ModelProto::decode(&Buffer::from(self.encode_to_vec()?));
        }
        let mut model = ModelProto::clone(&self.model);
        let mut tensors = self.changes.tensors.iter().peekable();
        traversal::tensors_mut(&mut model, |place, tensor| {
            if let Some((_, new)) = tensors.next_if(|(position, _)| *position == place.position) {
                *tensor = new.message(tensor)?;
            }
            Ok(())
        })?;
        if tensors.next().is_some() { Err(lost()) } else { Ok(model) }
    }
}

fn lost() -> Error {
    Error::internal("a tensor that was resolved is not in the model")
}

impl Overlay for Changes {
    fn replacement(&self, address: usize) -> Option<&dyn Replacement> {
        let (_, tensor) = self.tensors.get(*self.by_address.get(&address)?)?;
        Some(tensor)
    }
}

/// An overlay that counts how many tensors it replaced.
struct Counting<'a> {
    changes: &'a Changes,
    replaced: AtomicUsize,
}

impl Overlay for Counting<'_> {
    fn replacement(&self, address: usize) -> Option<&dyn Replacement> {
        let found = self.changes.replacement(address);
        self.replaced.fetch_add(usize::from(found.is_some()), Ordering::Relaxed);
        found
    }
}

/// Refuses a model of no bytes, which no reader takes.
pub(crate) fn refuse_empty(encoded_len: u64) -> Result<()> {
    if encoded_len > 0 {
        return Ok(());
    }
    let reason = "the model is empty, and nothing would read it: put a graph into it first";
    Err(Error::new(ErrorKind::InvalidModel, reason))
}
