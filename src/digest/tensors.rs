//! The digest of one tensor: of its type, its dimensions and the digest of its bytes.

use sha2::{Digest as _, Sha256};

use super::sha256::Digest;
use crate::dtype::DataType;
use crate::error::Result;
use crate::proto::TensorProto;

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
