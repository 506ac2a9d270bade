//! Matrix multiplication for MatMul, Gemm and the convolutions: one routine and one order of sums.
//!
//! The rule of profile `strict-1`: an element of the result starts with the value that it has and gains the
//! products `a[i][k] * b[k][j]` for k = 0, 1, 2 and so on. Every product is rounded, then every sum; there is no fused
//! multiply-add. The elements of a result do not depend on one another, so blocks, tiles and the width of the
//! processor's vectors change nothing: every tiling has the same bits. Integers wrap.
//!
//! Sums are kept in [`Number::Sum`] and rounded once.
//!
//! Tiles of the result are computed from lines of the left matrix, read where they lie, and from panels of the
//! right one: as many of its columns as a tile has, packed. A right matrix whose columns are lines in memory is not
//! packed: the transpose of the result is the product of the transposes, with that matrix on the left. So
//! large weights are read once, in the order in which they lie. Tiles are loops over arrays of constant
//! length, which the compiler turns into vector instructions; `pulp` has them compiled for the vectors of
//! newer processors too, and chooses at run time.

use std::borrow::Cow;
use std::ops::Range;

use onnx_container::Element;
use pulp::{Arch, Simd, WithSimd};

use crate::error::{Error, ErrorKind, Result};
use crate::numeric::Number;

/// The elements that are packed at a time, about: few enough for the second cache.
const PACKED: usize = 1 << 17;
/// The rows and the columns of the result that are computed at a time.
const ROW_BLOCK: usize = 96;
const COLUMN_BLOCK: usize = 512;
/// With up to this many rows, more columns are computed at a time: most of the time is then spent on reading
/// the right matrix, and long parts of its rows are read faster.
const FEW_ROWS: usize = 64;
const MANY_COLUMNS: usize = 4096;

/// A matrix whose columns can be packed: one in memory ([`Matrix`]), or one that is computed from something
/// else, such as the windows of an image.
pub(crate) trait Source<T> {
    fn rows(&self) -> usize;
    fn columns(&self) -> usize;

    /// The transpose as a matrix in memory, when its rows lie there as lines.
    fn lines_of_columns(&self) -> Option<Matrix<'_, T>> {
        None
    }

    /// Copies the part in `rows` and `columns` to `packed`, which has the [`panels`] of these. What lies in the
    /// last panel behind the columns stays as it is.
    fn pack<const N: usize>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        packed: &mut [[T; N]],
    );
}

/// The panels of `columns` and of so many rows that lie one behind the other in `packed`, each with its `N`
/// columns or fewer.
#[inline(always)]
pub(crate) fn panels<T, const N: usize>(
    packed: &mut [[T; N]],
    rows: usize,
    columns: Range<usize>,
) -> impl Iterator<Item = (Range<usize>, &mut [[T; N]])> {
    let parts = parts(columns.len(), N)
        .map(move |part| columns.start + part.start..columns.start + part.end);
    parts.zip(packed.chunks_exact_mut(rows.max(1)))
}

/// A matrix in memory, by rows or by columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    elements: &'a [T],
    rows: usize,
    columns: usize,
    by_rows: bool,
}

impl<'a, T> Matrix<'a, T> {
    /// The row-major matrix of `elements`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when there are more or fewer elements.
    pub(crate) fn new(elements: &'a [T], rows: usize, columns: usize) -> Result<Self> {
        if rows.checked_mul(columns) != Some(elements.len()) {
            let reason =
                format!("{} elements in {rows} rows and {columns} columns", elements.len());
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        Ok(Self { elements, rows, columns, by_rows: true })
    }

    /// The matrix with rows and columns exchanged. Nothing is copied.
    pub(crate) fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, by_rows: !self.by_rows, ..self }
    }
}

impl<'a, T: Copy> Matrix<'a, T> {
    /// The elements row by row; copied when they lie by columns.
    fn by_rows(&self) -> Cow<'a, [T]> {
        if self.by_rows {
            return Cow::Borrowed(self.elements);
        }
        let row = |i: usize| self.elements.iter().skip(i).step_by(self.rows.max(1));
        Cow::Owned((0..self.rows).flat_map(row).copied().collect())
    }
}

