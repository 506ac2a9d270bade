//! [`Sums`]: the SHA-256 of bytes that pass by, and of ranges of them.

use std::ops::Range;

use sha2::{Digest, Sha256};

/// The SHA-256 of an object.
pub(crate) type Sum = [u8; 32];

/// Digests that are being made of bytes in their order: of all, and of each of some ranges, which
/// may overlap.
pub(crate) struct Sums {
    all: Sha256,
    ranges: Vec<(Range<u64>, Sha256)>,
    /// The numbers of the ranges by their first bytes, those to come.
    next: Vec<usize>,
    /// The numbers of the ranges that have begun and not ended.
    open: Vec<usize>,
    /// The offset of the next byte.
    at: u64,
}

impl Sums {
    pub(crate) fn new(ranges: Vec<Range<u64>>) -> Self {
        let mut next: Vec<_> = (0..ranges.len()).collect();
        // The last is taken first.
        next.sort_by_key(|number| std::cmp::Reverse(ranges.get(*number).map(|range| range.start)));
        let ranges = ranges.into_iter().map(|range| (range, Sha256::new())).collect();
        Self { all: Sha256::new(), ranges, next, open: Vec::new(), at: 0 }
    }

    /// Takes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.all.update(bytes);
        let (start, end) = (self.at, self.at.saturating_add(bytes.len() as u64));
        let ranges = &mut self.ranges;
        let begins = |number: &mut usize| ranges.get(*number).is_some_and(|it| it.0.start < end);
        while let Some(number) = self.next.pop_if(begins) {
            self.open.push(number);
        }
        self.open.retain(|number| {
            let Some((range, sum)) = self.ranges.get_mut(*number) else { return false };
            let (from, to) =
                (range.start.max(start) - start, range.end.min(end).max(start) - start);
            let here = usize::try_from(from).ok().zip(usize::try_from(to).ok());
            let here = here.and_then(|(from, to)| bytes.get(from..to));
            sum.update(here.unwrap_or_default());
            range.end > end
        });
        self.at = end;
    }

    /// The digest of all bytes, and those of the ranges.
    pub(crate) fn finish(self) -> (Sum, Vec<(Range<u64>, Sum)>) {
        let ranges = self.ranges.into_iter().map(|(range, sum)| (range, sum.finalize().into()));
        (self.all.finalize().into(), ranges.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_is_hashed_however_the_bytes_come() {
        let bytes: Vec<u8> = (0..100).collect();
        let ranges = [10..20, 0..100, 15..16, 15..30, 99..100, 0..1, 20..20, 40..60];
        for size in [1, 3, 10, 64, 100] {
            let mut sums = Sums::new(ranges.to_vec());
            bytes.chunks(size).for_each(|part| sums.update(part));
            let (all, found) = sums.finish();
            assert_eq!(all, Sum::from(Sha256::digest(&bytes)));
            for (range, sum) in found {
                let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
                assert_eq!(sum, Sum::from(Sha256::digest(&bytes[start..end])), "{range:?}");
            }
        }
    }
}
