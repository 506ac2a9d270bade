//! Lazy weights and slow sources, produced and read by a few threads ahead of the writer.
//!
//! A unit is a lazy weight, or a part of a weight whose source asks for long reads. Units are
//! queued in the order in which their bytes are written. Threads take them from the front as long
//! as the bytes that are made and not yet written stay within a bound. The writer waits for the
//! unit that it needs next, and reports when that is written; the unit is then dropped and the next
//! one admitted. There is no deadlock, whatever the bound: units are admitted in order, so the
//! first unwritten one is always made or in the making, and a writer that fails ends the wait of
//! all others.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use crate::buffer::{Alignment, Buffer, BufferMut};
use crate::buffers::in_memory;
use crate::error::{Error, Result};
use crate::save::plan::{Piece, PlannedFile};
use crate::tensor::initializer::{Address, Initializer};
use crate::tensor::source::PREFERRED_READ;
use crate::util::cancel::Token;
use crate::util::parallel;

/// More threads than this do not make a save faster.
const MAX_THREADS: usize = 8;
/// How many threads read slow sources: they wait for most of the time, whatever the cores.
const READERS: usize = 16;

/// The units of a save and their state.
pub(crate) struct Ahead<'p> {
    /// In the order of the plan.
    units: Vec<Unit<'p>>,
    /// The unit of each lazy weight.
    lazy: HashMap<Address, usize>,
    /// The pieces that are read, by their addresses in the plan.
    read: HashMap<usize, Parts>,
    /// How many bytes may be made and not yet written.
    max: u64,
    state: Mutex<State>,
    /// How long lazy weights were in production, added up over the threads.
    producing: Mutex<Duration>,
    moved: Condvar,
}

/// What is made at once.
struct Unit<'p> {
    /// The first piece that has it.
    piece: &'p Piece<'p>,
    /// The bytes of the weight that are read; none for a lazy weight, which is made as a whole.
    range: Option<Range<u64>>,
}

impl Unit<'_> {
    /// The length in bytes.
    fn len(&self) -> u64 {
        let whole = || self.piece.initializer.byte_len();
        self.range.as_ref().map_or_else(whole, |range| range.end.saturating_sub(range.start))
    }

    fn make(&self) -> Result<Buffer> {
        let Some(range) = &self.range else { return self.piece.initializer.to_buffer() };
        let len = in_memory(self.len())?;
        let mut bytes = BufferMut::zeroed(len, Alignment::PAGE)?;
        self.piece.initializer.read_at(range.start, &mut bytes)?;
        Ok(bytes.freeze())
    }
}

/// The units of a piece that is read.
struct Parts {
    first: usize,
    /// The length of each of them in bytes, except the last one.
    len: u64,
}

/// A part of a weight that was read ahead.
pub(crate) struct ReadPart {
    /// The bytes from the place that was asked for on.
    pub(crate) bytes: Buffer,
    unit: usize,
}

struct State {
    slots: Vec<Slot>,
    /// Bytes that are made or in the making, and not yet written.
    in_flight: u64,
    failure: Option<Error>,
    /// Whether the writer has finished or failed.
    stopped: bool,
}

/// What became of a unit. A lazy weight is written in several places if a file has it in more than
/// one shape.
#[derive(Default)]
struct Slot {
    made: Option<Buffer>,
    /// Bytes still to be written of its first place.
    first: u64,
    /// Bytes still to be written of all places.
    all: u64,
}

