//! Where digests are stored with a model, and how they go.
//!
//! They are entries of `metadata_props`, which every reader ignores: one in each tensor, one in the
//! model. They are right as long as nothing changes, so whatever changes a model removes them all.
//! What they are digests of, and comparing with them, is left to `digest`.

use crate::buffer::Buffer;
use crate::graph::traversal;
use crate::proto::{Message, ModelProto, Str, StringStringEntryProto, TensorProto};

/// The key of these entries.
pub(crate) const KEY: &str = "onnx_container.sha256";

/// Whether `entry` is where a digest is stored.
pub(crate) fn is_digest(entry: &StringStringEntryProto) -> bool {
    entry.key.as_ref().is_some_and(|key| *key == KEY)
}

/// The digits of a SHA-256 digest.
const DIGITS: usize = 64;
/// How long the entry of a digest is: two tags, two lengths, the key and the digits.
const ENTRY_LEN: usize = 4 + KEY.len() + DIGITS;

/// Whether the entry that is encoded in `bytes` is where a digest is stored, but is not a key and a
/// digest alone. Digests leave such an entry out whatever is in it.
pub(crate) fn hides_in_digest(bytes: &[u8]) -> bool {
    // Most entries are others, which need not be decoded.
    if !bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes()) {
        return false;
    }
    let Ok(entry) = StringStringEntryProto::decode(&Buffer::from(bytes)) else { return false };
    let is_digit = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    let value = entry.value.as_ref().map_or(&b""[..], Str::as_bytes);
    let is_alone = bytes.len() == ENTRY_LEN && value.len() == DIGITS && value.iter().all(is_digit);
    is_digest(&entry) && !is_alone
}

/// Whether the digest of `model` itself is stored with it.
pub(crate) fn has_own_digest(model: &ModelProto) -> bool {
    model.metadata_props.iter().any(is_digest)
}

/// Whether `model` or one of its tensors has a stored digest.
pub(crate) fn has_digests(model: &ModelProto) -> bool {
    has_own_digest(model)
        || traversal::iter(model).any(|(_, tensor)| tensor.metadata_props.iter().any(is_digest))
}

/// Removes every stored digest from `model`.
pub(crate) fn remove_digests(model: &mut ModelProto) {
    model.metadata_props.retain(|entry| !is_digest(entry));
    for (_, tensor) in traversal::iter_mut(model) {
        remove_digest(tensor);
    }
}

/// Removes the stored digest from `tensor`. Whether there was one.
pub(crate) fn remove_digest(tensor: &mut TensorProto) -> bool {
    // Reached for to change only where there is one: most tensors have no metadata.
    let has_one = tensor.metadata_props.iter().any(is_digest);
    if has_one {
        tensor.metadata_props.retain(|entry| !is_digest(entry));
    }
    has_one
}
