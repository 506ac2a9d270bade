//! The matrices of a product: where they lie, what can be packed of them, and the result.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::numeric::Number;

/// The columns that are computed at a time where the right matrix is large and each row of it is
/// read once.
pub(super) const MANY_COLUMNS: usize = 4096;

/// A matrix whose columns can be packed: one in memory ([`Matrix`]), or one that is computed from
/// something else, such as the windows of an image.
pub(crate) trait Source<T> {
    /// What the elements are in memory; sums have `T`.
    type Element: Number<Sum = T>;

    fn rows(&self) -> usize;
    fn columns(&self) -> usize;

    /// The transpose as a matrix in memory, when its rows lie there as lines.
    fn lines_of_columns(&self) -> Option<Matrix<'_, Self::Element>> {
        None
    }

    /// The same matrix in memory, when its rows lie there as lines.
    fn lines_of_rows(&self) -> Option<Matrix<'_, Self::Element>> {
        None
    }

    /// Copies the part in `rows` and `columns`, as terms of sums, to `packed`, which has the
    /// [`panels`] of these. What lies in the last panel behind the columns stays as it is.
    fn pack<const N: usize>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        packed: &mut [[T; N]],
    );
}

/// The panels of `columns` and of so many rows that lie one behind the other in `packed`, each with
/// its `N` columns or fewer.
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
    pub(super) elements: &'a [T],
    pub(super) rows: usize,
    pub(super) columns: usize,
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
    pub(super) fn by_rows(&self) -> Cow<'a, [T]> {
        if self.by_rows {
            return Cow::Borrowed(self.elements);
        }
        let row = |i: usize| self.elements.iter().skip(i).step_by(self.rows.max(1));
        Cow::Owned((0..self.rows).flat_map(row).copied().collect())
    }
}

impl<T: Number> Source<T::Sum> for Matrix<'_, T> {
    type Element = T;

    fn rows(&self) -> usize {
        self.rows
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn lines_of_columns(&self) -> Option<Matrix<'_, T>> {
        (!self.by_rows).then(|| self.transposed())
    }

    fn lines_of_rows(&self) -> Option<Matrix<'_, T>> {
        self.by_rows.then_some(*self)
    }

    #[inline(always)]
    fn pack<const N: usize>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        packed: &mut [[T::Sum; N]],
    ) {
        let len = rows.len();
        let widened = if self.by_rows { columns.len() } else { len };
        let mut room = room_for::<T>(widened);
        if self.by_rows {
            let lines = self.elements.chunks_exact(self.columns.max(1)).skip(rows.start);
            for (k, line) in lines.take(len).enumerate() {
                let line = T::terms(line.debug_part(columns.clone()), &mut room);
                let (parts, rest) = line.as_chunks::<N>();
                let row = packed.debug_part_mut(k..);
                let mut row = row.iter_mut().step_by(len.max(1));
                parts.iter().zip(&mut row).for_each(|(from, to)| *to = *from);
                let last = row.next().into_iter().flatten();
                last.zip(rest).for_each(|(to, from)| *to = *from);
            }
        } else {
            for (columns, panel) in panels(packed, len, columns) {
                let lines = self.elements.chunks_exact(self.rows.max(1)).skip(columns.start);
                for (i, line) in lines.take(columns.len()).enumerate() {
                    let line = T::terms(line.debug_part(rows.clone()), &mut room);
                    for (packed, from) in panel.iter_mut().zip(line) {
                        packed.debug_set(i, *from);
                    }
                }
            }
        }
    }
}

/// Room for so many elements as terms of sums, where they have another type than these.
pub(super) fn room_for<T: Number>(elements: usize) -> Vec<T::Sum> {
    vec![T::Sum::ZERO; if size_of::<T>() < size_of::<T::Sum>() { elements } else { 0 }]
}

/// The result: element (i, j) is at `i * row + j * column`.
pub(super) struct Grid<'c, T> {
    pub(super) elements: &'c mut [T],
    pub(super) row: usize,
    pub(super) column: usize,
}

/// The parts of `0..len` with `size` elements; the last one has what is left.
#[inline(always)]
pub(super) fn parts(len: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(size).map(move |start| start..len.min(start + size))
}