/// Calls `write` while threads make the lazy weights of `files` and read slow sources, at most
/// `max` bytes ahead of it. A unit of more than `max` bytes is made alone.
pub(crate) fn ahead_of<T>(
    files: &[PlannedFile<'_>],
    max: u64,
    write: impl FnOnce(&Ahead<'_>) -> Result<T>,
) -> Result<T> {
    let ahead = Ahead::new(files, max);
    if ahead.units.is_empty() {
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
        let state = State { slots: Vec::new(), in_flight: 0, failure: None, stopped: false };
        let mut ahead = Self {
            units: Vec::new(),
            lazy: HashMap::new(),
            read: HashMap::new(),
            max,
            state: Mutex::new(state),
            producing: Mutex::default(),
            moved: Condvar::new(),
        };
        let mut slots = Vec::new();
        for piece in files.iter().flat_map(|file| &file.pieces) {
            if piece.initializer.is_lazy() {
                ahead.add_lazy(piece, &mut slots);
            } else if is_slow(&piece.initializer) {
                ahead.add_parts(piece, &mut slots);
            }
        }
        ahead.lock().slots = slots;
        ahead
    }

    /// Queues a weight that is made as a whole, once for all of its places.
    fn add_lazy(&mut self, piece: &'p Piece<'p>, slots: &mut Vec<Slot>) {
        let Some(address) = piece.initializer.address() else { return };
        let len = piece.initializer.byte_len();
        let units = &mut self.units;
        let number = *self.lazy.entry(address).or_insert_with(|| {
            units.push(Unit { piece, range: None });
            slots.push(Slot { first: len, ..Slot::default() });
            units.len() - 1
        });
        if let Some(slot) = slots.get_mut(number) {
            slot.all = slot.all.saturating_add(len);
        }
    }

    /// Queues the parts of a weight that is read, for each of its places.
    fn add_parts(&mut self, piece: &'p Piece<'p>, slots: &mut Vec<Slot>) {
        let (len, most) = (piece.initializer.byte_len(), self.read_len(&piece.initializer) as u64);
        self.read.insert(address_of(piece), Parts { first: self.units.len(), len: most });
        let mut start = 0;
        while start < len {
            let end = len.min(start.saturating_add(most));
            self.units.push(Unit { piece, range: Some(start..end) });
            slots.push(Slot { first: end - start, all: end - start, made: None });
            start = end;
        }
    }

    /// How many bytes are read at a time from `initializer`. Slow sources are read within the bound
    /// of a save, and at least as other sources are.
    pub(crate) fn read_len(&self, initializer: &Initializer) -> usize {
        let max = usize::try_from(self.max).unwrap_or(usize::MAX).max(PREFERRED_READ);
        initializer.preferred_read().min(max)
    }

    /// Whether `piece` is read ahead.
    pub(crate) fn reads(&self, piece: &Piece<'_>) -> bool {
        self.read.contains_key(&address_of(piece))
    }

    /// The bytes of `piece` from `skip` on, as far as they are in one part, or `None` when it is
    /// not read ahead; waits until they are read.
    pub(crate) fn part_of(&self, piece: &Piece<'_>, skip: u64) -> Result<Option<ReadPart>> {
        let Some(Parts { first, len }) = self.read.get(&address_of(piece)) else { return Ok(None) };
        let within = in_memory(skip % len)?;
        let parts = in_memory(skip / len)?;
        let unit = first.saturating_add(parts);
        let bytes = self.made(unit)?.slice(within..);
        let bytes = bytes.ok_or_else(|| Error::internal("a part that is shorter than planned"))?;
        Ok(Some(ReadPart { bytes, unit }))
    }

    /// Records that the first `bytes` of `part` are written.
    pub(crate) fn wrote_part(&self, part: ReadPart, bytes: u64) {
        let ReadPart { bytes: held, unit } = part;
        drop(held);
        self.written(unit, bytes);
    }

    /// The bytes of `piece`, or `None` when it is not lazy; waits until they are produced.
    pub(crate) fn bytes_of(&self, piece: &Piece<'_>) -> Result<Option<Buffer>> {
        let Some(number) = self.number_of(piece) else { return Ok(None) };
        self.made(number).map(Some)
    }

    /// The bytes of a unit, once they are made.
    fn made(&self, number: usize) -> Result<Buffer> {
        let mut state = self.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let slot = state.slots.get(number);
            if let Some(bytes) = slot.and_then(|slot| slot.made.clone()) {
                return Ok(bytes);
            }
            state = self.wait(state);
        }
    }

    /// Records that `bytes` more of `piece` are written; drops a weight that is complete.
    pub(crate) fn wrote(&self, piece: &Piece<'_>, bytes: u64) {
        if let Some(number) = self.number_of(piece) {
            self.written(number, bytes);
        }
    }

    fn written(&self, number: usize, bytes: u64) {
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
            let len = self.units.get(number).map_or(0, Unit::len);
            state.in_flight = state.in_flight.saturating_sub(len);
            self.moved.notify_all();
        }
    }

    /// Ends the production because the writer failed: threads that wait for a weight get the error.
    pub(crate) fn fail(&self, error: &Error) {
        self.lock().failure.get_or_insert_with(|| error.clone());
        self.moved.notify_all();
    }

    /// How long lazy weights were in production so far, added up over the threads.
    pub(crate) fn producing(&self) -> Duration {
        *self.producing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number_of(&self, piece: &Piece<'_>) -> Option<usize> {
        if !piece.initializer.is_lazy() {
            return None;
        }
        self.lazy.get(&piece.initializer.address()?).copied()
    }

    fn make_all(&self) {
        let units = self.units.iter().enumerate();
        let admitted = units.take_while(|(_, unit)| self.admit(unit.len()));
        let threads = if self.read.is_empty() { parallel::cores(MAX_THREADS) } else { READERS };
        let made = parallel::for_each(threads.min(self.units.len()), admitted, |(number, unit)| {
            self.make(number, unit)
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

    fn make(&self, number: usize, unit: &Unit<'_>) -> Result<()> {
        let start = Instant::now();
        let bytes = unit.make();
        if unit.range.is_none() {
            let mut producing = self.producing.lock().unwrap_or_else(PoisonError::into_inner);
            *producing = producing.saturating_add(start.elapsed());
        }
        let mut state = self.lock();
        match bytes {
            Ok(bytes) => {
                let slot = state.slots.get_mut(number);
                slot.ok_or_else(|| Error::internal("a unit without a slot"))?.made = Some(bytes);
            }
            // Reported at once: the writer may be waiting for this unit.
            Err(error) => drop(state.failure.get_or_insert(unit.piece.name_in(error))),
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

/// Whether each read of `initializer` takes long, so that several are made at once.
fn is_slow(initializer: &Initializer) -> bool {
    initializer.preferred_read() > PREFERRED_READ
        && initializer.byte_len() > 0
        && initializer.as_buffer().is_none()
}

/// What tells a piece of the plan from others: where it is in memory.
fn address_of(piece: &Piece<'_>) -> usize {
    std::ptr::from_ref(piece).addr()
}

/// Stops the threads when the writer ends, also when it panics.
struct StopWhenDone<'a, 'p>(&'a Ahead<'p>);

impl Drop for StopWhenDone<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        self.0.moved.notify_all();
    }
}
