//! A file in blocks: its next bytes in one piece, and skips that read nothing where they are long.

use std::fs::File;
use std::io::{self, Read, Seek};

/// How many bytes are read at a time, and the longest piece.
pub(super) const BLOCK: usize = 128 << 10;

/// A file, and the bytes of it that are in memory.
pub(super) struct Blocks {
    file: File,
    block: Box<[u8]>,
    /// The bytes of `block` that were read and not consumed.
    start: usize,
    end: usize,
}

impl Blocks {
    pub(super) fn new(file: File) -> Self {
        Self { file, block: vec![0; BLOCK].into(), start: 0, end: 0 }
    }

    /// The next bytes, as far as they were read.
    #[inline]
    pub(super) fn ahead(&self) -> &[u8] {
        self.block.get(self.start..self.end).unwrap_or_default()
    }

    /// Moves past bytes that are [ahead](Self::ahead).
    #[inline]
    pub(super) fn consume(&mut self, len: usize) {
        self.start = self.end.min(self.start.saturating_add(len));
    }

    /// Reads until `len` bytes are ahead, or the file ends.
    pub(super) fn fill(&mut self, len: usize) -> io::Result<()> {
        if self.ahead().len() >= len {
            return Ok(());
        }
        self.block.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < len.min(BLOCK) {
            let room = self.block.get_mut(self.end..).unwrap_or_default();
            match self.file.read(room) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next `len` bytes in one piece; `None` when they are more than a block, or more than the
    /// file has.
    #[inline]
    pub(super) fn whole(&mut self, len: usize) -> io::Result<Option<&[u8]>> {
        if len > BLOCK {
            return Ok(None);
        }
        self.fill(len)?;
        Ok(self.ahead().get(..len))
    }

    /// Moves `len` bytes forward. `true` when these are not in memory.
    pub(super) fn skip(&mut self, len: u64) -> io::Result<bool> {
        let ahead = self.ahead().len();
        if let Ok(len) = usize::try_from(len)
            && len <= ahead
        {
            self.consume(len);
            return Ok(false);
        }
        let beyond = len - u64::try_from(ahead).map_err(io::Error::other)?;
        self.file.seek_relative(i64::try_from(beyond).map_err(io::Error::other)?)?;
        (self.start, self.end) = (0, 0);
        Ok(true)
    }
}
