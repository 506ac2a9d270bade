//! The digests of all tensors of a model, by all cores, and of its long attributes.
//!
//! The digest of a tensor is made of that of its bytes with its type and dimensions. An error is
//! kept for its tensor: it counts only if an output depends on it.
//!
//! The graph is gone through while the bytes are hashed. Who needs a digest that is not there yet
//! hashes with the others until it is.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use sha2::{Digest as _, Sha256};

use super::body::Constant;
use super::hash::{Digest, Form};
use crate::container::Container;
use crate::digest::{Jobs, Padding, texts_digest};
use crate::dtype::DataType;
use crate::error::Result;
use crate::graph::traversal::{self, Place};
use crate::proto::{SparseTensorProto, TensorProto};

/// The digests of the tensors of one model.
pub(super) struct WeightDigests<'c> {
    container: &'c Container,
    jobs: Arc<Jobs<'c>>,
    /// Each tensor's address, its place in the model, and the job that hashes its bytes: in the
    /// order of the addresses, which takes less memory than a map.
    tensors: Vec<(usize, Place<'c>, Result<usize>)>,
    /// The digests of long attributes by their addresses: calls may read one many times.
    long: RefCell<HashMap<usize, Digest, RandomState>>,
}

fn address(tensor: &TensorProto) -> usize {
    std::ptr::from_ref(tensor).addr()
}

impl<'c> WeightDigests<'c> {
    /// Finds every tensor of the model of `container`. None is hashed before it is needed.
    pub(super) fn of(container: &'c Container) -> Self {
        let count = traversal::iter(&container.model).count();
        let (mut jobs, mut tensors) =
            (Jobs::with_room(Padding::Zero, count), Vec::with_capacity(count));
        let found = traversal::iter(&container.model);
        tensors.extend(
            found.map(|(place, proto)| (address(proto), place, jobs.add(container, proto))),
        );
        tensors.sort_unstable_by_key(|(address, ..)| *address);
        jobs.sort();
        Self { container, jobs: Arc::new(jobs), tensors, long: RefCell::default() }
    }

    /// What hashes the tensors while something else is done.
    pub(super) fn jobs(&self) -> Arc<Jobs<'c>> {
        Arc::clone(&self.jobs)
    }

    /// The digest of the attribute at `address`, which `compute` finds once.
    pub(super) fn once(
        &self,
        address: usize,
        compute: impl FnOnce() -> Result<Digest>,
    ) -> Result<Digest> {
        let known = self.long.borrow().get(&address).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let digest = compute()?;
        self.long.borrow_mut().insert(address, digest);
        Ok(digest)
    }

    /// The digest of `tensor`, which is in the model.
    pub(super) fn get(&self, tensor: &TensorProto) -> Result<Digest> {
        let found = self.tensors.binary_search_by_key(&address(tensor), |(address, ..)| *address);
        if let Some((_, place, job)) = found.ok().and_then(|at| self.tensors.get(at)) {
            let bytes = job.clone().and_then(|job| self.jobs.result(job));
            let digest = bytes.and_then(|bytes| of_tensor(tensor, &bytes));
            return digest.map_err(|error| error.with_tensor(place.qualified_name(tensor)));
        }
        let mut jobs = Jobs::new(Padding::Zero);
        let job = jobs.add(self.container, tensor)?;
        jobs.sort();
        of_tensor(tensor, &jobs.result(job)?)
    }

    /// The digest of an initializer.
    pub(super) fn constant(&self, constant: Constant<'_>) -> Result<Digest> {
        match constant {
            Constant::Dense(tensor) => self.get(tensor),
            Constant::Sparse(tensor) => self.sparse(tensor),
        }
    }

    /// The digest of a sparse tensor.
    pub(super) fn sparse(&self, tensor: &SparseTensorProto) -> Result<Digest> {
        let SparseTensorProto { values, indices, dims, unknown, .. } = tensor;
        let mut form = Form::new("sparse tensor");
        form.dims(dims);
        for part in [values, indices] {
            let digest = part.as_deref().map(|part| self.get(part)).transpose()?;
            form.optional(digest.as_ref());
        }
        form.unknown(unknown);
        Ok(form.end())
    }
}

fn of_tensor(proto: &TensorProto, bytes: &Digest) -> Result<Digest> {
    let dtype = DataType::try_from(proto.data_type.unwrap_or_default())?;
    let mut form = tensor_form(dtype, &proto.dims, bytes);
    if !proto.unknown.is_empty() {
        form.unknown(&proto.unknown);
    }
    Ok(form.end())
}

fn tensor_form(dtype: DataType, dims: &[i64], bytes: &Digest) -> Form {
    let mut form = Form::new("tensor");
    form.number(dtype.number().into());
    form.dims(dims);
    form.digest(bytes);
    form
}

/// The digest of a tensor of these bytes.
pub(super) fn of_elements(dtype: DataType, dims: &[i64], bytes: &[u8]) -> Digest {
    let bytes = Digest::of_bytes(Sha256::new_with_prefix(bytes));
    tensor_form(dtype, dims, &bytes).end()
}

/// The digest of a tensor of these strings.
pub(super) fn of_texts<'s>(dims: &[i64], texts: impl Iterator<Item = &'s [u8]>) -> Digest {
    tensor_form(DataType::String, dims, &texts_digest(texts)).end()
}
