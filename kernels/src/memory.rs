//! M: one linear, byte-addressable memory in which the tensors of a run lie.
//!
//! Addresses below [`WEIGHTS`] are the arena `[0, N)`: segments of zeroed memory, each aligned to
//! 64 bytes, one behind the other. Addresses from [`WEIGHTS`] on are weights: ranges that are
//! borrowed from the container's buffers, read-only and never copied. A segment never moves during
//! a step; only a plan that begins between two steps joins them.
//!
//! [`Memory::borrow_step`] is the one place that grants a kernel its slices. It is safe code:
//! segments are split at the borders of the ranges that will be written, so two writes, or a write
//! and a read, cannot overlap. Which tensor lies where is left to the table, and offsets known
//! ahead to the plan.

pub(crate) mod elements;
pub(crate) mod table;

mod contents;
mod frozen;
mod grant;
mod span;
mod weights;

use std::collections::BTreeMap;

use onnx_container_proto::internal::util::byte_size::ByteSize;
use onnx_container_proto::{Alignment, BufferMut};

pub(crate) use self::frozen::Frozen;
pub use self::span::WEIGHT;
pub use self::span::{ALIGNMENT, Span, WEIGHTS};
use self::span::{outside, round_up, slice, to_usize};
pub use self::weights::Weights;
use crate::error::{Error, ErrorKind, Result};

/// The least length of a segment that is added while a model runs.
const SEGMENT: u64 = 1 << 20;

/// What a step is granted: the bytes to read and those to write, in the order in which it asked.
pub type Granted<'m> = (Vec<&'m [u8]>, Vec<&'m mut [u8]>);

/// One piece of the arena.
#[derive(Debug)]
struct Segment {
    offset: u64,
    bytes: BufferMut,
}

/// A range in use.
#[derive(Debug, Clone, Copy)]
struct Held {
    len: u64,
    /// By how many entries of tables.
    holders: u32,
    /// The number of its content.
    content: u64,
}

/// M: the arena and the weights, with what is in use.
#[derive(Debug, Default)]
pub struct Memory {
    segments: Vec<Segment>,
    weights: Weights,
    /// Ranges of the arena that nobody uses: offset to length.
    free: BTreeMap<u64, u64>,
    /// Ranges in use, by offset.
    held: BTreeMap<u64, Held>,
    /// The length of the weights that were there from the start.
    model_weights: u64,
    /// How many numbers of contents were given so far.
    contents: u64,
    /// The length of the arena in bytes.
    len: u64,
    live: u64,
    high_water: u64,
    budget: Option<u64>,
    /// What the plan needs, if that is more than the budget.
    refused: Option<u64>,
}

impl Memory {
    /// The same bytes, which cannot be written to.
    #[doc(hidden)]
    pub fn freeze(self) -> Frozen {
        let segments = self.segments.into_iter();
        let segments = segments.map(|segment| (segment.offset, segment.bytes.freeze())).collect();
        Frozen::new(segments, self.weights)
    }

    /// A memory over `weights` whose arena is empty and may grow to `budget` bytes.
    pub fn new(weights: Weights, budget: Option<u64>) -> Self {
        Self { model_weights: weights.byte_len(), weights, budget, ..Self::default() }
    }

    /// N: the length of the arena in bytes.
    pub fn arena_bytes(&self) -> u64 {
        self.len
    }

    /// The largest address of the arena that was in use so far, plus one: what a run needed of N.
    pub fn high_water(&self) -> u64 {
        self.high_water
    }

    /// The bytes of the arena that are in use, with the gaps that align them.
    pub fn live_bytes(&self) -> u64 {
        self.live
    }

    /// The read-only part.
    pub fn weights_mut(&mut self) -> &mut Weights {
        &mut self.weights
    }

    /// A range of `len` bytes that is not in use, held once. Its content is not defined.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when the arena would be larger than its budget.
    pub fn allocate(&mut self, len: u64) -> Result<Span> {
        if len == 0 {
            return Ok(Span { offset: 0, len });
        }
        let needed = round_up(len);
        let offset = match self.best_fit(needed) {
            Some(offset) => offset,
            None => self.grow(needed)?,
        };
        let span = Span { offset, len };
        self.take(span)?;
        Ok(span)
    }

    /// Holds `span`, which a plan has chosen, once.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when the arena would be larger than its budget,
    /// [`ErrorKind::Internal`] when a byte of it is in use.
    pub fn reserve(&mut self, span: Span) -> Result<()> {
        if span.len == 0 {
            return Ok(());
        }
        self.ensure(span.offset.saturating_add(round_up(span.len)))?;
        self.take(span)
    }

