//! A product by tiles of the result: lines of the left matrix, read where they lie, and panels of
//! the right one, which are as many of its columns as a tile has, packed.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::matrix::{Grid, MANY_COLUMNS, Source, parts};
use crate::exact::Exact;
use crate::numeric::Number;

/// The elements that are packed at a time, about: few enough for the second cache.
const PACKED: usize = 1 << 17;
/// The rows and the columns of the result that are computed at a time.
const ROW_BLOCK: usize = 96;
const COLUMN_BLOCK: usize = 512;

/// The product of lines and of a matrix that is packed, added to `c`.
pub(super) struct Tiles<'m, T: Number, R> {
    /// Whether products and their sums are rounded once.
    pub(super) fused: bool,
    /// The rows of the left matrix.
    pub(super) lines: Vec<&'m [T]>,
    pub(super) right: &'m R,
    pub(super) c: Grid<'m, T::Sum>,
}

impl<T: Number, R: Source<T::Sum>> WithSimd for Tiles<'_, T, R> {
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

/// `part` of what begins at `start`.
fn behind(start: usize, part: &Range<usize>) -> Range<usize> {
    start + part.start..start + part.end
}

impl<T: Number, R: Source<T::Sum>> Tiles<'_, T, R> {
    /// In tiles of the size that suits the type and the rows.
    #[inline(always)]
    fn sized<S: Simd, const FUSED: bool>(self, simd: S) {
        let rows = self.lines.len();
        // Rows of 4 fill their tiles better than rows of 6, which compute faster.
        let by_four = rows <= 16 && rows.next_multiple_of(4) < rows.next_multiple_of(6);
        match (size_of::<T::Sum>(), rows, self.right.columns()) {
            (_, _, 1) => self.blocks::<S, FUSED, 6, 1>(simd),
            (8, 1, _) => self.blocks::<S, FUSED, 1, 32>(simd),
            (8, _, _) => self.blocks::<S, FUSED, 6, 8>(simd),
            (_, 1, _) => self.blocks::<S, FUSED, 1, 64>(simd),
            _ if by_four => self.blocks::<S, FUSED, 4, 16>(simd),
            _ => self.blocks::<S, FUSED, 6, 16>(simd),
        }
    }

    /// In tiles of `M` rows and `N` columns.
    #[inline(always)]
    fn blocks<S: Simd, const FUSED: bool, const M: usize, const N: usize>(mut self, simd: S) {
        let (mut packed, mut room) = (Vec::new(), Vec::new());
        // Most of the time is spent on reading the right matrix then.
        let most = if self.lines.len() <= ROW_BLOCK { MANY_COLUMNS } else { COLUMN_BLOCK };
        for columns in parts(self.right.columns(), most) {
            // Odd, so that the panels do not begin at the same place of the first cache.
            let depth = (PACKED / columns.len()).max(16) | 1;
            for ks in parts(self.right.rows(), depth) {
                packed.resize(columns.len().div_ceil(N) * ks.len(), [T::Sum::ZERO; N]);
                self.right.pack(ks.clone(), columns.clone(), &mut packed);
                for rows in parts(self.lines.len(), ROW_BLOCK) {
                    let of = (&rows, &ks, &columns);
                    self.block::<S, FUSED, M, N>(simd, of, &packed, &mut room);
                }
            }
        }
    }

    /// Adds the products of `ks` to the result in `rows` and `columns`. `room` is where lines are
    /// widened.
    #[inline(always)]
    fn block<S: Simd, const FUSED: bool, const M: usize, const N: usize>(
        &mut self,
        simd: S,
        (rows, ks, columns): (&Range<usize>, &Range<usize>, &Range<usize>),
        packed: &[[T::Sum; N]],
        room: &mut Vec<T::Sum>,
    ) {
        let lines = self.lines.debug_part(rows.clone());
        let is_widened = size_of::<T>() < size_of::<T::Sum>();
        let of_line = if is_widened { ks.len() } else { 0 };
        room.resize(lines.len() * of_line, T::Sum::ZERO);
        let mut rest = room.as_mut_slice();
        let mut terms: Vec<&[T::Sum]> = Vec::with_capacity(lines.len());
        for line in lines {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(of_line);
            rest = others;
            terms.push(T::terms(line.debug_part(ks.clone()), own));
        }
        let right = parts(columns.len(), N).zip(packed.chunks_exact(ks.len()));
        for (width, right) in right {
            let width = behind(columns.start, &width);
            for height in parts(rows.len(), M) {
                let row = rows.start + height.start;
                let from = row * self.c.row + width.start * self.c.column;
                // Where there are fewer rows, the last one stands for the others.
                let line = |i: usize| terms.debug_at((height.start + i).min(height.end - 1), &[]);
                let left: [&[T::Sum]; M] = std::array::from_fn(line);
                self.c.tile::<S, FUSED, M, N>(simd, from, [height.len(), width.len()], left, right);
            }
        }
    }
}

