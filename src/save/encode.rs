//! The model as written: the container's graph, with the new places of its weights as an overlay.
//!
//! A save changes a few entries of a graph that can have hundreds of thousands of nodes. So the graph
//! is not cloned: while it is encoded, each external tensor is written as its new message, and the
//! bytes of a tensor that becomes inline are produced when the encoder reaches it. The whole message
//! is built only by [`WrittenModel::to_message`].

use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::{HashMap, HashMapExt};

use crate::buffer::Buffer;
use crate::container::{Handle, SharedModel};
use crate::error::{Error, ErrorKind, Result};
use crate::external_data;
use crate::initializer::Initializer;
use crate::proto::{ModelProto, TensorProto};
use crate::save::kept::Kept;
use crate::save::plan::{Place, Plan};
use crate::save::weights::{Weight, WeightTensor, Weights, no_weight};
use crate::traversal::{self, Position};
use crate::wire::{self, Message, Overlay, Replacement, Sizes, Writer};

/// A model whose external tensors name their places in files.
pub(crate) struct WrittenModel {
    model: SharedModel,
    changes: Changes,
}

/// The tensors that are written in place of the graph's own.
struct Changes {
    /// In graph order.
    tensors: Vec<(Position, NewTensor)>,
    /// Their indices by the addresses of the tensors that they replace. The addresses remain valid: the
    /// model is copied before it is changed, and tensors are on the heap.
    by_address: HashMap<usize, usize>,
}

/// A tensor as it is written.
struct NewTensor {
    /// The whole tensor, except inline bytes and the fields that follow them.
    message: TensorProto,
    /// The bytes, where the tensor is inline.
    bytes: Option<InlineBytes>,
}

/// Bytes that are stored in the model.
struct InlineBytes {
    initializer: Initializer,
    handle: Handle,
    len: u64,
    /// The fields of the message that follow the bytes.
    after: TensorProto,
}

impl fmt::Debug for WrittenModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.changes.tensors.len();
        f.debug_struct("WrittenModel").field("changed_tensors", &changed).finish_non_exhaustive()
    }
}

impl WrittenModel {
    /// `model`, with the tensors of `weights` at the places that `plan` and `kept` give them.
    pub(crate) fn new(
        model: SharedModel,
        weights: Weights<'_>,
        plan: &Plan<'_>,
        kept: &Kept,
    ) -> Result<Self> {
        let Weights { used, tensors, .. } = weights;
        let mut changes =
            Changes { tensors: Vec::new(), by_address: HashMap::with_capacity(tensors.len()) };
        for WeightTensor { position, address, header, weight, inline, .. } in tensors {
            let place = plan.places.get(weight).ok_or_else(no_weight)?;
            let tensor = match location(place, plan, kept)?.filter(|_| !inline) {
                Some((location, range)) => NewTensor::in_file(header, location, range),
                None => {
                    let weight = used.get(weight).ok_or_else(no_weight)?;
                    NewTensor::inline(header, weight)
                }
            };
            changes.by_address.insert(address, changes.tensors.len());
            changes.tensors.push((position, tensor));
        }
        Ok(Self { model, changes })
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
        let mut model = ModelProto::clone(&self.model);
        let mut tensors = self.changes.tensors.iter().peekable();
        traversal::tensors_mut(&mut model, |place, tensor| {
            if let Some((_, new)) = tensors.next_if(|(position, _)| *position == place.position) {
                *tensor = new.to_message()?;
            }
            Ok(())
        })?;
        if tensors.next().is_some() { Err(lost()) } else { Ok(model) }
    }
}

fn lost() -> Error {
    Error::internal("a tensor that was resolved is not in the model")
}

/// The location of the file that `place` names and the byte range in it; `None` for the model.
fn location<'a>(
    place: &'a Place,
    plan: &'a Plan<'_>,
    kept: &'a Kept,
) -> Result<Option<(&'a str, &'a Range<u64>)>> {
    let (location, range) = match place {
        Place::Model => return Ok(None),
        Place::File(file, range) => (plan.files.get(*file).map(|file| &file.name), range),
        Place::Kept(file, range) => (kept.files.get(*file).map(|file| &file.location), range),
    };
    let location = location.ok_or_else(|| Error::internal("a weight is in no file of the plan"))?;
    Ok(Some((location, range)))
}

impl NewTensor {
    fn in_file(header: TensorProto, location: &str, range: &Range<u64>) -> Self {
        let mut message = header;
        external_data::set_range(&mut message, location, range);
        Self { message, bytes: None }
    }

    fn inline(header: TensorProto, weight: &Weight<'_>) -> Self {
        let mut message = header;
        let after = TensorProto {
            doc_string: message.doc_string.take(),
            metadata_props: std::mem::take(&mut message.metadata_props),
            unknown: std::mem::take(&mut message.unknown),
            ..TensorProto::default()
        };
        let (initializer, handle) = (weight.initializer.clone(), weight.handle.clone());
        Self { message, bytes: Some(InlineBytes { initializer, handle, len: weight.len, after }) }
    }

    fn to_message(&self) -> Result<TensorProto> {
        let Some(bytes) = &self.bytes else { return Ok(self.message.clone()) };
        let TensorProto { doc_string, metadata_props, unknown, .. } = bytes.after.clone();
        let raw_data = Some(bytes.produce()?);
        Ok(TensorProto { raw_data, doc_string, metadata_props, unknown, ..self.message.clone() })
    }
}

impl InlineBytes {
    /// The bytes.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] when their number is not the one that the encoded length counts.
    fn produce(&self) -> Result<Buffer> {
        let named = |error: Error| error.with_tensor(self.handle.name());
        let bytes = self.initializer.to_buffer().map_err(named)?;
        if u64::try_from(bytes.len()) == Ok(self.len) {
            return Ok(bytes);
        }
        let reason = "an initializer changed its length while it was saved";
        Err(named(Error::new(ErrorKind::OutOfBounds, reason)))
    }
}

/// The number of the field `raw_data` of a tensor.
const RAW_DATA: u32 = 9;

impl Replacement for NewTensor {
    fn size(&self, sizes: &mut Sizes<'_>) -> u64 {
        let size = self.message.fields_size(sizes);
        let Some(InlineBytes { len, after, .. }) = &self.bytes else { return size };
        size + wire::delimited_size(RAW_DATA, *len) + after.fields_size(sizes)
    }

    fn write(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        self.message.write_fields(writer)?;
        let Some(bytes) = &self.bytes else { return Ok(()) };
        wire::write_one(&bytes.produce().map_err(io::Error::other)?, RAW_DATA, writer)?;
        bytes.after.write_fields(writer)
    }
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
