//! Alignment and the arithmetic of byte offsets.
//!
//! Weights files place byte ranges one after the other at aligned offsets. The overflow checks are
//! all here; what is stored at an offset is left to the callers.

use crate::error::{Error, ErrorKind, Result};

/// An alignment of byte offsets: a power of two.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::Alignment;
///
/// assert_eq!(Alignment::DEVICE.align_up(1), Some(256));
/// assert!(Alignment::new(48).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alignment(u64);

impl Alignment {
    /// 1 byte: no padding.
    pub const DENSE: Self = Self(1);
    /// 64 bytes: a cache line, and the widest vector registers.
    pub const CACHE_LINE: Self = Self(64);
    /// 256 bytes: the alignment that GPU libraries need for tensors they read in place.
    pub const DEVICE: Self = Self(256);
    /// 4096 bytes: a memory page.
    pub const PAGE: Self = Self(4096);

    /// An alignment of `bytes`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when `bytes` is not a power of two.
    pub fn new(bytes: u64) -> Result<Self> {
        if bytes.is_power_of_two() {
            Ok(Self(bytes))
        } else {
            let reason = format!("alignment {bytes} is not a power of two");
            Err(Error::new(ErrorKind::InvalidArgument, reason))
        }
    }

    /// The alignment in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The smallest multiple of the alignment that is at least `offset` (bytes); `None` if it does
    /// not fit 64 bits.
    pub const fn align_up(self, offset: u64) -> Option<u64> {
        match offset.checked_add(self.0 - 1) {
            Some(end) => Some(end & !(self.0 - 1)),
            None => None,
        }
    }

    /// Whether `offset` (bytes) is a multiple of the alignment.
    pub const fn is_aligned(self, offset: u64) -> bool {
        offset & (self.0 - 1) == 0
    }
}

/// Places consecutive aligned byte ranges, from offset 0 on.
#[derive(Debug, Clone, Default)]
pub struct Cursor(u64);

impl Cursor {
    /// Places `len` bytes at the next offset that is a multiple of `alignment`, and returns it.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when the range would end beyond 2^63 bytes, the most a file can
    /// hold.
    pub fn place(&mut self, len: u64, alignment: Alignment) -> Result<u64> {
        let start = alignment.align_up(self.0);
        let end = start.and_then(|s| s.checked_add(len)).filter(|e| i64::try_from(*e).is_ok());
        match start.zip(end) {
            Some((start, end)) => {
                self.0 = end;
                Ok(start)
            }
            None => Err(Error::new(ErrorKind::TooLarge, "more than 2^63 bytes of weights")),
        }
    }

    /// The end of the last range placed, in bytes.
    pub fn end(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_aligned_and_do_not_overlap() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.place(10, Alignment::DEVICE).unwrap(), 0);
        assert_eq!(cursor.place(5, Alignment::DEVICE).unwrap(), 256);
        assert_eq!(cursor.place(1, Alignment::DENSE).unwrap(), 261);
        assert_eq!(cursor.place(0, Alignment::PAGE).unwrap(), 4096);
        assert_eq!(cursor.end(), 4096);
    }

    #[test]
    fn a_range_beyond_the_largest_file_is_refused() {
        for (first, second) in [(1, u64::MAX), (1, i64::MAX as u64), (i64::MAX as u64, 1)] {
            let mut cursor = Cursor::default();
            cursor.place(first, Alignment::DENSE).unwrap();
            assert_eq!(
                cursor.place(second, Alignment::DENSE).unwrap_err().kind(),
                ErrorKind::TooLarge
            );
            assert_eq!(cursor.end(), first, "a refused range moves nothing");
        }
    }

    #[test]
    fn only_powers_of_two_align() {
        for bytes in [0, 3, 48, 4095, u64::MAX] {
            assert_eq!(Alignment::new(bytes).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(Alignment::new(1 << 63).unwrap().align_up((1 << 63) + 1), None);
    }
}
