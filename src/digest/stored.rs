//! The digests that are stored with a model: read from its message, and put into it.

use super::sha256::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::stored_digests::{KEY, is_digest, remove_digests};
use crate::graph::traversal;
use crate::proto::{ModelProto, StringStringEntryProto};

/// The digests that are stored with a model, each as far as it can be read.
pub(crate) struct Stored {
    pub(super) model: StoredDigest,
    /// Those of the tensors, in graph order.
    pub(super) tensors: Vec<StoredDigest>,
}

/// What is stored for a tensor, or the model.
pub(super) type StoredDigest = Result<Option<Digest>, Malformed>;

/// What is stored is not 64 lower-case hexadecimal digits, or there are several.
///
/// Small, since every tensor of a model may have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

impl From<Malformed> for Error {
    fn from(_: Malformed) -> Self {
        let reason = "its stored digest is not the 64 hexadecimal digits of one SHA-256";
        Self::new(ErrorKind::WrongDigest, reason)
    }
}

impl Stored {
    /// Those of `model`.
    pub(crate) fn of(model: &ModelProto) -> Self {
        let mut tensors = Vec::with_capacity(traversal::iter(model).count());
        tensors.extend(traversal::iter(model).map(|(_, tensor)| among(&tensor.metadata_props)));
        Self { model: among(&model.metadata_props), tensors }
    }

    /// Those of tensors that can be read, with the positions of these in graph order.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (usize, Digest)> + '_ {
        let readable = |(position, digest): (usize, &StoredDigest)| {
            digest.ok().flatten().map(|digest| (position, digest))
        };
        self.tensors.iter().enumerate().filter_map(readable)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        [&self.model].into_iter().chain(&self.tensors).all(|digest| matches!(digest, Ok(None)))
    }
}

/// The digest among `entries`, if there is one.
fn among(entries: &[StringStringEntryProto]) -> StoredDigest {
    let mut found = entries.iter().filter(|entry| is_digest(entry));
    let Some(entry) = found.next() else { return Ok(None) };
    let digits = entry.value.as_ref().and_then(|value| value.to_str().ok());
    let digest = digits.and_then(Digest::from_digits).filter(|_| found.next().is_none());
    digest.map(Some).ok_or(Malformed)
}

/// Stores these digests, in place of others: that of the model and those of its tensors, in graph
/// order.
pub(super) fn store(model: &mut ModelProto, of_model: &Digest, of_tensors: &[Digest]) {
    remove_digests(model);
    model.metadata_props.push(entry(of_model));
    for ((_, tensor), digest) in traversal::iter_mut(model).zip(of_tensors) {
        tensor.metadata_props.push(entry(digest));
    }
}

fn entry(digest: &Digest) -> StringStringEntryProto {
    StringStringEntryProto::new(KEY, digest.to_string())
}
