//! Ranges of weights that overlap: how much more would be read or written than there is.
//!
//! A small model can declare thousands of long tensors that begin a few bytes apart in one file.
//! What reads or writes each of them takes time and space in proportion to the model times its
//! weights, so it is refused. Tied tensors, on one range, are read once, and a few overlaps in part
//! are as good as none.

use crate::error::{Error, ErrorKind};
use crate::util::byte_size::ByteSize;

/// How often, on average, each byte of weights that overlap may be used.
pub(crate) const MOST_USES: u64 = 8;
/// Fewer bytes than this are used however weights overlap.
pub(crate) const FEW_BYTES: u64 = 1 << 28;

/// A range of bytes: what they lie in, the first byte there, and their number.
pub(crate) type Range = (Option<usize>, u64, u64);

/// The error for `ranges` that would be `used`, read or written, out of all proportion to the bytes
/// that they have.
pub(crate) fn refused(mut ranges: Vec<Range>, used: &str) -> Option<Error> {
    ranges.sort_unstable();
    let (mut bytes, mut uses) = (0_u64, 0_u64);
    let mut last = None;
    for (source, start, len) in ranges {
        let stop = start.saturating_add(len);
        let end = last.filter(|(of, _)| *of == source).map_or(0, |(_, end)| end);
        bytes = bytes.saturating_add(stop.saturating_sub(start.max(end)));
        uses = uses.saturating_add(len);
        last = Some((source, stop.max(end)));
    }
    if uses <= FEW_BYTES.max(bytes.saturating_mul(MOST_USES)) {
        return None;
    }
    let reason = format!(
        "tensors overlap in part: {} of weights would be {used} as {}",
        ByteSize(bytes),
        ByteSize(uses)
    );
    Some(Error::new(ErrorKind::TooLarge, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_overlap_out_of_proportion_are_refused() {
        let mib = 1 << 20;
        let shifted = |count: u64, len: u64| (0..count).map(move |i| (Some(1), i, len));
        let apart = |count: u64| (0..count).map(move |i| (Some(1), i * mib, mib));
        for (ranges, is_refused) in [
            (Vec::new(), false),
            // Few bytes, however often.
            (shifted(256, mib - 256).collect(), false),
            (shifted(4000, mib - 4000).collect(), true),
            // Many bytes, each once.
            (apart(4000).collect(), false),
            (apart(4000).chain(apart(4000)).collect(), false),
            (apart(40).cycle().take(400).collect(), true),
            // Other sources, or memory.
            ((0..4000).map(|i| (Some(i), 0, mib)).collect(), false),
            ((0..4000).map(|_| (None, 0, mib)).collect(), true),
            (vec![(None, 0, u64::MAX), (None, 1, u64::MAX)], false),
        ] {
            let count = ranges.len();
            let error = refused(ranges, "read");
            assert_eq!(error.is_some(), is_refused, "{count} ranges: {error:?}");
        }
        let error = refused(shifted(4000, mib).collect(), "written").unwrap();
        assert!(error.reason().contains("would be written as"), "{error}");
    }
}
