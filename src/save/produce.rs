//! Lazy weights, made by a few threads ahead of the writer.
//!
//! The weights stand in the order in which their bytes are written. Threads take them from the front, as
//! long as what is made and not yet written stays within a bound; the writer waits for the one that it
//! is at and tells when it is written, which drops it and lets others in. The first weight that is not
//! written is always made or being made, because it was let in before all that follow: so nobody waits
//! for ever, whatever the bound.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::initializer::Address;
use crate::parallel;
use crate::save::plan::{Piece, PlannedFile};

/// More threads than this do not make a save faster.
const MAX_THREADS: usize = 8;

/// The lazy weights of a save, and how far it is with them.
pub(crate) struct Ahead<'p> {
    /// The first piece of each weight, in the order of the plan.
    firsts: Vec<&'p Piece<'p>>,
    /// The index of each weight.
    numbers: HashMap<Address, usize>,
    /// How many bytes may be made and not yet written.
    max: u64,
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    slots: Vec<Slot>,
    /// Bytes that are made, or being made, and not yet written.
    in_flight: u64,
    failure: Option<Error>,
    /// Whether the writer is done, or failed.
    stopped: bool,
}

/// One weight. It may be written in several places, where a file has it in more than one shape.
#[derive(Default)]
struct Slot {
    made: Option<Buffer>,
    /// Bytes still to be written of its first place.
    first: u64,
    /// Bytes still to be written of all places.
    all: u64,
}

/// Calls `write` while threads make the lazy weights of `files`, `max` bytes at a time; a weight that is
/// longer goes alone.
pub(crate) fn ahead_of<T>(
    files: &[PlannedFile<'_>],
    max: u64,
    write: impl FnOnce(&Ahead<'_>) -> Result<T>,
) -> Result<T> {
    let ahead = Ahead::new(files, max);
    if ahead.firsts.is_empty() {
        return write(&ahead);
    }
    thread::scope(|scope| {
        let _stop = StopWhenDone(&ahead);
        let make = || ahead.make_all();
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
                slots.push(Slot { first: len, ..Slot::default() });
                firsts.len() - 1
            });
            if let Some(slot) = slots.get_mut(number) {
                slot.all = slot.all.saturating_add(len);
            }
        }
        let state = State { slots, in_flight: 0, failure: None, stopped: false };
        Self { firsts, numbers, max, state: Mutex::new(state), moved: Condvar::new() }
    }

    /// The bytes of `piece`, when it is lazy; waits until they are made.
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

    /// Notes that `bytes` more of `piece` are written, and lets go of a weight that is written.
    pub(crate) fn wrote(&self, piece: &Piece<'_>, bytes: u64) {
        let Some(number) = self.number_of(piece) else { return };
        let mut state = self.lock();
        let Some(slot) = state.slots.get_mut(number) else { return };
        // A weight with a second place is kept for it, and does not hold up those between.
        let first = slot.first.min(bytes);
        slot.first -= first;
        slot.all = slot.all.saturating_sub(bytes);
        let written = slot.first == 0 && first > 0;
        let last = if slot.all == 0 { slot.made.take() } else { None };
        // Whoever waits is let in only when the memory is free.
        drop(last);
        if written {
            let len = self.firsts.get(number).map_or(0, |piece| piece.initializer.byte_len());
            state.in_flight = state.in_flight.saturating_sub(len);
            self.moved.notify_all();
        }
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

    /// Waits until `len` more bytes may be made; `false` when none are needed any more.
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
        let bytes = piece.initializer.to_buffer();
        let mut state = self.lock();
        match bytes {
            Ok(bytes) => {
                let slot = state.slots.get_mut(number);
                slot.ok_or_else(|| Error::internal("a lazy weight without a slot"))?.made =
                    Some(bytes);
            }
            // At once: the writer may be waiting for this one.
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

/// Lets the threads end when the writer does, also by a panic.
struct StopWhenDone<'a, 'p>(&'a Ahead<'p>);

impl Drop for StopWhenDone<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        self.0.moved.notify_all();
    }
}
