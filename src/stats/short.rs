//! The sums of blocks of floats of 16 bits.
//!
//! A processor adds twice as many floats of 32 bits as of 64 at once. So a few floats of 16 bits
//! are added up in 32 bits, about a pivot, and these sums in 64: mean and deviation are then exact
//! to a millionth of the deviation.

use pulp::{Arch, Simd, WithSimd};

use super::lanes::Lanes;
use super::numbers::{AHEAD, LANES, Sums};
use crate::util::prefetch;

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
        let mut lanes = Lanes::<f32, f32, LANES>::new(f32::INFINITY, f32::NEG_INFINITY);
        let (mut sum, mut squares) = ([0.0; LANES], [0.0; LANES]);
        let (chunks, rest) = codes.as_chunks::<LANES>();
        for run in chunks.chunks(RUN) {
            (lanes.sums, lanes.squares) = ([0.0; LANES], [0.0; LANES]);
            prefetch::behind(run, AHEAD);
            for chunk in run {
                lanes.add(chunk, |code| {
                    let number = wide(code);
                    (number, u32::from(number == 0.0), number - pivot)
                });
            }
            add(&mut sum, &lanes.sums);
            add(&mut squares, &lanes.squares);
        }
        let mut all = Sums {
            count: codes.len() as u64,
            min: lanes.min.into_iter().fold(f32::INFINITY, f32::min),
            max: lanes.max.into_iter().fold(f32::NEG_INFINITY, f32::max),
            zeros: lanes.zeros.iter().map(|count| u64::from(*count)).sum(),
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
