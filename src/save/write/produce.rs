//! Lazy weights, produced by a few threads ahead of the writer.
//!
//! The weights are queued in the order in which their bytes are written. Threads take them from the
//! front as long as the bytes that are produced and not yet written stay within a bound. The writer
//! waits for the weight it needs next, and reports when that is written; the weight is then dropped
//! and the next one admitted. There is no deadlock, whatever the bound: weights are admitted in
//! order, so the first unwritten one is always produced or in production, and a writer that fails
//! ends the wait of all others.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::save::plan::{Piece, PlannedFile};
use crate::tensor::initializer::Address;
use crate::util::cancel::Token;
use crate::util::parallel;

/// More threads than this do not make a save faster.
const MAX_THREADS: usize = 8;

/// The lazy weights of a save and their state.
pub(crate) struct Ahead<'p> {
    /// The first piece of each weight, in the order of the plan.
    firsts: Vec<&'p Piece<'p>>,
    /// The index of each weight.
    numbers: HashMap<Address, usize>,
    /// How many bytes may be produced and not yet written.
    max: u64,
    state: Mutex<State>,
    /// How long weights were in production, added up over the threads.
    producing: Mutex<Duration>,
    moved: Condvar,
}

struct State {
    slots: Vec<LazySlot>,
    /// Bytes that are produced or in production, and not yet written.
    in_flight: u64,
    failure: Option<Error>,
    /// Whether the writer has finished or failed.
    stopped: bool,
}

/// One weight. It is written in several places if a file has it in more than one shape.
#[derive(Default)]
struct LazySlot {
    made: Option<Buffer>,
    /// Bytes still to be written of its first place.
    first: u64,
    /// Bytes still to be written of all places.
    all: u64,
}

/// Calls `write` while threads produce the lazy weights of `files`, at most `max` bytes ahead of
/// it. A weight of more than `max` bytes is produced alone.
pub(crate) fn ahead_of<T>(
    files: &[PlannedFile<'_>],
    max: u64,
    write: impl FnOnce(&Ahead<'_>) -> Result<T>,
) -> Result<T> {
    let ahead = Ahead::new(files, max);
    if ahead.firsts.is_empty() {
        return write(&ahead);
    }
    let token = Token::current();
    // Not `parallel::alongside`, which does without the other thread where there is none to be had:
    // the writer would wait for weights that nobody makes.
    thread::scope(|scope| {
        let _stop = StopWhenDone(&ahead);
        let make = || token.scope(|| ahead.make_all());
        let started = Builder::new().spawn_scoped(scope, make);
        started.map_err(|e| Error::io("a thread that makes weights", e))?;
        write(&ahead)
    })
}

impl<'p> Ahead<'p> {
    fn new(files: &'p [PlannedFile<'_>], max: u64) -> Self {
        let (mut firsts, mut numbers, mut slots) = (Vec::new(), HashMap::new(), Vec::new());
        for piece in files.iter().flat_map(|file| &file.pieces) {
            let lazy = piece.initializer.is_lazy();
            let Some(address) = piece.initializer.address().filter(|_| lazy) else { continue };
            let len = piece.initializer.byte_len();
            let number = *numbers.entry(address).or_insert_with(|| {
                firsts.push(piece);
                slots.push(LazySlot { first: len, ..LazySlot::default() });
                firsts.len() - 1
            });
            if let Some(slot) = slots.get_mut(number) {
                slot.all = slot.all.saturating_add(len);
            }
        }
        let state = State { slots, in_flight: 0, failure: None, stopped: false };
        Self {
            firsts,
            numbers,
            max,
            state: Mutex::new(state),
            producing: Mutex::default(),
            moved: Condvar::new(),
        }
    }

    /// The bytes of `piece`, or `None` when it is not lazy; waits until they are produced.
    pub(crate) fn bytes_of(&self, piece: &Piece<'_>) -> Result<Option<Buffer>> {
        let Some(number) = self.number_of(piece) else { return Ok(None) };
        let mut state = self.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let slot = state.slots.get(number);
            if let Some(bytes) = slot.and_then(|slot| slot.made.clone()) {
                return Ok(Some(bytes));
            }
            state = self.wait(state);
        }
    }

    /// Records that `bytes` more of `piece` are written; drops a weight that is complete.
    pub(crate) fn wrote(&self, piece: &Piece<'_>, bytes: u64) {
        let Some(number) = self.number_of(piece) else { return };
        let mut state = self.lock();
        let Some(slot) = state.slots.get_mut(number) else { return };
        // A weight with a second place is kept in memory until it is written there too, but counts
        // as written after the first, so that the weights in between can be admitted.
        let first = slot.first.min(bytes);
        slot.first -= first;
        slot.all = slot.all.saturating_sub(bytes);
        let written = slot.first == 0 && first > 0;
        let last = if slot.all == 0 { slot.made.take() } else { None };
        // Free the memory before the waiting threads are notified.
        drop(last);
        if written {
            let len = self.firsts.get(number).map_or(0, |piece| piece.initializer.byte_len());
            state.in_flight = state.in_flight.saturating_sub(len);
            self.moved.notify_all();
        }
    }

    /// Ends the production because the writer failed: threads that wait for a weight get the error.
    pub(crate) fn fail(&self, error: &Error) {
        self.lock().failure.get_or_insert_with(|| error.clone());
        self.moved.notify_all();
    }

    /// How long weights were in production so far, added up over the threads.
    pub(crate) fn producing(&self) -> Duration {
        *self.producing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number_of(&self, piece: &Piece<'_>) -> Option<usize> {
        if !piece.initializer.is_lazy() {
            return None;
        }
        self.numbers.get(&piece.initializer.address()?).copied()
    }

    fn make_all(&self) {
        let firsts = self.firsts.iter().enumerate();
        let admitted = firsts.take_while(|(_, piece)| self.admit(piece.initializer.byte_len()));
        let made = parallel::for_each(parallel::cores(MAX_THREADS), admitted, |(number, piece)| {
            self.make(number, piece)
        });
        if let Err(error) = made {
            self.lock().failure.get_or_insert(error);
            self.moved.notify_all();
        }
    }

    /// Waits until `len` more bytes may be produced; `false` when none are needed any more.
    fn admit(&self, len: u64) -> bool {
        let mut state = self.lock();
        loop {
            let after = state.in_flight.saturating_add(len);
            if state.stopped || state.failure.is_some() {
                return false;
            }
            if after <= self.max || state.in_flight == 0 {
                state.in_flight = after;
                return true;
            }
            state = self.wait(state);
        }
    }

    fn make(&self, number: usize, piece: &Piece<'_>) -> Result<()> {
        let start = Instant::now();
        let bytes = piece.initializer.to_buffer();
        let mut producing = self.producing.lock().unwrap_or_else(PoisonError::into_inner);
        *producing = producing.saturating_add(start.elapsed());
        drop(producing);
        let mut state = self.lock();
        match bytes {
            Ok(bytes) => {
                let slot = state.slots.get_mut(number);
                slot.ok_or_else(|| Error::internal("a lazy weight without a slot"))?.made =
                    Some(bytes);
            }
            // Reported at once: the writer may be waiting for this weight.
            Err(error) => drop(state.failure.get_or_insert(piece.name_in(error))),
        }
        self.moved.notify_all();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, state: MutexGuard<'g, State>) -> MutexGuard<'g, State> {
        self.moved.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops the threads when the writer ends, also when it panics.
struct StopWhenDone<'a, 'p>(&'a Ahead<'p>);

impl Drop for StopWhenDone<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        self.0.moved.notify_all();
    }
}
