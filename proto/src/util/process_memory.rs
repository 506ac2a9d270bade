//! How much memory the process has allocated, and how much it may: counted by an allocator that
//! calls here, and by the maps of [`BufferMut`](crate::BufferMut), which no allocator sees.
//!
//! A library cannot choose the allocator of its program. A program whose allocator asks [`take`]
//! before each allocation, and refuses what it refuses, keeps to the bound that [`bound`] sets;
//! files that are mapped do not count. The `onnx-container` command does so for `--max-memory`.

use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

/// The bytes that are allocated, as far as threads have told: what one has freed may be told before
/// another one tells that it was allocated.
static USED: AtomicIsize = AtomicIsize::new(0);
/// How many there may be.
static MOST: AtomicIsize = AtomicIsize::new(isize::MAX);

/// A thread tells of its allocations when they are this many bytes: a counter that all threads
/// share is slow.
const UNTOLD: isize = 64 << 10;

thread_local! {
    /// The bytes that this thread has allocated, less those that it freed, since it told last.
    static OWN: Cell<isize> = const { Cell::new(0) };
}

/// Counts `len` bytes that are about to be allocated. `false` where they would be more than the
/// process may have: then they must not be allocated, and are to be given back. It allocates
/// nothing itself.
#[must_use]
pub fn take(len: usize) -> bool {
    let own = own().saturating_add_unsigned(len);
    if own < UNTOLD {
        set_own(own);
        return true;
    }
    set_own(0);
    USED.fetch_add(own, Relaxed).saturating_add(own) <= MOST.load(Relaxed)
}

/// Counts `len` bytes that are freed, or were refused.
pub fn give_back(len: usize) {
    let own = own().saturating_sub_unsigned(len);
    if own > -UNTOLD {
        set_own(own);
        return;
    }
    set_own(0);
    USED.fetch_add(own, Relaxed);
}

/// Lets the process have at most `more` bytes beside those that it has now, some 64 KiB for each
/// thread aside.
pub fn bound(more: usize) {
    MOST.store(USED.load(Relaxed).saturating_add_unsigned(more), Relaxed);
}

/// A thread that ends has no number of its own any more: then it counts from 0.
fn own() -> isize {
    OWN.try_with(Cell::get).unwrap_or(0)
}

fn set_own(own: isize) {
    let _ = OWN.try_with(|cell| cell.set(own));
}
