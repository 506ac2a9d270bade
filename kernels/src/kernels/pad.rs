//! [Pad](https://onnx.ai/onnx/operators/onnx__Pad.html) and
//! [CenterCropPad](https://onnx.ai/onnx/operators/onnx__CenterCropPad.html): an axis at a time gets
//! more or fewer elements at its ends.

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{axis, count, saturated, size, strides};
use crate::numeric::{Number, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("Pad", pad_infer, pad),
    Builtin::new("CenterCropPad", |call| infer(call, &centred(call)?), center_crop_pad),
];

/// The elements that an axis gets in front and behind; negative where it loses some.
type Pads = Vec<(i64, i64)>;

/// Pads by the inputs `pads` and `axes`, which are attributes in early versions.
fn pads(call: &Call<'_>) -> Result<Pads> {
    let name = if call.version() < 2 { "paddings" } else { "pads" };
    let (rank, list) = (call.rank(0)?, call.ints_or_input_or_empty(name, 1)?);
    let axes = if call.has_input(3) { Some(call.integers(3)?) } else { None };
    let axes = match axes {
        Some(axes) => axes.iter().map(|i| axis(*i, rank)).collect::<Result<_>>()?,
        None => (0..rank).collect::<Vec<_>>(),
    };
    if list.len() != 2 * axes.len() {
        let reason = format!("{} pads for {} axes", list.len(), axes.len());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let (begins, ends) = list.split_at(axes.len());
    let mut pads = vec![(0, 0); rank];
    for ((at, begin), end) in axes.iter().zip(begins).zip(ends) {
        *pads.at_mut(*at)? = (*begin, *end);
    }
    Ok(pads)
}

/// Pads that bring the axes to the dimensions of input 1, as equal on both ends as can be.
fn centred(call: &Call<'_>) -> Result<Pads> {
    let (shape, wanted) = (call.shape(0)?, call.integers(1)?);
    let axes = match call.ints("axes")? {
        Some(axes) => axes.iter().map(|i| axis(*i, shape.len())).collect::<Result<_>>()?,
        None => (0..shape.len()).collect::<Vec<_>>(),
    };
    if wanted.len() != axes.len() {
        let reason = format!("{} dimensions for {} axes", wanted.len(), axes.len());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let mut pads = vec![(0, 0); shape.len()];
    for (at, wanted) in axes.iter().zip(&wanted) {
        let dim = *shape.at(*at)?;
        let more = i64::try_from(size(*wanted)?).ok().zip(i64::try_from(dim).ok());
        let more = more.map(|(wanted, dim)| wanted - dim).ok_or_else(|| too_large(dim))?;
        *pads.at_mut(*at)? = (more / 2, more - more / 2);
    }
    Ok(pads)
}

fn too_large(dim: usize) -> Error {
    Error::new(ErrorKind::Shape, format!("a dimension of {dim} elements with this padding"))
}

fn pad_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let mode = call.str_or("mode", "constant")?;
    if !["constant", "reflect", "edge", "wrap"].contains(&mode) {
        let reason = format!("there is no mode `{mode}` of padding");
        return Err(Error::new(ErrorKind::InvalidModel, reason));
    }
    infer(call, &pads(call)?)
}

fn infer(call: &Call<'_>, pads: &Pads) -> Result<Vec<OutSpec>> {
    let dims = call.shape(0)?.into_iter().zip(pads).map(|(dim, (begin, end))| {
        let padded = i64::try_from(dim).ok().and_then(|len| len.checked_add(*begin));
        size(padded.and_then(|len| len.checked_add(*end)).ok_or_else(|| too_large(dim))?)
    });
    Ok(vec![OutSpec::tensor(call.dtype(0)?, dims.collect::<Result<Vec<_>>>()?)])
}

/// For each element of a padded axis, which element of `dim` it is; `None` for the constant.
fn places(dim: usize, padded: usize, pad: (i64, i64), mode: &str) -> Result<Vec<Option<usize>>> {
    // What is cut off is gone before the rest is repeated.
    let cut = |pad: i64| saturated(pad.min(0).unsigned_abs()).min(dim);
    let (first, len) = (cut(pad.0), (dim - cut(pad.0)).saturating_sub(cut(pad.1)));
    let (begin, kept) = (pad.0.max(0), i64::try_from(len).map_err(|_| too_large(dim))?);
    let inside = |i: i64| match mode {
        _ if (0..kept).contains(&i) => Some(i),
        "constant" => None,
        "reflect" if kept > 1 => {
            let i = i.rem_euclid(2 * (kept - 1));
            Some(i.min(2 * (kept - 1) - i))
        }
        "wrap" => Some(i.rem_euclid(kept.max(1))),
        _ => Some(i.clamp(0, (kept - 1).max(0))),
    };
    if len == 0 && padded > 0 && mode != "constant" {
        return Err(Error::new(ErrorKind::Shape, "an axis without elements has nothing to repeat"));
    }
    let place = |i| inside(i - begin).and_then(|i| usize::try_from(i).ok()).map(|i| first + i);
    Ok((0..).take(padded).map(place).collect())
}

/// The output as runs of neighbouring elements: where the first one is in the input, and how many
/// there are; `None` for the constant.
fn runs(cx: &RunCx<'_>, pads: &Pads, mode: &str) -> Result<Vec<(Option<usize>, usize)>> {
    let (from, to) = (cx.shape(0)?, cx.out_shape(0)?);
    if count(to) == 0 {
        return Ok(Vec::new());
    }
    // Axes at the end that stay as they are, are moved as one run.
    let whole = pads.iter().rev().take_while(|pad| **pad == (0, 0)).count();
    let split = from.len() - whole;
    let inner = count(from.part(split..)?);
    let axes = from.iter().zip(to).zip(pads).zip(strides(&from)).take(split);
    let mut runs = vec![(Some(0), inner)];
    for (((dim, padded), pad), stride) in axes.rev() {
        let places = places(*dim, *padded, *pad, mode)?;
        let len: usize = runs.iter().map(|(_, len)| len).sum();
        let blocks = places.iter().flat_map(|place| {
            let constant = place.is_none().then_some((None, len));
            let copied = runs.iter().filter(|_| place.is_some());
            let copied = copied.map(move |(at, len)| {
                (at.zip(*place).map(|(at, place)| at + place * stride), *len)
            });
            constant.into_iter().chain(copied)
        });
        runs = joined(blocks);
    }
    Ok(runs)
}

/// `runs`, of which those that follow one another in the input, too, are one.
fn joined(runs: impl Iterator<Item = (Option<usize>, usize)>) -> Vec<(Option<usize>, usize)> {
    let mut joined: Vec<(Option<usize>, usize)> = Vec::new();
    for (at, len) in runs {
        match joined.last_mut() {
            Some((last, before)) if last.map(|last| last + *before) == at => *before += len,
            _ => joined.push((at, len)),
        }
    }
    joined
}

fn pad(cx: &mut RunCx<'_>) -> Result<()> {
    let runs = runs(cx, &pads(cx)?, cx.str_or("mode", "constant")?)?;
    match cx.node().attributes.float("value")? {
        Some(value) if cx.version() < 11 => pad_with(cx, &runs, value),
        _ => {
            let constant = if cx.has_input(2) { Some(Run::one(2, 0)) } else { None };
            let moved = runs.into_iter().flat_map(move |(at, len)| match (at, constant) {
                (Some(from), _) => std::iter::repeat_n(Run::Copy { input: 0, from, len }, 1),
                (None, Some(constant)) => std::iter::repeat_n(constant, len),
                (None, None) => std::iter::repeat_n(Run::Zero { len }, 1),
            });
            arrange(cx, 0, moved)
        }
    }
}

/// Pads with the attribute `value`.
fn pad_with(cx: &mut RunCx<'_>, runs: &[(Option<usize>, usize)], value: f32) -> Result<()> {
    for_type!(cx.dtype(0)?, floats, T => {
        let (x, mut rest) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
        for (at, len) in runs {
            let (y, behind) = rest.split_at_mut_checked(*len).ok_or_else(|| too_large(*len))?;
            let copied = at.and_then(|at| x.get(at..at + len));
            match copied {
                Some(x) => y.copy_from_slice(x),
                None => y.fill(Number::from_f64(f64::from(value))),
            }
            rest = behind;
        }
        Ok(())
    })
}

fn center_crop_pad(cx: &mut RunCx<'_>) -> Result<()> {
    let runs = runs(cx, &centred(cx)?, "constant")?;
    let moved = runs.into_iter().map(|(at, len)| match at {
        Some(from) => Run::Copy { input: 0, from, len },
        None => Run::Zero { len },
    });
    arrange(cx, 0, moved)
}
