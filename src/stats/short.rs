//! The sums of blocks of short numbers: floats of 16 bits, and integers of at most eight.
//!
//! A processor adds twice as many floats of 32 bits as of 64 at once. So a few floats of 16 bits
//! are added up in 32 bits, about a pivot, and these sums in 64: mean and deviation are then exact
//! to a millionth of the deviation. Sums of integers are exact.

use std::ops::{AddAssign, Mul};

use pulp::{Arch, Simd, WithSimd};

use super::moments::Moments;
use super::numbers::{LANES, Numbers, Sums};

/// The numbers of each lane that are added up in 32 bits.
const RUN: usize = 16;
/// Squares below this may have been rounded to zero in 32 bits.
const LEAST_SQUARES: f64 = 1e-20;

/// Makes the sums of a block of `codes`, each of which stands for a number; `None` where floats of
/// 32 bits do not do: elements that are not finite, or whose squares are too large or too small.
pub(super) fn sums<C: Copy>(
    arch: Arch,
    codes: &[C],
    wide: &impl Fn(C) -> f32,
    pivot: f32,
) -> Option<Sums<f32>> {
    let sums = arch.dispatch(Short { codes, wide, pivot });
    (sums.squares.is_finite() && sums.squares > LEAST_SQUARES).then_some(sums)
}

struct Short<'e, C, F> {
    codes: &'e [C],
    wide: &'e F,
    pivot: f32,
}

impl<C: Copy, F: Fn(C) -> f32> WithSimd for Short<'_, C, F> {
    type Output = Sums<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Sums<f32> {
        let Self { codes, wide, pivot } = self;
        let (mut min, mut max) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
        let (mut zeros, mut sum, mut squares) = ([0_u32; LANES], [0.0; LANES], [0.0; LANES]);
        let (chunks, rest) = codes.as_chunks::<LANES>();
        for run in chunks.chunks(RUN) {
            let (mut sums, mut of_squares) = ([0.0_f32; LANES], [0.0_f32; LANES]);
            for chunk in run {
                let lanes = min.iter_mut().zip(&mut max).zip(&mut zeros).zip(&mut sums);
                for (((((min, max), zeros), sum), square), code) in
                    lanes.zip(&mut of_squares).zip(chunk)
                {
                    let number = wide(*code);
                    *min = if number < *min { number } else { *min };
                    *max = if number > *max { number } else { *max };
                    *zeros += u32::from(number == 0.0);
                    let apart = number - pivot;
                    *sum += apart;
                    *square += apart * apart;
                }
            }
            add(&mut sum, &sums);
            add(&mut squares, &of_squares);
        }
        let mut all = Sums {
            count: codes.len() as u64,
            min: min.into_iter().fold(f32::INFINITY, f32::min),
            max: max.into_iter().fold(f32::NEG_INFINITY, f32::max),
            zeros: zeros.iter().map(|count| u64::from(*count)).sum(),
            sum: sum.iter().sum(),
            squares: squares.iter().sum(),
        };
        for code in rest {
            let number = wide(*code);
            (all.min, all.max) = (all.min.min(number), all.max.max(number));
            all.zeros += u64::from(number == 0.0);
            let apart = f64::from(number) - f64::from(pivot);
            all.sum += apart;
            all.squares += apart * apart;
        }
        all
    }
}

/// Adds each of `more` to its lane. The compiler takes lanes apart where this is part of the loop
/// that has both sums.
#[inline(never)]
fn add(lanes: &mut [f64; LANES], more: &[f32; LANES]) {
    lanes.iter_mut().zip(more).for_each(|(lane, more)| *lane += f64::from(*more));
}

/// The exact sums of integers of at most eight bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByteSums {
    count: u64,
    min: i16,
    max: i16,
    zeros: u64,
    sum: i64,
    squares: i64,
}

impl ByteSums {
    /// The sums of the integers in `bytes`, at most 2^31 of them; `None` without any. The function
    /// `number` reads an integer from a byte and adds `offset`, so that it is not negative. `S` has
    /// room for the sum of [`RUN_CHUNKS`] squares.
    pub(super) fn of<S>(
        arch: Arch,
        bytes: &[u8],
        offset: u8,
        number: impl Fn(u8) -> u8,
    ) -> Option<Self>
    where
        S: Copy + Default + AddAssign + Mul<Output = S> + From<u8> + Into<u64>,
    {
        let first = number(*bytes.first()?);
        let (mut min, mut max, mut zeros, mut sum, mut squares) = (first, first, 0, 0, 0);
        for run in bytes.chunks(RUN_CHUNKS * BYTE_LANES) {
            let (least, most) = arch.dispatch(Range { run, number: &number, first });
            (min, max) = (min.min(least), max.max(most));
            zeros += total(arch, run, |byte| u8::from(number(byte) == offset));
            sum += total(arch, run, |byte| u16::from(number(byte)));
            squares += total(arch, run, |byte| S::from(number(byte)) * S::from(number(byte)));
        }
        let count = bytes.len() as u64;
        let (all, by) = (count.cast_signed(), i64::from(offset));
        let (with, of_squares) = (sum.cast_signed(), squares.cast_signed());
        Some(Self {
            count,
            min: i16::from(min) - i16::from(offset),
            max: i16::from(max) - i16::from(offset),
            zeros,
            sum: with - by * all,
            squares: of_squares - 2 * by * with + by * by * all,
        })
    }

    /// Adds the integers to `numbers`, without counting them in bins.
    pub(super) fn add_to(&self, numbers: &mut Numbers) {
        numbers.moments.merge(Moments::exact(self.count, self.sum, self.squares));
        numbers.zeros += self.zeros;
        numbers.widen(self.min.into(), self.max.into());
    }
}

/// The sums that are kept side by side: with fewer the compiler takes the lanes apart.
const BYTE_LANES: usize = 128;
/// The numbers of each lane that are added up in its own type.
const RUN_CHUNKS: usize = 32;

/// Adds up what `part` makes of each byte of a run. A loop for each sum is faster than one for all,
/// which has lanes of several widths.
fn total<T>(arch: Arch, run: &[u8], part: impl Fn(u8) -> T) -> u64
where
    T: Copy + Default + AddAssign + Into<u64>,
{
    arch.dispatch(Total { run, part })
}

struct Total<'e, F> {
    run: &'e [u8],
    part: F,
}

impl<T, F> WithSimd for Total<'_, F>
where
    T: Copy + Default + AddAssign + Into<u64>,
    F: Fn(u8) -> T,
{
    type Output = u64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> u64 {
        let mut lanes = [T::default(); BYTE_LANES];
        let (chunks, rest) = self.run.as_chunks::<BYTE_LANES>();
        for chunk in chunks {
            for (lane, byte) in lanes.iter_mut().zip(chunk) {
                *lane += (self.part)(*byte);
            }
        }
        let rest: u64 = rest.iter().map(|byte| (self.part)(*byte).into()).sum();
        lanes.into_iter().map(Into::into).sum::<u64>() + rest
    }
}

/// Finds the smallest and the largest number of a run, and of `first`.
struct Range<'e, F> {
    run: &'e [u8],
    number: &'e F,
    first: u8,
}

impl<F: Fn(u8) -> u8> WithSimd for Range<'_, F> {
    type Output = (u8, u8);

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> (u8, u8) {
        let numbers = self.run.iter().map(|byte| (self.number)(*byte));
        numbers.fold((self.first, self.first), |(min, max), n| (min.min(n), max.max(n)))
    }
}
