//! A histogram that is made in one pass, without knowing the range of the numbers before.
//!
//! Bins have a power of two for their width and begin at multiples of it. So two bins of one width
//! make exactly one of the next width, and bins grow when a number does not fit: the counts stay
//! exact, and the result does not depend on the order of the numbers, nor on how they are divided
//! among threads.

use std::ops::Range;

/// How many numbers are in each of some bins of equal width.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Histogram {
    /// Where the first bin begins.
    pub start: f64,
    /// The width of each bin, a power of two. A bin has its lower end, and not its upper one.
    pub width: f64,
    /// The numbers in each bin, from the first that has some to the last.
    pub counts: Vec<u64>,
}

/// The most bins.
pub(super) const BINS: usize = 64;
/// The same as a difference of places.
const SPAN: i64 = 64;
/// How many multiples of its width a bin may be away from zero: floats of 32 bits tell these apart.
const FARTHEST: i32 = 21;

/// The window of bins, and the counts in it.
#[derive(Debug, Clone)]
pub(super) struct Bins {
    /// The width is two to this power.
    pub(super) power: i32,
    /// The first bin begins at so many widths.
    pub(super) first: i64,
    pub(super) counts: [u64; BINS],
    /// The smallest and the largest number that were let in.
    range: Option<(f64, f64)>,
}

impl Default for Bins {
    fn default() -> Self {
        Self { power: i32::MIN, first: 0, counts: [0; BINS], range: None }
    }
}

/// The multiple of `2^power` at or below `number`.
#[allow(clippy::cast_possible_truncation)] // fewer than 2^22 widths, or an end of the range
pub(super) fn floored(number: f64, power: i32) -> i64 {
    (number / width(power)).floor() as i64
}

/// Two to the `power`.
pub(super) fn width(power: i32) -> f64 {
    // Powers below those of normal numbers are reached in two steps.
    let half = power / 2;
    2_f64.powi(half) * 2_f64.powi(power - half)
}

/// The exponent of a number that is not zero: it is at least two to that power.
#[allow(clippy::cast_possible_truncation)] // 11 bits
fn exponent(number: f64) -> i32 {
    let bits = ((number.to_bits() >> 52) & 0x7ff) as i32;
    if bits == 0 { -1074 } else { bits - 1023 }
}

/// The least power of which a window has all numbers from `min` to `max`.
fn power_for(min: f64, max: f64) -> i32 {
    let farthest = min.abs().max(max.abs());
    let mut power = match farthest > 0.0 {
        true => exponent(farthest).saturating_sub(FARTHEST).max(LEAST),
        false => LEAST,
    };
    while floored(max, power).saturating_sub(floored(min, power)) >= SPAN {
        power += 1;
    }
    power
}

/// The least power: the smallest normal float of 32 bits.
const LEAST: i32 = -126;

impl Bins {
    /// Whether numbers from `min` to `max` can be counted in the window as it is.
    pub(super) fn holds(&self, min: f64, max: f64) -> bool {
        let is_in = |number: f64| {
            let is_near = number == 0.0 || exponent(number).saturating_sub(FARTHEST) <= self.power;
            let place = || floored(number, self.power).saturating_sub(self.first);
            is_near && (0..SPAN).contains(&place())
        };
        let is_known = |(from, to): (f64, f64)| from <= min && max <= to;
        self.range.is_some_and(|range| is_known(range) || (is_in(min) && is_in(max)))
    }

    /// Makes room for numbers from `min` to `max`.
    pub(super) fn admit(&mut self, min: f64, max: f64) {
        let holds = self.holds(min, max);
        let (from, to) = self.range.map_or((min, max), |(a, b)| (a.min(min), b.max(max)));
        if !holds {
            let power = power_for(from, to);
            self.rebin(power, floored(from, power));
        }
        self.range = Some((from, to));
    }

    /// Moves the counts into another window, of bins that are as wide or wider.
    fn rebin(&mut self, power: i32, first: i64) {
        let steps = self.range.map_or(0, |_| power.saturating_sub(self.power)).clamp(0, 63);
        let mut counts = [0; BINS];
        for (number, count) in (self.first..).zip(self.counts).filter(|(_, count)| *count > 0) {
            let place = usize::try_from((number >> steps).saturating_sub(first));
            let place = place.ok().and_then(|place| counts.get_mut(place));
            debug_assert!(place.is_some(), "a window lost a bin");
            if let Some(place) = place {
                *place += count;
            }
        }
        (self.power, self.first, self.counts) = (power, first, counts);
    }

