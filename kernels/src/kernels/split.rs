//! [Split](https://onnx.ai/onnx/operators/onnx__Split.html): the parts of a tensor along an axis.

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::narrow::values;
use crate::kernel::run_cx::RunCx;
use crate::numeric::Number;
use crate::numeric::broadcast::{around, axis, size};

pub(super) const KERNELS: &[Builtin] = &[Builtin::new("Split", infer, split)];

/// The axis, and the length of each output along it: from `split`, or as equal as can be, the last
/// one shorter.
fn parts(call: &Call<'_>) -> Result<(usize, Vec<usize>)> {
    let shape = call.shape(0)?;
    let at = axis(call.int_or("axis", 0)?, shape.len())?;
    let dim = *shape.at(at)?;
    let parts = call.output_count();
    let stated = call.node().attributes.int("num_outputs")?;
    if let Some(stated) = stated.filter(|stated| usize::try_from(*stated) != Ok(parts)) {
        let reason = format!("num_outputs is {stated}, but the node has {parts} outputs");
        return Err(Error::new(ErrorKind::InvalidModel, reason));
    }
    if let Some(lens) = stated_parts(call)? {
        if lens.len() != parts {
            let reason = format!("{} lengths for {parts} outputs", lens.len());
            return Err(Error::new(ErrorKind::Value, reason));
        }
        if lens.iter().fold(0, |sum: usize, len| sum.saturating_add(*len)) != dim {
            let reason = format!("the parts {lens:?} are not the {dim} elements of axis {at}");
            return Err(Error::new(ErrorKind::Value, reason));
        }
        return Ok((at, lens));
    }
    let len = dim.div_ceil(parts.max(1));
    let starts = (0..parts).map(|i| (i * len).min(dim));
    Ok((at, starts.map(|start| len.min(dim - start)).collect()))
}

/// The lengths that the node states: an attribute, or input 1, whose type is that of input 0 in
/// version 1.
fn stated_parts(call: &Call<'_>) -> Result<Option<Vec<usize>>> {
    if call.version() > 1 || !call.has_input(1) {
        let lens = call.ints_or_input("split", 1)?;
        return lens.map(|lens| lens.iter().map(|len| size(*len)).collect()).transpose();
    }
    let whole = |len: f64| match <i64 as Number>::from_f64(len) {
        whole if whole.to_f64().total_cmp(&len).is_eq() => size(whole),
        _ => Err(Error::new(ErrorKind::Value, format!("a part of {len} elements"))),
    };
    values(call, 1)?.into_iter().map(whole).collect::<Result<_>>().map(Some)
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (at, lens) = parts(call)?;
    let dtype = call.dtype(0)?;
    let part = |len: &usize| {
        let mut shape = call.shape(0)?;
        *shape.at_mut(at)? = *len;
        Ok(OutSpec::tensor(dtype, shape))
    };
    lens.iter().map(part).collect()
}

fn split(cx: &mut RunCx<'_>) -> Result<()> {
    let (at, lens) = parts(cx)?;
    let (outer, dim, inner) = around(&cx.shape(0)?, at);
    let mut start = 0;
    for (j, len) in lens.into_iter().enumerate() {
        if cx.has_output(j) {
            let from = |o: usize| (o * dim + start) * inner;
            let run = |o: usize| Run::Copy { input: 0, from: from(o), len: len * inner };
            arrange(cx, j, (0..outer).map(run))?;
        }
        start += len;
    }
    Ok(())
}
