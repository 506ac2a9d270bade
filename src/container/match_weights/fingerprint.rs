//! Fingerprints: a few numbers of the elements of a tensor that do not depend on their order.
//!
//! They are sums over the elements, so those of a tensor that is joined of others are their sums.
//! Equal ones only say what is worth comparing: what is found is compared element by element.

use std::ops::{Add, AddAssign, Sub};

/// Sums over elements, which wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(super) struct Fingerprint {
    pub(super) count: u64,
    mixed: u64,
    weighed: u64,
}

impl Add for Fingerprint {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            count: self.count.wrapping_add(other.count),
            mixed: self.mixed.wrapping_add(other.mixed),
            weighed: self.weighed.wrapping_add(other.weighed),
        }
    }
}

impl AddAssign for Fingerprint {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Fingerprint {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            count: self.count.wrapping_sub(other.count),
            mixed: self.mixed.wrapping_sub(other.mixed),
            weighed: self.weighed.wrapping_sub(other.weighed),
        }
    }
}

/// What is known of the elements that were seen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) fingerprint: Fingerprint,
    /// One of the elements; `None` before there is one.
    one: Option<u64>,
    /// Whether there are different ones.
    differ: bool,
}

impl Seen {
    /// Of elements of `width` bytes: 1, 2, 4 or 8.
    pub(super) fn of(bytes: &[u8], width: usize) -> Self {
        match width {
            1 => Self::narrow(bytes.iter().map(|byte| u32::from(*byte))),
            2 => Self::narrow(bytes.as_chunks().0.iter().map(|x| u16::from_le_bytes(*x).into())),
            4 => Self::narrow(bytes.as_chunks().0.iter().map(|x| u32::from_le_bytes(*x))),
            _ => Self::wide(bytes.as_chunks().0.iter().map(|x| u64::from_le_bytes(*x))),
        }
    }

    /// Every step is an operation that processors have for many elements at a time.
    fn narrow(elements: impl ExactSizeIterator<Item = u32> + Clone) -> Self {
        let Some(first) = elements.clone().next() else { return Self::default() };
        let count = elements.len() as u64;
        let (mut mixed, mut weighed, mut differ) = (0_u64, 0_u64, 0);
        for element in elements {
            let mix = (element ^ (element >> 15)).wrapping_mul(0x85eb_ca6b);
            let mix = (mix ^ (mix >> 13)).wrapping_mul(0xc2b2_ae35);
            mixed = mixed.wrapping_add(u64::from(mix));
            weighed = weighed.wrapping_add(u64::from(mix) * u64::from(element));
            differ |= element ^ first;
        }
        let fingerprint = Fingerprint { count, mixed, weighed };
        Self { fingerprint, one: Some(first.into()), differ: differ != 0 }
    }

    fn wide(elements: impl ExactSizeIterator<Item = u64> + Clone) -> Self {
        let Some(first) = elements.clone().next() else { return Self::default() };
        let count = elements.len() as u64;
        let (mut mixed, mut weighed, mut differ) = (0_u64, 0_u64, 0);
        for element in elements {
            let mix = (element ^ (element >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mix = mix ^ (mix >> 29);
            mixed = mixed.wrapping_add(mix);
            weighed = weighed.wrapping_add(mix.wrapping_mul(element));
            differ |= element ^ first;
        }
        let fingerprint = Fingerprint { count, mixed, weighed };
        Self { fingerprint, one: Some(first), differ: differ != 0 }
    }

    /// Whether there are at least two elements, all of them equal.
    pub(super) fn is_uniform(&self) -> bool {
        self.one.is_some() && !self.differ && self.fingerprint.count > 1
    }
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        let both = self.one.zip(other.one);
        self.differ |= other.differ || both.is_some_and(|(one, two)| one != two);
        self.one = self.one.or(other.one);
        self.fingerprint += other.fingerprint;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_count_and_parts_add_up() {
        for width in [1, 2, 4, 8] {
            let bytes: Vec<u8> =
                (0..64_u32 * 8).map(|n| (n * n * 31 / 8).to_le_bytes()[0]).collect();
            let whole = Seen::of(&bytes, width);
            let mut turned: Vec<_> = bytes.chunks(width).rev().collect();
            assert_eq!(Seen::of(&turned.concat(), width).fingerprint, whole.fingerprint);
            let mut parts = Seen::of(&bytes[..64], width);
            parts += Seen::of(&bytes[64..], width);
            assert_eq!(parts.fingerprint, whole.fingerprint);
            assert_eq!(
                whole.fingerprint - Seen::of(&bytes[..64], width).fingerprint,
                Seen::of(&bytes[64..], width).fingerprint
            );
            assert!(!whole.is_uniform() && !parts.is_uniform());
            turned[0] = turned[1];
            assert_ne!(Seen::of(&turned.concat(), width).fingerprint, whole.fingerprint);
            let mut same = Seen::of(&[7; 64], width);
            assert!(same.is_uniform());
            same += Seen::of(&[7; 8], width);
            assert!(same.is_uniform());
            same += Seen::of(&[8; 8], width);
            assert!(!same.is_uniform());
        }
    }
}
