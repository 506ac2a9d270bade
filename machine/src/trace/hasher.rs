//! The SHA-256 of what steps read and wrote, made by a thread of its own while the run goes on.
//!
//! The run changes the memory meanwhile, so the thread gets a copy: a copy takes a small part of the time that the
//! digest takes. Digests come back in the order in which they were asked for.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use sha2::{Digest as _, Sha256};

use super::digest::hex;
use crate::error::{Error, Result};

/// Fewer bytes than this are hashed at once: to hand them over would take longer.
const FEW: usize = 4 << 10;
/// How many bytes may be copied and not hashed yet. More at a time are hashed where they lie.
const MOST: usize = 64 << 20;

/// A digest that was asked for.
pub(super) enum Asked {
    /// It is known.
    Known(String),
    /// It is the next one that [`Hasher::next`] gives, behind those that were asked for before.
    Later,
}

/// Makes digests.
#[derive(Debug)]
pub(super) struct Hasher {
    worker: Option<Worker>,
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
        Self { worker, handed: 0, spare: Vec::new(), spared: 0 }
    }

    /// Asks for the digest of `bytes`.
    pub(super) fn ask(&mut self, bytes: &[u8]) -> Asked {
        let here = || Asked::Known(hex(&Sha256::digest(bytes)));
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
        Asked::Later
    }

    /// The next digest of those that were to come later; `None` when it is not done yet and `wait` is false.
    pub(super) fn next(&mut self, wait: bool) -> Result<Option<String>> {
        let gone = || Error::internal("the thread that hashes values is gone");
        let worker = self.worker.as_ref().ok_or_else(gone)?;
        let (digest, copy) = if wait {
            worker.digests.recv().map_err(|_| gone())?
        } else {
            match worker.digests.try_recv() {
                Ok(done) => done,
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => return Err(gone()),
            }
        };
        self.handed -= copy.len();
        if self.spared + copy.capacity() <= MOST {
            self.spared += copy.capacity();
            self.spare.push(copy);
        }
        Ok(Some(digest))
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
            let (mut expected, mut found, mut later) = (Vec::new(), Vec::new(), Vec::new());
            for (i, len) in lengths.into_iter().enumerate() {
                let bytes = vec![u8::try_from(i).unwrap(); len];
                expected.push(hex(&Sha256::digest(&bytes)));
                match hasher.ask(&bytes) {
                    Asked::Known(digest) => found.push(digest),
                    Asked::Later => {
                        later.push(found.len());
                        found.push(String::new());
                    }
                }
            }
            assert_eq!(later.is_empty(), !worker);
            assert!(hasher.handed <= MOST);
            for i in later {
                found[i] = hasher.next(true).unwrap().unwrap();
            }
            assert_eq!(found, expected);
            assert_eq!(hasher.handed, 0);
        }
    }
}
