//! The digests of all tensors of a model, by all cores.
//!
//! The bytes of a tensor are hashed alone, and the digest of the tensor is made of that with its type and
//! dimensions. So tied weights are read once, and where and how a tensor is stored does not matter. An error
//! is kept for its tensor: it counts only if an output depends on it.
//!
//! The graph is gone through at the same time. Who needs a digest that is not there yet hashes with the others
//! until it is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use sha2::{Digest as _, Sha256};

use super::body::Constant;
use super::hash::{Digest, Form};
use crate::buffer::Buffer;
use crate::byte_size::ByteSize;
use crate::container::Container;
use crate::dtype::{DataType, element_count};
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::is_external;
use crate::initializer::{Address, Initializer};
use crate::parallel;
use crate::proto::{Message, SparseTensorProto, TensorProto};
use crate::tensor::Tensor;
use crate::traversal::{self, Place};

/// A model with fewer bytes of weights than this is hashed by the calling thread.
const WORTH_THREADS: u64 = 1 << 20;
/// How often, on average, each byte may be read because tensors overlap in part. Tied tensors are read once.
const MOST_READS: u64 = 8;
/// Fewer bytes than this are read however tensors overlap.
const FEW_BYTES: u64 = 1 << 28;
/// How much is read at a time from a source that is not in memory.
const CHUNK: usize = 1 << 20;

/// The digests of the tensors of one model.
pub(super) struct Weights<'c> {
    container: &'c Container,
    jobs: Arc<Jobs<'c>>,
    /// Each tensor's place in the model, and the job that hashes its bytes.
    tensors: HashMap<*const TensorProto, (Place<'c>, Result<usize>), RandomState>,
}

impl<'c> Weights<'c> {
    /// Finds every tensor of the model of `container`. None is hashed before it is needed.
    pub(super) fn of(container: &'c Container) -> Self {
        let mut jobs = Jobs::default();
        let tensors = traversal::iter(&container.model)
            .map(|(place, proto)| (std::ptr::from_ref(proto), (place, jobs.add(container, proto))))
            .collect();
        jobs.sort();
        Self { container, jobs: Arc::new(jobs), tensors }
    }

    /// What hashes the tensors while something else is done.
    pub(super) fn jobs(&self) -> Arc<Jobs<'c>> {
        Arc::clone(&self.jobs)
    }

    /// The digest of `tensor`, which is in the model.
    pub(super) fn get(&self, tensor: &TensorProto) -> Result<Digest> {
        if let Some((place, job)) = self.tensors.get(&std::ptr::from_ref(tensor)) {
            let bytes = job.clone().and_then(|job| self.jobs.result(job));
            let digest = bytes.and_then(|bytes| of_tensor(tensor, &bytes));
            return digest.map_err(|error| error.with_tensor(place.qualified_name(tensor)));
        }
        let mut jobs = Jobs::default();
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
        let SparseTensorProto { values, indices, dims, unknown } = tensor;
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

/// Strings have different lengths, so each has its own before it.
fn texts_digest<'s>(texts: impl Iterator<Item = &'s [u8]>) -> Digest {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    Digest::of_bytes(hasher)
}

/// Bytes to hash, once for all tensors that have them.
struct Job<'c> {
    bytes: Bytes<'c>,
    len: u64,
    /// The bits of the last byte that belong to elements.
    last: u8,
    digest: OnceLock<Result<Digest>>,
}

enum Bytes<'c> {
    Here(Buffer),
    /// In a field of numbers or strings, which has to be read first.
    Typed(&'c TensorProto),
    Elsewhere(&'c Initializer),
}

/// What tells whether two jobs are the same.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Memory(usize, u64, u8),
    Source(Address, u64, u8),
}

impl Key {
    /// The source, the first byte there, and the number of bytes.
    fn range(&self) -> (Option<usize>, u64, u64) {
        match *self {
            Self::Memory(address, len, _) => (None, address as u64, len),
            Self::Source(place, len, _) => {
                let (source, start) = place.parts();
                (source, start, len)
            }
        }
    }
}

/// What is to be hashed, by whoever has time.
#[derive(Default)]
pub(super) struct Jobs<'c> {
    list: Vec<Job<'c>>,
    by_key: HashMap<Key, usize, RandomState>,
    /// The order in which the jobs are taken.
    order: Vec<usize>,
    /// How many were taken.
    taken: AtomicUsize,
}

impl<'c> Jobs<'c> {
    /// The number of the job that hashes the bytes of `proto`.
    fn add(&mut self, container: &'c Container, proto: &'c TensorProto) -> Result<usize> {
        let (bytes, len) = if is_external(proto) {
            let (_, initializer) = container.initializer_of(proto)?;
            (Bytes::Elsewhere(initializer), initializer.byte_len())
        } else if proto.raw_data.as_ref().is_some_and(|raw| !raw.is_empty())
            && let Some(bytes) = Tensor::try_from(proto)?.buffer()
        {
            (Bytes::Here(bytes.clone()), bytes.len() as u64)
        } else {
            (Bytes::Typed(proto), proto.encoded_len())
        };
        let last = last_bits(proto)?;
        let key = match &bytes {
            Bytes::Here(bytes) => Some(Key::Memory(bytes.as_ptr().addr(), len, last)),
            Bytes::Typed(_) => None,
            Bytes::Elsewhere(found) => found.address().map(|place| Key::Source(place, len, last)),
        };
        let new = self.list.len();
        let job = key.map_or(new, |key| *self.by_key.entry(key).or_insert(new));
        if job == new {
            self.list.push(Job { bytes, len, last, digest: OnceLock::new() });
        }
        Ok(job)
    }

