//! Work divided into shares of about the same length.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The share of each piece of work, of which these are the lengths: the longest first, to the share
/// that has the least so far (Graham, 1969: at most 4/3 of the best). Of equal ones the first goes
/// first.
///
/// There are at most `count` shares, and none without work while there are `count` pieces.
pub(crate) fn shares(lengths: &[u64], count: usize) -> Vec<usize> {
    let mut order: Vec<_> = lengths.iter().copied().enumerate().collect();
    order.sort_by_key(|(_, length)| Reverse(*length));
    let mut least: BinaryHeap<_> =
        (0..count.max(1)).map(|share| Reverse((0_u64, 0_usize, share))).collect();
    let mut shares = vec![0; lengths.len()];
    for (number, length) in order {
        let taken = least.pop().zip(shares.get_mut(number));
        if let Some((Reverse((has, pieces, share)), slot)) = taken {
            *slot = share;
            least.push(Reverse((has.saturating_add(length), pieces.saturating_add(1), share)));
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_goes_where_the_least_is() {
        // Lengths, the number of shares, and the share of each.
        let cases: &[(&[u64], usize, &[usize])] = &[
            (&[], 3, &[]),
            (&[5], 3, &[0]),
            (&[1, 2, 3], 1, &[0, 0, 0]),
            (&[1, 9, 4, 4], 2, &[1, 0, 1, 1]),
            (&[3, 3, 3], 3, &[0, 1, 2]),
            // Pieces without a length go round.
            (&[0, 0, 0, 0], 2, &[0, 1, 0, 1]),
            (&[u64::MAX, u64::MAX, 1], 2, &[0, 1, 0]),
        ];
        for (lengths, count, expected) in cases {
            assert_eq!(shares(lengths, *count), *expected, "{lengths:?} {count}");
        }
    }
}
