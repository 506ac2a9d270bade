//! The SHA-256 of the bytes of every tensor of a model, each byte hashed once, by all cores.
//!
//! The bytes of a tensor are hashed alone, without its type and dimensions, so that tied weights
//! are read once, and it does not matter where and how they are stored. An error is kept for its
//! tensor. What is made of these digests is left to the callers.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use sha2::{Digest as _, Sha256};

use super::sha256::Digest;
use crate::buffer::Buffer;
use crate::container::Container;
use crate::dtype::{DataType, element_count};
use crate::error::{Error, Result};
use crate::files::external_data::{is_external, refuse_unknown_keys};
use crate::files::file_source::SourceFile;
use crate::files::overlaps;
use crate::proto::{Message, TensorProto};
use crate::tensor::Tensor;
use crate::tensor::initializer::{Address, Initializer};
use crate::util::cancel;
use crate::util::parallel;

/// A model with fewer bytes of weights than this is hashed by the calling thread.
const WORTH_THREADS: u64 = 1 << 20;
/// How many bytes are hashed between two looks at whether the call is cancelled.
const CHUNK: usize = 1 << 20;
/// The most bytes that are read at a time from a source that reads long ranges best.
const LONGEST: usize = 64 << 20;

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
    /// In a file, from this byte on.
    InFile(SourceFile, u64),
    /// Hashed already, by the process that wrote them.
    #[cfg(feature = "jobs")]
    Hashed(Digest),
}

/// Where the elements of an external tensor are, and how many bytes they have.
pub(crate) struct External<'c>(Bytes<'c>, u64);

impl<'c> External<'c> {
    /// Those of an initializer.
    pub(crate) fn of(initializer: &'c Initializer) -> Self {
        Self(Bytes::Elsewhere(initializer), initializer.byte_len())
    }

    /// Those in memory.
    pub(crate) fn in_memory(bytes: Buffer) -> Self {
        let len = bytes.len() as u64;
        Self(Bytes::Here(bytes), len)
    }

    /// The bytes `range` of `file`. Tensors on one range of one file are hashed once.
    pub(crate) fn in_file(file: &SourceFile, range: &Range<u64>) -> Self {
        let bytes = Bytes::InFile(file.clone(), range.start);
        Self(bytes, range.end.saturating_sub(range.start))
    }
}

#[cfg(feature = "jobs")]
impl External<'_> {
    /// Those whose digest is known.
    pub(crate) fn hashed(digest: Digest) -> Self {
        Self(Bytes::Hashed(digest), 0)
    }
}

/// What tells whether two jobs are the same.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Memory(usize, u64, u8),
    Source(Address, u64, u8),
    /// The file by its number, and the first byte there.
    File(usize, u64, u64, u8),
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
            Self::File(file, start, len, _) => (Some(file), start, len),
        }
    }
}

/// What is to be hashed, by any thread that is free.
#[derive(Default)]
pub(crate) struct Jobs<'c> {
    list: Vec<Job<'c>>,
    by_key: HashMap<Key, usize, RandomState>,
    /// The order in which the jobs are taken.
    order: Vec<usize>,
    /// How many were taken.
    taken: AtomicUsize,
    padding: Padding,
}

/// Whether the bits behind the last element of a type narrower than a byte are hashed as they are,
/// or as zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Padding {
    #[default]
    Hashed,
    Zero,
}

impl<'c> Jobs<'c> {
    pub(crate) fn new(padding: Padding) -> Self {
        Self { padding, ..Self::default() }
    }

    /// As [`new`](Self::new), for the tensors of a whole model: lists of very many do not grow.
    pub(crate) fn with_room(padding: Padding, tensors: usize) -> Self {
        let mut jobs = Self::new(padding);
        jobs.list.reserve_exact(tensors);
        jobs.by_key.reserve(tensors);
        jobs
    }

    /// The number of the job that hashes the bytes of `proto`.
    pub(crate) fn add(
        &mut self,
        container: &'c Container,
        proto: &'c TensorProto,
    ) -> Result<usize> {
        self.add_from(proto, |proto| {
            container.initializer_of(proto).map(|(_, initializer)| External::of(initializer))
        })
    }

