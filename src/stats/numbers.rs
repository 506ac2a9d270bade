//! Adds up floats of 32 and 64 bits and integers, block by block: the one pass over the elements.
//!
//! A block fits the cache that is next to a core, so going through it a few times costs little, and
//! each time is a plain loop that the compiler makes vectors of. Almost all blocks have finite
//! numbers only, which their sum shows afterwards; the others are gone through once more without
//! what is not finite.

use pulp::{Arch, Simd, WithSimd};

use super::histogram::{BINS, Bins, width};
use super::lanes::Lanes;
use super::moments::Moments;
use crate::util::prefetch;

/// The most elements of a block.
pub(super) const BLOCK: usize = 4096;
/// The sums that are kept side by side: as many as a wide processor adds at once.
pub(super) const LANES: usize = 16;
/// The numbers of each lane between two requests for memory.
const RUN: usize = 16;
/// How far ahead memory is asked for, in bytes: a page, as the next one may not be mapped yet.
pub(super) const AHEAD: usize = 4096;

/// What is known of some numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Numbers {
    pub(super) moments: Moments,
    pub(super) bins: Bins,
    /// The smallest and the largest finite number.
    pub(super) range: Option<(f64, f64)>,
    pub(super) nan: u64,
    pub(super) positive_infinities: u64,
    pub(super) negative_infinities: u64,
    pub(super) zeros: u64,
}

impl Numbers {
    /// Adds those of other elements.
    pub(super) fn merge(&mut self, other: &Self) {
        self.moments.merge(other.moments);
        self.bins.merge(&other.bins);
        if let Some((min, max)) = other.range {
            self.widen(min, max);
        }
        self.nan += other.nan;
        self.positive_infinities += other.positive_infinities;
        self.negative_infinities += other.negative_infinities;
        self.zeros += other.zeros;
    }

    /// Adds `number`, which occurs `times`.
    pub(super) fn add(&mut self, number: f64, times: u64) {
        if times == 0 {
            return;
        }
        if !number.is_finite() {
            self.add_special(number, times);
            return;
        }
        self.zeros += if number == 0.0 { times } else { 0 };
        self.widen(number, number);
        self.moments.merge(Moments::equal(number, times));
        self.bins.admit(number, number);
        self.bins.count(number, times);
    }

    fn add_special(&mut self, number: f64, times: u64) {
        let count = match number {
            _ if number.is_nan() => &mut self.nan,
            _ if number > 0.0 => &mut self.positive_infinities,
            _ => &mut self.negative_infinities,
        };
        *count += times;
    }

    /// Makes the range reach from `min` to `max` at least.
    pub(super) fn widen(&mut self, min: f64, max: f64) {
        let (a, b) = self.range.unwrap_or((min, max));
        self.range = Some((a.min(min), b.max(max)));
    }
}

/// A number that is added up in its own type.
pub(super) trait Summand: Copy + PartialOrd {
    /// Nothing is larger.
    const LARGEST: Self;
    /// Nothing is smaller.
    const SMALLEST: Self;
    fn wide(self) -> f64;
    /// One if it is zero.
    fn is_zero(self) -> u32;
}

/// A float that is counted in bins.
pub(super) trait Real: Summand + Default {
    /// Two to the `power`.
    fn power(power: i32) -> Self;
    /// The number of whole widths below `self`, less `first`: it is from zero to 63. The width and
    /// `scale`, which is one by the width, are powers of two.
    fn bin(self, width: Self, scale: Self, first: i64) -> u16;
}

macro_rules! summand {
    ($($Number:ident, $largest:expr, $smallest:expr, $zero:literal;)*) => {$(
        impl Summand for $Number {
            const LARGEST: Self = $largest;
            const SMALLEST: Self = $smallest;

            #[inline(always)]
            #[allow(clippy::cast_precision_loss, clippy::cast_lossless)] // rounds the longest
            fn wide(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn is_zero(self) -> u32 {
                u32::from(self == $zero)
            }
        }
    )*};
}

summand! {
    f32, f32::INFINITY, f32::NEG_INFINITY, 0.0;
    f64, f64::INFINITY, f64::NEG_INFINITY, 0.0;
    i32, i32::MAX, i32::MIN, 0;
    u32, u32::MAX, u32::MIN, 0;
    i64, i64::MAX, i64::MIN, 0;
    u64, u64::MAX, u64::MIN, 0;
}

macro_rules! real {
    ($Float:ident, $Bits:ident, $digits:literal) => {
        impl Real for $Float {
            #[allow(clippy::cast_possible_truncation)] // a power of two in the range of the type
            fn power(power: i32) -> Self {
                width(power) as $Float
            }

            // Added to a number of this size, a fraction is rounded away, and the whole number is
            // in the lowest bits. That is faster than a conversion, which has to look for numbers
            // that no integer holds.
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // keeps low bits
            fn bin(self, width: Self, scale: Self, first: i64) -> u16 {
                const LARGE: $Float = 1.5 * ((1_u64 << $digits) as $Float);
                let shifted = self * scale + LARGE;
                let rounded = (shifted - LARGE) * width;
                let whole = shifted.to_bits().wrapping_sub($Bits::from(rounded > self));
                whole.wrapping_sub(LARGE.to_bits()).wrapping_sub(first as $Bits) as u16
            }
        }
    };
}

real!(f32, u32, 23);
real!(f64, u64, 52);

/// What was found of some finite numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) moments: Moments,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) zeros: u64,
}

