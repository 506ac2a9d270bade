//! Which weights overlap others in memory, told by their addresses alone.
//!
//! What is written of them is bounded by `plan`; `equal` leaves out what it would read out of all
//! proportion.

use std::cmp::Reverse;
use std::collections::HashSet;

use crate::files::overlaps::{FEW_BYTES, MOST_USES};
use crate::save::gather::weights::Weight;

/// The place of a weight in memory: the source, the first byte there, and the longer weight first.
type Range = (Option<usize>, u64, Reverse<u64>, usize);

/// The places of the `weights` that have one, sorted.
fn ranges<'c: 'w, 'w>(weights: impl Iterator<Item = (usize, &'w Weight<'c>)>) -> Vec<Range> {
    let range = |(number, weight): (usize, &Weight<'_>)| {
        let (source, start) = weight.address?.parts();
        Some((source, start, Reverse(weight.len), number))
    };
    let mut ranges: Vec<_> = weights.filter_map(range).collect();
    ranges.sort_unstable();
    ranges
}

/// Weights that overlap one another, directly or by way of others.
#[derive(Default)]
struct Cluster {
    numbers: Vec<usize>,
    source: Option<usize>,
    end: u64,
    /// Each byte once.
    bytes: u64,
    /// Each weight.
    reads: u64,
}

/// The numbers of the `weights` that overlap so much that reading them would take out of all
/// proportion to their memory.
pub(crate) fn read_too_often<'c: 'w, 'w>(
    weights: impl Iterator<Item = (usize, &'w Weight<'c>)> + Clone,
) -> HashSet<usize> {
    let all = weights.clone().map(|(_, weight)| weight.len).fold(0, u64::saturating_add);
    if all <= FEW_BYTES {
        return HashSet::new();
    }
    let mut clusters: Vec<Cluster> = Vec::new();
    for (source, start, Reverse(len), number) in ranges(weights) {
        let end = start.saturating_add(len);
        let overlapping = clusters.last_mut().filter(|c| c.source == source && start < c.end);
        if let Some(cluster) = overlapping {
            cluster.bytes = cluster.bytes.saturating_add(end.saturating_sub(cluster.end));
            cluster.reads = cluster.reads.saturating_add(len);
            cluster.end = cluster.end.max(end);
            cluster.numbers.push(number);
        } else {
            clusters.push(Cluster { numbers: vec![number], source, end, bytes: len, reads: len });
        }
    }
    let dense = clusters.into_iter().filter(|c| c.reads > c.bytes.saturating_mul(MOST_USES));
    dense.flat_map(|cluster| cluster.numbers).collect()
}

/// The numbers of the `weights` whose bytes are a part of a longer one.
pub(crate) fn inside_others<'c: 'w, 'w>(
    weights: impl Iterator<Item = (usize, &'w Weight<'c>)>,
) -> HashSet<usize> {
    let mut inside = HashSet::new();
    // The range that reaches farthest so far.
    let mut outer: Option<(Option<usize>, u64, u64)> = None;
    for (source, start, Reverse(len), number) in ranges(weights) {
        let end = start.saturating_add(len);
        match outer {
            Some((of, from, to)) if of == source && end <= to => {
                if (from, to) != (start, end) {
                    inside.insert(number);
                }
            }
            _ => outer = Some((source, start, end)),
        }
    }
    inside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::container::Handle;
    use crate::dtype::DataType;
    use crate::tensor::Tensor;
    use crate::tensor::initializer::Initializer;

    fn of(ranges: &[std::ops::Range<usize>], bytes: &Buffer) -> [Vec<usize>; 2] {
        let handle: Handle = "#w".parse().unwrap();
        let initializer = |range: &std::ops::Range<usize>| {
            let bytes = bytes.slice(range.clone()).unwrap();
            Initializer::from(
                Tensor::new(DataType::Uint8, [i64::try_from(bytes.len()).unwrap()], bytes).unwrap(),
            )
        };
        let initializers: Vec<_> = ranges.iter().map(initializer).collect();
        let weight = |initializer| {
            let (len, address) = (Initializer::byte_len(initializer), initializer.address());
            Weight { handle: &handle, initializer, len, address }
        };
        let weights: Vec<_> = initializers.iter().map(weight).collect();
        let sorted = |numbers: HashSet<usize>| {
            let mut numbers: Vec<_> = numbers.into_iter().collect();
            numbers.sort_unstable();
            numbers
        };
        let numbered = || weights.iter().enumerate();
        [sorted(read_too_often(numbered())), sorted(inside_others(numbered()))]
    }

    #[test]
    fn ranges_that_overlap_are_told_from_others() {
        let bytes = Buffer::from(vec![0; 100]);
        let inside = |ranges: &[std::ops::Range<usize>]| of(ranges, &bytes)[1].clone();
        assert_eq!(inside(&[0..10, 10..20, 5..15]), [0; 0]);
        assert_eq!(inside(&[0..10, 0..10, 2..10, 0..5, 20..30]), [2, 3]);
        // Few bytes are read in any case.
        assert!(of(&vec![0..100; 50], &bytes)[0].is_empty());
        let bytes = Buffer::from(vec![0; 32 << 20]);
        let shifted = |i: usize| (i << 10)..(16 << 20) + (i << 10);
        let apart = (17 << 20)..(32 << 20);
        let some: Vec<_> =
            (0..8).map(shifted).chain(std::iter::repeat_n(apart.clone(), 9)).collect();
        assert_eq!(of(&some, &bytes)[0], (8..17).collect::<Vec<_>>());
        let many: Vec<_> = [apart].into_iter().chain((0..40).map(shifted)).collect();
        assert_eq!(of(&many, &bytes)[0], (1..41).collect::<Vec<_>>());
    }
}
