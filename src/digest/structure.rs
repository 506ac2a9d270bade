//! The digest of a model as it is when each tensor has its digest in the place of its elements.
//!
//! That message is small and says nothing about how weights are stored. It is never built: the
//! model is encoded into SHA-256, and its tensors are replaced on the way.

use std::any::Any;
use std::borrow::Cow;
use std::io;

use foldhash::{HashMap, HashMapExt};
use sha2::{Digest as _, Sha256};

use super::sha256::Digest;
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::files::external_data::{self, is_external};
use crate::graph::stored_digests::{has_own_digest, is_digest};
use crate::graph::traversal;
use crate::proto::{FunctionProto, GraphProto, Message, ModelProto, NodeProto, TensorProto};
use crate::wire::{self, Overlay, Replacement, Sizes, Writer};

/// The version of the scheme, with which everything that is hashed begins.
const SCHEME: &[u8] = b"onnx-container/content/1\0";

/// The digest of `model`, whose tensors have these digests, in graph order.
pub(super) fn digest(model: &ModelProto, tensors: &[Digest]) -> Result<Digest> {
    if has_own_digest(model) {
        // Only models with stored digests are copied: the digest itself is no part of what it
        // covers.
        let mut model = model.clone();
        model.metadata_props.retain(|entry| !is_digest(entry));
        return encoded(&model, tensors);
    }
    encoded(model, tensors)
}

fn encoded(model: &ModelProto, tensors: &[Digest]) -> Result<Digest> {
    let mut places = Places(HashMap::with_capacity(tensors.len()));
    let mut digests = tensors.iter();
    for (_, tensor) in traversal::iter(model) {
        let digest = digests.next().ok_or_else(|| Error::internal("a tensor without a digest"))?;
        places.0.insert(std::ptr::from_ref(tensor).addr(), Elements(*digest));
    }
    places.digest(model)
}

/// A model without the elements of its tensors, of which parts are compared with those of another.
pub(crate) struct Bare<'m> {
    model: Cow<'m, ModelProto>,
    places: Places,
}

impl<'m> Bare<'m> {
    /// That of `model`.
    pub(crate) fn of(model: &'m ModelProto) -> Self {
        let model = match has_own_digest(model) {
            true => {
                let mut model = model.clone();
                model.metadata_props.retain(|entry| !is_digest(entry));
                Cow::Owned(model)
            }
            false => Cow::Borrowed(model),
        };
        let same = Digest::of_bytes(Sha256::new());
        let place = |tensor| (std::ptr::from_ref::<TensorProto>(tensor).addr(), Elements(same));
        let places = traversal::iter(&model).map(|(_, tensor)| place(tensor)).collect();
        Self { model, places: Places(places) }
    }

    /// The model, of which parts can be given to [`digest`](Self::digest).
    pub(crate) fn model(&self) -> &ModelProto {
        &self.model
    }

    /// A digest of `part`, a message in the model or the model, in which all elements are the same.
    pub(crate) fn digest(&self, part: &impl Message) -> Result<Digest> {
        self.places.digest(part)
    }
}

/// A digest of `node` that its attributes have in every order, and those of nodes in its graphs.
/// All elements are the same.
pub(crate) fn digest_of_node(node: &NodeProto) -> Result<Digest> {
    let mut graph = GraphProto::default();
    graph.node.push(node.clone());
    without_order(ModelProto::new(graph))
}

/// A digest of `function` that the attributes of its nodes have in every order. All elements are
/// the same.
pub(crate) fn digest_of_function(function: &FunctionProto) -> Result<Digest> {
    let mut model = ModelProto::default();
    model.functions.push(function.clone());
    without_order(model)
}

/// A digest of `model` where the attributes of each node are sorted.
fn without_order(mut model: ModelProto) -> Result<Digest> {
    traversal::graphs_mut(&mut model, |_, body| {
        for node in body.nodes() {
            node.attribute.sort_by(|one, other| one.name.cmp(&other.name));
        }
        Ok(())
    })?;
    Bare::of(&model).digest(&model)
}

/// The digests of tensors by the addresses of these.
struct Places(HashMap<usize, Elements>);

impl Places {
    fn digest(&self, message: &impl Message) -> Result<Digest> {
        let mut hasher = Sha256::new_with_prefix(SCHEME);
        wire::encode_over(message, Some(self), &mut hasher)?;
        Ok(Digest::of_bytes(hasher))
    }
}

impl Overlay for Places {
    fn replacement(&self, address: usize) -> Option<&dyn Replacement> {
        self.0.get(&address).map(|elements| elements as &dyn Replacement)
    }
}

/// The digest that is written in place of elements.
struct Elements(Digest);

impl Elements {
    fn tensor(&self, original: &TensorProto) -> TensorProto {
        let mut tensor = external_data::header_of(original);
        if !is_external(original) {
            // They say nothing about how it is stored: they are data of the model as any other.
            tensor.external_data = original.external_data.clone();
        }
        if tensor.metadata_props.iter().any(is_digest) {
            tensor.metadata_props.retain(|entry| !is_digest(entry));
        }
        tensor.raw_data = Some(Buffer::from(&self.0.as_bytes()[..]));
        tensor
    }
}

impl Replacement for Elements {
    /// Zero where `original` is no tensor, of which [`write`](Self::write) then makes an error.
    fn size(&self, original: &dyn Any, sizes: &mut Sizes<'_>) -> u64 {
        let original = original.downcast_ref();
        original.map_or(0, |original| self.tensor(original).fields_size(sizes))
    }

    fn write(&self, original: &dyn Any, writer: &mut Writer<'_>) -> io::Result<()> {
        let not_a_tensor = || io::Error::other(Error::internal("a message that is no tensor"));
        self.tensor(original.downcast_ref().ok_or_else(not_a_tensor)?).write_fields(writer)
    }
}
