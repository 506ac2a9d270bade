//! Sums of products in vectors of the processor.
//!
//! A loop over numbers becomes vector instructions or does not, by how much of it the compiler sees
//! at a time: with one codegen unit for a crate, or with link-time optimization, products of
//! matrices would take ten times as long. Here the vectors are said.

use pulp::Simd;

use crate::exact::Exact;

/// A type of which processors have vectors.
pub(crate) trait Lanes: Copy {
    /// A vector.
    type Vector<S: Simd>: Copy;
    const ZERO: Self;
    /// The numbers in a vector.
    fn lanes<S: Simd>() -> usize;
    /// The same number in each lane.
    fn splat<S: Simd>(simd: S, number: Self) -> Self::Vector<S>;
    fn add<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    fn mul<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `sum` plus `a` times `b`, rounded once.
    fn fused<S: Simd>(
        simd: S,
        sum: Self::Vector<S>,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// The numbers as vectors; those behind the last full one are left out.
    fn vectors<S: Simd>(numbers: &[Self]) -> &[Self::Vector<S>];
    fn vectors_mut<S: Simd>(numbers: &mut [Self]) -> &mut [Self::Vector<S>];
}

macro_rules! lanes {
    ($($type:ident, $vector:ident, $lanes:ident, $splat:ident, $add:ident, $mul:ident, $fused:ident,
       $as:ident, $as_mut:ident;)*) => {$(
        impl Lanes for $type {
            type Vector<S: Simd> = S::$vector;
            const ZERO: Self = 0.0;

            #[inline(always)]
            fn lanes<S: Simd>() -> usize {
                S::$lanes
            }

            #[inline(always)]
            fn splat<S: Simd>(simd: S, number: Self) -> S::$vector {
                simd.$splat(number)
            }

            #[inline(always)]
            fn add<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
            }

            #[inline(always)]
            fn mul<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$mul(a, b)
            }

            #[inline(always)]
            fn fused<S: Simd>(
                simd: S,
                sum: S::$vector,
                a: S::$vector,
                b: S::$vector,
            ) -> S::$vector {
                simd.$fused(a, b, sum)
            }

            #[inline(always)]
            fn vectors<S: Simd>(numbers: &[Self]) -> &[S::$vector] {
                S::$as(numbers).0
            }

            #[inline(always)]
            fn vectors_mut<S: Simd>(numbers: &mut [Self]) -> &mut [S::$vector] {
                S::$as_mut(numbers).0
            }
        }
    )*};
}

lanes! {
    f32, f32s, F32_LANES, splat_f32s, add_f32s, mul_f32s, mul_add_f32s,
        as_simd_f32s, as_mut_simd_f32s;
    f64, f64s, F64_LANES, splat_f64s, add_f64s, mul_f64s, mul_add_f64s,
        as_simd_f64s, as_mut_simd_f64s;
}

/// Whether rows of `N` numbers are as many full vectors as [`add_products`] can take.
#[inline(always)]
pub(crate) fn fits<T: Lanes, S: Simd, const N: usize>() -> bool {
    let lanes = T::lanes::<S>();
    !S::IS_SCALAR && N.is_multiple_of(lanes) && matches!(N / lanes, 1 | 2 | 4 | 8 | 16)
}

/// Adds the products of each step to `sums`, in the order of the steps: those of a number for each
/// row of the sums, and of a row of numbers. A product and its sum are rounded each, or once where
/// they are `FUSED`. The rows [fit](fits).
#[inline(always)]
pub(crate) fn add_products<
    'r,
    T: Lanes + 'r,
    S: Simd,
    const FUSED: bool,
    const M: usize,
    const N: usize,
    const L: usize,
>(
    simd: S,
    sums: &mut [[T; N]; M],
    steps: impl Iterator<Item = ([T; L], &'r [T; N])>,
) {
    debug_assert!(fits::<T, S, N>(), "rows of {N} numbers");
    match N / T::lanes::<S>() {
        1 => in_vectors::<T, S, FUSED, M, N, L, 1>(simd, sums, steps),
        2 => in_vectors::<T, S, FUSED, M, N, L, 2>(simd, sums, steps),
        4 => in_vectors::<T, S, FUSED, M, N, L, 4>(simd, sums, steps),
        8 => in_vectors::<T, S, FUSED, M, N, L, 8>(simd, sums, steps),
        _ => in_vectors::<T, S, FUSED, M, N, L, 16>(simd, sums, steps),
    }
}

/// The same, with `V` vectors for a row, which stay in registers from the first step to the last.
#[inline(always)]
fn in_vectors<
    'r,
    T: Lanes + 'r,
    S: Simd,
    const FUSED: bool,
    const M: usize,
    const N: usize,
    const L: usize,
    const V: usize,
>(
    simd: S,
    sums: &mut [[T; N]; M],
    steps: impl Iterator<Item = ([T; L], &'r [T; N])>,
) {
    let mut all = sums.each_ref().map(|sums| of_row::<T, S, N, V>(simd, sums));
    for (left, right) in steps {
        let right = of_row::<T, S, N, V>(simd, right);
        for (sums, a) in all.iter_mut().zip(left) {
            let a = T::splat(simd, a);
            for (sum, b) in sums.iter_mut().zip(right) {
                *sum = match FUSED {
                    true => T::fused(simd, *sum, a, b),
                    false => T::add(simd, *sum, T::mul(simd, a, b)),
                };
            }
        }
    }
    for (to, from) in sums.iter_mut().zip(all) {
        T::vectors_mut::<S>(to).iter_mut().zip(from).for_each(|(to, from)| *to = from);
    }
}

/// The vectors of a row.
#[inline(always)]
fn of_row<T: Lanes, S: Simd, const N: usize, const V: usize>(
    simd: S,
    row: &[T; N],
) -> [T::Vector<S>; V] {
    let vectors = T::vectors::<S>(row);
    std::array::from_fn(|v| vectors.debug_at(v, T::splat(simd, T::ZERO)))
}
