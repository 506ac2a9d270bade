//! Reads tags, numbers and payloads from a [`Buffer`].
//!
//! All bytes are untrusted input: a length is compared with the bytes that are left before it is
//! used, and the depth of nesting is limited. The reader is lenient where the official parser is
//! (bits of a tenth varint byte that do not fit are dropped), strict where it is strict, and does
//! not have its limit of 2 GiB.

use std::hint::black_box;

use super::budget::{Budget, Counted};
use super::placing::Placing;
use super::{DecodeOptions, parallel};
use crate::buffer::Buffer;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{Limit, exceeded};

/// The wire type of a record: how its value is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// A number of 1 to 10 bytes.
    Varint,
    /// 8 bytes.
    Fixed64,
    /// A length and that many bytes.
    Len,
    /// Records up to the end of the group.
    StartGroup,
    /// The end of a group.
    EndGroup,
    /// 4 bytes.
    Fixed32,
}

/// The start of a record: the number of its field and its wire type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(u32);

impl Tag {
    #[inline]
    fn new(bits: u64) -> Option<Self> {
        let tag = Self(u32::try_from(bits).ok()?);
        Some(tag).filter(|tag| tag.0 & 7 < 6)
    }

    #[inline]
    pub(crate) fn number(self) -> u32 {
        self.0 >> 3
    }

    #[inline]
    pub(crate) fn wire(self) -> Wire {
        match self.0 & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Len,
            3 => Wire::StartGroup,
            4 => Wire::EndGroup,
            _ => Wire::Fixed32,
        }
    }
}

/// A position in an input, and the end of the message that is being read.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    /// The whole input, of which decoded values are slices.
    source: &'a Buffer,
    /// The input up to the end of the message that is being read.
    bytes: &'a [u8],
    /// The position of the next byte, in the whole input.
    at: usize,
    /// Where the record that is being read starts.
    record: usize,
    /// How many levels messages may nest.
    nesting: u32,
    /// How many more levels they may.
    levels: u32,
    threads: usize,
    /// Whether only what holds tensors is decoded.
    outline: bool,
    /// Whether the record that is being read is the `raw_data` of a tensor.
    raw_data: bool,
    /// Set if values are copied, or may have to be.
    placing: Option<Box<Placing>>,
    budget: &'a Budget,
    counted: Counted,
}

