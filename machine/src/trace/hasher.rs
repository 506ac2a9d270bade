//! The SHA-256 of what steps read and wrote, made by a thread of its own while the run goes on.
//!
//! The run changes the memory meanwhile, so the thread gets a copy: a copy takes a small part of the time that the
//! digest takes. Digests come in the order in which they were asked for.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use sha2::{Digest as _, Sha256};

use super::digest::hex;
use crate::error::{Error, Result};

/// Fewer bytes than this are hashed at once: to hand them over would take longer.
const FEW: usize = 4 << 10;
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
    /// The digests that the worker makes, in the order in which they come.
    pending: VecDeque<Sha>,
    /// The length of all copies that the worker has.
    handed: usize,
    /// Memory of copies that are hashed.
    spare: Vec<Vec<u8>>,
    /// The capacity of all of `spare`, in bytes.
    spared: usize,
}

#[derive(Debug)]
struct Worker {
    copies: Sender<Vec<u8>>,
    digests: Receiver<(String, Vec<u8>)>,
}

impl Hasher {
    /// With a thread, where there is a core for it.
    pub(super) fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let worker = if cores > 1 { Worker::start() } else { None };
        Self { worker, pending: VecDeque::new(), handed: 0, spare: Vec::new(), spared: 0 }
    }

    /// Asks for the digest of `bytes`.
    pub(super) fn ask(&mut self, bytes: &[u8]) -> Sha {
        let here = || known(hex(&Sha256::digest(bytes)));
        let Some(worker) = &self.worker else { return here() };
        // One step may read a tensor a thousand times, and digests are taken back between steps only.
        if bytes.len() < FEW || self.handed.saturating_add(bytes.len()) > MOST {
            return here();
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        self.spared -= copy.capacity();
        copy.clear();
        copy.extend_from_slice(bytes);
        if worker.copies.send(copy).is_err() {
            return here();
        }
        self.handed += bytes.len();
        let sha = Sha::default();
        self.pending.push_back(sha.clone());
        sha
    }

    /// Sets the next of the digests that are being made. Returns whether it is made: with `wait` always.
    pub(super) fn advance(&mut self, wait: bool) -> Result<bool> {
        let gone = || Error::internal("the thread that hashes values is gone");
        let worker = self.worker.as_ref().ok_or_else(gone)?;
        let (digest, copy) = if wait {
            worker.digests.recv().map_err(|_| gone())?
        } else {
            match worker.digests.try_recv() {
                Ok(done) => done,
                Err(TryRecvError::Empty) => return Ok(false),
                Err(TryRecvError::Disconnected) => return Err(gone()),
            }
        };
        self.handed -= copy.len();
        if self.spared + copy.capacity() <= MOST {
            self.spared += copy.capacity();
            self.spare.push(copy);
        }
        let sha = self.pending.pop_front();
        sha.map_or(Ok(true), |sha| sha.set(digest).map(|()| true))
            .map_err(|_| Error::internal("a digest was made twice"))
    }
}

impl Worker {
    /// `None` when there is no further thread to be had. It ends when the hasher is dropped.
    fn start() -> Option<Self> {
        let (copies, to_hash) = channel::<Vec<u8>>();
        let (done, digests) = channel();
        let work = move || {
            for copy in to_hash {
                if done.send((hex(&Sha256::digest(&copy)), copy)).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new().name("trace digests".to_owned()).spawn(work).ok()?;
        Some(Self { copies, digests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_bytes_in_their_order() {
        let lengths = [0, 1, FEW - 1, FEW, 5 * FEW, 3, 2 << 20, MOST / 2, MOST / 2, FEW, MOST + 1];
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
            assert_eq!(hasher.handed, 0);
        }
    }
}