    /// Makes the arena at least `len` bytes long, in one segment if it is empty.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when that is more than its budget.
    pub fn ensure(&mut self, len: u64) -> Result<()> {
        if self.len < len {
            self.grow(len - self.len)?;
        }
        Ok(())
    }

    /// Holds `span`, which is in use, once more.
    pub fn retain(&mut self, span: Span) {
        if let Some(held) = self.held.get_mut(&span.offset).filter(|_| span.len > 0) {
            held.holders += 1;
        }
    }

    /// Releases one hold of `span`; when none is left, the range is free. Weights are never freed.
    pub fn release(&mut self, span: Span) {
        let Some(held) = self.held.get_mut(&span.offset).filter(|_| span.len > 0) else { return };
        held.holders -= 1;
        if held.holders == 0 {
            let len = held.len;
            self.held.remove(&span.offset);
            self.live -= len;
            self.give_back(span.offset, len);
        }
    }

    /// Gives every range of the arena back. The high-water mark starts again.
    pub fn clear(&mut self) {
        self.held.clear();
        (self.live, self.high_water) = (0, 0);
        self.free = self.segments.iter().map(|s| (s.offset, s.bytes.len() as u64)).collect();
    }

    /// As [`clear`](Self::clear), and makes the first `len` bytes of the arena one segment.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when that is more than its budget.
    #[doc(hidden)]
    pub fn clear_for(&mut self, len: u64) -> Result<()> {
        if self.segments.first().is_none_or(|first| (first.bytes.len() as u64) < len) {
            self.segments.clear();
            self.len = 0;
        }
        self.clear();
        self.ensure(len)
    }

    /// Makes the first `len` bytes of the arena one segment. What is in use keeps its address and
    /// is copied, unless the first segment is that long already.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when that is more than its budget.
    #[doc(hidden)]
    pub fn join(&mut self, len: u64) -> Result<()> {
        if self.segments.first().is_some_and(|first| first.bytes.len() as u64 >= len) {
            return Ok(());
        }
        let wanted = round_up(len).max(self.len);
        let mut bytes = BufferMut::zeroed(to_usize(wanted)?, Alignment::CACHE_LINE)?;
        for (offset, held) in &self.held {
            let span = Span { offset: *offset, len: held.len };
            let target = bytes.get_mut(to_usize(span.offset)?..to_usize(span.end())?);
            target.ok_or_else(|| outside(span))?.copy_from_slice(self.read(span)?);
        }
        let mut end = 0;
        self.free.clear();
        for (offset, held) in &self.held {
            if *offset > end {
                self.free.insert(end, offset - end);
            }
            end = offset + held.len;
        }
        if wanted > end {
            self.free.insert(end, wanted - end);
        }
        self.segments = vec![Segment { offset: 0, bytes }];
        self.len = wanted;
        Ok(())
    }

    /// Whether a plan of `len` bytes is within the budget. If not, the error of the run names that
    /// length: no other one tells how large the budget has to be.
    #[doc(hidden)]
    pub fn admits(&mut self, len: u64) -> bool {
        self.refused = Some(len).filter(|len| *len > self.limit());
        self.refused.is_none()
    }

    /// Checks `len` bytes outside of M, of a value or of what a loop collects, against the budget
    /// of the arena.
    #[doc(hidden)]
    pub fn check_outside(&self, len: u64) -> Result<()> {
        check_outside(len, self.limit())
    }

    /// How many bytes the arena, or a value outside of it, may have.
    #[doc(hidden)]
    pub fn limit(&self) -> u64 {
        self.budget.map_or(WEIGHTS, |budget| budget.min(WEIGHTS))
    }

    /// How many hold `span`.
    pub fn holders(&self, span: Span) -> u32 {
        let held = self.held.get(&span.offset).filter(|_| span.len > 0);
        held.map_or(0, |held| held.holders)
    }

    /// The bytes of `span`.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when it does not lie in M.
    pub fn read(&self, span: Span) -> Result<&[u8]> {
        if span.len == 0 {
            return Ok(&[]);
        }
        if span.is_weight() {
            return self.weights.read(span);
        }
        let segment = self.segment_of(span).and_then(|i| self.segments.get(i));
        let segment = segment.ok_or_else(|| outside(span))?;
        slice(&segment.bytes, span, segment.offset)
    }

    /// Copies `bytes` to `span`.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when it does not lie in the arena or has another length.
    pub fn write(&mut self, span: Span, bytes: &[u8]) -> Result<()> {
        let (_, writes) = self.borrow_step(&[], &[span])?;
        match writes.into_iter().next() {
            Some(target) if target.len() == bytes.len() => target.copy_from_slice(bytes),
            _ => return Err(Error::internal("a write of another length than its range")),
        }
        Ok(())
    }

    fn segment_of(&self, span: Span) -> Option<usize> {
        self.segments.partition_point(|segment| segment.offset <= span.offset).checked_sub(1)
    }

