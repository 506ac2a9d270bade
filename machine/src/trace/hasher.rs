//! The SHA-256 of what steps read and wrote, made by a thread of its own while the run goes on.
//!
//! The run changes the memory meanwhile, so the thread gets a copy: a copy takes a small part of
//! the time that the digest takes. To wake the thread takes time too, so it gets several values at
//! once. Digests come in the order in which they were asked for.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use sha2::{Digest as _, Sha256};

use super::digest::hex;
use crate::error::{Error, Result};
use crate::exact::Exact;

/// Fewer bytes than this are hashed at once: to hand them over would take longer.
const FEW: usize = 1 << 10;
/// As many bytes are handed over at once.
const BATCH: usize = 256 << 10;
/// How many bytes may be copied and not hashed yet. More at a time are hashed where they lie.
const MOST: usize = 64 << 20;

/// A digest that was asked for, in hexadecimal digits. It is set when it is made.
pub(super) type Sha = Arc<OnceLock<String>>;

/// A digest that is made.
pub(super) fn known(sha: String) -> Sha {
    Arc::new(OnceLock::from(sha))
}

/// Makes digests.
#[derive(Debug)]
pub(super) struct Hasher {
    worker: Option<Worker>,
    /// The digests that were not made here, in the order in which they come.
    pending: VecDeque<Sha>,
    /// The length of all copies that are not hashed yet.
    copied: usize,
    /// The copies that the worker gets next.
    batch: Batch,
    /// Memory of copies that are hashed.
    spare: Vec<Batch>,
    /// The capacity of all of `spare`, in bytes.
    spared: usize,
}

#[derive(Debug)]
struct Worker {
    batches: Sender<Batch>,
    digests: Receiver<(Vec<String>, Batch)>,
}

/// Copies of values, one behind the other.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Batch {
    fn digests(&self) -> Vec<String> {
        let mut end = 0;
        let digest = |len: &usize| {
            let start = end;
            end += len;
            hex(&Sha256::digest(self.bytes.debug_part(start..end)))
        };
        self.lengths.iter().map(digest).collect()
    }
}

impl Hasher {
    /// With a thread, where there is a core for it.
    pub(super) fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let worker = if cores > 1 { Worker::start() } else { None };
        let (pending, batch, spare) = (VecDeque::new(), Batch::default(), Vec::new());
        Self { worker, pending, copied: 0, batch, spare, spared: 0 }
    }

    /// Asks for the digest of `bytes`.
    pub(super) fn ask(&mut self, bytes: &[u8]) -> Sha {
        let here = || known(hex(&Sha256::digest(bytes)));
        // One step may read a tensor a thousand times, and digests are taken back between steps
        // only.
        let is_much = self.copied.saturating_add(bytes.len()) > MOST;
        if self.worker.is_none() || bytes.len() < FEW || is_much {
            return here();
        }
        let len = self.batch.bytes.len().saturating_add(bytes.len());
        if len > self.batch.bytes.capacity().min(BATCH) {
            self.hand_over();
            self.batch = self.empty_batch(bytes.len());
        }
        self.batch.bytes.extend_from_slice(bytes);
        self.batch.lengths.push(bytes.len());
        self.copied += bytes.len();
        let sha = Sha::default();
        self.pending.push_back(sha.clone());
        if self.batch.bytes.len() >= BATCH {
            self.hand_over();
        }
        sha
    }

    /// A batch that is empty, with room for `len` bytes.
    fn empty_batch(&mut self, len: usize) -> Batch {
        let Some(i) = self.spare.iter().rposition(|batch| batch.bytes.capacity() >= len) else {
            let bytes = Vec::with_capacity(len.max(BATCH));
            return Batch { bytes, lengths: Vec::new() };
        };
        let mut batch = self.spare.swap_remove(i);
        self.spared -= batch.bytes.capacity();
        batch.bytes.clear();
        batch.lengths.clear();
        batch
    }

    /// Hands the copies to the worker.
    fn hand_over(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if let Some(worker) = self.worker.as_ref().filter(|_| !batch.lengths.is_empty()) {
            // That the worker is gone is told by who waits for its digests.
            let _ = worker.batches.send(batch);
        }
    }

    /// Sets the next of the digests that are being made. Returns whether any is made: with `wait`
    /// always.
    pub(super) fn advance(&mut self, wait: bool) -> Result<bool> {
        if wait {
            self.hand_over();
        }
        let gone = || Error::internal("the thread that hashes values is gone");
        let worker = self.worker.as_ref().ok_or_else(gone)?;
        let (digests, batch) = if wait {
            worker.digests.recv().map_err(|_| gone())?
        } else {
            match worker.digests.try_recv() {
                Ok(done) => done,
                Err(TryRecvError::Empty) => return Ok(false),
                Err(TryRecvError::Disconnected) => return Err(gone()),
            }
        };
        self.copied -= batch.bytes.len();
        if self.spared + batch.bytes.capacity() <= MOST {
            self.spared += batch.bytes.capacity();
            self.spare.push(batch);
        }
        for digest in digests {
            let sha = self.pending.pop_front();
            sha.map_or(Ok(()), |sha| sha.set(digest))
                .map_err(|_| Error::internal("a digest was made twice"))?;
        }
        Ok(true)
    }
}

impl Worker {
    /// `None` when there is no further thread to be had. It ends when the hasher is dropped. It is
    /// not one of `onnx_container::work`, whose threads end with the call that starts them.
    fn start() -> Option<Self> {
        let (batches, to_hash) = channel::<Batch>();
        let (done, digests) = channel();
        let work = move || {
            for batch in to_hash {
                if done.send((batch.digests(), batch)).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new().name("trace digests".to_owned()).spawn(work).ok()?;
        Some(Self { batches, digests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_bytes_in_their_order() {
        let lengths =
            [0, 1, FEW - 1, FEW, BATCH - FEW, BATCH, 3, 2 << 20, MOST / 2, MOST / 2, FEW, MOST + 1];
        for worker in [true, false] {
            let mut hasher = Hasher::new();
            hasher.worker = if worker { Some(Worker::start().unwrap()) } else { None };
            let (mut expected, mut shas) = (Vec::new(), Vec::new());
            for (i, len) in lengths.into_iter().enumerate() {
                let bytes = vec![u8::try_from(i).unwrap(); len];
                expected.push(hex(&Sha256::digest(&bytes)));
                shas.push(hasher.ask(&bytes));
            }
            assert_eq!(hasher.pending.is_empty(), !worker);
            while !hasher.pending.is_empty() {
                assert!(hasher.advance(true).unwrap());
            }
            let found: Vec<_> = shas.iter().map(|sha| sha.get().unwrap()).collect();
            assert_eq!(found, expected.iter().collect::<Vec<_>>());
            assert_eq!(hasher.copied, 0);
        }
    }
}
