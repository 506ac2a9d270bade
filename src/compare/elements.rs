//! Whether the elements of two tensors of one type and shape are equal, and how far apart they are.
//!
//! All cores take pieces of all pairs. A pair that is known to differ is not read on.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::container::pieces::Pieces;
use crate::dtype::{DataType, Element};
use crate::error::{Error, Result};
use crate::files::overlaps;
use crate::stats::wide;
use crate::tensor::Tensor;
use crate::util::{cancel, parallel};

/// How far the elements of two tensors are apart.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Difference {
    /// The number of elements.
    pub elements: u64,
    /// How many of them are not equal. Elements that are not a number are equal to each other.
    pub differing: u64,
    /// How many of those that differ are NaN or infinite in one of the tensors, or in both.
    pub not_finite: u64,
    /// How many of these are NaN or infinite in A.
    pub not_finite_a: u64,
    /// How many of these are NaN or infinite in B.
    pub not_finite_b: u64,
    /// The largest difference of elements that are finite in both, of complex ones its absolute
    /// value; `None` where all that differ are NaN or infinite.
    pub max_abs: Option<f64>,
    /// The mean of these differences, equal elements included; `None` where `max_abs` is.
    pub mean_abs: Option<f64>,
}

/// The length of a piece in bytes: whole elements of every type fill it.
const PIECE: u64 = 3 << 20;
/// That of a piece whose elements are made into floats of 64 bits, up to 32 times as long.
const PIECE_TO_WIDEN: u64 = 3 << 15;

/// Two tensors of one type and shape.
pub(super) struct Pair<'c> {
    pub(super) a: Pieces<'c>,
    pub(super) b: Pieces<'c>,
}

impl Pair<'_> {
    /// The ranges in which both are read: those of the one that is read at once, if one is.
    fn ranges(&self, piece: u64) -> Vec<Range<u64>> {
        let (a, b): (Vec<_>, Vec<_>) =
            (self.a.ranges(piece).collect(), self.b.ranges(piece).collect());
        if a.len() < b.len() { a } else { b }
    }

    /// The places of the bytes of both.
    pub(super) fn places(&self) -> Option<(overlaps::Range, overlaps::Range)> {
        self.a.range().zip(self.b.range())
    }
}