    /// The offset of the smallest free range of at least `len` bytes, the lowest of several.
    fn best_fit(&self, len: u64) -> Option<u64> {
        let fits = self.free.iter().filter(|(_, free)| **free >= len);
        fits.min_by_key(|(offset, free)| (**free, **offset)).map(|(offset, _)| *offset)
    }

    /// Adds a segment of at least `len` bytes, and returns the offset of its first byte.
    fn grow(&mut self, len: u64) -> Result<u64> {
        // The last bytes that align the arena are not needed.
        let limit = round_up(self.limit());
        let needed = self.len.saturating_add(len);
        if needed > limit {
            return Err(self.exceeded(needed));
        }
        let wanted = round_up(len.max(SEGMENT).min(limit - self.len).max(len));
        let bytes = BufferMut::zeroed(to_usize(wanted)?, Alignment::CACHE_LINE)?;
        let offset = self.len;
        self.segments.push(Segment { offset, bytes });
        self.len += wanted;
        self.free.insert(offset, wanted);
        Ok(offset)
    }

    /// Marks `span`, which is free, and the gap behind it as held once.
    fn take(&mut self, wanted: Span) -> Result<()> {
        if wanted.end() > self.limit() {
            return Err(self.exceeded(wanted.end()));
        }
        let span = Span { offset: wanted.offset, len: round_up(wanted.len) };
        let around =
            self.free.range(..=span.offset).next_back().map(|(offset, len)| (*offset, *len));
        let fits = around.filter(|(offset, len)| span.end() <= offset + len);
        let (offset, len) = fits.ok_or_else(|| {
            Error::internal(format!("bytes {} to {} are in use", span.offset, span.end()))
        })?;
        self.free.remove(&offset);
        if offset < span.offset {
            self.free.insert(offset, span.offset - offset);
        }
        if span.end() < offset + len {
            self.free.insert(span.end(), offset + len - span.end());
        }
        let content = self.new_content();
        self.held.insert(span.offset, Held { len: span.len, holders: 1, content });
        self.live += span.len;
        self.high_water = self.high_water.max(wanted.end());
        Ok(())
    }

    /// The error when the arena would need `len` bytes, or as many as the plan that was refused.
    fn exceeded(&self, len: u64) -> Error {
        exceeds("the memory", self.refused.unwrap_or(len), self.limit())
    }

    /// Makes `len` bytes at `offset` free, in one range with the free ones beside them in their
    /// segment.
    fn give_back(&mut self, mut offset: u64, mut len: u64) {
        let is_border = |at: u64| self.segments.binary_search_by_key(&at, |s| s.offset).is_ok();
        let before = self.free.range(..offset).next_back().map(|(start, len)| (*start, *len));
        if let Some((start, before)) = before.filter(|(start, len)| start + len == offset)
            && !is_border(offset)
        {
            self.free.remove(&start);
            (offset, len) = (start, before + len);
        }
        if !is_border(offset + len)
            && let Some(after) = self.free.remove(&(offset + len))
        {
            len += after;
        }
        self.free.insert(offset, len);
    }
}

/// Checks `len` bytes of a value outside of M against `limit`.
pub(crate) fn check_outside(len: u64, limit: u64) -> Result<()> {
    if len > limit {
        return Err(exceeds("a value outside of the memory", len, limit));
    }
    Ok(())
}

fn exceeds(what: &str, needed: u64, limit: u64) -> Error {
    let (needed, limit) = (exact(needed), exact(limit));
    let reason = format!("{what} would need {needed}, its budget is {limit}");
    Error::new(ErrorKind::OutOfMemory, reason)
}