impl<T: Number> Grid<'_, T> {
    /// Adds a tile of `height` rows and `width` columns, of which the first element is at `from`.
    #[inline(always)]
    fn tile<S: Simd, const FUSED: bool, const M: usize, const N: usize>(
        &mut self,
        simd: S,
        from: usize,
        [height, width]: [usize; 2],
        left: [&[T]; M],
        right: &[[T; N]],
    ) {
        let mut sums = [[T::ZERO; N]; M];
        self.each(from, height, width, &mut sums, |sum, c| *sum = *c);
        add_products::<T, S, FUSED, M, N>(simd, &mut sums, left, right);
        self.each(from, height, width, &mut sums, |sum, c| *c = sum.one_nan());
    }

    /// `f` of each element of a tile and of its place in the result.
    #[inline(always)]
    fn each<const M: usize, const N: usize>(
        &mut self,
        from: usize,
        height: usize,
        width: usize,
        sums: &mut [[T; N]; M],
        f: impl Fn(&mut T, &mut T),
    ) {
        for (i, sums) in sums.iter_mut().enumerate().take(height) {
            let line = self.elements.debug_part_mut(from + i * self.row..);
            if self.column == 1 && width == N {
                sums.iter_mut().zip(line).for_each(|(sum, c)| f(sum, c));
            } else {
                let line = line.iter_mut().step_by(self.column.max(1)).take(width);
                sums.iter_mut().zip(line).for_each(|(sum, c)| f(sum, c));
            }
        }
    }
}

/// Adds the products of the lines and the panel to `sums`, in the order of the panel's rows. Tiles
/// are 1, 4 or 6 rows high.
#[inline(always)]
fn add_products<T: Number, S: Simd, const FUSED: bool, const M: usize, const N: usize>(
    simd: S,
    sums: &mut [[T; N]; M],
    left: [&[T]; M],
    right: &[[T; N]],
) {
    // Slices that are zipped need no check of an index in the loop.
    match left.as_slice() {
        [a] => {
            let steps = right.iter().zip(*a).map(|(right, a)| ([*a], right));
            T::add_products::<S, FUSED, M, N, 1>(simd, sums, steps);
        }
        [a, b, c, d] => {
            let steps = right.iter().zip(*a).zip(*b).zip(*c).zip(*d);
            let steps = steps.map(|((((right, a), b), c), d)| ([*a, *b, *c, *d], right));
            T::add_products::<S, FUSED, M, N, 4>(simd, sums, steps);
        }
        [a, b, c, d, e, f] => {
            let steps = right.iter().zip(*a).zip(*b).zip(*c).zip(*d).zip(*e).zip(*f);
            let steps =
                steps.map(|((((((right, a), b), c), d), e), f)| ([*a, *b, *c, *d, *e, *f], right));
            T::add_products::<S, FUSED, M, N, 6>(simd, sums, steps);
        }
        _ => debug_assert!(false, "a tile of another height"),
    }
}
