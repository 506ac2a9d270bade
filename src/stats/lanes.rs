//! Sums that are kept side by side, in lanes, for vectors of the processor.
//!
//! A step takes one element for each lane. It goes through the lanes by an index: the standard
//! library does not mark the function that makes an `Iterator::zip` for inlining, so with several
//! codegen units it is a call, and the lanes are in memory, not in registers.

use std::ops::{AddAssign, Mul};

/// The sums of `N` lanes, as numbers of type `S`.
pub(super) struct Lanes<T, S, const N: usize> {
    pub(super) min: [T; N],
    pub(super) max: [T; N],
    pub(super) zeros: [u32; N],
    pub(super) sums: [S; N],
    pub(super) squares: [S; N],
}

impl<T, S, const N: usize> Lanes<T, S, N>
where
    T: Copy + PartialOrd,
    S: Copy + Default + AddAssign + Mul<Output = S>,
{
    /// Lanes without elements.
    #[inline(always)]
    pub(super) fn new(largest: T, smallest: T) -> Self {
        let none = [S::default(); N];
        Self { min: [largest; N], max: [smallest; N], zeros: [0; N], sums: none, squares: none }
    }

    /// Adds an element to each lane. `read` gives its number, its count of zeros (1 or 0), and the
    /// amount for the sums.
    #[inline(always)]
    pub(super) fn add<E: Copy>(&mut self, elements: &[E; N], read: impl Fn(E) -> (T, u32, S)) {
        for lane in 0..N {
            if let Some(element) = elements.get(lane)
                && let Some(min) = self.min.get_mut(lane)
                && let Some(max) = self.max.get_mut(lane)
                && let Some(zeros) = self.zeros.get_mut(lane)
                && let Some(sum) = self.sums.get_mut(lane)
                && let Some(square) = self.squares.get_mut(lane)
            {
                let (number, zero, apart) = read(*element);
                *min = if number < *min { number } else { *min };
                *max = if number > *max { number } else { *max };
                *zeros += zero;
                *sum += apart;
                *square += apart * apart;
            }
        }
    }
}

/// Calls `step` with each lane and its element.
#[inline(always)]
pub(super) fn each<L, E: Copy, const N: usize>(
    lanes: &mut [L; N],
    elements: &[E; N],
    step: impl Fn(&mut L, E),
) {
    for lane in 0..N {
        if let (Some(lane), Some(element)) = (lanes.get_mut(lane), elements.get(lane)) {
            step(lane, *element);
        }
    }
}
