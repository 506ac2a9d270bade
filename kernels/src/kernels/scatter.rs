//! Operators that write updates into a copy of a tensor: Scatter, ScatterElements, ScatterND,
//! TensorScatter.
//!
//! Operator `ScatterND` is specified at <https://onnx.ai/onnx/operators/onnx__ScatterND.html>, and
//! the others likewise. Updates are written from first to last: of two updates at one place the
//! last one stays, and a reduction takes them in this order, rounding after each.

use onnx_container_proto::{DataType, Element};

use super::gather::{positions, slices};
use super::reduce::{higher, lower};
use super::words::one_of;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{around, axis, count};
use crate::numeric::{Number, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("Scatter", same, scatter_elements),
    Builtin::new("ScatterElements", reduced, scatter_elements),
    Builtin::new("ScatterND", reduced, scatter_nd),
    Builtin::new("TensorScatter", tensor_scatter_infer, tensor_scatter),
];

/// What an update does to an element.
const REDUCTIONS: [&str; 5] = ["none", "add", "mul", "max", "min"];

fn reduced(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    one_of(call, "reduction", &REDUCTIONS)?;
    same(call)
}

fn tensor_scatter_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    one_of(call, "mode", &["linear", "circular"])?;
    same(call)
}

/// The output has the type and shape of the data.
fn same(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(call.dtype(0)?, call.shape(0)?)])
}

fn scatter_elements(cx: &mut RunCx<'_>) -> Result<()> {
    let shape = cx.shape(0)?;
    let at = axis(cx.int_or("axis", 0)?, shape.len())?;
    expect_updates(cx, &cx.shape(1)?)?;
    let targets = positions(&shape, &cx.shape(1)?, &cx.integers(1)?, at)?;
    update(cx, 1, &targets, 2)
}

fn scatter_nd(cx: &mut RunCx<'_>) -> Result<()> {
    let (shape, of_indices) = (cx.shape(0)?, cx.shape(1)?);
    let (k, tuples) = match of_indices.split_last() {
        Some((k, tuples)) if *k <= shape.len() => (*k, tuples),
        _ => {
            let reason =
                format!("indices of shape {of_indices:?} into a tensor of shape {shape:?}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
    };
    let slice = shape.part(k..)?;
    expect_updates(cx, &[tuples, slice].concat())?;
    // Indices without coordinates each name the whole tensor.
    let targets = match k {
        0 if count(slice) == 0 => Vec::new(),
        0 => vec![0; count(tuples)],
        _ => slices(&shape, &cx.integers(1)?, k)?,
    };
    update(cx, count(slice), &targets, 2)
}

/// Checks that the updates, input 2, have the shape `shape`.
fn expect_updates(call: &Call<'_>, shape: &[usize]) -> Result<()> {
    let found = call.shape(2)?;
    if found == shape {
        return Ok(());
    }
    let reason = format!("the updates have the shape {found:?}, the indices ask for {shape:?}");
    Err(Error::new(ErrorKind::Shape, reason))
}

/// Writes the slices of `len` elements of input `updates` in order over those of input 0 that
/// `targets` name, as attribute `reduction` says. Of BOOL, a sum and the larger are an "or", a
/// product and the smaller an "and".
fn update(cx: &mut RunCx<'_>, len: usize, targets: &[usize], updates: usize) -> Result<()> {
    let reduction = one_of(cx, "reduction", &REDUCTIONS)?;
    let is_bool = cx.dtype(0)? == DataType::Bool;
    match reduction {
        "add" | "max" if is_bool => reduce(cx, len, targets, |a: bool, b: bool| a | b),
        "mul" | "min" if is_bool => reduce(cx, len, targets, |a: bool, b: bool| a & b),
        "add" => for_type!(cx.dtype(0)?, numbers, T => reduce(cx, len, targets, T::add)),
        "mul" => for_type!(cx.dtype(0)?, numbers, T => reduce(cx, len, targets, T::mul)),
        "max" => for_type!(cx.dtype(0)?, numbers, T => reduce(cx, len, targets, higher::<T>)),
        "min" => for_type!(cx.dtype(0)?, numbers, T => reduce(cx, len, targets, lower::<T>)),
        _ => replace(cx, len, targets, updates),
    }
}

fn replace(cx: &mut RunCx<'_>, len: usize, targets: &[usize], updates: usize) -> Result<()> {
    let elements = count(&cx.shape(0)?);
    if elements == 0 {
        return arrange(cx, 0, []);
    }
    let own = (0..elements / len.max(1)).map(|i| Run::Copy { input: 0, from: i * len, len });
    let mut runs: Vec<_> = own.collect();
    for (i, target) in targets.iter().enumerate() {
        *runs.at_mut(*target)? = Run::Copy { input: updates, from: i * len, len };
    }
    arrange(cx, 0, runs)
}

fn reduce<T: Element + Copy>(
    cx: &mut RunCx<'_>,
    len: usize,
    targets: &[usize],
    f: impl Fn(T, T) -> T,
) -> Result<()> {
    let (data, updates, output) = (cx.input::<T>(0)?, cx.input::<T>(2)?, cx.output::<T>(0)?);
    output.copy_from_slice(data);
    for (target, update) in targets.iter().zip(updates.chunks_exact(len.max(1))) {
        let slice = output.part_mut(target * len..(target + 1) * len)?;
        slice.iter_mut().zip(update).for_each(|(old, new)| *old = f(*old, *new));
    }
    Ok(())
}

/// Input 1 is written over a part of axis `axis`, which begins at another index for each first
/// index.
fn tensor_scatter(cx: &mut RunCx<'_>) -> Result<()> {
    let (shape, of_update) = (cx.shape(0)?, cx.shape(1)?);
    let at = axis(cx.int_or("axis", -2)?, shape.len())?;
    let (outer, dim, len) = around(&shape, at);
    let (_, new, _) = around(&of_update, at);
    let fits = |(i, (a, b)): (usize, (&usize, &usize))| if i == at { b <= a } else { a == b };
    if at == 0
        || shape.len() != of_update.len()
        || !shape.iter().zip(&of_update).enumerate().all(fits)
    {
        let reason = format!("an update of shape {of_update:?} along axis {at} of {shape:?}");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let batches = *shape.at(0)?;
    let starts = if cx.has_input(2) { cx.integers(2)? } else { vec![0; batches] };
    if starts.len() != batches {
        let reason = format!("{} write indices for {batches} batches", starts.len());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let is_circular = cx.str_or("mode", "linear")? == "circular";
    if count(&of_update) == 0 {
        return replace(cx, len, &[], 1);
    }
    let mut targets = Vec::with_capacity(outer * new);
    for o in 0..outer {
        let start = starts.at(o / (outer / batches))?;
        for i in 0..new {
            let to = place(*start, i, dim, is_circular)?;
            targets.push(o * dim + to);
        }
    }
    replace(cx, len, &targets, 1)
}

/// The index `i` behind `start` among `dim`.
fn place(start: i64, i: usize, dim: usize, is_circular: bool) -> Result<usize> {
    let (i, dim) = (i as i128, dim as i128);
    let place = i128::from(start) + i;
    let place = if is_circular { place.rem_euclid(dim.max(1)) } else { place };
    let place = Some(place).filter(|place| (0..dim).contains(place));
    place.and_then(|place| usize::try_from(place).ok()).ok_or_else(|| {
        let reason = format!("a write from index {start} on is outside of {dim} elements");
        Error::new(ErrorKind::Value, reason)
    })
}
