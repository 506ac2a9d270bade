//! The product of one row, which a language model computes for every token.
//!
//! The codes enter the sums without being written as numbers. A vector has one element for each of
//! several rows of codes, so each sum has the order that it has in any product: the bits are the
//! same.

use pulp::{Simd, WithSimd};

use super::weights::{Sizes, Weights};
use crate::exact::Exact;
use crate::numeric::Number;
use crate::numeric::nan::OneNan;

/// The rows of codes that are computed at a time: two or four vectors of a processor.
const ROWS: usize = 16;

/// Writes the products of `a` and each row of the weights, which have no groups, to `sums`.
pub(super) struct OneRow<'a, 'w> {
    /// Whether products and their sums are rounded once.
    pub(super) fused: bool,
    pub(super) weights: &'a Weights<'w>,
    pub(super) a: &'a [f32],
    pub(super) sums: &'a mut [f32],
}

impl WithSimd for OneRow<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        // Without vectors there may be no instruction for it, and a function for each product is
        // slow.
        if const { !S::IS_SCALAR } && self.fused {
            self.sized::<true>();
        } else {
            self.sized::<false>();
        }
    }
}

impl OneRow<'_, '_> {
    #[inline(always)]
    fn sized<const FUSED: bool>(self) {
        match self.weights.sizes.bits {
            2 => self.rows::<FUSED, 2>(),
            4 => self.rows::<FUSED, 4>(),
            _ => self.rows::<FUSED, 8>(),
        }
    }

    #[inline(always)]
    fn rows<const FUSED: bool, const BITS: usize>(self) {
        for (i, sums) in self.sums.chunks_mut(ROWS).enumerate() {
            let all = Lanes::new(self.weights, i * ROWS).sums::<FUSED, BITS>(self.a);
            sums.iter_mut().zip(all).for_each(|(sum, all)| *sum = all.one_nan());
        }
    }
}

/// Rows of codes that are computed together, with what makes them numbers.
struct Lanes<'a> {
    sizes: Sizes,
    /// Codes, 32 bits at a time.
    words: [&'a [[u8; 4]]; ROWS],
    scales: [&'a [f32]; ROWS],
    /// One for each block, or one for all.
    zeros: [&'a [f32]; ROWS],
}

impl<'a> Lanes<'a> {
    /// The rows from `first` on. Where there are fewer, the last one stands for the others.
    #[inline(always)]
    fn new(weights: &'a Weights<'_>, first: usize) -> Self {
        let Sizes { n, blocks, .. } = weights.sizes;
        let bytes = weights.sizes.row();
        let row = |i: usize, len: usize| {
            let n = (first + i).min(n - 1);
            n * len..(n + 1) * len
        };
        let of_block = |all: &'a [f32], i| all.debug_part(row(i, blocks));
        let one_zero = weights.zeros.len() == 1;
        Self {
            sizes: weights.sizes,
            words: std::array::from_fn(|i| weights.codes.debug_part(row(i, bytes)).as_chunks().0),
            scales: std::array::from_fn(|i| of_block(&weights.scales, i)),
            zeros: std::array::from_fn(|i| match one_zero {
                true => weights.zeros.as_slice(),
                false => of_block(&weights.zeros, i),
            }),
        }
    }

    /// Their products with `a`.
    #[inline(always)]
    fn sums<const FUSED: bool, const BITS: usize>(&self, a: &[f32]) -> [f32; ROWS] {
        let mut sums = [0.0; ROWS];
        let block = self.sizes.block;
        let words = block * BITS / 32;
        for (b, a) in a.chunks(block).enumerate() {
            let scales = self.scales.map(|scales| scales.debug_at(b, 0.0));
            let zeros = self.zeros.map(|all| all.debug_at(if all.len() == 1 { 0 } else { b }, 0.0));
            for (at, a) in (b * words..).zip(a.chunks(32 / BITS)) {
                let codes = self.words.map(|words| u32::from_le_bytes(words.debug_at(at, [0; 4])));
                add_word::<FUSED, BITS>(&mut sums, codes, a, (&scales, &zeros));
            }
        }
        sums
    }
}

/// Adds the products of `a` and the codes of a word of each row, the lowest bits first.
#[inline(always)]
fn add_word<const FUSED: bool, const BITS: usize>(
    sums: &mut [f32; ROWS],
    mut words: [u32; ROWS],
    a: &[f32],
    (scales, zeros): (&[f32; ROWS], &[f32; ROWS]),
) {
    for x in a {
        let lanes = sums.iter_mut().zip(&mut words).zip(scales).zip(zeros);
        for (((sum, word), scale), zero) in lanes {
            let code = (*word & ((1 << BITS) - 1)).cast_signed() as f32;
            let number = (code - zero) * scale;
            *sum = if FUSED { sum.fused(number, *x) } else { *sum + number * x };
            *word >>= BITS;
        }
    }
}