    /// As [`add`](Self::add), for a tensor whose elements are where `external` says, if it is
    /// external.
    pub(super) fn add_from(
        &mut self,
        proto: &'c TensorProto,
        external: impl FnOnce(&'c TensorProto) -> Result<External<'c>>,
    ) -> Result<usize> {
        let External(bytes, len) = if is_external(proto) {
            refuse_unknown_keys(proto)?;
            external(proto)?
        } else if proto.raw_data.as_ref().is_some_and(|raw| !raw.is_empty())
            && let Some(bytes) = Tensor::try_from(proto)?.buffer()
        {
            External::in_memory(bytes.clone())
        } else {
            External(Bytes::Typed(proto), proto.encoded_len())
        };
        let last = match self.padding {
            Padding::Hashed => u8::MAX,
            Padding::Zero => last_bits(proto)?,
        };
        let key = match &bytes {
            Bytes::Here(bytes) => Some(Key::Memory(bytes.as_ptr().addr(), len, last)),
            Bytes::Typed(_) => None,
            #[cfg(feature = "jobs")]
            Bytes::Hashed(_) => None,
            Bytes::Elsewhere(found) => found.address().map(|place| Key::Source(place, len, last)),
            Bytes::InFile(file, start) => Some(Key::File(file.number(), *start, len, last)),
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
        let ranges = self.by_key.keys().map(Key::range).collect();
        let Some(error) = overlaps::refused(ranges, "read") else { return };
        for job in &self.list {
            job.digest.get_or_init(|| Err(error.clone()));
        }
    }

    /// Makes the jobs ready: the longest come first, so that no thread is left with a long one at
    /// the end.
    pub(crate) fn sort(&mut self) {
        self.refuse_overlaps();
        let mut order: Vec<_> = self.list.iter().map(|job| job.len).enumerate().collect();
        order.sort_by_key(|(_, len)| std::cmp::Reverse(*len));
        self.order = order.into_iter().map(|(job, _)| job).collect();
    }

    /// How many bytes are hashed.
    pub(crate) fn bytes(&self) -> u64 {
        self.list.iter().fold(0, |sum, job| sum.saturating_add(job.len))
    }

    /// Hashes on all cores while `run` runs, which is one of them, and stops when it is done.
    pub(crate) fn alongside<T>(&self, run: impl FnOnce() -> T) -> T {
        let total = self.bytes();
        cancel::begin(total);
        let threads = if total < WORTH_THREADS { 1 } else { parallel::cores(usize::MAX) };
        parallel::alongside(threads, || self.take_one(), run)
    }

    /// Hashes everything, on all cores.
    pub(crate) fn run(&self) {
        self.alongside(|| while self.take_one() {});
    }

    /// Does the next job; `false` when all are taken.
    fn take_one(&self) -> bool {
        let next = self.order.get(self.taken.fetch_add(1, Ordering::Relaxed));
        let job = next.and_then(|job| self.list.get(*job));
        job.map(Job::digest).is_some()
    }

    /// The digest of this job. Until it is there, others are done, so that nobody waits.
    pub(crate) fn result(&self, job: usize) -> Result<Digest> {
        let missing = || Error::internal("a tensor that is not to be hashed");
        let job = self.list.get(job).ok_or_else(missing)?;
        while job.digest.get().is_none() && self.take_one() {}
        job.digest().clone()
    }
}

/// The bits of the last byte that belong to elements: those behind elements narrower than a byte
/// mean nothing.
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
        cancel::check()?;
        match &self.bytes {
            Bytes::Here(bytes) => self.whole(bytes),
            Bytes::Typed(proto) => {
                let tensor = Tensor::try_from(*proto)?;
                let texts = |texts: &[Buffer]| texts_digest(texts.iter().map(|text| &**text));
                let neither = || Error::internal("a tensor has neither strings nor bytes");
                let digest = match tensor.strings().map(texts) {
                    Some(strings) => strings,
                    None => {
                        let bytes = tensor.as_bytes().ok_or_else(neither)?;
                        self.in_pieces(bytes, |_| cancel::check())?
                    }
                };
                // As long as the field is, which was announced, whatever the elements are.
                cancel::advance(self.len)?;
                Ok(digest)
            }
            #[cfg(feature = "jobs")]
            Bytes::Hashed(digest) => Ok(*digest),
            Bytes::Elsewhere(initializer) => self.read(initializer),
            Bytes::InFile(file, start) => self.in_parts(file.most_at_once(), |offset, part| {
                let at = start.checked_add(offset);
                file.read_at(at.ok_or_else(|| Error::internal("a place beyond any file"))?, part)
            }),
        }
    }

    fn whole(&self, bytes: &[u8]) -> Result<Digest> {
        self.in_pieces(bytes, cancel::advance)
    }

    /// Hashes `bytes`, and tells `done` how long each piece was.
    fn in_pieces(&self, bytes: &[u8], done: impl Fn(u64) -> Result<()>) -> Result<Digest> {
        let mut hasher = Sha256::new();
        let (before, last) = bytes.split_at(bytes.len().saturating_sub(1) / CHUNK * CHUNK);
        for piece in before.chunks(CHUNK) {
            hasher.update(piece);
            done(piece.len() as u64)?;
        }
        self.end(&mut hasher, last);
        done(last.len() as u64)?;
        Ok(Digest::of_bytes(hasher))
    }

    /// Hashes the last bytes.
    fn end(&self, hasher: &mut Sha256, bytes: &[u8]) {
        let Some((last, before)) = bytes.split_last() else { return };
        hasher.update(before);
        hasher.update([last & self.last]);
    }

    fn read(&self, initializer: &Initializer) -> Result<Digest> {
        if let Some(bytes) = initializer.as_buffer() {
            return self.whole(&bytes);
        }
        if initializer.is_lazy() {
            return self.whole(&initializer.to_buffer()?);
        }
        let most = initializer.preferred_read().min(LONGEST);
        self.in_parts(most, |offset, part| initializer.read_at(offset, part))
    }

    /// Hashes what `read` fills parts of at most `most` bytes with from an offset on.
    fn in_parts(&self, most: usize, read: impl Fn(u64, &mut [u8]) -> Result<()>) -> Result<Digest> {
        let mut hasher = Sha256::new();
        let mut chunk = vec![0; most.min(usize::try_from(self.len).unwrap_or(most))];
        let mut offset = 0;
        while offset < self.len {
            let rest = usize::try_from(self.len - offset).unwrap_or(usize::MAX);
            let part = chunk.get_mut(..rest.min(most)).unwrap_or_default();
            read(offset, part)?;
            offset += part.len() as u64;
            if offset < self.len {
                hasher.update(&*part);
            } else {
                self.end(&mut hasher, part);
            }
            cancel::advance(part.len() as u64)?;
        }
        Ok(Digest::of_bytes(hasher))
    }
}

/// Strings have different lengths, so each has its own before it.
pub(crate) fn texts_digest<'s>(texts: impl Iterator<Item = &'s [u8]>) -> Digest {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    Digest::of_bytes(hasher)
}
