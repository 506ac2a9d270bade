//! Writes tags, numbers and payloads to memory or to an [`io::Write`].
//!
//! A message is prefixed with its length, so all sizes are counted first, in the order in which
//! they will be needed. Small writes are gathered; large payloads are written without a copy.

use std::io::{self, Write};
use std::{fmt, mem, vec};

use super::overlay::Overlay;
use super::reader::Wire;

/// The lengths of messages inside a message, each before those inside it.
#[derive(Default)]
pub struct Sizes<'o> {
    lens: Vec<u64>,
    /// The parts of each list that several threads counted.
    lists: Vec<Vec<Part>>,
    alone: bool,
    overlay: Option<&'o dyn Overlay>,
}

impl fmt::Debug for Sizes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sizes").field("lens", &self.lens).finish_non_exhaustive()
    }
}

/// The lengths in a part of a long list.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) lens: Vec<u64>,
    /// The length of the part itself.
    pub(super) bytes: u64,
}

impl<'o> Sizes<'o> {
    /// Counts the message with the replacements of `overlay`.
    pub(super) fn over(overlay: Option<&'o dyn Overlay>) -> Self {
        Self { overlay, ..Self::default() }
    }

    pub(super) fn overlay(&self) -> Option<&'o dyn Overlay> {
        self.overlay
    }

    /// Counts a message with `count` and remembers the result in its place.
    #[inline]
    pub(super) fn remember(&mut self, count: impl FnOnce(&mut Self) -> u64) -> u64 {
        let index = self.lens.len();
        self.lens.push(0);
        let size = count(self);
        if let Some(slot) = self.lens.get_mut(index) {
            *slot = size;
        }
        size
    }

    /// Counts a part of a list with `count`, on this thread alone.
    pub(super) fn part(
        overlay: Option<&'o dyn Overlay>,
        count: impl FnOnce(&mut Self) -> u64,
    ) -> Part {
        let mut sizes = Self { alone: true, overlay, ..Self::default() };
        let bytes = count(&mut sizes);
        Part { lens: sizes.lens, bytes }
    }

    pub(super) fn remember_list(&mut self, parts: Vec<Part>) {
        self.lists.push(parts);
    }

    pub(super) fn alone(&self) -> bool {
        self.alone
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
pub(super) fn tag_size(number: u32) -> u64 {
    varint_size(u64::from(number) << 3)
}

/// Appends a varint to `buf`.
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

/// Payloads of at least this many bytes are not gathered.
const DIRECT: usize = 32 << 10;
/// How many bytes are gathered before they are written.
pub(super) const GATHERED: u64 = 256 << 10;

/// A destination and the bytes that are gathered for it.
pub struct Writer<'a> {
    /// Where bytes are gathered; the next ones go to index `at`.
    window: &'a mut [u8],
    at: usize,
    /// Where the window goes when it is full; `None` when the window is the destination.
    out: Option<&'a mut dyn Write>,
    handed: u64,
    lens: vec::IntoIter<u64>,
    lists: vec::IntoIter<Vec<Part>>,
    alone: bool,
    overlay: Option<&'a dyn Overlay>,
    /// Memory that several threads fill.
    spare: Vec<u8>,
    /// Whether a length was asked for that was not counted.
    uncounted: bool,
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("at", &self.at).finish_non_exhaustive()
    }
}

impl<'a> Writer<'a> {
    /// A writer that gathers in `window` and passes full windows on to `out`, if there is one.
    pub(super) fn new(
        window: &'a mut [u8],
        out: Option<&'a mut dyn Write>,
        sizes: Sizes<'a>,
    ) -> Self {
        let Sizes { lens, lists, alone, overlay } = sizes;
        let (lens, lists) = (lens.into_iter(), lists.into_iter());
        let (at, handed, spare, uncounted) = (0, 0, Vec::new(), false);
        Self { window, at, out, handed, lens, lists, alone, overlay, spare, uncounted }
    }

    /// A writer for a part of a list, which fills `window`.
    pub(super) fn of_part(
        window: &'a mut [u8],
        part: Part,
        overlay: Option<&'a dyn Overlay>,
    ) -> Self {
        let sizes = Sizes { lens: part.lens, lists: Vec::new(), alone: true, overlay };
        Self::new(window, None, sizes)
    }

    /// Writes a part of a list here.
    pub(super) fn part(
        &mut self,
        part: Part,
        write: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let outer = mem::replace(&mut self.lens, part.lens.into_iter());
        let alone = mem::replace(&mut self.alone, true);
        write(self)?;
        (self.lens, self.alone) = (outer, alone);
        Ok(())
    }

    pub(super) fn alone(&self) -> bool {
        self.alone
    }

