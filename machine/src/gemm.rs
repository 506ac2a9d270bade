//! Matrix multiplication for MatMul, Gemm and the convolutions: one order of sums.
//!
//! The rule of profile `strict-1`: an element of the result starts with the value that it has and gains the
//! products `a[i][k] * b[k][j]` for k = 0, 1, 2 and so on. Every product is rounded, then every sum; there is no fused
//! multiply-add. The elements of a result do not depend on one another, so blocks, tiles and the width of the
//! processor's vectors change nothing: every tiling has the same bits. Integers wrap. In profile `fast` a product
//! and its sum are rounded once where the processor has vectors that do so; the order is the same.
//!
//! Sums are kept in [`Number::Sum`] and rounded once. What is written has one NaN.
//!
//! There are two ways. [`tiles`] computes a part of the result at a time from packed columns of the right matrix;
//! [`strips`], for few rows, computes all of the result from a few rows of the right matrix at a time, which are read where
//! they lie. A right matrix whose columns are lines in memory is not packed in either: the transpose of the result is
//! the product of the transposes, with that matrix on the left. So large weights are read once, in the order in
//! which they lie. Both are loops over arrays of constant length, which the compiler turns into vector
//! instructions; `pulp` has them compiled for the vectors of newer processors too, and chooses at run time.

mod matrix;
mod strips;
mod tiles;

use std::borrow::Cow;
use std::ops::Range;

use onnx_container::Element;
use pulp::{Arch, Simd, WithSimd};

use self::matrix::Grid;
pub(crate) use self::matrix::{Matrix, Source, panels};
use self::strips::Strips;
use self::tiles::Tiles;
use crate::error::{Error, ErrorKind, Result};
use crate::numeric::Number;
use crate::profile::Profile;

/// With so many rows, most of the time is spent on reading the right matrix, and each element serves several sums.
const FEW_ROWS: Range<usize> = 2..65;
/// The elements that are widened at a time.
const WIDENED: usize = 1 << 16;
/// With fewer columns, preparing strips takes longer than packing.
const FEW_COLUMNS: usize = 128;

/// The product of `a`, m x k, and `b`, k x n; all row-major.
///
/// # Errors
/// [`ErrorKind::Shape`] when the three do not fit one another.
pub(crate) fn product<T: Number>(
    profile: Profile,
    a: &[T],
    b: &[T],
    c: &mut [T],
    [k, n]: [usize; 2],
) -> Result<()> {
    let Some(m) = c.len().checked_div(n) else { return Ok(()) };
    let a = terms(a);
    T::fill_sums(c, |sums| add_product(profile, Matrix::new(&a, m, k)?, b, false, sums))
}

/// `values` as terms of sums: borrowed where these have the same type.
pub(crate) fn terms<T: Number>(values: &[T]) -> Cow<'_, [T::Sum]> {
    if let Some(same) = same_terms(values) {
        return Cow::Borrowed(same);
    }
    let mut terms = vec![T::Sum::ZERO; values.len()];
    widen(values, &mut terms);
    Cow::Owned(terms)
}

fn same_terms<T: Number>(values: &[T]) -> Option<&[T::Sum]> {
    let is_same = T::DTYPE == T::Sum::DTYPE;
    is_same.then(|| bytemuck::checked::try_cast_slice(values).ok()).flatten()
}

fn widen<T: Number>(values: &[T], terms: &mut [T::Sum]) {
    Arch::new().dispatch(Widen { values, terms });
}

/// Writes elements as terms, in the processor's vectors.
struct Widen<'t, T: Number> {
    values: &'t [T],
    terms: &'t mut [T::Sum],
}

impl<T: Number> WithSimd for Widen<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.terms.iter_mut().zip(self.values).for_each(|(term, x)| *term = x.to_sum());
    }
}

