//! The digests of a program's constants, which may be gigabytes, computed on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use sha2::{Digest as _, Sha256};

use super::digest::{hex, traced};
use super::{TracedValue, TracedWeight};
use crate::error::{Error, Result};
use crate::machine::Touched;
use crate::memory::Memory;
use crate::memory::table::{Entry, Stored};
use crate::program::{Block, Program};

/// Fewer bytes of constants than this are hashed by the calling thread.
const WORTH_THREADS: u64 = 1 << 20;

/// The constants of `program`, in its order, those of a node's graphs behind those of its own.
pub(super) fn of(program: &Program, memory: &Memory) -> Result<Vec<TracedWeight>> {
    let mut constants = Vec::new();
    collect(&program.main, "", &mut constants)?;
    hash(&constants, memory)
}

/// A constant to hash.
struct Constant<'p> {
    name: String,
    entry: &'p Entry,
    bytes: u64,
}

impl Constant<'_> {
    fn hash(&self, memory: &Memory) -> Result<TracedWeight> {
        let touched = Touched::new(&self.name, self.entry, memory);
        // A value outside of M has a digest of its own, with its type.
        let sha = touched.bytes(memory)?.map_or_else(String::new, |b| hex(&Sha256::digest(b)));
        let TracedValue { name, offset, sha, .. } = traced(&touched, sha)?;
        Ok(TracedWeight { name, off: offset, bytes: self.bytes, sha })
    }
}

/// The constants of `block`, whose path is `path`, and of the blocks in it.
fn collect<'p>(block: &'p Block, path: &str, constants: &mut Vec<Constant<'p>>) -> Result<()> {
    for (value, entry) in &block.constants {
        let bytes = match entry.stored() {
            Stored::Tensor(slot) => slot.span()?.len,
            Stored::Outside(value) => value.byte_len(),
        };
        constants.push(Constant { name: format!("{path}{}", block.name(*value)), entry, bytes });
    }
    for (i, node) in block.nodes.iter().enumerate() {
        for (name, inner) in node.attributes.graphs() {
            collect(inner, &format!("{path}{i}/{name}/"), constants)?;
        }
    }
    Ok(())
}

/// The longest are hashed first, so that no thread is left with a long one at the end.
fn hash(constants: &[Constant<'_>], memory: &Memory) -> Result<Vec<TracedWeight>> {
    let mut order: Vec<_> = constants.iter().enumerate().collect();
    order.sort_by_key(|(_, constant)| std::cmp::Reverse(constant.bytes));
    let total = constants.iter().fold(0_u64, |sum, constant| sum.saturating_add(constant.bytes));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = if total < WORTH_THREADS { 1 } else { cores.min(constants.len()) };
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(constants.len())));
    let work = || {
        while let Some((i, constant)) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let hashed = constant.hash(memory).map(|weight| (*i, weight));
            done.lock().unwrap_or_else(PoisonError::into_inner).push(hashed);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // With fewer threads than wished for, those that there are do the work.
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut weights = done.into_iter().collect::<Result<Vec<_>>>()?;
    if weights.len() != constants.len() {
        return Err(Error::internal("a constant was not hashed"));
    }
    weights.sort_unstable_by_key(|(i, _)| *i);
    Ok(weights.into_iter().map(|(_, weight)| weight).collect())
}
