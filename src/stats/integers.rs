//! The exact sums of integers of at most 16 bits.
//!
//! They are read as numbers from zero up, by adding an offset to signed ones, so that one loop does
//! for both. A loop adds up a run whose sums have room in short lanes.

use std::ops::{AddAssign, Mul};

use pulp::{Arch, Simd, WithSimd};

use super::lanes;
use super::moments::Moments;
use super::numbers::{AHEAD, Found};
use crate::util::prefetch;

/// The sums of some integers from zero up.
#[derive(Debug, Clone, Copy)]
struct Sums {
    count: u64,
    min: u16,
    max: u16,
    zeros: u64,
    sum: u64,
    squares: u64,
}

impl Sums {
    /// What was found of the integers, which are less by `offset`.
    fn found(self, offset: u16) -> Found {
        let (count, by) = (self.count.cast_signed(), i64::from(offset));
        let (sum, squares) = (self.sum.cast_signed(), self.squares.cast_signed());
        let squares = squares - 2 * by * sum + by * by * count;
        let number = |number: u16| f64::from(number) - f64::from(offset);
        Found {
            moments: Moments::exact(self.count, sum - by * count, squares),
            min: number(self.min),
            max: number(self.max),
            zeros: self.zeros,
        }
    }
}

/// What is found of the integers of 16 bits in `words`, at most 2^24 of them; `None` without any.
/// The function `number` reads an integer from a word and adds `offset`, so that none is negative.
pub(super) fn of_words<T: Copy>(
    arch: Arch,
    words: &[T],
    offset: u16,
    number: &impl Fn(T) -> u16,
) -> Option<Found> {
    (!words.is_empty()).then(|| arch.dispatch(Words { words, offset, number }).found(offset))
}

struct Words<'e, T, F> {
    words: &'e [T],
    offset: u16,
    number: &'e F,
}

/// The sums of words that are kept side by side.
const WORD_LANES: usize = 32;
/// The words of each lane that are added up in its own type.
const WORD_RUN: usize = 8;

impl<T: Copy, F: Fn(T) -> u16> WithSimd for Words<'_, T, F> {
    type Output = Sums;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Sums {
        let Self { words, offset, number } = self;
        let (mut min, mut max) = ([u16::MAX; WORD_LANES], [0_u16; WORD_LANES]);
        let (mut all, mut squares) = ([0_u64; 2], [0_u64; WORD_LANES]);
        let (chunks, rest) = words.as_chunks::<WORD_LANES>();
        for run in chunks.chunks(WORD_RUN) {
            prefetch::behind(run, AHEAD);
            let (mut zeros, mut sums) = ([0_u16; WORD_LANES], [0_u32; WORD_LANES]);
            for chunk in run {
                for lane in 0..WORD_LANES {
                    if let Some(word) = chunk.get(lane)
                        && let Some(min) = min.get_mut(lane)
                        && let Some(max) = max.get_mut(lane)
                        && let Some(zeros) = zeros.get_mut(lane)
                        && let Some(sum) = sums.get_mut(lane)
                    {
                        let number = number(*word);
                        (*min, *max) = ((*min).min(number), (*max).max(number));
                        *zeros += u16::from(number == offset);
                        *sum += u32::from(number);
                    }
                }
                // A loop of its own has lanes of one width.
                lanes::each(&mut squares, chunk, |square, word| {
                    let number = u32::from(number(word));
                    *square += u64::from(number * number);
                });
            }
            all[0] += zeros.iter().map(|count| u64::from(*count)).sum::<u64>();
            all[1] += sums.iter().map(|sum| u64::from(*sum)).sum::<u64>();
        }
        let mut sums = Sums {
            count: words.len() as u64,
            min: min.into_iter().min().unwrap_or(u16::MAX),
            max: max.into_iter().max().unwrap_or(0),
            zeros: all[0],
            sum: all[1],
            squares: squares.iter().sum(),
        };
        for word in rest {
            let number = number(*word);
            (sums.min, sums.max) = (sums.min.min(number), sums.max.max(number));
            sums.zeros += u64::from(number == offset);
            sums.sum += u64::from(number);
            sums.squares += u64::from(number) * u64::from(number);
        }
        sums
    }
}

/// The sums of bytes that are kept side by side: with fewer the compiler takes the lanes apart.
const BYTE_LANES: usize = 128;
/// The bytes of each lane that are added up in its own type.
const BYTE_RUN: usize = 32;

/// What is found of the integers in `bytes`, `N` in each and at most 2^31 in all; `None` without
/// any. The function `numbers` reads them from a byte and adds `offset`, so that none is negative.
/// `S` has room for the sum of `N` times [`BYTE_RUN`] squares.
pub(super) fn of_bytes<S, const N: usize>(
    arch: Arch,
    bytes: &[u8],
    offset: u8,
    numbers: impl Fn(u8) -> [u8; N],
) -> Option<Found>
where
    S: Copy + Default + AddAssign + Mul<Output = S> + From<u8> + Into<u64>,
{
    let first = *numbers(*bytes.first()?).first()?;
    let (mut min, mut max, mut zeros, mut sum, mut squares) = (first, first, 0, 0, 0);
    for run in bytes.chunks(BYTE_RUN * BYTE_LANES) {
        // Each of the loops asks for a part of the next run.
        let mut parts = run.chunks(run.len().div_ceil(4));
        let mut ask = || parts.next().into_iter().for_each(|part| prefetch::behind(part, AHEAD));
        ask();
        let (least, most) = arch.dispatch(Range { run, numbers: &numbers, first });
        (min, max) = (min.min(least), max.max(most));
        ask();
        let zero = |number| u8::from(number == offset);
        zeros += total(arch, run, |byte| added(numbers(byte), zero));
        ask();
        sum += total(arch, run, |byte| added(numbers(byte), u16::from));
        ask();
        let square = |number| S::from(number) * S::from(number);
        squares += total(arch, run, |byte| added(numbers(byte), square));
    }
    let count = (bytes.len() * N) as u64;
    let (min, max) = (min.into(), max.into());
    Some(Sums { count, min, max, zeros, sum, squares }.found(offset.into()))
}

/// The sum of what `part` makes of each of the numbers.
#[inline(always)]
fn added<T, const N: usize>(numbers: [u8; N], part: impl Fn(u8) -> T) -> T
where
    T: Default + AddAssign,
{
    let mut sum = T::default();
    numbers.into_iter().for_each(|number| sum += part(number));
    sum
}

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
            lanes::each(&mut lanes, chunk, |lane, byte| *lane += (self.part)(byte));
        }
        let rest: u64 = rest.iter().map(|byte| (self.part)(*byte).into()).sum();
        lanes.into_iter().map(Into::into).sum::<u64>() + rest
    }
}

/// Finds the smallest and the largest number of a run, and of `first`.
struct Range<'e, F> {
    run: &'e [u8],
    numbers: &'e F,
    first: u8,
}

impl<const N: usize, F: Fn(u8) -> [u8; N]> WithSimd for Range<'_, F> {
    type Output = (u8, u8);

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> (u8, u8) {
        self.run.iter().fold((self.first, self.first), |range, byte| {
            (self.numbers)(*byte).into_iter().fold(range, |(min, max), n| (min.min(n), max.max(n)))
        })
    }
}