/// Whether the tensors of each pair are equal, and how many bytes were read.
pub(super) fn equal(pairs: &[Pair<'_>]) -> Result<(Vec<bool>, u64)> {
    let differ: Vec<_> = pairs.iter().map(|_| AtomicBool::new(false)).collect();
    let read = AtomicU64::new(0);
    begin(pairs)?;
    let pieces = pairs.iter().zip(&differ).flat_map(|(pair, differs)| {
        pair.ranges(PIECE).into_iter().map(move |range| (pair, differs, range))
    });
    parallel::for_each(parallel::cores(usize::MAX), pieces, |(pair, differs, range)| {
        let bytes = range.end.saturating_sub(range.start).saturating_mul(2);
        if differs.load(Ordering::Relaxed) {
            return cancel::advance(bytes);
        }
        let (a, b) = (pair.a.piece(&range)?, pair.b.piece(&range)?);
        if a.as_bytes() != b.as_bytes() {
            differs.store(true, Ordering::Relaxed);
        }
        read.fetch_add(bytes, Ordering::Relaxed);
        cancel::advance(bytes)
    })?;
    Ok((differ.into_iter().map(|differs| !differs.into_inner()).collect(), read.into_inner()))
}

/// Says how many bytes will be read, or refuses to read them out of all proportion to what there
/// is.
fn begin(pairs: &[Pair<'_>]) -> Result<()> {
    let (a, b): (HashSet<_>, HashSet<_>) = pairs.iter().filter_map(Pair::places).unzip();
    for ranges in [a, b] {
        if let Some(error) = overlaps::refused(ranges.into_iter().collect(), "read") {
            return Err(error);
        }
    }
    let bytes = pairs.iter().map(|pair| pair.a.len().saturating_add(pair.b.len()));
    cancel::begin(bytes.fold(0, u64::saturating_add));
    Ok(())
}

/// How far the tensors of each pair are apart, which are numbers.
pub(super) fn differences(pairs: &[Pair<'_>]) -> Result<Vec<Difference>> {
    begin(pairs)?;
    let slots = |pair: &Pair<'_>| {
        pair.ranges(PIECE_TO_WIDEN).into_iter().map(|range| (range, OnceLock::new())).collect()
    };
    let found: Vec<Vec<_>> = pairs.iter().map(slots).collect();
    let pieces =
        pairs.iter().zip(&found).flat_map(|(pair, of)| of.iter().map(move |of| (pair, of)));
    parallel::for_each(parallel::cores(usize::MAX), pieces, |(pair, (range, found))| {
        let apart = apart(&pair.a.piece(range)?, &pair.b.piece(range)?)?;
        found.get_or_init(|| apart);
        cancel::advance(range.end.saturating_sub(range.start).saturating_mul(2))
    })?;
    let join = |parts: Vec<(Range<u64>, OnceLock<Apart>)>| {
        parts.into_iter().try_fold(Apart::default(), |all, (_, part)| {
            let part = part.into_inner();
            Ok(all.with(&part.ok_or_else(|| Error::internal("a piece that nobody compared"))?))
        })
    };
    found.into_iter().map(|parts| join(parts).map(Apart::finish)).collect()
}

/// How far pieces are apart.
#[derive(Default)]
struct Apart {
    all: Difference,
    finite: u64,
    max: f64,
    sum: f64,
}

impl Apart {
    fn with(mut self, other: &Self) -> Self {
        self.all.elements += other.all.elements;
        self.all.differing += other.all.differing;
        self.all.not_finite += other.all.not_finite;
        self.all.not_finite_a += other.all.not_finite_a;
        self.all.not_finite_b += other.all.not_finite_b;
        self.max = self.max.max(other.max);
        self.finite += other.finite;
        self.sum += other.sum;
        self
    }

    #[allow(clippy::cast_precision_loss)] // exact below 2^53
    fn finish(self) -> Difference {
        let mean = if self.finite == 0 { 0.0 } else { self.sum / self.finite as f64 };
        let is_apart = self.all.differing == 0 || self.all.differing > self.all.not_finite;
        let (max_abs, mean_abs) = (is_apart.then_some(self.max), is_apart.then_some(mean));
        Difference { max_abs, mean_abs, ..self.all }
    }

    fn add_float(&mut self, a: f64, b: f64) {
        self.add(are_equal(a, b), [a.is_finite(), b.is_finite()], (a - b).abs());
    }

    /// Adds elements of two parts, the real and the imaginary one.
    fn add_complex(&mut self, [a, of_a]: [f64; 2], [b, of_b]: [f64; 2]) {
        let are_finite = [a.is_finite() && of_a.is_finite(), b.is_finite() && of_b.is_finite()];
        let is_equal = are_equal(a, b) && are_equal(of_a, of_b);
        self.add(is_equal, are_finite, (a - b).hypot(of_a - of_b));
    }

    /// Adds an element of A and one of B, `apart` where both are finite.
    fn add(&mut self, is_equal: bool, are_finite: [bool; 2], apart: f64) {
        if are_finite == [true; 2] {
            return self.add_finite(is_equal, apart);
        }
        let [is_finite_a, is_finite_b] = are_finite;
        self.all.elements += 1;
        self.all.differing += u64::from(!is_equal);
        self.all.not_finite += u64::from(!is_equal);
        self.all.not_finite_a += u64::from(!is_equal && !is_finite_a);
        self.all.not_finite_b += u64::from(!is_equal && !is_finite_b);
    }

    fn add_finite(&mut self, is_equal: bool, apart: f64) {
        self.all.elements += 1;
        self.all.differing += u64::from(!is_equal);
        self.finite += 1;
        self.sum += apart;
        self.max = self.max.max(apart);
    }

    /// Adds integers that a float of 64 bits may not tell apart.
    #[allow(clippy::cast_precision_loss)] // rounds, and is not zero for integers that differ
    fn add_all<T: Element + Into<i128>>(&mut self, a: &Tensor, b: &Tensor) -> Result<()> {
        let (a, b) = (a.to_slice::<T>()?, b.to_slice::<T>()?);
        for (a, b) in a.iter().zip(b.iter()) {
            let apart = ((*a).into() - (*b).into()).unsigned_abs();
            self.add_finite(apart == 0, apart as f64);
        }
        Ok(())
    }
}

fn are_equal(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

fn apart(a: &Tensor, b: &Tensor) -> Result<Apart> {
    let mut apart = Apart::default();
    match a.dtype() {
        DataType::Int64 => apart.add_all::<i64>(a, b)?,
        DataType::Uint64 => apart.add_all::<u64>(a, b)?,
        DataType::Complex64 | DataType::Complex128 => {
            let (a, b) = (wide(a)?, wide(b)?);
            let pairs = a.as_chunks().0.iter().zip(b.as_chunks().0);
            pairs.for_each(|(a, b)| apart.add_complex(*a, *b));
        }
        _ => {
            let (a, b) = (wide(a)?, wide(b)?);
            a.iter().zip(&b).for_each(|(a, b)| apart.add_float(*a, *b));
        }
    }
    Ok(apart)
}