impl Found {
    /// Adds this to `numbers`, without counting in bins.
    pub(super) fn add_to(&self, numbers: &mut Numbers) {
        numbers.moments.merge(self.moments);
        numbers.zeros += self.zeros;
        numbers.widen(self.min, self.max);
    }
}

/// Adds up blocks of one type.
pub(super) struct Blocks<T> {
    pub(super) numbers: Numbers,
    /// How often each pair of bins occurs, the first in the low bits: to count two numbers at once
    /// halves the time.
    pairs: Box<[u32; BINS * BINS]>,
    /// The numbers in `pairs`.
    pending: usize,
    finite: Vec<T>,
    /// Of so many blocks the first is counted in bins.
    step: usize,
    /// The number of blocks.
    blocks: usize,
    /// The vectors that the processor has.
    arch: Arch,
}

/// The bits of the number of a bin.
const BIN_BITS: u32 = BINS.trailing_zeros();
/// The most numbers that are counted before a count could be too large for its 32 bits.
const MOST_PENDING: usize = 1 << 30;

impl<T: Real> Blocks<T> {
    /// Of every `step` blocks the first will be counted in bins.
    pub(super) fn new(step: usize) -> Self {
        let (numbers, pairs) = (Numbers::default(), Box::new([0; BINS * BINS]));
        let (pending, blocks, finite) = (0, 0, Vec::new());
        Self { numbers, pairs, pending, finite, step, blocks, arch: Arch::new() }
    }

    /// Adds `elements`, at most [`BLOCK`] of them.
    pub(super) fn add(&mut self, elements: &[T]) {
        let Some((pivot, sums)) = self.sums(elements) else { return };
        if sums.are_finite() {
            self.add_found(&sums.found(pivot), || elements);
        } else {
            self.add_others(elements);
        }
    }

    /// The sums of a block about a number that is close to its mean; `None` without elements.
    pub(super) fn sums<E: Summand>(&self, elements: &[E]) -> Option<(f64, Sums<E>)> {
        let pivot = self.pivot().or(elements.first().map(|first| first.wide()))?;
        Some((pivot, self.arch.dispatch(Summed { elements, pivot })))
    }

    /// Adds elements of which not all are finite, or whose squares are too large.
    fn add_others(&mut self, elements: &[T]) {
        let mut finite = std::mem::take(&mut self.finite);
        finite.clear();
        for element in elements {
            match element.wide() {
                number if number.is_finite() => finite.push(*element),
                number => self.numbers.add_special(number, 1),
            }
        }
        match finite.first().map(|first| first.wide()) {
            Some(pivot) => self.add_found(&Sums::of(&finite, pivot).found(pivot), || &finite),
            None => self.blocks += 1,
        }
        self.finite = finite;
    }

    /// A number that is close to the mean of the next block; `None` before the first one.
    pub(super) fn pivot(&self) -> Option<f64> {
        (self.numbers.moments.count > 0).then_some(self.numbers.moments.mean)
    }

