//! What is added to the scores of Attention: masks, the causal order, windows and padding.
//!
//! A key that a query does not attend to has a bias of minus infinity.

use onnx_container_proto::DataType;

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::strides;
use crate::numeric::{Number, Real, for_type};

/// The biases of all scores.
#[derive(Debug)]
pub(super) struct Bias<R> {
    mask: Option<Mask<R>>,
    /// For each batch, how many keys are before the first query. It may be negative.
    offsets: Vec<i64>,
    /// How far a key may be before or after its query.
    window: (Option<i64>, Option<i64>),
    /// For each batch, the keys that are not padding, where they are given.
    valid: Option<Vec<i64>>,
}

/// The input `attn_mask`: its elements, and how far apart its rows are by batch, head and query.
#[derive(Debug)]
struct Mask<R> {
    elements: Vec<R>,
    strides: [usize; 3],
    /// The length of a row. Keys behind it are not attended to.
    len: usize,
}

impl<R: Real> Bias<R> {
    /// The biases of scores by batch, head, query and key, of which the first `past` keys are a
    /// cache.
    pub(super) fn new(cx: &RunCx<'_>, scores: [usize; 4], past: usize) -> Result<Self> {
        let [batch, _, queries, _] = scores;
        let valid = if cx.has_input(6) { Some(cx.integers(6)?) } else { None };
        if valid.as_ref().is_some_and(|valid| valid.len() != batch) {
            let reason = format!("the lengths of other than {batch} sequences");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        let signed = |len: usize| i64::try_from(len).map_err(Error::internal);
        let (queries, past) = (signed(queries)?, signed(past)?);
        let offsets = match &valid {
            Some(valid) if !cx.has_input(4) => {
                valid.iter().map(|len| len.saturating_sub(queries)).collect()
            }
            _ => vec![past; batch],
        };
        let bound = |name| Ok::<_, Error>(Some(cx.int_or(name, -1)?).filter(|bound| *bound >= 0));
        let (left, right) = (bound("left_window_size")?, bound("right_window_size")?);
        let right = if cx.flag("is_causal", false)? { Some(0) } else { right };
        Ok(Self { mask: Mask::new(cx, scores)?, offsets, window: (left, right), valid })
    }

    /// Adds the bias of the scores of one query, by batch, head and its place in the sequence.
    pub(super) fn add(&self, (b, h, i): (usize, usize, usize), row: &mut [R]) -> Result<()> {
        if let Some(mask) = &self.mask {
            mask.add((b, h, i), row)?;
        }
        let at = i64::try_from(i).map_err(Error::internal)?.saturating_add(*self.offsets.at(b)?);
        let (left, right) = self.window;
        let first = left.map_or(i64::MIN, |left| at.saturating_sub(left));
        let last = right.map_or(i64::MAX, |right| at.saturating_add(right));
        let end = match &self.valid {
            Some(valid) => *valid.at(b)?,
            None => i64::MAX,
        };
        for (j, bias) in (0_i64..).zip(row) {
            if j < first || j > last || j >= end {
                *bias += R::LOWEST;
            }
        }
        Ok(())
    }
}

impl<R: Real> Mask<R> {
    fn new(cx: &RunCx<'_>, scores: [usize; 4]) -> Result<Option<Self>> {
        if !cx.has_input(3) {
            return Ok(None);
        }
        let shape = cx.shape(3)?;
        let [to @ .., total] = scores;
        let Some((len, outer)) = shape.split_last().filter(|(_, outer)| outer.len() <= 3) else {
            return Err(wrong_mask(&shape, scores));
        };
        let fits = outer.iter().rev().zip(to.iter().rev()).all(|(dim, to)| *dim == 1 || dim == to);
        if *len > total || !fits {
            return Err(wrong_mask(&shape, scores));
        }
        let mut by = [0; 3];
        let places = by.iter_mut().rev().zip(strides(&shape).into_iter().rev().skip(1));
        for ((by, stride), dim) in places.zip(outer.iter().rev()) {
            *by = if *dim == 1 { 0 } else { stride };
        }
        Ok(Some(Self { elements: elements(cx)?, strides: by, len: *len }))
    }

    fn add(&self, (b, h, i): (usize, usize, usize), row: &mut [R]) -> Result<()> {
        let [by_batch, by_head, by_query] = self.strides;
        let start = b * by_batch + h * by_head + i * by_query;
        let own = self.elements.part(start..start + self.len)?;
        let padded = own.iter().copied().chain(std::iter::repeat(R::LOWEST));
        row.iter_mut().zip(padded).for_each(|(bias, mask)| *bias += mask);
        Ok(())
    }
}

/// The elements of the mask as numbers to add: of booleans, 0 for true and minus infinity for
/// false.
fn elements<R: Real>(cx: &RunCx<'_>) -> Result<Vec<R>> {
    if cx.dtype(3)? == DataType::Bool {
        let mask = cx.input::<bool>(3)?.iter();
        return Ok(mask.map(|attended| if *attended { R::ZERO } else { R::LOWEST }).collect());
    }
    for_type!(cx.dtype(3)?, numbers, T => {
        Ok(cx.input::<T>(3)?.iter().map(|x| R::from_f64(Number::to_f64(*x))).collect())
    })
}

fn wrong_mask(shape: &[usize], scores: [usize; 4]) -> Error {
    let reason = format!("a mask of shape {shape:?} for scores of shape {scores:?}");
    Error::new(ErrorKind::Shape, reason)
}