impl<T: Copy> Source<T> for Matrix<'_, T> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn lines_of_columns(&self) -> Option<Matrix<'_, T>> {
        (!self.by_rows).then(|| self.transposed())
    }

    #[inline(always)]
    fn pack<const N: usize>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        packed: &mut [[T; N]],
    ) {
        let len = rows.len();
        if self.by_rows {
            let lines = self.elements.chunks_exact(self.columns.max(1)).skip(rows.start);
            for (k, line) in lines.take(len).enumerate() {
                let (parts, rest) = line.get(columns.clone()).unwrap_or_default().as_chunks::<N>();
                let row = packed.get_mut(k..).unwrap_or_default();
                let mut row = row.iter_mut().step_by(len.max(1));
                parts.iter().zip(&mut row).for_each(|(from, to)| *to = *from);
                let last = row.next().into_iter().flatten();
                last.zip(rest).for_each(|(to, from)| *to = *from);
            }
        } else {
            for (columns, panel) in panels(packed, len, columns) {
                let lines = self.elements.chunks_exact(self.rows.max(1)).skip(columns.start);
                for (i, line) in lines.take(columns.len()).enumerate() {
                    let line = line.get(rows.clone()).unwrap_or_default();
                    for (packed, from) in panel.iter_mut().zip(line) {
                        packed.get_mut(i).into_iter().for_each(|to| *to = *from);
                    }
                }
            }
        }
    }
}

/// The product of `a`, m x k, and `b`, k x n; all row-major.
///
/// # Errors
/// [`ErrorKind::Shape`] when the three do not fit one another.
pub(crate) fn product<T: Number>(a: &[T], b: &[T], c: &mut [T], k: usize, n: usize) -> Result<()> {
    let Some(m) = c.len().checked_div(n) else { return Ok(()) };
    let (a, b) = (terms(a), terms(b));
    T::fill_sums(c, |sums| gemm(Matrix::new(&a, m, k)?, &Matrix::new(&b, k, n)?, sums))
}

/// `values` as terms of sums: borrowed where these have the same type.
pub(crate) fn terms<T: Number>(values: &[T]) -> Cow<'_, [T::Sum]> {
    let same = T::DTYPE == T::Sum::DTYPE;
    let borrowed = same.then(|| bytemuck::checked::try_cast_slice(values).ok()).flatten();
    borrowed.map_or_else(|| values.iter().map(|x| x.to_sum()).collect(), Cow::Borrowed)
}

/// `result` plus `a` times `b`, where `result` is row-major.
///
/// # Errors
/// [`ErrorKind::Shape`] when the three do not fit one another.
pub(crate) fn gemm<T: Number>(
    a: Matrix<'_, T>,
    b: &impl Source<T>,
    result: &mut [T],
) -> Result<()> {
    let (rows, columns) = (a.rows, b.columns());
    if a.columns != b.rows() || rows.checked_mul(columns) != Some(result.len()) {
        let reason = format!(
            "a product of {rows} x {} and {} x {columns} in {} elements",
            a.columns,
            b.rows(),
            result.len()
        );
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    match b.lines_of_columns() {
        Some(b) => multiply(b, &a.transposed(), Grid { elements: result, row: 1, column: columns }),
        None => multiply(a, b, Grid { elements: result, row: columns, column: 1 }),
    }
    Ok(())
}

/// The result: element (i, j) is at `i * row + j * column`.
struct Grid<'c, T> {
    elements: &'c mut [T],
    row: usize,
    column: usize,
}

/// `c` plus `left` times `right`, with the widest vectors that the processor has.
fn multiply<T: Number>(left: Matrix<'_, T>, right: &impl Source<T>, c: Grid<'_, T>) {
    let lines = left.by_rows();
    let lines = lines.chunks_exact(left.columns.max(1)).collect();
    Arch::new().dispatch(Multiply { lines, right, c });
}

struct Multiply<'m, T, R> {
    /// The rows of the left matrix.
    lines: Vec<&'m [T]>,
    right: &'m R,
    c: Grid<'m, T>,
}

