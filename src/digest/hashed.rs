//! The digests of all tensors of a model, or of some.

use super::jobs::{External, Jobs, Padding};
use super::sha256::Digest;
use super::tensors::digest;
use crate::container::Container;
use crate::container::part::Share;
use crate::error::Result;
use crate::graph::traversal::{self, Place};
use crate::proto::{ModelProto, TensorProto};

/// The tensors of the `share` of `model`, in graph order, with their places and digests. Where the
/// elements of external ones are says `external`.
pub(super) fn hashed<'c>(
    model: &'c ModelProto,
    share: &Share,
    mut external: impl FnMut(&'c TensorProto) -> Result<External<'c>>,
) -> impl Iterator<Item = (Place<'c>, &'c TensorProto, Result<Digest>)> {
    let tensors = || traversal::iter(model).filter(|(it, _)| share.has(it.position.index()));
    let count = tensors().count();
    let (mut jobs, mut added) =
        (Jobs::with_room(Padding::Hashed, count), Vec::with_capacity(count));
    added.extend(tensors().map(|(_, tensor)| jobs.add_from(tensor, &mut external)));
    jobs.sort();
    jobs.run();
    tensors().zip(added).map(move |((place, proto), job)| {
        let digest = job.and_then(|job| digest(proto, &jobs.result(job)?));
        (place, proto, digest)
    })
}

/// The digests of some tensors of `container`, in their order.
pub(crate) fn of_some<'c>(
    container: &'c Container,
    tensors: &[&'c TensorProto],
) -> Result<Vec<Digest>> {
    let mut jobs = Jobs::with_room(Padding::Hashed, tensors.len());
    let mut added = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        added.push(jobs.add(container, tensor)?);
    }
    jobs.sort();
    jobs.run();
    let digests = tensors.iter().zip(added);
    digests.map(|(tensor, job)| digest(tensor, &jobs.result(job)?)).collect()
}
