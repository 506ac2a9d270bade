//! The digests of all tensors of a model.

use super::jobs::{External, Jobs, Padding};
use super::sha256::Digest;
use super::tensors;
use crate::error::Result;
use crate::graph::traversal::{self, Place};
use crate::proto::{ModelProto, TensorProto};

/// Every tensor with its place and its digest, in graph order. Where the elements of external ones
/// are says `external`.
pub(super) fn hashed<'c>(
    model: &'c ModelProto,
    mut external: impl FnMut(&'c TensorProto) -> Result<External<'c>>,
) -> impl Iterator<Item = (Place<'c>, &'c TensorProto, Result<Digest>)> {
    let count = traversal::iter(model).count();
    let (mut jobs, mut added) =
        (Jobs::with_room(Padding::Hashed, count), Vec::with_capacity(count));
    added.extend(traversal::iter(model).map(|(_, tensor)| jobs.add_from(tensor, &mut external)));
    jobs.sort();
    jobs.run();
    traversal::iter(model).zip(added).map(move |((place, proto), job)| {
        let digest = job.and_then(|job| tensors::digest(proto, &jobs.result(job)?));
        (place, proto, digest)
    })
}