impl<T: Number, R: Source<T>> WithSimd for Multiply<'_, T, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let rows = self.lines.len();
        // Rows of 4 fill their tiles better than rows of 6, which compute faster.
        let by_four = rows <= 16 && rows.next_multiple_of(4) < rows.next_multiple_of(6);
        match (size_of::<T>(), rows, self.right.columns()) {
            (_, _, 1) => self.blocks::<6, 1>(),
            (8, 1, _) => self.blocks::<1, 32>(),
            (8, _, _) => self.blocks::<6, 8>(),
            (_, 1, _) => self.blocks::<1, 64>(),
            _ if by_four => self.blocks::<4, 16>(),
            _ => self.blocks::<6, 16>(),
        }
    }
}

/// The parts of `0..len` with `size` elements; the last one has what is left.
#[inline(always)]
fn parts(len: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(size).map(move |start| start..len.min(start + size))
}

/// `part` of what begins at `start`.
fn behind(start: usize, part: &Range<usize>) -> Range<usize> {
    start + part.start..start + part.end
}

impl<T: Number, R: Source<T>> Multiply<'_, T, R> {
    /// In tiles of `M` rows and `N` columns.
    #[inline(always)]
    fn blocks<const M: usize, const N: usize>(mut self) {
        let mut packed = Vec::new();
        let few = self.lines.len() <= FEW_ROWS;
        let most = if few { MANY_COLUMNS } else { COLUMN_BLOCK };
        for columns in parts(self.right.columns(), most) {
            // Odd, so that the panels do not begin at the same place of the first cache.
            let depth = (PACKED / columns.len()).max(16) | 1;
            for ks in parts(self.right.rows(), depth) {
                packed.resize(columns.len().div_ceil(N) * ks.len(), [T::ZERO; N]);
                self.right.pack(ks.clone(), columns.clone(), &mut packed);
                for rows in parts(self.lines.len(), ROW_BLOCK) {
                    self.block::<M, N>(&rows, &ks, &columns, &packed);
                }
            }
        }
    }

    /// Adds the products of `ks` to the result in `rows` and `columns`.
    #[inline(always)]
    fn block<const M: usize, const N: usize>(
        &mut self,
        rows: &Range<usize>,
        ks: &Range<usize>,
        columns: &Range<usize>,
        packed: &[[T; N]],
    ) {
        let right = parts(columns.len(), N).zip(packed.chunks_exact(ks.len()));
        for (width, right) in right {
            let width = behind(columns.start, &width);
            for height in parts(rows.len(), M) {
                let height = behind(rows.start, &height);
                let from = height.start * self.c.row + width.start * self.c.column;
                let left: [&[T]; M] = std::array::from_fn(|i| {
                    // Where there are fewer rows, the last one stands for the others.
                    let line = self.lines.get((height.start + i).min(height.end - 1));
                    line.and_then(|line| line.get(ks.clone())).unwrap_or_default()
                });
                self.c.tile(from, height.len(), width.len(), left, right);
            }
        }
    }
}

impl<T: Number> Grid<'_, T> {
    /// Adds a tile of `height` rows and `width` columns, of which the first element is at `from`.
    #[inline(always)]
    fn tile<const M: usize, const N: usize>(
        &mut self,
        from: usize,
        height: usize,
        width: usize,
        left: [&[T]; M],
        right: &[[T; N]],
    ) {
        let mut sums = [[T::ZERO; N]; M];
        self.each(from, height, width, &mut sums, |sum, c| *sum = *c);
        let mut sums = add_products(sums, left, right);
        self.each(from, height, width, &mut sums, |sum, c| *c = *sum);
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
            let line = self.elements.get_mut(from + i * self.row..).unwrap_or_default();
            if self.column == 1 && width == N {
                sums.iter_mut().zip(line).for_each(|(sum, c)| f(sum, c));
            } else {
                let line = line.iter_mut().step_by(self.column.max(1)).take(width);
                sums.iter_mut().zip(line).for_each(|(sum, c)| f(sum, c));
            }
        }
    }
}

