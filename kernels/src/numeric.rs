//! Arithmetic over the element types, and the macro that chooses a type by its number.
//!
//! This is the numeric profile `strict-1`: the same bits on every processor, thread count and
//! build. Integers wrap. FLOAT and DOUBLE are computed as they are, with one rounding for each
//! operation and without fused multiply-add; FLOAT16 and BFLOAT16 are widened to `f32`, computed
//! there and rounded once. Functions such as exp are those of the crate `libm`, in one version,
//! never the platform's. Which NaN an operation gives is the processor's choice, and what is
//! written is [`OneNan`].

pub(crate) mod broadcast;
pub(crate) mod decimal;
pub(crate) mod gemm;
pub(crate) mod lines;
pub(crate) mod nan;
pub(crate) mod profile;
pub(crate) mod random;
pub(crate) mod rounding;
pub(crate) mod vectors;
pub(crate) mod widen;

use half::{bf16, f16};
use pulp::{Arch, Simd};

use crate::numeric::nan::OneNan;
use crate::numeric::rounding::{from_bf16, from_f16, odd_f32, odd_f64, to_bf16, to_f16};
use crate::numeric::widen::widen;

/// A number type with arithmetic: integers and floats of at least 8 bits.
pub trait Number: OneNan + Copy + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    /// The lowest value: minus infinity for floats.
    const LOWEST: Self;
    /// The highest value: infinity for floats.
    const HIGHEST: Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// Whether a product and its sum are rounded, so that [`fused`](Self::fused) differs from both.
    const ROUNDS: bool;
    /// The sum and the product of `a` and `b`, rounded once. For profile `fast` alone.
    fn fused(self, a: Self, b: Self) -> Self;
    /// Adds the products of each step to `sums`, in the order of the steps: those of a number for
    /// each row of the sums, and of a row of numbers. A product and its sum are rounded each, or
    /// once where they are `FUSED`. Those of floats are computed in vectors of the processor.
    #[inline(always)]
    fn add_products<
        'r,
        S: Simd,
        const FUSED: bool,
        const M: usize,
        const N: usize,
        const L: usize,
    >(
        _: S,
        sums: &mut [[Self; N]; M],
        steps: impl Iterator<Item = ([Self; L], &'r [Self; N])>,
    ) where
        Self: 'r,
    {
        add_products_in_loops::<Self, FUSED, M, N, L>(sums, steps);
    }
    /// The quotient; of integers towards zero, and 0 for a divisor of 0, as in NumPy.
    fn div(self, other: Self) -> Self;
    /// The remainder with the sign of the dividend; of integers 0 for a divisor of 0.
    fn rem(self, other: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    /// Nearest for floats; integers round towards zero and saturate.
    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
    /// The value as `f64`; an integer that has no `f64` is rounded to odd, for a float to be
    /// rounded from it.
    fn to_odd_f64(self) -> f64;
    /// The integer modulo the width of an integer type, or the nearest float.
    fn from_i128(value: i128) -> Self;
    /// The integer; a float is rounded towards zero.
    fn to_i128(self) -> i128;
    /// Whether it is a NaN.
    fn is_nan(self) -> bool;
    /// The type in which many elements are added up: `f32` for floats of 16 bits, else the same
    /// type.
    type Sum: Number<Sum = Self::Sum>;
    /// The value as a term of a sum.
    fn to_sum(self) -> Self::Sum;
    /// The elements as terms of sums: themselves where they have that type, or else written to
    /// `room`, which then is as long.
    fn terms<'t>(elements: &'t [Self], room: &'t mut [Self::Sum]) -> &'t [Self::Sum];
    /// A sum, rounded once.
    fn from_sum(sum: Self::Sum) -> Self;
    /// Writes sums to `elements`: `fill` gets as many sums, which are zero, and each is rounded
    /// once in the end.
    ///
    /// # Errors
    /// That of `fill`.
    fn fill_sums<E>(
        elements: &mut [Self],
        fill: impl FnOnce(&mut [Self::Sum]) -> Result<(), E>,
    ) -> Result<(), E>;
}

/// [`Number::add_products`], in loops over numbers.
#[inline(always)]
fn add_products_in_loops<
    'r,
    T: Number + 'r,
    const FUSED: bool,
    const M: usize,
    const N: usize,
    const L: usize,
>(
    sums: &mut [[T; N]; M],
    steps: impl Iterator<Item = ([T; L], &'r [T; N])>,
) {
    for (left, right) in steps {
        for (sums, a) in sums.iter_mut().zip(left) {
            for (sum, b) in sums.iter_mut().zip(right) {
                *sum = if FUSED { sum.fused(a, *b) } else { sum.add(a.mul(*b)) };
            }
        }
    }
}

/// A float type, with the type that it is computed in.
pub(crate) trait Float: Number {
    type Real: Real;
    fn widen(self) -> Self::Real;
    fn round_from(real: Self::Real) -> Self;

    /// `f` of the value, computed in the wider type and rounded once.
    fn map(self, f: impl Fn(Self::Real) -> Self::Real) -> Self {
        Self::round_from(f(self.widen()))
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss,
                reason = "a conversion of numbers, which saturates and rounds as stated")]
        #[allow(clippy::cast_lossless, reason = "one macro for all widths")]
        impl Number for $type {
            const ROUNDS: bool = false;
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = Self::MIN;
            const HIGHEST: Self = Self::MAX;
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn fused(self, a: Self, b: Self) -> Self { self.wrapping_add(a.wrapping_mul(b)) }
            fn div(self, other: Self) -> Self { if other == 0 { 0 } else { self.wrapping_div(other) } }
            fn rem(self, other: Self) -> Self { if other == 0 { 0 } else { self.wrapping_rem(other) } }
            fn neg(self) -> Self { self.wrapping_neg() }
            #[allow(unused_comparisons, reason = "one macro for signed and unsigned types")]
            fn abs(self) -> Self { if self < 0 { self.wrapping_neg() } else { self } }
            fn from_f64(value: f64) -> Self { value as Self }
            fn to_f64(self) -> f64 { self as f64 }
            fn to_odd_f64(self) -> f64 { odd_f64(self.to_i128()) }
            fn is_nan(self) -> bool { false }
            fn from_i128(value: i128) -> Self { value as Self }
            fn to_i128(self) -> i128 { self as i128 }
            type Sum = Self;
            #[inline(always)]
            fn to_sum(self) -> Self { self }
            #[inline(always)]
            fn terms<'t>(elements: &'t [Self], _: &'t mut [Self]) -> &'t [Self] { elements }
            fn from_sum(sum: Self) -> Self { sum }
            fn fill_sums<E>(
                elements: &mut [Self],
                fill: impl FnOnce(&mut [Self]) -> Result<(), E>,
            ) -> Result<(), E> {
                elements.fill(Self::ZERO);
                fill(elements)
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! reals {
    ($($type:ty, $f64_to:expr;)*) => {$(
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss,
                reason = "a conversion of numbers, which saturates and rounds as stated")]
        impl Number for $type {
            const ROUNDS: bool = true;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = Self::NEG_INFINITY;
            const HIGHEST: Self = Self::INFINITY;
            fn add(self, other: Self) -> Self { self + other }
            fn sub(self, other: Self) -> Self { self - other }
            fn mul(self, other: Self) -> Self { self * other }
            #[allow(clippy::disallowed_methods, reason = "one rounding on every processor")]
            fn fused(self, a: Self, b: Self) -> Self { a.mul_add(b, self) }
            #[inline(always)]
            fn add_products<
                'r,
                S: Simd,
                const FUSED: bool,
                const M: usize,
                const N: usize,
                const L: usize,
            >(
                simd: S,
                sums: &mut [[Self; N]; M],
                steps: impl Iterator<Item = ([Self; L], &'r [Self; N])>,
            ) {
                if vectors::fits::<Self, S, N>() {
                    vectors::add_products::<Self, S, FUSED, M, N, L>(simd, sums, steps);
                } else {
                    add_products_in_loops::<Self, FUSED, M, N, L>(sums, steps);
                }
            }
            fn div(self, other: Self) -> Self { self / other }
            fn rem(self, other: Self) -> Self { self % other }
            fn neg(self) -> Self { -self }
            fn abs(self) -> Self { self.abs() }
            fn from_f64(value: f64) -> Self { $f64_to(value) }
            fn to_f64(self) -> f64 { f64::from(self) }
            fn to_odd_f64(self) -> f64 { f64::from(self) }
            fn is_nan(self) -> bool { self.is_nan() }
            fn from_i128(value: i128) -> Self { value as Self }
            fn to_i128(self) -> i128 { self as i128 }
            type Sum = Self;
            #[inline(always)]
            fn to_sum(self) -> Self { self }
            #[inline(always)]
            fn terms<'t>(elements: &'t [Self], _: &'t mut [Self]) -> &'t [Self] { elements }
            fn from_sum(sum: Self) -> Self { sum }
            fn fill_sums<E>(
                elements: &mut [Self],
                fill: impl FnOnce(&mut [Self]) -> Result<(), E>,
            ) -> Result<(), E> {
                elements.fill(Self::ZERO);
                fill(elements)
            }
        }

        impl Float for $type {
            type Real = Self;
            fn widen(self) -> Self { self }
            fn round_from(real: Self) -> Self { real }
        }
    )*};
}

#[allow(clippy::cast_possible_truncation, reason = "rounds to the nearest")]
fn nearest_f32(value: f64) -> f32 {
    value as f32
}

reals! {
    f32, nearest_f32;
    f64, std::convert::identity;
}

macro_rules! halves {
    ($($type:ty, $widen:ident, $narrow:ident, $widen_all:ident;)*) => {$(
        impl Number for $type {
            const ROUNDS: bool = true;
            const ZERO: Self = <$type>::ZERO;
            const ONE: Self = <$type>::ONE;
            const LOWEST: Self = <$type>::NEG_INFINITY;
            const HIGHEST: Self = <$type>::INFINITY;
            fn add(self, other: Self) -> Self { $narrow($widen(self) + $widen(other)) }
            fn sub(self, other: Self) -> Self { $narrow($widen(self) - $widen(other)) }
            fn mul(self, other: Self) -> Self { $narrow($widen(self) * $widen(other)) }
            fn fused(self, a: Self, b: Self) -> Self {
                $narrow($widen(self).fused($widen(a), $widen(b)))
            }
            fn div(self, other: Self) -> Self { $narrow($widen(self) / $widen(other)) }
            fn rem(self, other: Self) -> Self { $narrow($widen(self) % $widen(other)) }
            fn neg(self) -> Self { Self::from_bits(self.to_bits() ^ 0x8000) }
            fn abs(self) -> Self { Self::from_bits(self.to_bits() & 0x7fff) }
            fn from_f64(value: f64) -> Self { $narrow(odd_f32(value)) }
            fn to_f64(self) -> f64 { f64::from($widen(self)) }
            fn to_odd_f64(self) -> f64 { f64::from($widen(self)) }
            fn is_nan(self) -> bool { self.is_nan() }
            fn from_i128(value: i128) -> Self { Number::from_f64(odd_f64(value)) }
            fn to_i128(self) -> i128 { $widen(self).to_i128() }
            type Sum = f32;
            #[inline(always)]
            fn to_sum(self) -> f32 { $widen(self) }
            #[inline(always)]
            fn terms<'t>(elements: &'t [Self], room: &'t mut [f32]) -> &'t [f32] {
                $widen_all(elements, room);
                room
            }
            fn from_sum(sum: f32) -> Self { $narrow(sum) }
            fn fill_sums<E>(
                elements: &mut [Self],
                fill: impl FnOnce(&mut [f32]) -> Result<(), E>,
            ) -> Result<(), E> {
                let mut sums = vec![0.0; elements.len()];
                fill(&mut sums)?;
                let rounded = elements.iter_mut().zip(&sums);
                Arch::new().dispatch(|| rounded.for_each(|(to, sum)| *to = $narrow(*sum)));
                Ok(())
            }
        }

        impl Float for $type {
            type Real = f32;
            fn widen(self) -> f32 { $widen(self) }
            fn round_from(real: f32) -> Self { $narrow(real) }
        }
    )*};
}

#[inline(always)]
fn widen_bf16(elements: &[bf16], room: &mut [f32]) {
    room.iter_mut().zip(elements).for_each(|(to, x)| *to = from_bf16(*x));
}

halves! {
    f16, from_f16, to_f16, widen;
    bf16, from_bf16, to_bf16, widen_bf16;
}

/// Makes [`Real`] from the names of its functions of one argument, here and in `libm` for `f32` and
/// `f64`.
macro_rules! functions {
    ($($name:ident = $of_f32:ident, $of_f64:ident;)*) => {
        /// `f32` and `f64`, in which floats are computed, with the functions of `libm`.
        pub(crate) trait Real:
            Float<Real = Self>
            + Number<Sum = Self>
            + std::ops::Add<Output = Self>
            + std::ops::Sub<Output = Self>
            + std::ops::Mul<Output = Self>
            + std::ops::Div<Output = Self>
            + std::ops::Neg<Output = Self>
            + std::ops::AddAssign
        {
            /// The nearest value to a constant of an operator's text.
            fn of(value: f64) -> Self {
                Self::from_f64(value)
            }
            fn pow(self, exponent: Self) -> Self;
            /// The nearest integer, ties to even.
            fn round_even(self) -> Self;
            $(
                #[allow(dead_code, reason = "the list is that of libm")]
                fn $name(self) -> Self;
            )*
        }

        impl Real for f32 {
            fn pow(self, exponent: Self) -> Self { libm::powf(self, exponent) }
            fn round_even(self) -> Self { self.round_ties_even() }
            $(fn $name(self) -> Self { libm::$of_f32(self) })*
        }

        impl Real for f64 {
            fn pow(self, exponent: Self) -> Self { libm::pow(self, exponent) }
            fn round_even(self) -> Self { self.round_ties_even() }
            $(fn $name(self) -> Self { libm::$of_f64(self) })*
        }
    };
}

functions! {
    exp = expf, exp;
    exp2 = exp2f, exp2;
    expm1 = expm1f, expm1;
    ln = logf, log;
    ln_1p = log1pf, log1p;
    log2 = log2f, log2;
    log10 = log10f, log10;
    sqrt = sqrtf, sqrt;
    cbrt = cbrtf, cbrt;
    sin = sinf, sin;
    cos = cosf, cos;
    tan = tanf, tan;
    asin = asinf, asin;
    acos = acosf, acos;
    atan = atanf, atan;
    sinh = sinhf, sinh;
    cosh = coshf, cosh;
    tanh = tanhf, tanh;
    asinh = asinhf, asinh;
    acosh = acoshf, acosh;
    atanh = atanhf, atanh;
    erf = erff, erf;
    ceil = ceilf, ceil;
    floor = floorf, floor;
    trunc = truncf, trunc;
}

/// Runs `$body` with `$T` as the Rust type of element type `$dtype`, which has to be one of a set:
/// `floats` (FLOAT16, BFLOAT16, FLOAT, DOUBLE), `integers` (8 to 64 bits), `numbers` (both), or
/// `elements` (all of at least 8 bits, without 8-bit floats). Another type is an error of the
/// kernel.
///
/// ```ignore
/// for_type!(cx.dtype(0)?, floats, T => softmax::<T>(cx))
/// ```
macro_rules! for_type {
    ($dtype:expr, floats, $T:ident => $body:expr) => {
        $crate::numeric::for_type!(@ $dtype, $T, $body,
            Float f32, Double f64, Float16 f16, Bfloat16 bf16)
    };
    ($dtype:expr, integers, $T:ident => $body:expr) => {
        $crate::numeric::for_type!(@ $dtype, $T, $body,
            Int64 i64, Int32 i32, Int16 i16, Int8 i8, Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64)
    };
    ($dtype:expr, numbers, $T:ident => $body:expr) => {
        $crate::numeric::for_type!(@ $dtype, $T, $body,
            Float f32, Double f64, Float16 f16, Bfloat16 bf16,
            Int64 i64, Int32 i32, Int16 i16, Int8 i8, Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64)
    };
    ($dtype:expr, elements, $T:ident => $body:expr) => {
        $crate::numeric::for_type!(@ $dtype, $T, $body,
            Float f32, Double f64, Float16 f16, Bfloat16 bf16, Bool bool,
            Int64 i64, Int32 i32, Int16 i16, Int8 i8, Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64)
    };
    // The types of products, and those in which they are computed: a product that wraps has the
    // same bits with and without a sign.
    ($dtype:expr, products, $T:ident as $C:ident => $body:expr) => {{
        use half::{bf16, f16};
        $crate::numeric::for_type!(@ as $dtype, $T, $C, $body,
            Float f32 f32, Double f64 f64, Float16 f16 f16, Bfloat16 bf16 bf16,
            Int64 i64 i64, Int32 i32 i32, Uint32 u32 i32, Uint64 u64 i64)
    }};
    (@ as $dtype:expr, $T:ident, $C:ident, $body:expr, $($Name:ident $type:ident $carrier:ident),*) => {
        match $dtype {
            $(onnx_container_proto::DataType::$Name => {
                type $T = $type;
                type $C = $carrier;
                $body
            })*
            other => Err($crate::numeric::not_taken(other)),
        }
    };
    (@ $dtype:expr, $T:ident, $body:expr, $($Name:ident $type:ident),*) => {{
        #[allow(unused_imports, reason = "not every set has them")]
        use half::{bf16, f16};
        match $dtype {
            $(onnx_container_proto::DataType::$Name => {
                type $T = $type;
                $body
            })*
            other => Err($crate::numeric::not_taken(other)),
        }
    }};
}
pub(crate) use for_type;

/// The larger of two numbers, and of a number and a NaN the number. Which of two zeros, and what of
/// a signalling NaN, the methods `max` and `min` of floats leave to the processor.
pub fn larger<N: Number>(a: N, b: N) -> N {
    if a > b || b.is_nan() { a } else { b }
}

/// The smaller of two numbers, and of a number and a NaN the number.
pub fn smaller<N: Number>(a: N, b: N) -> N {
    if a < b || b.is_nan() { a } else { b }
}

/// A number of elements, as a number to calculate with.
pub fn number<N: Number>(len: usize) -> N {
    N::from_i128(len as i128)
}

/// The error of an element type that an operator does not take.
pub(crate) fn not_taken(dtype: onnx_container_proto::DataType) -> crate::error::Error {
    let reason = format!("the operator does not take elements of type {dtype}");
    crate::error::Error::new(crate::error::ErrorKind::Type, reason)
}