/// `sums` plus `a` times `b`, which is row-major, or its columns are lines where it is `turned`. Elements that are not terms of
/// sums are widened a part of `b` at a time, which then is still in the second cache.
///
/// # Errors
/// [`ErrorKind::Shape`] when the three do not fit one another.
pub(crate) fn add_product<T: Number>(
    profile: Profile,
    a: Matrix<'_, T::Sum>,
    b: &[T],
    turned: bool,
    sums: &mut [T::Sum],
) -> Result<()> {
    let (m, k) = (a.rows, a.columns);
    let Some(n) = sums.len().checked_div(m) else { return Ok(()) };
    if let Some(b) = same_terms(b) {
        return match turned {
            false => gemm(profile, a, &Matrix::new(b, k, n)?, sums),
            true => gemm(profile, a, &Matrix::new(b, n, k)?.transposed(), sums),
        };
    }
    Matrix::new(b, k, n)?;
    let (lines, len) = if turned { (n, k) } else { (k, n) };
    let at_a_time = (WIDENED / len.max(1)).next_multiple_of(8).max(8);
    let mut terms = Vec::new();
    let mut part_of_a = Vec::new();
    for part in matrix::parts(lines, at_a_time) {
        let b = b.get(part.start * len..part.end * len).unwrap_or_default();
        terms.resize(b.len(), T::Sum::ZERO);
        widen(b, &mut terms);
        if turned {
            let b = Matrix::new(&terms, part.len(), k)?.transposed();
            add_columns(profile, a, &b, part, n, sums)?;
        } else {
            a.copy_columns(part.clone(), &mut part_of_a);
            let a = Matrix::new(&part_of_a, m, part.len())?;
            gemm(profile, a, &Matrix::new(&terms, part.len(), n)?, sums)?;
        }
    }
    Ok(())
}

/// `a` times `b` is added to `columns` of `sums`, which has `n` of them.
fn add_columns<T: Number>(
    profile: Profile,
    a: Matrix<'_, T>,
    b: &Matrix<'_, T>,
    columns: Range<usize>,
    n: usize,
    sums: &mut [T],
) -> Result<()> {
    let of_line = |line: &[T]| line.get(columns.clone()).unwrap_or_default().to_vec();
    let mut own: Vec<T> = sums.chunks_exact(n.max(1)).flat_map(of_line).collect();
    gemm(profile, a, b, &mut own)?;
    let lines = sums.chunks_exact_mut(n.max(1)).zip(own.chunks_exact(columns.len().max(1)));
    lines.for_each(|(line, own)| {
        line.get_mut(columns.clone()).into_iter().for_each(|line| line.copy_from_slice(own));
    });
    Ok(())
}

/// `result` plus `a` times `b`, where `result` is row-major.
///
/// # Errors
/// [`ErrorKind::Shape`] when the three do not fit one another.
pub(crate) fn gemm<T: Number>(
    profile: Profile,
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
        Some(b) => multiply(
            profile,
            b,
            &a.transposed(),
            Grid { elements: result, row: 1, column: columns },
        ),
        None => multiply(profile, a, b, Grid { elements: result, row: columns, column: 1 }),
    }
    Ok(())
}

