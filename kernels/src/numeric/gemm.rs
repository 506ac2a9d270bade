//! Matrix multiplication for MatMul, Gemm and the convolutions: one order of sums.
//!
//! The rule of profile `strict-1`: an element of the result starts with the value that it has and
//! gains the products `a[i][k] * b[k][j]` for k = 0, 1, 2 and so on. Every product is rounded, then
//! every sum; there is no fused multiply-add. The elements of a result do not depend on one
//! another, so blocks, tiles and the width of the processor's vectors change nothing: every tiling
//! has the same bits. Integers wrap. In profile `fast` a product and its sum are rounded once where
//! the processor has vectors that do so; the order is the same.
//!
//! Sums are kept in [`Number::Sum`] and rounded once. What is written has one NaN. Elements that
//! are not of that type, FLOAT16 and BFLOAT16, are widened where they are packed or read: a part at
//! a time, which stays in the caches.
//!
//! There are two ways. [`tiles`] computes a part of the result at a time from packed columns of the
//! right matrix; [`strips`], for few rows, computes all of the result from a few rows of the right
//! matrix at a time, which are read where they lie. A right matrix whose columns are lines in
//! memory is not packed in either: the transpose of the result is the product of the transposes,
//! with that matrix on the left. So large weights are read once, in the order in which they lie.
//! Floats are added in vectors of the processor (`numeric::vectors`): `pulp` has both ways compiled
//! for those of newer processors too, and chooses at run time. Integers, and floats without such
//! vectors, are loops over arrays of constant length, which the compiler turns into instructions
//! that every processor has.

mod matrix;
mod strips;
mod tiles;

use std::borrow::Cow;
use std::ops::Range;

use pulp::{Arch, Scalar, WithSimd};

use self::matrix::Grid;
pub(crate) use self::matrix::{Matrix, Source, panels};
use self::strips::Strips;
use self::tiles::Tiles;
use crate::error::{Error, ErrorKind, Result};
use crate::numeric::Number;
use crate::numeric::profile::Profile;

/// With so many rows, most of the time is spent on reading the right matrix, and each element
/// serves several sums.
const FEW_ROWS: Range<usize> = 2..65;
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
    let (a, b) = (Matrix::new(a, m, k)?, Matrix::new(b, k, n)?);
    T::fill_sums(c, |sums| gemm(profile, a, &b, sums))
}

/// `values` as terms of sums: borrowed where these have the same type.
pub(crate) fn terms<T: Number>(values: &[T]) -> Cow<'_, [T::Sum]> {
    let same = T::terms(values, &mut []);
    if same.len() == values.len() {
        return Cow::Borrowed(same);
    }
    let mut terms = vec![T::Sum::ZERO; values.len()];
    Arch::new().dispatch(|| T::terms(values, &mut terms).len());
    Cow::Owned(terms)
}

/// `result` plus `a` times `b`, where `result` is row-major.
///
/// # Errors
/// [`ErrorKind::Shape`] when the three do not fit one another.
pub(crate) fn gemm<T: Number>(
    profile: Profile,
    a: Matrix<'_, T>,
    b: &impl Source<T::Sum>,
    result: &mut [T::Sum],
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
    right: &impl Source<T::Sum>,
    c: Grid<'_, T::Sum>,
) {
    let fused = profile == Profile::Fast;
    let (rows, len) = (left.by_rows(), left.columns.max(1));
    let lines: Vec<_> = rows.chunks_exact(len).collect();
    let few = FEW_ROWS.contains(&lines.len()) && right.columns() >= FEW_COLUMNS;
    match right.lines_of_rows().filter(|_| few && c.column == 1) {
        Some(right) => {
            let rows = terms(&rows);
            let lines = rows.chunks_exact(len).collect();
            dispatch::<T, _>(Strips { fused, lines, right, c: c.elements });
        }
        None => dispatch::<T, _>(Tiles { fused, lines, right, c }),
    }
}

/// Runs a product: of floats with the widest vectors of the processor, of integers with those of
/// every processor, which are fast enough.
fn dispatch<T: Number, O: WithSimd>(product: O) -> O::Output {
    if const { T::ROUNDS } { Arch::new().dispatch(product) } else { product.with_simd(Scalar) }
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

    /// With one rounding of each product and sum, which profile `fast` has where the processor has
    /// it.
    fn defined_fused<T: Number>(a: &[T], b: &[T], [m, k, n]: [usize; 3]) -> Vec<T> {
        let element = |i: usize, j: usize| {
            (0..k).fold(T::ONE, |sum, l| sum.fused(a[i * k + l], b[l * n + j]))
        };
        (0..m * n).map(|at| element(at / n, at % n)).collect()
    }

    fn transpose<T: Copy>(elements: &[T], rows: usize, columns: usize) -> Vec<T> {
        (0..rows * columns).map(|i| elements[i % rows * columns + i / rows]).collect()
    }

    fn holds<T: Number<Sum = T> + std::fmt::Debug>(sizes @ [m, k, n]: [usize; 3]) {
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

    /// FLOAT16 and BFLOAT16, on either side: the sums are those of FLOAT.
    #[test]
    fn halves_have_the_bits_of_the_definition() {
        fn holds<T: Number<Sum = f32>>([m, k, n]: [usize; 3]) {
            let (a, b) = (numbers::<T>(m * k), numbers::<T>(k * n));
            let wide = |x: &[T]| x.iter().map(|x| x.to_sum()).collect::<Vec<f32>>();
            let expected = defined(&wide(&a), &wide(&b), [m, k, n]);
            let (turned_a, turned_b) = (transpose(&a, m, k), transpose(&b, k, n));
            let (wide_a, wide_b) = (wide(&a), wide(&b));
            let forms_of_a = [
                Matrix::new(&a, m, k).unwrap(),
                Matrix::new(&turned_a, k, m).unwrap().transposed(),
            ];
            let forms_of_b = [
                Matrix::new(&b, k, n).unwrap(),
                Matrix::new(&turned_b, n, k).unwrap().transposed(),
            ];
            let sums = || vec![1.0; m * n];
            for a in forms_of_a {
                for b in forms_of_b {
                    let mut found = sums();
                    gemm(Profile::Strict, a, &b, &mut found).unwrap();
                    assert_eq!(found, expected, "{m} x {k} x {n}");
                }
                let (mut found, wide) = (sums(), Matrix::new(&wide_b, k, n).unwrap());
                gemm(Profile::Strict, a, &wide, &mut found).unwrap();
                assert_eq!(found, expected, "{m} x {k} x {n}, the left one of halves");
            }
            let (mut found, wide) = (sums(), Matrix::new(&wide_a, m, k).unwrap());
            gemm(Profile::Strict, wide, &forms_of_b[0], &mut found).unwrap();
            assert_eq!(found, expected, "{m} x {k} x {n}, the right one of halves");
        }
        for sizes in [[1, 1, 1], [3, 70, 1030], [1, 300, 500], [70, 9, 900], [4, 300, 130]] {
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