/// `bytes` as people say it, and the number if that is another.
fn exact(bytes: u64) -> String {
    match bytes {
        0..1000 => ByteSize(bytes).to_string(),
        _ => format!("{} ({bytes} bytes)", ByteSize(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use onnx_container_proto::Buffer;

    use super::*;

    fn span(offset: u64, len: u64) -> Span {
        Span { offset, len }
    }

    #[test]
    fn what_is_given_back_is_used_again() {
        let mut memory = Memory::new(Weights::default(), None);
        let [a, b, c] = [100, 64, 1].map(|len| memory.allocate(len).unwrap());
        assert_eq!((a.offset, b.offset, c.offset), (0, 128, 192));
        assert_eq!((memory.live_bytes(), memory.high_water()), (256, 193));
        memory.release(b);
        assert_eq!(memory.allocate(60).unwrap().offset, 128);
        memory.retain(a);
        memory.release(a);
        assert_eq!(memory.holders(a), 1);
        memory.release(a);
        assert_eq!(memory.allocate(128).unwrap().offset, 0);
        assert_eq!(memory.high_water(), 193);
    }

    #[test]
    fn the_arena_grows_to_its_budget_and_no_further() {
        let mut memory = Memory::new(Weights::default(), Some(3 * SEGMENT));
        let first = memory.allocate(SEGMENT).unwrap();
        assert_eq!(memory.allocate(2 * SEGMENT).unwrap().offset, SEGMENT);
        let error = memory.allocate(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        memory.release(first);
        memory.allocate(1).unwrap();
        // Free ranges on both sides of a border between segments are not one.
        assert_eq!(memory.allocate(SEGMENT).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn a_budget_is_exact() {
        let mut memory = Memory::new(Weights::default(), Some(100));
        memory.allocate(64).unwrap();
        let error = memory.allocate(37).unwrap_err();
        assert_eq!(error.to_string(), "the memory would need 101 B, its budget is 100 B");
        memory.allocate(36).unwrap();
        assert_eq!(memory.high_water(), 100);
        assert!(memory.admits(100) && !memory.admits(101));
    }

    #[test]
    fn segments_that_are_joined_keep_what_is_in_use() {
        let mut memory = Memory::new(Weights::default(), None);
        let [a, b, c] = [64, SEGMENT, 100].map(|len| memory.allocate(len).unwrap());
        for (value, span) in [(1, a), (2, b), (3, c)] {
            memory.write(span, &vec![value; usize::try_from(span.len).unwrap()]).unwrap();
        }
        memory.release(b);
        memory.join(3 * SEGMENT).unwrap();
        assert_eq!(memory.arena_bytes(), 3 * SEGMENT);
        for (value, span) in [(1, a), (3, c)] {
            let len = usize::try_from(span.len).unwrap();
            assert_eq!(
                (memory.read(span).unwrap(), memory.holders(span)),
                (&vec![value; len][..], 1)
            );
        }
        // What was free on both sides of a border between segments is one range.
        let all = memory.allocate(3 * SEGMENT - 192).unwrap();
        assert_eq!((all.offset, memory.live_bytes()), (192, 3 * SEGMENT));
    }

    #[test]
    fn a_planned_range_is_held_once() {
        let mut memory = Memory::new(Weights::default(), None);
        memory.reserve(span(640, 64)).unwrap();
        assert_eq!(memory.reserve(span(640, 64)).unwrap_err().kind(), ErrorKind::Internal);
        assert_eq!(memory.allocate(64).unwrap().offset, 0);
        memory.release(span(640, 64));
        memory.reserve(span(640, 64)).unwrap();
    }

    #[test]
    fn a_step_gets_its_slices() {
        let mut memory = Memory::new(Weights::default(), None);
        let weight = memory.weights_mut().add(Buffer::from(vec![7_u8; 4]), 1).unwrap();
        let spans: Vec<_> =
            [64, 64, 3 * SEGMENT, 10].map(|len| memory.allocate(len).unwrap()).into();
        for (value, span) in (1_u8..).zip(&spans) {
            let len = usize::try_from(span.len).unwrap();
            memory.write(*span, &vec![value; len]).unwrap();
        }
        let reads = [spans[0], span(weight, 4), spans[3], spans[0], span(5, 0)];
        let (reads, mut writes) = memory.borrow_step(&reads, &[spans[2], spans[1]]).unwrap();
        assert_eq!(reads, [&[1_u8; 64][..], &[7; 4], &[4; 10], &[1; 64], &[]]);
        assert_eq!((writes[0][0], writes[1][0]), (3, 2));
        writes[1][63] = 9;
        assert_eq!(memory.read(span(127, 1)).unwrap(), [9]);
    }

    #[test]
    fn ranges_that_are_not_in_memory_or_overlap_are_refused() {
        let mut memory = Memory::new(Weights::default(), None);
        memory.allocate(256).unwrap();
        let weight = memory.weights_mut().add(Buffer::from(vec![7_u8; 4]), 1).unwrap();
        let cases: &[(&[Span], &[Span])] = &[
            (&[span(0, 64)], &[span(0, 64)]),
            (&[span(32, 64)], &[span(64, 64)]),
            (&[], &[span(0, 65), span(64, 1)]),
            (&[], &[span(0, 64), span(0, 64)]),
            (&[], &[span(1, 4)]),
            (&[], &[span(weight, 4)]),
            (&[], &[span(SEGMENT, 1)]),
            (&[], &[span(0, SEGMENT + 1)]),
            (&[span(SEGMENT - 1, 2)], &[]),
            (&[span(weight, 5)], &[]),
            (&[span(weight + 64, 1)], &[]),
            (&[span(u64::MAX, 2)], &[]),
        ];
        for (reads, writes) in cases {
            let error = memory.borrow_step(reads, writes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal, "{reads:?} {writes:?}");
        }
    }
}
