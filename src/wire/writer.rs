//! Writes tags, numbers and payloads to anything that takes bytes.
//!
//! A message is prefixed with its length, so all sizes are counted first, in the order in which
//! they will be needed. Small writes are gathered; large payloads go out from where they lie.

use std::io::{self, Write};
use std::vec;

use super::reader::Wire;
use crate::error::{Error, ErrorKind, Result};

/// The lengths of messages inside a message, each before those inside it.
#[derive(Debug, Default)]
pub struct Sizes(Vec<u64>);

impl Sizes {
    /// Counts a message with `count` and remembers the result in its place.
    #[inline]
    pub(super) fn remember(&mut self, count: impl FnOnce(&mut Self) -> u64) -> u64 {
        let index = self.0.len();
        self.0.push(0);
        let size = count(self);
        if let Some(slot) = self.0.get_mut(index) {
            *slot = size;
        }
        size
    }
}

/// The length of a varint.
#[inline]
pub(super) fn varint_size(value: u64) -> u64 {
    // 9/64 of the bit length, rounded up, is the bit length over 7 for 1..=64 bits.
    u64::from((value | 1).ilog2() * 9 + 73) / 64
}

/// The length of a tag.
#[inline]
pub(crate) fn tag_size(number: u32) -> u64 {
    varint_size(u64::from(number) << 3)
}

/// Puts a varint behind `buf`.
#[inline]
pub(super) fn push_varint(buf: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        let [low, ..] = value.to_le_bytes();
        buf.push(low | 0x80);
        value >>= 7;
    }
    let [low, ..] = value.to_le_bytes();
    buf.push(low);
}

/// Payloads of this length on are not gathered.
const DIRECT: usize = 32 << 10;
/// How much is gathered.
const GATHERED: usize = 256 << 10;

/// A destination, and what was gathered for it.
pub struct Writer<'a> {
    out: &'a mut dyn Write,
    buf: Vec<u8>,
    /// When to hand on what was gathered.
    limit: usize,
    handed: u64,
    sizes: vec::IntoIter<u64>,
}

impl std::fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("handed", &self.handed).finish_non_exhaustive()
    }
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut dyn Write, sizes: Sizes) -> Self {
        let sizes = sizes.0.into_iter();
        Self { out, buf: Vec::new(), limit: GATHERED, handed: 0, sizes }
    }

    /// One that gathers everything, `len` bytes.
    pub(super) fn in_memory(out: &'a mut dyn Write, sizes: Sizes, len: u64) -> Result<Self> {
        let mut writer = Self { limit: usize::MAX, ..Self::new(out, sizes) };
        let room = usize::try_from(len).ok().and_then(|n| writer.buf.try_reserve_exact(n).ok());
        room.ok_or_else(|| Error::new(ErrorKind::TooLarge, format!("{len} bytes of memory")))?;
        Ok(writer)
    }

    /// The remembered length of the message that comes next.
    #[inline]
    pub(super) fn next_size(&mut self) -> u64 {
        self.sizes.next().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn tag(&mut self, number: u32, wire: Wire) -> io::Result<()> {
        if self.buf.len() >= self.limit {
            self.flush()?;
        }
        let wire = match wire {
            Wire::Varint => 0,
            Wire::Fixed64 => 1,
            Wire::Len => 2,
            Wire::StartGroup => 3,
            Wire::EndGroup => 4,
            Wire::Fixed32 => 5,
        };
        self.varint(u64::from(number) << 3 | wire);
        Ok(())
    }

    #[inline]
    pub(super) fn varint(&mut self, value: u64) {
        push_varint(&mut self.buf, value);
    }

    /// A length and that many bytes.
    #[inline]
    pub(super) fn delimited(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.varint(bytes.len() as u64);
        self.bytes(bytes)
    }

    /// A few bytes.
    #[inline]
    pub(super) fn small(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Any number of bytes.
    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() < DIRECT || self.limit == usize::MAX {
            self.buf.extend_from_slice(bytes);
            return Ok(());
        }
        self.direct(bytes)
    }

    #[cold]
    fn direct(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.flush()?;
        self.handed += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    #[cold]
    fn flush(&mut self) -> io::Result<()> {
        self.handed += self.buf.len() as u64;
        let done = self.out.write_all(&self.buf);
        self.buf.clear();
        done
    }

    /// Hands on the rest. What was counted must have been written: a buffer whose owner has let go
    /// of its bytes would leave lengths in the output that are not true.
    pub(super) fn finish(mut self, counted: u64) -> io::Result<()> {
        self.flush()?;
        if self.handed == counted {
            return Ok(());
        }
        Err(io::Error::other("a buffer of the message changed its length while it was written"))
    }

    pub(super) fn into_vec(self) -> Vec<u8> {
        self.buf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_varints() {
        for bits in 0..64 {
            for value in [1_u64 << bits, (1 << bits) - 1, u64::MAX >> bits] {
                let mut buf = Vec::new();
                push_varint(&mut buf, value);
                assert_eq!(varint_size(value), buf.len() as u64, "{value}");
            }
        }
    }
}
