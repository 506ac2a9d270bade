//! How much memory the messages of an input may take.
//!
//! An empty message takes two bytes of input and up to 300 of memory, so that a few megabytes could
//! ask for gigabytes. Each reader counts what its messages take, and reports it from time to time,
//! since several threads may read one input.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::limits::{Limit, Limits, exceeded};

/// What any input may take, in bytes.
const BASE: u64 = 8 << 20;
/// What each byte of the input may take more. Nodes of real models take two to four bytes of memory
/// for each of theirs, and the types and shapes of values with short names up to ten.
const PER_BYTE: u64 = 10;
/// How many bytes a reader counts before it reports them.
const PART: u64 = 64 << 10;

/// What is left for the messages of an input.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    left: AtomicU64,
}

impl Budget {
    /// The budget of an input of `len` bytes: what `limits` give, or what the length allows.
    pub(super) fn new(len: usize, limits: &Limits) -> Self {
        let by_len = || (len as u64).saturating_mul(PER_BYTE).saturating_add(BASE);
        let limit = limits.get(Limit::Memory).unwrap_or_else(by_len);
        Self { limit, left: AtomicU64::new(limit) }
    }

    /// Takes `bytes` off what is left.
    fn take(&self, bytes: u64) -> Result<()> {
        let take = |left: u64| left.checked_sub(bytes);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(exceeded(Limit::Memory, self.limit)),
        }
    }
}

/// What a reader has counted and not reported.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted(u64);

impl Counted {
    /// Counts a value of `bytes` bytes.
    #[inline]
    pub(super) fn add(&mut self, bytes: usize, budget: &Budget) -> Result<()> {
        self.0 += bytes as u64;
        if self.0 < PART { Ok(()) } else { budget.take(std::mem::take(&mut self.0)) }
    }
}
