//! How many files are mapped at once, counted so that there is an end to it.
//!
//! Linux gives a process 65,530 maps (`vm.max_map_count`), and threads and allocators need some of
//! them. A model can have more weights files than that. So a map of a file takes a slot here, and
//! what finds none is read instead: small files first, which cost little memory, and all of them
//! when slots run out.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of slots for maps.
#[derive(Debug)]
pub(crate) struct Slots {
    taken: AtomicUsize,
    /// From here on files below [`SMALL`] bytes get no slot.
    few: usize,
    /// From here on no file gets one.
    all: usize,
}

/// Half of what a thousand small files take stays below 64 MiB.
const SMALL: u64 = 64 << 10;

/// The slots of this process: three quarters of Linux's default limit.
pub(crate) static FILES: Slots = Slots::new(1024, 48 << 10);

impl Slots {
    pub(crate) const fn new(few: usize, all: usize) -> Self {
        Self { taken: AtomicUsize::new(0), few, all }
    }

    /// A slot for a file of `len` bytes; `None` when it had better be read.
    pub(crate) fn take(&'static self, len: u64) -> Option<Slot> {
        let limit = if len < SMALL { self.few } else { self.all };
        let free = self.taken.fetch_add(1, Ordering::Relaxed) < limit;
        let give_back = || {
            self.taken.fetch_sub(1, Ordering::Relaxed);
        };
        let slot = Slot(Box::new(give_back));
        free.then_some(slot)
    }
}

/// A slot that a map has; dropping it gives it back. A closure, because a reference to the counter
/// would make buffers, and the strings in them, types with interior mutability.
pub(crate) struct Slot(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_are_read_sooner_and_slots_come_back() {
        static SLOTS: Slots = Slots::new(2, 3);
        let mut held: Vec<_> = [SMALL - 1, SMALL].map(|len| SLOTS.take(len)).into();
        assert!(held.iter().all(Option::is_some));
        assert!(SLOTS.take(0).is_none(), "two are taken");
        held.push(SLOTS.take(SMALL));
        assert!(held[2].is_some());
        assert!(SLOTS.take(u64::MAX).is_none());
        held.clear();
        assert!(SLOTS.take(0).is_some());
        assert_eq!(SLOTS.taken.load(Ordering::Relaxed), 0);
    }
}
