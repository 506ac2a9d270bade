//! Compares a model and its tensors with the digests that are stored with them.

use std::ops::Range;
use std::path::PathBuf;

use super::hashed::hashed;
use super::jobs::External;
use super::sha256::Digest;
use super::stored::Stored;
use super::structure;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::{ModelProto, TensorProto};
use crate::traversal;

/// Where the bytes of a tensor are: their file, and their range in it, as far as these are known.
pub(crate) type Origin = (Option<PathBuf>, Option<Range<u64>>);

/// Compares everything in `model` with the digests that are `stored` with it. `external` tells where the elements of
/// an external tensor are, and `origin` where the bytes of a tensor are on disk, by its position, or the whole model.
///
/// # Errors
/// One error for all tensors whose digest is another than the stored one, and for the model itself:
/// [`ErrorKind::WrongDigest`], also when no digest is stored. Those of tensors that cannot be read.
pub(crate) fn verify<'c>(
    model: &'c ModelProto,
    stored: &Stored,
    external: impl FnMut(&'c TensorProto) -> Result<External<'c>>,
    origin: impl Fn(Option<usize>) -> Origin,
) -> Result<()> {
    if stored.is_empty() {
        return Err(missing("no digests are stored with this model"));
    }
    let (mut declared, mut errors, mut unread) = (Vec::new(), Vec::new(), false);
    let tensors = traversal::iter(model).zip(hashed(model, external)).zip(&stored.tensors);
    for (position, (((_, proto), (name, found)), stored)) in tensors.enumerate() {
        match compared(stored, found) {
            Ok(digest) => declared.push(digest),
            Err(Mismatch { error, stored }) => {
                declared.extend(stored);
                unread |= stored.is_none();
                errors.push(placed(error, within(proto, origin(Some(position)))).with_tensor(name));
            }
        }
    }
    match &stored.model {
        Ok(Some(_)) if unread => {}
        Ok(Some(stored)) => {
            let changed = changed(model, &declared, stored)?;
            errors.extend(changed.map(|error| placed(error, origin(None))));
        }
        Ok(None) => {
            errors.push(missing("no digest of the model itself is stored, only such of tensors"))
        }
        Err(error) => errors.push(error.clone()),
    }
    Error::join(errors).map_or(Ok(()), Err)
}

/// What is wrong when the digest of `model`, whose tensors have the digests `declared`, is not the one that is `stored`.
fn changed(model: &ModelProto, declared: &[Digest], stored: &Digest) -> Result<Option<Error>> {
    let found = structure::digest(model, declared)?;
    let reason = format!(
        "the model itself, without the elements of its tensors, was changed: its digest is {found}, {stored} is stored"
    );
    Ok((found != *stored).then(|| Error::new(ErrorKind::WrongDigest, reason)))
}

/// What is wrong with a tensor, and the digest that is stored for it.
struct Mismatch {
    error: Error,
    stored: Option<Digest>,
}

/// The digest that counts for the model: the stored one, or of a tensor that has none the one that was `found`.
fn compared(stored: &Result<Option<Digest>>, found: Result<Digest>) -> Result<Digest, Mismatch> {
    let stored = stored.clone().map_err(|error| Mismatch { error, stored: None })?;
    match (stored, found) {
        (Some(stored), Ok(found)) if stored != found => {
            let reason = format!("its digest is {found}, {stored} is stored");
            let error = Error::new(ErrorKind::WrongDigest, reason);
            Err(Mismatch { error, stored: Some(stored) })
        }
        (_, Ok(found)) => Ok(found),
        (stored, Err(error)) => Err(Mismatch { error, stored }),
    }
}

/// `origin`, without a range where `proto` has no elements.
fn within(proto: &TensorProto, (path, range): Origin) -> Origin {
    (path, range.filter(|_| !proto.dims.contains(&0)))
}

/// `error` with the place of the bytes.
fn placed(error: Error, (path, range): Origin) -> Error {
    let error = match range {
        Some(range) => error.because(&format!("bytes {range:?}")).with_offset(range.start),
        None => error,
    };
    match path {
        Some(path) => error.with_path(path),
        None => error,
    }
}

fn missing(reason: &str) -> Error {
    Error::new(ErrorKind::WrongDigest, reason)
}
