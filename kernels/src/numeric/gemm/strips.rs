//! A product of a few rows and a matrix whose rows are read where they lie, a few at a time.
//!
//! The sums of many columns stay in the second cache, while a strip of some rows of the right
//! matrix is read once, from its first column to its last. So a large matrix is read at the speed
//! of memory, and nothing is packed.

use pulp::{Simd, WithSimd};

use super::matrix::{MANY_COLUMNS, Matrix, parts};
use crate::exact::Exact;
use crate::numeric::Number;
use crate::numeric::nan::OneNan;

/// The rows of the right matrix that are read at a time.
const DEPTH: usize = 8;
/// The columns of these rows that are widened at a time: few enough for the first cache.
const WIDENED: usize = 256;

/// The product of `lines` and of `right`, whose rows are lines in memory, added to `c`, which is
/// row-major.
pub(super) struct Strips<'m, T: Number> {
    /// Whether products and their sums are rounded once.
    pub(super) fused: bool,
    /// The rows of the left matrix.
    pub(super) lines: Vec<&'m [T::Sum]>,
    pub(super) right: Matrix<'m, T>,
    pub(super) c: &'m mut [T::Sum],
}

impl<T: Number> WithSimd for Strips<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // Without vectors there may be no instruction for it, and a function for each product is
        // slow.
        if const { T::ROUNDS && !S::IS_SCALAR } && self.fused {
            self.sized::<S, true>(simd)
        } else {
            self.sized::<S, false>(simd)
        }
    }
}

/// The sums of a part of the columns: for each `N` columns those of all rows, `M` at a time.
type Sums<T, const M: usize, const N: usize> = Vec<[[T; N]; M]>;

impl<T: Number> Strips<'_, T> {
    /// In tiles of the size that suits the type and the vectors.
    #[inline(always)]
    fn sized<S: Simd, const FUSED: bool>(self, simd: S) {
        match size_of::<T::Sum>() {
            8 => self.blocks::<S, FUSED, 4, 8>(simd),
            _ if FUSED && S::F32_LANES >= 16 => self.blocks::<S, FUSED, 4, 32>(simd),
            _ => self.blocks::<S, FUSED, 4, 16>(simd),
        }
    }

    #[inline(always)]
    fn blocks<S: Simd, const FUSED: bool, const M: usize, const N: usize>(mut self, simd: S) {
        let (depth, width) = (self.right.rows, self.right.columns);
        let tiles = self.lines.len().div_ceil(M);
        let mut sums: Sums<T::Sum, M, N> = Vec::new();
        let mut room = vec![T::Sum::ZERO; DEPTH * WIDENED];
        for columns in parts(width, MANY_COLUMNS) {
            sums.clear();
            sums.resize(columns.len().div_ceil(N) * tiles, [[T::Sum::ZERO; N]; M]);
            self.exchange(columns.start, columns.len(), &mut sums, |sum, c| *sum = *c);
            let elements = self.right.elements;
            let row =
                |k: usize| elements.debug_part(k * width + columns.start..k * width + columns.end);
            for ks in parts(depth, DEPTH) {
                if ks.len() == DEPTH {
                    let rows = std::array::from_fn(|d| row(ks.start + d));
                    self.strip::<S, FUSED, M, N, DEPTH>(simd, ks.start, rows, &mut room, &mut sums);
                } else {
                    for k in ks {
                        self.strip::<S, FUSED, M, N, 1>(simd, k, [row(k)], &mut room, &mut sums);
                    }
                }
            }
            self.exchange(columns.start, columns.len(), &mut sums, |sum, c| *c = sum.one_nan());
        }
    }

    /// Adds the products of `D` rows of the right matrix, from row `k` on. `room` is where they are
    /// widened.
    #[inline(always)]
    fn strip<S: Simd, const FUSED: bool, const M: usize, const N: usize, const D: usize>(
        &self,
        simd: S,
        k: usize,
        rows: [&[T]; D],
        room: &mut [T::Sum],
        sums: &mut Sums<T::Sum, M, N>,
    ) {
        let left = self.columns_of_left::<M, D>(k);
        let of_part = WIDENED / N * left.len();
        let width = rows.first().map_or(0, |row| row.len());
        for (columns, sums) in parts(width, WIDENED).zip(sums.chunks_mut(of_part.max(1))) {
            let mut rest = &mut *room;
            let rows = rows.map(|row| {
                let row = row.debug_part(columns.clone());
                let (own, others) = std::mem::take(&mut rest).split_at_mut(row.len());
                rest = others;
                T::terms(row, own)
            });
            add_rows::<T::Sum, S, FUSED, M, N, D>(simd, sums, &left, rows);
        }
    }

    /// For each `M` lines, their elements at `k` and the following ones. Where there are fewer
    /// lines, the last one stands for the others.
    #[inline(always)]
    fn columns_of_left<const M: usize, const D: usize>(&self, k: usize) -> Vec<[[T::Sum; M]; D]> {
        let tile = |lines: &[&[T::Sum]]| {
            let element = |i: usize, d: usize| {
                let line = lines.debug_at(i.min(lines.len() - 1), &[]);
                line.debug_at(k + d, T::Sum::ZERO)
            };
            std::array::from_fn(|d| std::array::from_fn(|i| element(i, d)))
        };
        self.lines.chunks(M).map(tile).collect()
    }

    /// `f` of each sum of `len` columns from `start` on, and of its place in the result.
    #[inline(always)]
    fn exchange<const M: usize, const N: usize>(
        &mut self,
        start: usize,
        len: usize,
        sums: &mut Sums<T::Sum, M, N>,
        f: impl Fn(&mut T::Sum, &mut T::Sum),
    ) {
        let tiles = self.lines.len().div_ceil(M).max(1);
        let lines = self.c.chunks_exact_mut(self.right.columns.max(1));
        for (i, line) in lines.enumerate() {
            let line = line.debug_part_mut(start..start + len);
            let of_row = sums.iter_mut().skip(i / M).step_by(tiles);
            let of_row = of_row.filter_map(|tile| tile.get_mut(i % M));
            for (part, sums) in line.chunks_mut(N).zip(of_row) {
                sums.iter_mut().zip(part).for_each(|(sum, c)| f(sum, c));
            }
        }
    }
}

/// Adds the products of `D` rows and of `left`, the columns of the left matrix for each `M` lines.
#[inline(always)]
fn add_rows<
    T: Number,
    S: Simd,
    const FUSED: bool,
    const M: usize,
    const N: usize,
    const D: usize,
>(
    simd: S,
    sums: &mut [[[T; N]; M]],
    left: &[[[T; M]; D]],
    rows: [&[T]; D],
) {
    let (mut full, mut rest) = ([&[] as &[[T; N]]; D], [[T::ZERO; N]; D]);
    for ((row, full), rest) in rows.iter().zip(&mut full).zip(&mut rest) {
        let (chunks, last) = row.as_chunks();
        *full = chunks;
        rest.iter_mut().zip(last).for_each(|(to, from)| *to = *from);
    }
    for (chunk, sums) in sums.chunks_exact_mut(left.len().max(1)).enumerate() {
        let mut right = rest.each_ref();
        // Behind the full chunks is the rest.
        for (to, row) in right.iter_mut().zip(&full) {
            *to = row.get(chunk).unwrap_or(*to);
        }
        for (sums, left) in sums.iter_mut().zip(left) {
            let steps = left.iter().copied().zip(right);
            T::add_products::<S, FUSED, M, N, M>(simd, sums, steps);
        }
    }
}