/// `sums` plus the products of the lines and the panel, in the order of the panel's rows. Tiles are 1, 4 or 6
/// rows high.
#[inline(always)]
fn add_products<T: Number, const M: usize, const N: usize>(
    mut sums: [[T; N]; M],
    left: [&[T]; M],
    right: &[[T; N]],
) -> [[T; N]; M] {
    // Slices that are zipped need no check of an index in the loop.
    match left.as_slice() {
        [a] => {
            for (right, a) in right.iter().zip(*a) {
                add_row(&mut sums, [a], right);
            }
        }
        [a, b, c, d] => {
            for ((((right, a), b), c), d) in right.iter().zip(*a).zip(*b).zip(*c).zip(*d) {
                add_row(&mut sums, [a, b, c, d], right);
            }
        }
        [a, b, c, d, e, f] => {
            let front = right.iter().zip(*a).zip(*b).zip(*c);
            for ((((((right, a), b), c), d), e), f) in front.zip(*d).zip(*e).zip(*f) {
                add_row(&mut sums, [a, b, c, d, e, f], right);
            }
        }
        _ => debug_assert!(false, "a tile of another height"),
    }
    sums
}

/// Adds the products of one k.
#[inline(always)]
fn add_row<T: Number, const M: usize, const N: usize, const L: usize>(
    sums: &mut [[T; N]; M],
    left: [&T; L],
    right: &[T; N],
) {
    for (sums, a) in sums.iter_mut().zip(left) {
        for (sum, b) in sums.iter_mut().zip(right) {
            *sum = sum.add(a.mul(*b));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers whose sums depend on their order.
    fn numbers<T: Number>(count: usize) -> Vec<T> {
        (0..count).map(|i| T::from_f64(1e4 / ((i * 7919 % 1013) as f64 - 500.3))).collect()
    }

    /// The definition, element by element.
    fn defined<T: Number>(a: &[T], b: &[T], [m, k, n]: [usize; 3]) -> Vec<T> {
        let element = |i: usize, j: usize| {
            (0..k).fold(T::ONE, |sum, l| sum.add(a[i * k + l].mul(b[l * n + j])))
        };
        (0..m * n).map(|at| element(at / n, at % n)).collect()
    }

    fn transpose<T: Copy>(elements: &[T], rows: usize, columns: usize) -> Vec<T> {
        (0..rows * columns).map(|i| elements[i % rows * columns + i / rows]).collect()
    }

    fn holds<T: Number + std::fmt::Debug>(sizes @ [m, k, n]: [usize; 3]) {
        let (a, b) = (numbers::<T>(m * k), numbers::<T>(k * n));
        let (turned_a, turned_b) = (transpose(&a, m, k), transpose(&b, k, n));
        let expected = defined(&a, &b, sizes);
        let forms_of_a =
            [Matrix::new(&a, m, k).unwrap(), Matrix::new(&turned_a, k, m).unwrap().transposed()];
        let forms_of_b =
            [Matrix::new(&b, k, n).unwrap(), Matrix::new(&turned_b, n, k).unwrap().transposed()];
        for a in forms_of_a {
            for b in forms_of_b {
                let mut result = vec![T::ONE; m * n];
                gemm(a, &b, &mut result).unwrap();
                assert_eq!(result, expected, "{sizes:?}");
            }
        }
    }

    #[test]
    fn every_tiling_has_the_bits_of_the_definition() {
        let cases = [
            [1, 1, 1],
            [1, 300, 40],
            [7, 300, 1],
            [97, 257, 17],
            [6, 16, 1030],
            [200, 3, 5],
            [2, 40, 4100],
            [5, 300, 600],
            [65, 3, 520],
            [3, 0, 4],
            [0, 3, 4],
            [4, 3, 0],
        ];
        for sizes in cases {
            holds::<f32>(sizes);
            holds::<f64>(sizes);
            holds::<i32>(sizes);
            holds::<u64>(sizes);
        }
    }

    #[test]
    fn no_terms_are_zero() {
        let mut found = [1_i64; 4];
        product(&[], &[], &mut found, 0, 2).unwrap();
        assert_eq!(found, [0; 4]);
    }

    #[test]
    fn matrices_that_do_not_fit_are_refused() {
        assert!(Matrix::new(&[1.0; 5], 2, 3).is_err());
        assert!(Matrix::new(&[1.0; 5], usize::MAX, 3).is_err());
        let a = Matrix::new(&[1.0; 6], 2, 3).unwrap();
        assert_eq!(gemm(a, &a, &mut [0.0; 4]).unwrap_err().kind(), ErrorKind::Shape);
        assert_eq!(gemm(a, &a.transposed(), &mut [0.0; 5]).unwrap_err().kind(), ErrorKind::Shape);
    }
}
