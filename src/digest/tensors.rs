//! The digest of one tensor: of its type, its dimensions and the digest of its bytes; and where it is stored.

use sha2::{Digest as _, Sha256};

use super::sha256::Digest;
use crate::dtype::DataType;
use crate::error::Result;
use crate::proto::{StringStringEntryProto, TensorProto};

/// The key of the entry of `metadata_props` that has the digest of a tensor, or that of a model.
pub(crate) const KEY: &str = "onnx_container.sha256";

/// The version of the scheme, with which everything that is hashed begins.
const SCHEME: &[u8] = b"onnx-container/tensor/1\0";

/// The digest of `proto`, whose elements have the digest `bytes`.
pub(super) fn digest(proto: &TensorProto, bytes: &Digest) -> Result<Digest> {
    let dtype = DataType::try_from(proto.data_type.unwrap_or_default())?;
    let mut hasher = Sha256::new_with_prefix(SCHEME);
    hasher.update(i64::from(dtype.number()).to_le_bytes());
    hasher.update((proto.dims.len() as u64).to_le_bytes());
    proto.dims.iter().for_each(|dim| hasher.update(dim.to_le_bytes()));
    hasher.update(bytes.as_bytes());
    Ok(Digest::of_bytes(hasher))
}

/// Whether `entry` is where a digest is stored.
pub(super) fn is_stored_digest(entry: &StringStringEntryProto) -> bool {
    entry.key.as_ref().is_some_and(|key| *key == KEY)
}
