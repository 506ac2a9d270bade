//! Products of matrices, as every family needs them: MatMul, Gemm, convolutions, attention.
//!
//! Each element of the result is a sum over k from the first term to the last, with a product and a sum
//! rounded one by one. How rows and columns are grouped for speed never changes that order, so it never
//! changes a bit.

use std::borrow::Cow;

use onnx_container::Element;

use crate::numeric::Number;

/// How many columns are computed together: a row of the result that stays in registers and cache.
const COLUMNS: usize = 256;

/// Adds to `c`, of m x n elements, the product of `a`, m x k, and `b`, k x n; all row-major. The terms are
/// added one by one to what is in `c`.
pub(crate) fn gemm<T: Number>(a: &[T], b: &[T], c: &mut [T], k: usize, n: usize) {
    if n == 0 || k == 0 {
        return;
    }
    for (row, out) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)) {
        for (block, out) in out.chunks_mut(COLUMNS).enumerate() {
            for (x, line) in row.iter().zip(b.chunks_exact(n)) {
                let line = line.get(block * COLUMNS..).unwrap_or_default();
                for (sum, y) in out.iter_mut().zip(line) {
                    *sum = sum.add(x.mul(*y));
                }
            }
        }
    }
}

/// The product of `a`, m x k, and `b`, k x n: sums are kept in [`Number::Sum`] and rounded once.
pub(crate) fn product<T: Number>(a: &[T], b: &[T], c: &mut [T], k: usize, n: usize) {
    let mut sums = vec![T::Sum::ZERO; c.len()];
    gemm(&terms(a), &terms(b), &mut sums, k, n);
    c.iter_mut().zip(sums).for_each(|(c, sum)| *c = T::from_sum(sum));
}

/// `values` as terms of sums: borrowed where these have the same type.
pub(crate) fn terms<T: Number>(values: &[T]) -> Cow<'_, [T::Sum]> {
    let same = T::DTYPE == T::Sum::DTYPE;
    let borrowed = same.then(|| bytemuck::checked::try_cast_slice(values).ok()).flatten();
    borrowed.map_or_else(|| values.iter().map(|x| x.to_sum()).collect(), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_of_the_plain_loop() {
        let (m, k, n) = (3, 70, 2 * COLUMNS + 7);
        let value = |i: usize| ((i * 7919 % 1000) as f32 - 500.0) / 333.0;
        let a: Vec<f32> = (0..m * k).map(value).collect();
        let b: Vec<f32> = (0..k * n).map(value).collect();
        let mut found = vec![0.0; m * n];
        product(&a, &b, &mut found, k, n);
        for i in 0..m {
            for j in 0..n {
                let sum = (0..k).fold(0.0_f32, |sum, l| sum + a[i * k + l] * b[l * n + j]);
                assert_eq!(found[i * n + j].to_bits(), sum.to_bits());
            }
        }
    }

    #[test]
    fn no_terms_are_zero() {
        let mut found = [1_i64; 4];
        product(&[], &[], &mut found, 0, 2);
        assert_eq!(found, [0; 4]);
    }
}
