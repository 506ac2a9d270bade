//! The weights that a cast makes infinite, which is known when a save or a reader converts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether finite numbers of a weight became infinite, as far as it was converted.
#[derive(Debug, Clone, Default)]
pub(super) struct Overflow(Arc<AtomicBool>);

impl Overflow {
    /// Notes that a number became infinite.
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The weights of a cast, by name, each with what became of its numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Overflows(Vec<(String, Overflow)>);

impl Overflows {
    pub(super) fn push(&mut self, name: String, overflow: Overflow) {
        self.0.push((name, overflow));
    }

    /// The names of the weights of which numbers became infinite, so far.
    pub(super) fn names(&self) -> Vec<&str> {
        let noted = self.0.iter().filter(|(_, overflow)| overflow.is_noted());
        noted.map(|(name, _)| name.as_str()).collect()
    }
}

/// Equal where the same numbers of the same weights are known to be infinite.
impl PartialEq for Overflows {
    fn eq(&self, other: &Self) -> bool {
        self.names() == other.names()
    }
}

impl Eq for Overflows {}
