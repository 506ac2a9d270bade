//! One of the models that are compared, with the digests of its tensors that are stored with it.

use std::collections::HashMap;

use crate::container::Container;
use crate::digest::{Digest, Stored};

/// A container, and digests of its tensors that need not be made.
pub(super) struct Side<'c> {
    pub(super) container: &'c Container,
    /// By position in graph order.
    pub(super) digests: StoredDigests,
}

/// The digests that are stored with tensors, by their positions in graph order.
pub(super) type StoredDigests = HashMap<usize, Digest>;

impl<'c> Side<'c> {
    /// With the digests that the messages have still: those of a container without weights.
    pub(super) fn of(container: &'c Container) -> Self {
        let stored = Stored::of(container.model());
        Self { container, digests: stored.tensors().collect() }
    }

    /// Without digests, whatever is stored.
    pub(super) fn without_digests(container: &'c Container) -> Self {
        Self { container, digests: StoredDigests::new() }
    }

    /// With digests that were stored when the model was loaded.
    pub(super) fn with(container: &'c Container, digests: StoredDigests) -> Self {
        Self { container, digests }
    }
}
