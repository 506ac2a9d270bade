//! Whether the elements of two tensors of one type and shape are equal, and how far apart they are.
//!
//! All cores take pieces of all pairs. A pair that is known to differ is not read on.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::container::pieces::Pieces;
use crate::error::{Error, Result};
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
    /// How many elements are finite in one tensor alone, or infinite in both with other signs.
    pub not_finite: u64,
    /// The largest difference of elements that are finite in both.
    pub max_abs: f64,
    /// The mean of these differences, equal elements included.
    pub mean_abs: f64,
}

/// The length of a piece in bytes: whole elements of every type fill it.
const PIECE: u64 = 3 << 20;

/// Two tensors of one type and shape.
pub(super) struct Pair<'c> {
    pub(super) a: Pieces<'c>,
    pub(super) b: Pieces<'c>,
}

impl Pair<'_> {
    /// The ranges in which both are read: those of the one that is read at once, if one is.
    fn ranges(&self) -> Vec<Range<u64>> {
        let (a, b): (Vec<_>, Vec<_>) =
            (self.a.ranges(PIECE).collect(), self.b.ranges(PIECE).collect());
        if a.len() < b.len() { a } else { b }
    }
}

/// Whether the tensors of each pair are equal, and how many bytes were read.
pub(super) fn equal(pairs: &[Pair<'_>]) -> Result<(Vec<bool>, u64)> {
    let differ: Vec<_> = pairs.iter().map(|_| AtomicBool::new(false)).collect();
    let read = AtomicU64::new(0);
    begin(pairs);
    let pieces = pairs.iter().zip(&differ).flat_map(|(pair, differs)| {
        pair.ranges().into_iter().map(move |range| (pair, differs, range))
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

fn begin(pairs: &[Pair<'_>]) {
    let bytes = pairs.iter().map(|pair| pair.a.len().saturating_add(pair.b.len()));
    cancel::begin(bytes.fold(0, u64::saturating_add));
}

/// How far the tensors of each pair are apart, which are numbers.
pub(super) fn differences(pairs: &[Pair<'_>]) -> Result<Vec<Difference>> {
    begin(pairs);
    let found: Vec<Vec<_>> = pairs
        .iter()
        .map(|pair| pair.ranges().into_iter().map(|range| (range, OnceLock::new())).collect())
        .collect();
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
    sum: f64,
}

impl Apart {
    fn with(mut self, other: &Self) -> Self {
        self.all.elements += other.all.elements;
        self.all.differing += other.all.differing;
        self.all.not_finite += other.all.not_finite;
        self.all.max_abs = self.all.max_abs.max(other.all.max_abs);
        self.finite += other.finite;
        self.sum += other.sum;
        self
    }

    #[allow(clippy::cast_precision_loss)] // exact below 2^53
    fn finish(self) -> Difference {
        let mean_abs = if self.finite == 0 { 0.0 } else { self.sum / self.finite as f64 };
        Difference { mean_abs, ..self.all }
    }

    fn add(&mut self, a: f64, b: f64) {
        self.all.elements += 1;
        let is_equal = a == b || (a.is_nan() && b.is_nan());
        self.all.differing += u64::from(!is_equal);
        if a.is_finite() && b.is_finite() {
            let apart = (a - b).abs();
            self.finite += 1;
            self.sum += apart;
            self.all.max_abs = self.all.max_abs.max(apart);
        } else {
            self.all.not_finite += u64::from(!is_equal);
        }
    }
}

fn apart(a: &Tensor, b: &Tensor) -> Result<Apart> {
    let mut apart = Apart::default();
    let (a, b) = (wide(a)?, wide(b)?);
    a.iter().zip(&b).for_each(|(a, b)| apart.add(*a, *b));
    Ok(apart)
}