    /// Refuses tensors that overlap so much that a small file would take hours.
    fn refuse_overlaps(&self) {
        let mut ranges: Vec<_> = self.by_key.keys().map(Key::range).collect();
        ranges.sort_unstable();
        let (mut bytes, mut reads) = (0_u64, 0_u64);
        let mut end = (None, 0);
        for (source, start, len) in ranges {
            let stop = start.saturating_add(len);
            let new = if end.0 == Some(source) { start.max(end.1) } else { start };
            bytes = bytes.saturating_add(stop.saturating_sub(new));
            reads = reads.saturating_add(len);
            end = (Some(source), stop.max(new));
        }
        if reads <= FEW_BYTES.max(bytes.saturating_mul(MOST_READS)) {
            return;
        }
        let reason = format!(
            "tensors overlap in part: {} of weights would be read as {}",
            ByteSize(bytes),
            ByteSize(reads)
        );
        for job in &self.list {
            job.digest.get_or_init(|| Err(Error::new(ErrorKind::TooLarge, reason.clone())));
        }
    }

    /// Makes the jobs ready: the longest come first, so that no thread is left with a long one at the end.
    fn sort(&mut self) {
        self.refuse_overlaps();
        let mut order: Vec<_> = self.list.iter().map(|job| job.len).enumerate().collect();
        order.sort_by_key(|(_, len)| std::cmp::Reverse(*len));
        self.order = order.into_iter().map(|(job, _)| job).collect();
    }

    /// Hashes on all cores while `run` runs, which is one of them, and stops when it is done.
    pub(super) fn alongside<T>(&self, run: impl FnOnce() -> T) -> T {
        let total = self.list.iter().fold(0_u64, |sum, job| sum.saturating_add(job.len));
        let threads = if total < WORTH_THREADS { 1 } else { parallel::cores(usize::MAX) };
        parallel::alongside(threads, || self.take_one(), run)
    }

    /// Does the next job; `false` when all are taken.
    fn take_one(&self) -> bool {
        let next = self.order.get(self.taken.fetch_add(1, Ordering::Relaxed));
        let job = next.and_then(|job| self.list.get(*job));
        job.map(Job::digest).is_some()
    }

    /// The digest of this job. Until it is there, others are done, so that nobody waits.
    fn result(&self, job: usize) -> Result<Digest> {
        let missing = || Error::internal("a tensor that is not to be hashed");
        let job = self.list.get(job).ok_or_else(missing)?;
        while job.digest.get().is_none() && self.take_one() {}
        job.digest().clone()
    }
}

/// The bits of the last byte that belong to elements: those behind elements narrower than a byte mean nothing.
fn last_bits(proto: &TensorProto) -> Result<u8> {
    let dtype = DataType::try_from(proto.data_type.unwrap_or_default())?;
    let Some(width) = dtype.bit_width().filter(|width| *width < 8) else { return Ok(u8::MAX) };
    let used = (element_count(&proto.dims)? % 8) * u64::from(width) % 8;
    Ok(if used == 0 { u8::MAX } else { u8::MAX >> (8 - used) })
}

impl Job<'_> {
    /// The digest, which is made if nobody did that.
    fn digest(&self) -> &Result<Digest> {
        self.digest.get_or_init(|| self.hash())
    }

    fn hash(&self) -> Result<Digest> {
        match &self.bytes {
            Bytes::Here(bytes) => Ok(self.whole(bytes)),
            Bytes::Typed(proto) => {
                let tensor = Tensor::try_from(*proto)?;
                let texts = |texts: &[Buffer]| texts_digest(texts.iter().map(|text| &**text));
                let neither = || Error::internal("a tensor has neither strings nor bytes");
                match tensor.strings().map(texts) {
                    Some(strings) => Ok(strings),
                    None => Ok(self.whole(tensor.as_bytes().ok_or_else(neither)?)),
                }
            }
            Bytes::Elsewhere(initializer) => self.read(initializer),
        }
    }

    fn whole(&self, bytes: &[u8]) -> Digest {
        let mut hasher = Sha256::new();
        self.end(&mut hasher, bytes);
        Digest::of_bytes(hasher)
    }

    /// Hashes the last bytes.
    fn end(&self, hasher: &mut Sha256, bytes: &[u8]) {
        let Some((last, before)) = bytes.split_last() else { return };
        hasher.update(before);
        hasher.update([last & self.last]);
    }

    fn read(&self, initializer: &Initializer) -> Result<Digest> {
        if let Some(bytes) = initializer.as_buffer() {
            return Ok(self.whole(&bytes));
        }
        if initializer.is_lazy() {
            return Ok(self.whole(&initializer.to_buffer()?));
        }
        let mut hasher = Sha256::new();
        let mut chunk = vec![0; CHUNK];
        let mut offset = 0;
        while offset < self.len {
            let rest = usize::try_from(self.len - offset).unwrap_or(usize::MAX);
            let part = chunk.get_mut(..rest.min(CHUNK)).unwrap_or_default();
            initializer.read_at(offset, part)?;
            offset += part.len() as u64;
            if offset < self.len {
                hasher.update(part);
            } else {
                self.end(&mut hasher, part);
            }
        }
        Ok(Digest::of_bytes(hasher))
    }
}