    pub(super) fn overlay(&self) -> Option<&'a dyn Overlay> {
        self.overlay
    }

    /// The remembered length of the message that comes next.
    #[inline]
    pub(super) fn next_len(&mut self) -> u64 {
        let len = self.lens.next();
        self.uncounted |= len.is_none();
        len.unwrap_or_default()
    }

    /// The remembered parts of the list that comes next.
    pub(super) fn next_list(&mut self) -> Vec<Part> {
        let list = self.lists.next();
        self.uncounted |= list.is_none();
        list.unwrap_or_default()
    }

    #[inline]
    pub(super) fn tag(&mut self, number: u32, wire: Wire) -> io::Result<()> {
        let wire = match wire {
            Wire::Varint => 0,
            Wire::Fixed64 => 1,
            Wire::Len => 2,
            Wire::StartGroup => 3,
            Wire::EndGroup => 4,
            Wire::Fixed32 => 5,
        };
        self.varint(u64::from(number) << 3 | wire)
    }

    #[inline]
    pub(super) fn varint(&mut self, value: u64) -> io::Result<()> {
        match (self.window.get_mut(self.at), value) {
            (Some(place), 0..0x80) => {
                [*place, ..] = value.to_le_bytes();
                self.at += 1;
                Ok(())
            }
            _ => self.long_varint(value),
        }
    }

    fn long_varint(&mut self, mut value: u64) -> io::Result<()> {
        let mut bytes = [0; 10];
        let mut len = 0;
        for byte in &mut bytes {
            [*byte, ..] = value.to_le_bytes();
            value >>= 7;
            len += 1;
            if value == 0 {
                break;
            }
            *byte |= 0x80;
        }
        self.put(bytes.get(..len).unwrap_or_default())
    }

    /// A few bytes.
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let place = self.window.get_mut(self.at..).and_then(|left| left.get_mut(..bytes.len()));
        let Some(place) = place else { return self.put_in_next(bytes) };
        place.copy_from_slice(bytes);
        self.at += bytes.len();
        Ok(())
    }

    #[cold]
    fn put_in_next(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.direct(bytes)
    }

    /// The tag of field `number` and the length of the value that follows.
    pub fn delimiter(&mut self, number: u32, len: u64) -> io::Result<()> {
        self.tag(number, Wire::Len)?;
        self.varint(len)
    }

    /// A field of bytes.
    pub fn record(&mut self, number: u32, bytes: &[u8]) -> io::Result<()> {
        self.delimiter(number, bytes.len() as u64)?;
        self.bytes(bytes)
    }

    /// A length and that many bytes.
    #[inline]
    pub(super) fn delimited(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.varint(bytes.len() as u64)?;
        self.bytes(bytes)
    }

    /// Any number of bytes.
    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() >= DIRECT && self.out.is_some() {
            return self.direct(bytes);
        }
        self.put(bytes)
    }

    /// Writes the gathered bytes to `out`, then `bytes` without a copy.
    #[cold]
    fn direct(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.flush()?;
        self.handed += bytes.len() as u64;
        self.out.as_mut().map_or_else(|| Err(changed()), |out| out.write_all(bytes))
    }

    /// Writes `len` bytes, which `write` fills in.
    pub(super) fn fill(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.out.is_none() {
            let left = self.window.get_mut(self.at..).and_then(|left| left.get_mut(..len));
            self.at += len;
            return write(left.ok_or_else(changed)?);
        }
        let mut spare = mem::take(&mut self.spare);
        spare.resize(spare.len().max(len), 0);
        let filled = spare.get_mut(..len).unwrap_or_default();
        write(filled)?;
        self.direct(filled)?;
        self.spare = spare;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let gathered = self.window.get(..self.at).unwrap_or_default();
        let Some(out) = &mut self.out else { return Ok(()) };
        self.handed += gathered.len() as u64;
        self.at = 0;
        out.write_all(gathered)
    }

    /// Writes the rest to `out`. Fails when the number of bytes written is not the one that was
    /// counted.
    pub(super) fn finish(mut self, counted: u64) -> io::Result<()> {
        self.flush()?;
        let is_whole = self.handed + self.at as u64 == counted && !self.uncounted;
        if is_whole { Ok(()) } else { Err(changed()) }
    }
}

/// The error of a buffer whose owner changed its length: the lengths already written would be
/// wrong.
#[cold]
fn changed() -> io::Error {
    io::Error::other("a buffer of the message changed its length while it was written")
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
                let mut window = [0; 10];
                let mut writer = Writer::new(&mut window, None, Sizes::default());
                writer.varint(value).unwrap();
                writer.finish(buf.len() as u64).unwrap();
                assert_eq!(window.get(..buf.len()), Some(&buf[..]));
            }
        }
    }

    #[test]
    fn more_than_was_counted_is_an_error() {
        let mut window = [0; 3];
        let mut writer = Writer::new(&mut window, None, Sizes::default());
        assert!(writer.put(&[0; 3]).is_ok());
        assert!(writer.varint(0).is_err());
    }
}