/// Consecutive records of one field, from the value of the first one on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Run {
    pub(super) count: usize,
    /// The bytes up to the end of the last value.
    pub(super) bytes: usize,
    /// Whether another record of the field follows.
    pub(super) more: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a Buffer, options: &DecodeOptions, budget: &'a Budget) -> Self {
        let nesting = options.limits.get(Limit::Nesting);
        let nesting = nesting.and_then(|most| u32::try_from(most).ok()).unwrap_or(u32::MAX);
        // How many cores there are is read from files, which takes longer than reading a short
        // input.
        let threads = if source.span() < parallel::WORTH { 1 } else { options.thread_count() };
        let placing = Placing::new(options);
        let (raw_data, outline) = (false, options.outline);
        Self {
            source,
            bytes: source,
            at: 0,
            record: 0,
            nesting,
            levels: nesting,
            threads,
            outline,
            raw_data,
            placing,
            budget,
            counted: Counted::default(),
        }
    }

    /// Counts `bytes` of memory that a value takes.
    #[inline]
    pub(super) fn count(&mut self, bytes: usize) -> Result<()> {
        self.counted.add(bytes, self.budget).map_err(|error| error.with_offset(self.at as u64))
    }

    /// Whether only what holds tensors is decoded.
    #[inline]
    pub(super) fn is_outline(&self) -> bool {
        self.outline
    }

    /// A reader at the same position that looks ahead and makes no slices.
    #[inline]
    pub(super) fn probe(&self) -> Self {
        Self { placing: None, ..*self }
    }

    /// The bytes from the tag that was just read to `end`, which a probe has found. They count as
    /// read.
    pub(super) fn records_up_to(&mut self, end: usize) -> Result<Buffer> {
        self.at = end;
        self.slice_from(self.record)
    }

    /// The next record's tag.
    #[inline]
    pub(super) fn tag(&mut self) -> Result<Tag> {
        self.record = self.at;
        let (bits, len) = match self.rest() {
            [byte, ..] if *byte < 0x80 => (usize::from(*byte), 1),
            [low, high, ..] if *high < 0x80 => (two(*low, *high), 2),
            _ => return self.long_tag(),
        };
        self.at += len;
        Tag::new(bits as u64).ok_or_else(|| self.bad_tag(self.record))
    }

    fn long_tag(&mut self) -> Result<Tag> {
        let start = self.at;
        let bits = self.long_varint()?;
        // The official parser accepts tags of at most five bytes.
        let tag = Tag::new(bits).filter(|_| self.at - start <= 5);
        tag.ok_or_else(|| self.bad_tag(start))
    }

    #[cold]
    fn bad_tag(&self, at: usize) -> Error {
        error_at(at, "not a valid tag")
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64> {
        match self.bytes.get(self.at) {
            Some(byte) if *byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let rest = self.rest();
        let mut value = 0;
        for (i, byte) in (0..10).zip(rest) {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if *byte < 0x80 {
                self.at += i + 1;
                return Ok(value);
            }
        }
        Err(self.error(if rest.len() < 10 { "varint is cut off" } else { "varint is too long" }))
    }

    /// Reads a length, which is at most the rest of the message.
    #[inline]
    fn length(&mut self) -> Result<usize> {
        match self.rest() {
            [byte, rest @ ..] if *byte < 0x80 && usize::from(*byte) <= rest.len() => {
                self.at += 1;
                Ok(usize::from(*byte))
            }
            [low, high, rest @ ..]
                if *low >= 0x80 && *high < 0x80 && two(*low, *high) <= rest.len() =>
            {
                self.at += 2;
                Ok(two(*low, *high))
            }
            _ => self.long_length(),
        }
    }

    fn long_length(&mut self) -> Result<usize> {
        let start = self.at;
        let declared = self.long_varint()?;
        // The official parser accepts lengths of at most five bytes. More are accepted here only
        // for lengths that need them.
        if self.at - start > 5 && declared < 1 << 35 {
            return Err(error_at(start, "length is not in its shortest form"));
        }
        let left = self.bytes.len() - self.at;
        usize::try_from(declared).ok().filter(|len| *len <= left).ok_or_else(|| {
            error_at(start, &format!("{declared} bytes declared, {left} left in the message"))
        })
    }

    #[inline]
    fn advance(&mut self, len: usize) -> Result<usize> {
        let start = self.at;
        if len > self.bytes.len() - start {
            return Err(self.error("value is cut off"));
        }
        self.at = start + len;
        Ok(start)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let array = self.rest().first_chunk().copied();
        self.advance(N)?;
        array.ok_or_else(|| self.error("value is cut off"))
    }

    /// The payload of a length-delimited record.
    #[inline]
    pub(super) fn payload(&mut self) -> Result<Buffer> {
        let len = self.length()?;
        let start = self.at;
        self.at += len;
        self.slice_from(start)
    }

    /// The bytes from `start` to the current position.
    #[inline]
    pub(super) fn slice_from(&mut self, start: usize) -> Result<Buffer> {
        let slice = match &self.placing {
            None => self.source.slice(start..self.at),
            Some(_) => self.placed(start)?,
        };
        slice.ok_or_else(|| error_at(start, "outside of the input"))
    }

    #[cold]
    fn placed(&mut self, start: usize) -> Result<Option<Buffer>> {
        let Some(placing) = &mut self.placing else { return Ok(None) };
        let taken = placing.take(self.source, start..self.at, self.raw_data);
        taken.map_err(|error| error.with_offset(start as u64))
    }

    /// Sets whether the value that is read next is the `raw_data` of a tensor.
    #[inline]
    pub(super) fn expect_raw_data(&mut self, raw_data: bool) {
        self.raw_data = raw_data;
    }

    /// Enters the payload of a length-delimited record. The result is the argument of
    /// [`leave`](Self::leave).
    #[inline]
    pub(super) fn enter(&mut self) -> Result<&'a [u8]> {
        let len = self.length()?;
        let outer = self.bytes;
        let end = self.at + len;
        let inner = outer.get(..end);
        self.bytes = inner.ok_or_else(|| Error::internal("a message ends beyond its parent"))?;
        Ok(outer)
    }

    /// Leaves the payload that was entered, at its end.
    #[inline]
    pub(super) fn leave(&mut self, outer: &'a [u8]) {
        self.bytes = outer;
    }

    /// Counts one more level of nesting.
    #[inline]
    pub(super) fn descend(&mut self) -> Result<()> {
        let levels = self.levels.checked_sub(1);
        self.levels = levels.ok_or_else(|| self.too_deep())?;
        Ok(())
    }

    #[cold]
    fn too_deep(&self) -> Error {
        exceeded(Limit::Nesting, self.nesting.into()).with_offset(self.at as u64)
    }

    #[inline]
    pub(super) fn ascend(&mut self) {
        self.levels += 1;
    }

    /// Skips the value of a record that is not a group.
    #[inline]
    pub(super) fn skip_value(&mut self, wire: Wire) -> Result<()> {
        match wire {
            Wire::Len => self.skip_payload(),
            Wire::Varint => self.varint().map(drop),
            Wire::Fixed64 => self.advance(8).map(drop),
            Wire::Fixed32 => self.advance(4).map(drop),
            Wire::StartGroup | Wire::EndGroup => Err(self.error("group")),
        }
    }

    #[inline]
    fn skip_payload(&mut self) -> Result<()> {
        let len = self.length()?;
        self.at += len;
        Ok(())
    }

    /// Skips the value of a record of an unknown field. Returns the whole record.
    pub(super) fn unknown(&mut self, tag: Tag) -> Result<Buffer> {
        self.pass_unknown(tag)?;
        self.slice_from(self.record)
    }

    /// Skips the value of a record of an unknown field.
    pub(super) fn pass_unknown(&mut self, tag: Tag) -> Result<()> {
        // Only here, not in `skip`: inside a group the official parser accepts the field number 0.
        if tag.number() == 0 {
            return Err(self.bad_tag(self.record));
        }
        self.skip(tag)
    }

    /// Skips the value of a record.
    fn skip(&mut self, tag: Tag) -> Result<()> {
        match tag.wire() {
            Wire::StartGroup => self.skip_group(tag.number()),
            Wire::EndGroup => Err(error_at(self.record, "end of a group that was not begun")),
            wire => self.skip_value(wire),
        }
    }

    fn skip_group(&mut self, number: u32) -> Result<()> {
        let begin = self.record;
        self.descend()?;
        loop {
            let tag = self.tag()?;
            if tag.wire() != Wire::EndGroup {
                self.skip(tag)?;
            } else if tag.number() == number {
                break;
            } else {
                return Err(error_at(self.record, "end of another group"));
            }
        }
        self.ascend();
        self.record = begin;
        Ok(())
    }

    /// Finds the consecutive records with the tag that was just read, up to `limit` bytes or
    /// slightly more. A malformed record ends the run and is not counted; reading it is an error
    /// later.
    #[inline]
    pub(super) fn run(&self, wire: Wire, limit: usize) -> Run {
        let tag = self.bytes.get(self.record..self.at).unwrap_or_default();
        debug_assert!(!tag.is_empty(), "a run starts at a value, whose tag was just read");
        let mut probe = self.probe();
        let mut run = Run::default();
        while probe.skip_value(wire).is_ok() {
            let more = match tag {
                [byte] => probe.rest().first() == Some(byte),
                _ => probe.rest().starts_with(tag),
            };
            run = Run { count: run.count + 1, bytes: probe.at - self.at, more };
            if !more || run.bytes >= limit {
                break;
            }
            probe.at += tag.len();
        }
        run
    }

    /// Brings the next `len` bytes into the cache, line after line. Finding a run reads only the
    /// lengths, each of which would be a cache miss.
    pub(super) fn warm(&self, len: usize) {
        let lines = self.rest().iter().take(len).step_by(64);
        black_box(lines.fold(0, |all, byte| all ^ byte));
    }

    /// Moves to the end of a run, and past the next tag if there are more records of the field.
    pub(super) fn pass(&mut self, run: Run) {
        let tag = self.at - self.record;
        self.at += run.bytes;
        if run.more {
            self.record = self.at;
            self.at += tag;
        }
    }

    /// How many threads there may be.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// A reader at the same position that uses one thread and makes slices of `fork`.
    pub(super) fn worker<'b>(&self, fork: &'b Buffer) -> Reader<'b>
    where
        'a: 'b,
    {
        Reader { source: fork, threads: 1, counted: Counted::default(), ..self.clone() }
    }

    /// The input with a separate reference count, for the slices that a worker makes.
    pub(super) fn fork(&self) -> Buffer {
        self.source.fork()
    }

    /// The length of the tag that was just read.
    pub(super) fn tag_len(&self) -> usize {
        self.at - self.record
    }

    /// Moves `len` bytes forward, within a run that was found.
    pub(super) fn forward(&mut self, len: usize) {
        self.at += len;
    }

    /// The bytes of stack that reading the remaining levels may take. A `u32` always fits a `usize`
    /// on supported targets.
    pub(super) fn stack(&self) -> usize {
        usize::try_from(self.levels).unwrap_or(usize::MAX).saturating_mul(16 << 10).max(2 << 20)
    }

    /// The rest of the message. No read moves beyond the end of the message; if one did, the rest
    /// would be empty and the next read an error.
    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    pub(super) fn at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// An error at the current position.
    #[cold]
    pub(super) fn error(&self, reason: &str) -> Error {
        error_at(self.at, reason)
    }
}

/// The value of a varint of two bytes.
#[inline]
fn two(low: u8, high: u8) -> usize {
    usize::from(low & 0x7f) | usize::from(high) << 7
}

#[cold]
fn error_at(at: usize, reason: &str) -> Error {
    Error::new(ErrorKind::Decode, reason).with_offset(at as u64)
}
