//! [NonMaxSuppression](https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html): boxes by
//! falling score, without those that overlap a better one.

use onnx_container_proto::DataType;

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::saturated;
use crate::numeric::{larger, smaller};

pub(super) const KERNELS: &[Builtin] = &[Builtin::new("NonMaxSuppression", infer, run)];

/// A box by its corners.
#[derive(Debug, Clone, Copy)]
struct Corners {
    low: [f32; 2],
    high: [f32; 2],
}

impl Corners {
    /// From two opposite corners, or from the centre and the lengths of the sides.
    fn new([a, b, c, d]: [f32; 4], by_centre: bool) -> Self {
        if by_centre {
            let (x, y) = (c / 2.0, d / 2.0);
            return Self { low: [a - x, b - y], high: [a + x, b + y] };
        }
        Self { low: [smaller(a, c), smaller(b, d)], high: [larger(a, c), larger(b, d)] }
    }

    fn area(&self) -> f32 {
        let ([a, b], [c, d]) = (self.low, self.high);
        (c - a) * (d - b)
    }

    /// Whether the intersection is more than `threshold` of the union.
    fn overlaps(&self, other: &Self, threshold: f32) -> bool {
        let (([a, b], [c, d]), ([e, f], [g, h])) = ((self.low, self.high), (other.low, other.high));
        let (low, high) = ([larger(a, e), larger(b, f)], [smaller(c, g), smaller(d, h)]);
        let common = Self { low, high }.area();
        let apart = high.iter().zip(&low).any(|(high, low)| high <= low);
        let (one, two) = (self.area(), other.area());
        let both = one + two - common;
        !apart && common > 0.0 && one > 0.0 && two > 0.0 && both > 0.0 && common / both > threshold
    }
}

/// Input `i`, of three dimensions, as blocks of `len` elements.
fn blocks<'a>(call: &Call<'a>, i: usize) -> Result<(&'a [f32], [usize; 3])> {
    let shape = call.shape(i)?;
    let dims = <[usize; 3]>::try_from(shape.as_slice()).map_err(|_| {
        Error::new(ErrorKind::Shape, format!("input {i} has the shape {shape:?}, not 3 dimensions"))
    })?;
    Ok((call.input::<f32>(i)?, dims))
}

/// Batch, class and box of each selected box.
fn select(call: &Call<'_>) -> Result<Vec<[usize; 3]>> {
    let (boxes, [batches, count, sides]) = blocks(call, 0)?;
    let (scores, [of_batches, classes, of_boxes]) = blocks(call, 1)?;
    if sides != 4 || batches != of_batches || count != of_boxes {
        let reason = format!(
            "boxes of shape [{batches}, {count}, {sides}], scores of [{of_batches}, {classes}, {of_boxes}]"
        );
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let most = if call.has_input(2) { call.scalar::<i64>(2)? } else { 0 };
    let most = saturated(most.max(0));
    let iou = if call.has_input(3) { call.scalar::<f32>(3)? } else { 0.0 };
    let least = if call.has_input(4) { Some(call.scalar::<f32>(4)?) } else { None };
    let by_centre = call.flag("center_point_box", false)?;
    let boxes = boxes.as_chunks::<4>().0.iter().map(|sides| Corners::new(*sides, by_centre));
    let boxes: Vec<_> = boxes.collect();
    let mut selected = Vec::new();
    let lists = scores.chunks_exact(count.max(1)).enumerate();
    for (i, scores) in lists.take(if most == 0 { 0 } else { batches * classes }) {
        let (batch, class) = (i / classes.max(1), i % classes.max(1));
        let boxes = boxes.part(batch * count..(batch + 1) * count)?;
        let kept = suppress(boxes, scores, most, iou, least);
        selected.extend(kept.into_iter().map(|at| [batch, class, at]));
    }
    Ok(selected)
}

/// The boxes of one class: the best ones first, and of equal ones the first.
fn suppress(
    boxes: &[Corners],
    scores: &[f32],
    most: usize,
    iou: f32,
    least: Option<f32>,
) -> Vec<usize> {
    let mut candidates: Vec<_> = boxes.iter().zip(scores).enumerate().collect();
    candidates.retain(|(_, (_, score))| least.is_none_or(|least| **score > least));
    candidates.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
    let mut kept: Vec<(usize, &Corners)> = Vec::new();
    for (at, (corners, _)) in candidates {
        if kept.len() == most {
            break;
        }
        if !kept.iter().any(|(_, better)| corners.overlaps(better, iou)) {
            kept.push((at, corners));
        }
    }
    kept.into_iter().map(|(at, _)| at).collect()
}

/// The number of boxes is known when they are selected, so this needs the elements of all inputs.
fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(DataType::Int64, [select(call)?.len(), 3])])
}

fn run(cx: &mut RunCx<'_>) -> Result<()> {
    let selected = select(cx)?;
    let indices = selected.iter().flatten();
    for (y, index) in cx.output::<i64>(0)?.iter_mut().zip(indices) {
        *y = i64::try_from(*index).map_err(Error::internal)?;
    }
    Ok(())
}
