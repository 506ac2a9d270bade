//! Compares a model and its tensors with the digests that are stored with them.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use super::hashed::hashed;
use super::jobs::External;
use super::sha256::Digest;
use super::stored::{Stored, StoredDigest};
use super::structure;
use crate::container::part::Share;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::graph::traversal;
use crate::proto::{ModelProto, TensorProto};

/// Where the bytes of a tensor are: their file, and their range in it, as far as these are known.
pub(crate) type Origin = (Option<PathBuf>, Option<Range<u64>>);

/// What a comparison with stored digests read, be it as it should be or not.
///
/// `Display` is such as `35 tensors, the model and 1 checksum`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Compared {
    /// Tensors whose elements were compared with the digests that are stored for them.
    pub tensors: usize,
    /// Whether the model itself was, without the elements of its tensors.
    pub model: bool,
    /// Whole files that were compared with their `checksum`, or their name in a cache.
    pub files: usize,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let model = self.model.then(|| "the model".to_owned());
        let files = (self.files > 0).then(|| count(self.files, "checksum"));
        let parts = [Some(count(self.tensors, "tensor")), model, files];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        match parts.split_last() {
            Some((last, [])) => f.write_str(last),
            Some((last, before)) => write!(f, "{} and {last}", before.join(", ")),
            None => Ok(()),
        }
    }
}

/// Compares the `share` of `model` with the digests that are `stored` with it; there is at least
/// one. Of other tensors the stored digests count, so that the digest of the model itself is
/// compared by every share; those that have none are read for it. `external` tells where the
/// elements of an external tensor are, and `origin` where the bytes of a tensor are on disk, by its
/// position, or the whole model. Adds to what was `done`.
///
/// # Errors
/// One error for all tensors whose digest is another than the stored one, and for the model itself:
/// [`ErrorKind::WrongDigest`]. Those of tensors that cannot be read.
pub(crate) fn verify<'c>(
    (model, share): (&'c ModelProto, &Share),
    stored: &Stored,
    external: impl FnMut(&'c TensorProto) -> Result<External<'c>>,
    origin: impl Fn(Option<usize>) -> Origin,
    done: &mut Compared,
) -> Result<()> {
    let (mut declared, mut errors, mut unread) = (Vec::new(), Errors::default(), false);
    let of_model = matches!(stored.model, Ok(Some(_)));
    let has_none = |position| matches!(stored.tensors.get(position), Some(Ok(None)));
    let read = share.with(|position| of_model && has_none(position));
    let mut hashed = hashed(model, &read, external);
    let tensors = traversal::iter(model).zip(&stored.tensors);
    for (position, ((place, proto), stored)) in tensors.enumerate() {
        if !read.has(position) {
            let stored = stored.ok().flatten();
            unread |= stored.is_none();
            declared.extend(stored);
            continue;
        }
        let missing = || Error::internal("a tensor that was not hashed");
        let (_, _, found) = hashed.next().ok_or_else(missing)?;
        let origin = || within(proto, origin(Some(position)));
        done.tensors += usize::from(matches!((stored, &found), (Ok(Some(_)), Ok(_))));
        match compared(stored, found, origin) {
            Ok(digest) => declared.push(digest),
            Err(Mismatch { error, stored }) => {
                declared.extend(stored);
                unread |= stored.is_none();
                errors.push_with(|| error.with_tensor(place.qualified_name(proto)));
            }
        }
    }
    match &stored.model {
        Ok(Some(_)) if unread => {}
        Ok(Some(stored)) => {
            done.model = true;
            errors.extend(changed(model, &declared, stored, origin(None))?);
        }
        Ok(None) => errors.push(Error::new(ErrorKind::WrongDigest, NO_DIGEST_OF_MODEL)),
        Err(malformed) => errors.push((*malformed).into()),
    }
    errors.join().map_or(Ok(()), Err)
}

const NO_DIGEST_OF_MODEL: &str = "no digest of the model itself is stored, only such of tensors";

/// What is wrong where nothing is stored with a model.
pub(crate) fn no_digests() -> Error {
    let reason =
        "no digests are stored with this model; a save with digests stores them (`pack --digests`)";
    Error::new(ErrorKind::WrongDigest, reason)
}

/// What is wrong when the digest of `model`, whose tensors have the digests `declared`, is not the
/// one that is `stored`.
fn changed(
    model: &ModelProto,
    declared: &[Digest],
    stored: &Digest,
    origin: Origin,
) -> Result<Option<Error>> {
    let found = structure::digest(model, declared)?;
    let what = "the model itself, without the elements of its tensors, was changed or damaged since its digest was stored";
    Ok((found != *stored).then(|| differs(what, &found, stored, origin)))
}

/// `what`, with both digests and the place of the bytes.
fn differs(what: &str, found: &Digest, stored: &Digest, (path, range): Origin) -> Error {
    let bytes = range.as_ref().map(|range| format!("bytes {range:?}; ")).unwrap_or_default();
    let reason = format!("{what} ({bytes}stored {stored}, found {found})");
    let error = Error::new(ErrorKind::WrongDigest, reason);
    let error = match range {
        Some(range) => error.with_range_in_reason(range.start),
        None => error,
    };
    match path {
        Some(path) => error.with_path(path),
        None => error,
    }
}

/// What is wrong with a tensor, and the digest that is stored for it.
struct Mismatch {
    error: Error,
    stored: Option<Digest>,
}

/// The digest that counts for the model: the stored one, or of a tensor that has none the one that
/// was `found`.
fn compared(
    stored: &StoredDigest,
    found: Result<Digest>,
    origin: impl FnOnce() -> Origin,
) -> Result<Digest, Mismatch> {
    let in_file = |error: Error, (path, _): Origin| match path {
        Some(path) => error.with_path(path),
        None => error,
    };
    match (stored, found) {
        (Err(malformed), _) => {
            Err(Mismatch { error: in_file((*malformed).into(), origin()), stored: None })
        }
        (Ok(Some(stored)), Ok(found)) if *stored != found => {
            let what = "its elements were changed or damaged since its digest was stored";
            let error = differs(what, &found, stored, origin());
            Err(Mismatch { error, stored: Some(*stored) })
        }
        (_, Ok(found)) => Ok(found),
        (Ok(stored), Err(error)) => {
            Err(Mismatch { error: in_file(error, origin()), stored: *stored })
        }
    }
}

/// `origin`, without a range where `proto` has no elements.
fn within(proto: &TensorProto, (path, range): Origin) -> Origin {
    (path, range.filter(|_| !proto.dims.contains(&0)))
}