/// `c` plus `left` times `right`, with the widest vectors that the processor has.
fn multiply<T: Number>(
    profile: Profile,
    left: Matrix<'_, T>,
    right: &impl Source<T>,
    c: Grid<'_, T>,
) {
    let fused = profile == Profile::Fast;
    let lines = left.by_rows();
    let lines: Vec<_> = lines.chunks_exact(left.columns.max(1)).collect();
    let few = FEW_ROWS.contains(&lines.len()) && right.columns() >= FEW_COLUMNS;
    match right.lines_of_rows().filter(|_| few && c.column == 1) {
        Some(right) => Arch::new().dispatch(Strips { fused, lines, right, c: c.elements }),
        None => Arch::new().dispatch(Tiles { fused, lines, right, c }),
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

    /// With one rounding of each product and sum, which profile `fast` has where the processor has it.
    fn defined_fused<T: Number>(a: &[T], b: &[T], [m, k, n]: [usize; 3]) -> Vec<T> {
        let element = |i: usize, j: usize| {
            (0..k).fold(T::ONE, |sum, l| sum.fused(a[i * k + l], b[l * n + j]))
        };
        (0..m * n).map(|at| element(at / n, at % n)).collect()
    }

    fn transpose<T: Copy>(elements: &[T], rows: usize, columns: usize) -> Vec<T> {
        (0..rows * columns).map(|i| elements[i % rows * columns + i / rows]).collect()
    }

    fn holds<T: Number + std::fmt::Debug>(sizes @ [m, k, n]: [usize; 3]) {
        let (a, b) = (numbers::<T>(m * k), numbers::<T>(k * n));
        let (turned_a, turned_b) = (transpose(&a, m, k), transpose(&b, k, n));
        let (expected, fused) = (defined(&a, &b, sizes), defined_fused(&a, &b, sizes));
        let forms_of_a =
            [Matrix::new(&a, m, k).unwrap(), Matrix::new(&turned_a, k, m).unwrap().transposed()];
        let forms_of_b =
            [Matrix::new(&b, k, n).unwrap(), Matrix::new(&turned_b, n, k).unwrap().transposed()];
        for a in forms_of_a {
            for b in forms_of_b {
                let mut result = vec![T::ONE; m * n];
                gemm(Profile::Strict, a, &b, &mut result).unwrap();
                assert_eq!(result, expected, "{sizes:?}");
                result.fill(T::ONE);
                gemm(Profile::Fast, a, &b, &mut result).unwrap();
                assert!(result == fused || result == expected, "{sizes:?}, fast");
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
            [16, 24, 4240],
            [64, 19, 130],
            [3, 7, 129],
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

    /// FLOAT16 and BFLOAT16, of which a part is widened at a time: the sums are those of FLOAT, rounded once.
    #[test]
    fn halves_have_the_bits_of_the_definition() {
        fn holds<T: Number<Sum = f32> + std::fmt::Debug>([m, k, n]: [usize; 3]) {
            let (a, b) = (numbers::<T>(m * k), numbers::<T>(k * n));
            let wide = |x: &[T]| x.iter().map(|x| x.to_sum()).collect::<Vec<f32>>();
            let expected = defined(&wide(&a), &wide(&b), [m, k, n]);
            let turned = transpose(&b, k, n);
            for (b, turned) in [(b, false), (turned, true)] {
                let mut found = vec![1.0; m * n];
                let wide = wide(&a);
                let a = Matrix::new(&wide, m, k).unwrap();
                add_product(Profile::Strict, a, &b, turned, &mut found).unwrap();
                assert_eq!(found, expected, "{m} x {k} x {n}, turned: {turned}");
            }
        }
        for sizes in [[1, 1, 1], [3, 70, 1030], [1, 300, 500], [70, 9, 9000], [4, 1100, 130]] {
            holds::<half::f16>(sizes);
            holds::<half::bf16>(sizes);
        }
    }

    #[test]
    fn no_terms_are_zero() {
        let mut found = [1_i64; 4];
        product(Profile::Strict, &[], &[], &mut found, [0, 2]).unwrap();
        assert_eq!(found, [0; 4]);
    }

    #[test]
    fn matrices_that_do_not_fit_are_refused() {
        assert!(Matrix::new(&[1.0; 5], 2, 3).is_err());
        assert!(Matrix::new(&[1.0; 5], usize::MAX, 3).is_err());
        let a = Matrix::new(&[1.0; 6], 2, 3).unwrap();
        assert_eq!(
            gemm(Profile::Strict, a, &a, &mut [0.0; 4]).unwrap_err().kind(),
            ErrorKind::Shape
        );
        assert_eq!(
            gemm(Profile::Strict, a, &a.transposed(), &mut [0.0; 5]).unwrap_err().kind(),
            ErrorKind::Shape
        );
    }
}