    /// Counts one number, which is in the window.
    pub(super) fn count(&mut self, number: f64, times: u64) {
        let place = floored(number, self.power).saturating_sub(self.first);
        if let Some(place) = usize::try_from(place).ok().and_then(|n| self.counts.get_mut(n)) {
            *place += times;
        }
    }

    /// Adds the counts of another window.
    pub(super) fn merge(&mut self, other: &Self) {
        let Some((min, max)) = other.range else { return };
        let mut other = other.clone();
        self.admit(min, max);
        other.rebin(self.power, self.first);
        self.counts.iter_mut().zip(other.counts).for_each(|(to, count)| *to += count);
    }

    /// The bins from the first one with numbers to the last; `None` without any.
    pub(super) fn finish(&self) -> Option<Histogram> {
        let used = |(_, count): &(usize, &u64)| **count > 0;
        let mut bins = self.counts.iter().enumerate().filter(used).map(|(number, _)| number);
        let start = bins.next()?;
        let range: Range<usize> = start..bins.next_back().unwrap_or(start) + 1;
        let width = width(self.power);
        #[allow(clippy::cast_precision_loss)] // fewer than 2^22 widths
        let start = (self.first as f64 + start as f64) * width;
        Some(Histogram { start, width, counts: self.counts.get(range)?.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(numbers: &[f64]) -> Bins {
        let mut bins = Bins::default();
        for number in numbers {
            bins.admit(*number, *number);
            bins.count(*number, 1);
        }
        bins
    }

    #[test]
    fn bins_are_aligned_and_as_narrow_as_they_can_be() {
        for (numbers, start, width, counts) in [
            (&[1.0][..], 1.0, 2.0_f64.powi(-21), vec![1]),
            (&[0.0, 0.0], 0.0, 2.0_f64.powi(-126), vec![2]),
            (&[0.0, 63.0], 0.0, 1.0, [&[1][..], &[0; 62], &[1]].concat()),
            (&[0.0, 64.0], 0.0, 2.0, [&[1][..], &[0; 31], &[1]].concat()),
            (&[-1.0, 1.0], -1.0, 0.0625, [&[1][..], &[0; 31], &[1]].concat()),
            (&[-1e-30, 1e-30], -1e-30_f64.signum() * 0.0, 0.0, vec![]),
            (&[f64::MAX, f64::MIN], f64::MIN, 0.0, vec![]),
        ] {
            let found = of(numbers).finish().unwrap();
            assert_eq!(found.counts.iter().sum::<u64>(), numbers.len() as u64, "{numbers:?}");
            assert!(found.counts.len() <= BINS, "{numbers:?}");
            if !counts.is_empty() {
                assert_eq!((found.start, found.width, found.counts), (start, width, counts));
            }
        }
        assert!(Bins::default().finish().is_none());
    }

    /// Numbers of very different sizes.
    fn numbers() -> impl Strategy<Value = Vec<f64>> {
        let number = (-1.0..1.0_f64, -40..40_i32).prop_map(|(x, power)| x * 2.0_f64.powi(power));
        let near = (0.0..1e-3_f64).prop_map(|x| 7.0 + x);
        prop::collection::vec(prop_oneof![number, near, Just(0.0)], 1..60)
    }

    proptest! {
        #[test]
        fn the_order_and_the_parts_do_not_matter(mut all in numbers(), cut: prop::sample::Index) {
            let expected = of(&all).finish().unwrap();
            let (a, b) = all.split_at(cut.index(all.len()));
            let mut merged = of(a);
            merged.merge(&of(b));
            prop_assert_eq!(merged.finish().unwrap(), expected.clone());
            for (number, count) in expected.counts.iter().enumerate() {
                let from = expected.start + number as f64 * expected.width;
                let is_in = |x: &&f64| (from..from + expected.width).contains(*x);
                prop_assert_eq!(all.iter().filter(is_in).count() as u64, *count);
            }
            all.reverse();
            prop_assert_eq!(of(&all).finish().unwrap(), expected);
        }
    }
}