    /// Adds what was found of a block of finite elements. `elements` makes them if they are counted
    /// in bins.
    pub(super) fn add_found<'e>(&mut self, found: &Found, elements: impl FnOnce() -> &'e [T])
    where
        T: 'e,
    {
        found.add_to(&mut self.numbers);
        if self.blocks.is_multiple_of(self.step.max(1)) {
            if !self.numbers.bins.holds(found.min, found.max) || self.pending >= MOST_PENDING {
                self.flush();
            }
            self.numbers.bins.admit(found.min, found.max);
            self.count(elements());
        }
        self.blocks += 1;
    }

    /// Counts `elements` in their bins.
    fn count(&mut self, elements: &[T]) {
        let mut numbers = [0_u16; BLOCK / 2];
        let bins = &mut self.numbers.bins;
        let (a, rest) = elements.split_at(elements.len() / 2);
        let (b, odd) = rest.split_at(a.len().min(rest.len()));
        self.arch.dispatch(Paired { a, b, bins, numbers: &mut numbers });
        for number in numbers.get(..a.len()).unwrap_or(&numbers) {
            // The mask spares a comparison: there are no higher bits.
            if let Some(count) = self.pairs.get_mut(usize::from(*number) & (BINS * BINS - 1)) {
                *count += 1;
            }
        }
        odd.iter().for_each(|number| bins.count(number.wide(), 1));
        self.pending += elements.len();
    }

    /// Moves the counts of pairs into the bins.
    fn flush(&mut self) {
        if self.pending == 0 {
            return;
        }
        let bins = &mut self.numbers.bins.counts;
        for (row, second) in self.pairs.chunks(BINS).zip(0..) {
            let sum: u64 = row.iter().map(|count| u64::from(*count)).sum();
            let count = |bin: &mut u64, more: u64| *bin += more;
            if let Some(bin) = bins.get_mut(second) {
                count(bin, sum);
            }
            bins.iter_mut().zip(row).for_each(|(bin, more)| count(bin, u64::from(*more)));
        }
        self.pairs.fill(0);
        self.pending = 0;
    }

    /// What is known of all blocks.
    pub(super) fn finish(mut self) -> Numbers {
        self.flush();
        self.numbers
    }
}

/// Finds the bins of each two numbers of `a` and `b`, which have the same length.
struct Paired<'e, T> {
    a: &'e [T],
    b: &'e [T],
    bins: &'e Bins,
    numbers: &'e mut [u16; BLOCK / 2],
}

impl<T: Real> WithSimd for Paired<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (width, scale) = (T::power(self.bins.power), T::power(-self.bins.power));
        let first = self.bins.first;
        for ((number, a), b) in self.numbers.iter_mut().zip(self.a).zip(self.b) {
            *number = a.bin(width, scale, first) | (b.bin(width, scale, first) << BIN_BITS);
        }
    }
}

/// Makes the sums of a block, in vectors of the processor.
struct Summed<'e, T> {
    elements: &'e [T],
    pivot: f64,
}

impl<T: Summand> WithSimd for Summed<'_, T> {
    type Output = Sums<T>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Sums<T> {
        Sums::of(self.elements, self.pivot)
    }
}

/// The sums of one block about a pivot. Where an element is not finite, they are not.
pub(super) struct Sums<T> {
    pub(super) count: u64,
    pub(super) min: T,
    pub(super) max: T,
    pub(super) zeros: u64,
    pub(super) sum: f64,
    pub(super) squares: f64,
}

impl<T: Summand> Sums<T> {
    #[inline(always)]
    fn of(elements: &[T], pivot: f64) -> Self {
        let mut lanes = Lanes::<T, f64, LANES>::new(T::LARGEST, T::SMALLEST);
        let (chunks, rest) = elements.as_chunks::<LANES>();
        for run in chunks.chunks(RUN) {
            prefetch::behind(run, AHEAD);
            for chunk in run {
                lanes.add(chunk, |element| (element, element.is_zero(), element.wide() - pivot));
            }
        }
        let (mut least, mut most) = (T::LARGEST, T::SMALLEST);
        let mut all = (0_u64, 0.0, 0.0);
        for element in rest {
            least = if *element < least { *element } else { least };
            most = if *element > most { *element } else { most };
            let apart = element.wide() - pivot;
            all = (all.0 + u64::from(element.is_zero()), all.1 + apart, all.2 + apart * apart);
        }
        for (a, b) in lanes.min.into_iter().zip(lanes.max) {
            least = if a < least { a } else { least };
            most = if b > most { b } else { most };
        }
        let zeros = lanes.zeros.iter().map(|n| u64::from(*n)).sum::<u64>() + all.0;
        let sum = lanes.sums.iter().sum::<f64>() + all.1;
        let squares = lanes.squares.iter().sum::<f64>() + all.2;
        Self { count: elements.len() as u64, min: least, max: most, zeros, sum, squares }
    }

    /// The same as numbers; the sums are about `pivot`.
    pub(super) fn found(&self, pivot: f64) -> Found {
        let moments = Moments::about(pivot, self.count, self.sum, self.squares);
        Found { moments, min: self.min.wide(), max: self.max.wide(), zeros: self.zeros }
    }

    fn are_finite(&self) -> bool {
        self.squares.is_finite()
    }
}
