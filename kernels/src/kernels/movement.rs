//! Operators that move elements or give them another shape: Reshape, Transpose, Concat, Slice,
//! Gather.
//!
//! Operator `Reshape` is specified at <https://onnx.ai/onnx/operators/onnx__Reshape.html>, and the
//! others likewise.

use onnx_container_proto::DataType;

use crate::error::{Error, ErrorKind, Result};
use crate::exact::{Exact, OrBug};
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{
    around, axes, axis, broadcast, broadcast_strides, count, each_of, index, offsets, size, strides,
};
use crate::numeric::{Number, for_type};
use crate::value::Type;

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::view("Identity", identity),
    Builtin::view("Reshape", reshape),
    Builtin::view("Flatten", flatten),
    Builtin::view("Squeeze", squeeze),
    Builtin::view("Unsqueeze", unsqueeze),
    Builtin::new("Shape", shape_infer, shape),
    Builtin::new("Size", |_| Ok(vec![OutSpec::tensor(DataType::Int64, [])]), tensor_size),
    Builtin::new("Transpose", transpose_infer, transpose),
    Builtin::new("Concat", concat_infer, concat),
    Builtin::new("Slice", slice_infer, slice),
    Builtin::new("Gather", gather_infer, gather),
    Builtin::new("Expand", expand_infer, expand),
    Builtin::new("Tile", tile_infer, tile),
    Builtin::new("Where", where_infer, where_),
    Builtin::new("ConstantOfShape", constant_of_shape_infer, constant_of_shape),
];

/// The output is the input, of any type.
fn identity(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![match call.ty(0) {
        Some(ty @ (Type::Sequence(_) | Type::Optional(_) | Type::Map(..))) => OutSpec::Outside(ty),
        _ => OutSpec::tensor(call.dtype(0)?, call.shape(0)?),
    }])
}

/// Input 0 with another shape, after checking that it has as many elements.
fn reshaped(call: &Call<'_>, shape: Vec<usize>) -> Result<Vec<OutSpec>> {
    let from = call.shape(0)?;
    if count(&from) != count(&shape) {
        let reason = format!("a tensor of shape {from:?} cannot have the shape {shape:?}");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

/// In the new shape, -1 is what is left, and 0 is the same dimension of the input unless
/// `allowzero`.
fn reshape(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (from, wanted) = (call.shape(0)?, call.ints_or_input_or_empty("shape", 1)?);
    let keep_zero = call.flag("allowzero", false)?;
    if keep_zero && wanted.contains(&0) && wanted.contains(&-1) {
        let reason = "with allowzero the shape has a 0 and a -1, which stands for any number then";
        return Err(Error::new(ErrorKind::Value, reason));
    }
    let mut shape = Vec::with_capacity(wanted.len());
    for (i, dim) in wanted.iter().enumerate() {
        shape.push(match dim {
            0 if !keep_zero => *from.get(i).ok_or_else(|| {
                let reason = format!("dimension {i} is to be that of the shape {from:?}");
                Error::new(ErrorKind::Shape, reason)
            })?,
            -1 => 1,
            dim => size(*dim)?,
        });
    }
    let others = count(&shape); // in which a -1 is 1 so far
    let mut left = wanted.iter().zip(&mut shape).filter(|(dim, _)| **dim == -1).map(|(_, d)| d);
    if let Some(left) = left.next() {
        *left = each_of(count(&from), others);
    }
    if left.next().is_some() {
        return Err(Error::new(ErrorKind::Shape, "the shape has more than one -1"));
    }
    reshaped(call, shape)
}

/// Two dimensions: those before `axis`, and the others.
fn flatten(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shape = call.shape(0)?;
    let at = match call.int_or("axis", 1)? {
        whole if usize::try_from(whole) == Ok(shape.len()) => shape.len(),
        other => axis(other, shape.len())?,
    };
    let (before, behind) = shape.split_at(at);
    reshaped(call, vec![count(before), count(behind)])
}

/// Without the axes, which have one element; by default without every such axis.
fn squeeze(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shape = call.shape(0)?;
    let gone = call.ints_or_input("axes", 1)?.map(|list| axes(&list, shape.len())).transpose()?;
    let is_gone = |i: usize, dim: usize| {
        gone.as_ref().map_or(dim == 1, |gone| gone.binary_search(&i).is_ok())
    };
    if let Some(dim) = gone.iter().flatten().filter_map(|i| shape.get(*i)).find(|dim| **dim != 1) {
        let reason = format!("an axis of {dim} elements in the shape {shape:?} cannot be removed");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let kept = shape.iter().enumerate().filter(|(i, dim)| !is_gone(*i, **dim));
    reshaped(call, kept.map(|(_, dim)| *dim).collect())
}

/// With an axis of one element at each of the axes of the output.
fn unsqueeze(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (shape, list) = (call.shape(0)?, call.ints_or_input_or_empty("axes", 1)?);
    let rank = shape.len() + list.len();
    let new = axes(&list, rank)?;
    if new.len() != list.len() {
        return Err(Error::new(ErrorKind::Value, format!("the axes {list:?} repeat one")));
    }
    let mut dims = shape.iter();
    let dim = |i: usize| match new.binary_search(&i) {
        Ok(_) => Ok(1),
        Err(_) => dims.next().copied().or_bug("more axes than dimensions"),
    };
    let unsqueezed = (0..rank).map(dim).collect::<Result<_>>()?;
    reshaped(call, unsqueezed)
}

/// The dimensions that `start` and `end` cut out.
fn shape_range(call: &Call<'_>) -> Result<Vec<i64>> {
    let shape = crate::memory::table::dims(&call.shape(0)?)?;
    let rank = i64::try_from(shape.len()).map_err(Error::internal)?;
    let clamp =
        |at: i64| usize::try_from(if at < 0 { at.saturating_add(rank) } else { at }.clamp(0, rank));
    let start = clamp(call.int_or("start", 0)?).map_err(Error::internal)?;
    let end = clamp(call.int_or("end", rank)?).map_err(Error::internal)?;
    Ok(shape.part(start..end.max(start))?.to_vec())
}

fn shape_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(DataType::Int64, [shape_range(call)?.len()])])
}

fn shape(cx: &mut RunCx<'_>) -> Result<()> {
    cx.output::<i64>(0)?.copy_from_slice(&shape_range(cx)?);
    Ok(())
}

fn tensor_size(cx: &mut RunCx<'_>) -> Result<()> {
    let elements = crate::memory::table::dims(&cx.shape(0)?)?.iter().product();
    cx.output::<i64>(0)?.fill(elements);
    Ok(())
}

/// The axis of the input at each axis of the output.
fn permutation(call: &Call<'_>) -> Result<Vec<usize>> {
    let rank = call.rank(0)?;
    let Some(perm) = call.ints("perm")? else { return Ok((0..rank).rev().collect()) };
    let perm = perm.iter().map(|i| axis(*i, rank)).collect::<Result<Vec<_>>>()?;
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if sorted.into_iter().eq(0..rank) {
        Ok(perm)
    } else {
        let reason = format!("{perm:?} is no order of {rank} axes");
        Err(Error::new(ErrorKind::Value, reason))
    }
}

/// The elements of `of` in the order of `perm`.
fn permuted(of: &[usize], perm: &[usize]) -> Result<Vec<usize>> {
    perm.iter().map(|i| of.at(*i).copied()).collect()
}

fn transpose_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shape = permuted(&call.shape(0)?, &permutation(call)?)?;
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

fn transpose(cx: &mut RunCx<'_>) -> Result<()> {
    let (perm, from, to) = (permutation(cx)?, cx.shape(0)?, cx.out_shape(0)?);
    // Axes at the end that stay where they are, are moved as one run.
    let stay = perm.iter().enumerate().rev().take_while(|(i, axis)| i == *axis).count();
    let moved = to.part(..to.len() - stay)?;
    let len = count(to.part(moved.len()..)?);
    let strides = permuted(&strides(&from), &perm)?;
    let starts = offsets(moved, strides.part(..moved.len())?);
    arrange(cx, 0, starts.map(|from| Run::Copy { input: 0, from, len }))
}

fn concat_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shapes = (0..call.input_count()).map(|i| call.shape(i)).collect::<Result<Vec<_>>>()?;
    let at = axis(call.int_or("axis", 1)?, call.rank(0)?)?;
    Ok(vec![OutSpec::tensor(call.dtype(0)?, joined(&shapes, at)?)])
}

/// The shape of tensors of `shapes`, one behind the other along axis `at`.
///
/// # Errors
/// [`ErrorKind::Shape`] when they differ beside the axis.
pub(super) fn joined(shapes: &[Vec<usize>], at: usize) -> Result<Vec<usize>> {
    let (mut shape, others) = match shapes.split_first() {
        Some((first, others)) => (first.clone(), others),
        None => return Err(Error::new(ErrorKind::Shape, "there are no tensors to concatenate")),
    };
    for other in others {
        let fits = |(j, (a, b)): (usize, (&usize, &usize))| j == at || a == b;
        if other.len() != shape.len() || !shape.iter().zip(other).enumerate().all(fits) {
            let reason = format!("the shapes {shape:?} and {other:?} differ beside axis {at}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        let dim = shape.at_mut(at)?;
        *dim = dim.saturating_add(*other.at(at)?);
    }
    Ok(shape)
}

fn concat(cx: &mut RunCx<'_>) -> Result<()> {
    let shape = cx.out_shape(0)?;
    let at = axis(cx.int_or("axis", 1)?, shape.len())?;
    let (outer, _, _) = around(shape, at);
    let lens = (0..cx.input_count()).map(|i| {
        let (_, dim, inner) = around(&cx.shape(i)?, at);
        Ok(dim * inner)
    });
    let lens = lens.collect::<Result<Vec<_>>>()?;
    let row = |o: usize| {
        let runs = lens.iter().enumerate();
        runs.map(move |(input, len)| Run::Copy { input, from: o * len, len: *len })
    };
    arrange(cx, 0, (0..outer).flat_map(row))
}

/// What a slice takes of one axis: its first index, its step, and how many.
#[derive(Debug, Clone, Copy)]
struct Cut {
    start: usize,
    step: i64,
    len: usize,
}

/// What a slice takes of each axis.
fn cuts(call: &Call<'_>) -> Result<Vec<Cut>> {
    let shape = call.shape(0)?;
    let starts = call.ints_or_input_or_empty("starts", 1)?;
    let ends = call.ints_or_input_or_empty("ends", 2)?;
    let axes = call.ints_or_input("axes", 3)?;
    let steps = if call.has_input(4) { call.integers(4)? } else { vec![1; starts.len()] };
    let axes = axes.unwrap_or_else(|| (0..).take(starts.len()).collect());
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        let reason = "starts, ends, axes and steps are not equally long";
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let mut cuts: Vec<_> = shape.iter().map(|len| Cut { start: 0, step: 1, len: *len }).collect();
    for (((start, end), at), step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let at = axis(*at, shape.len())?;
        *cuts.at_mut(at)? = cut(*start, *end, *step, *shape.at(at)?)?;
    }
    Ok(cuts)
}

/// What `start..end` by `step` takes of `dim` elements; indices that are outside are moved inside.
fn cut(start: i64, end: i64, step: i64, dim: usize) -> Result<Cut> {
    let len = i64::try_from(dim).map_err(Error::internal)?;
    let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let (low, high) = if step < 0 { (-1, len - 1) } else { (0, len) };
    let first = from_end(start).clamp(low.max(0), high.max(0));
    let last = from_end(end).clamp(low, high);
    if step == 0 {
        return Err(Error::new(ErrorKind::Value, "a step of a slice is 0"));
    }
    let span = if step < 0 { first - last } else { last - first };
    let taken = span.max(0).unsigned_abs().div_ceil(step.unsigned_abs());
    let len = if dim == 0 { 0 } else { usize::try_from(taken).map_err(Error::internal)? };
    Ok(Cut { start: usize::try_from(first).map_err(Error::internal)?, step, len })
}

fn slice_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shape: Vec<_> = cuts(call)?.iter().map(|cut| cut.len).collect();
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

fn slice(cx: &mut RunCx<'_>) -> Result<()> {
    let (from, cuts) = (cx.shape(0)?, cuts(cx)?);
    if count(cx.out_shape(0)?) == 0 {
        return arrange(cx, 0, []);
    }
    // Axes at the end that are taken whole are moved as one run.
    let is_whole = |(cut, dim): &(&Cut, &usize)| cut.step == 1 && cut.len == **dim;
    let whole = cuts.iter().zip(&from).rev().take_while(is_whole).count();
    let cut = cuts.part(..cuts.len() - whole)?;
    let len = count(from.part(cut.len()..)?);
    let strides = strides(&from);
    let places = cut.iter().zip(&strides).map(|(cut, stride)| {
        let stride = i64::try_from(*stride).map_err(Error::internal)?;
        let place =
            |i: i64| i64::try_from(cut.start).ok()?.checked_add(i * cut.step)?.checked_mul(stride);
        (0..)
            .take(cut.len)
            .map(|i| usize::try_from(place(i)?).ok())
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Error::internal("a slice outside of its tensor"))
    });
    let places = places.collect::<Result<Vec<_>>>()?;
    arrange(cx, 0, sums(&places).into_iter().map(|from| Run::Copy { input: 0, from, len }))
}

/// Every sum of one element of each list, the last list's elements changing fastest.
fn sums(lists: &[Vec<usize>]) -> Vec<usize> {
    lists.iter().fold(vec![0], |sums, list| {
        sums.iter().flat_map(|sum| list.iter().map(move |place| sum + place)).collect()
    })
}

fn gather_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (shape, indices) = (call.shape(0)?, call.shape(1)?);
    let at = axis(call.int_or("axis", 0)?, shape.len())?;
    let (before, behind) = (shape.part(..at)?, shape.part(at + 1..)?);
    Ok(vec![OutSpec::tensor(call.dtype(0)?, [before, &indices, behind].concat())])
}

fn gather(cx: &mut RunCx<'_>) -> Result<()> {
    let shape = cx.shape(0)?;
    let at = axis(cx.int_or("axis", 0)?, shape.len())?;
    let (outer, dim, len) = around(&shape, at);
    let indices = cx.integers(1)?;
    let indices = indices.iter().map(|i| index(*i, dim)).collect::<Result<Vec<_>>>()?;
    let row = |o: usize| {
        let rows = indices.iter();
        rows.map(move |i| Run::Copy { input: 0, from: (o * dim + i) * len, len })
    };
    arrange(cx, 0, (0..outer).flat_map(row))
}

fn expand_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let wanted = call.integers(1)?.iter().map(|dim| size(*dim)).collect::<Result<Vec<_>>>()?;
    let shape = broadcast(&[call.shape(0)?, wanted])?;
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

fn expand(cx: &mut RunCx<'_>) -> Result<()> {
    let (from, to) = (cx.shape(0)?, cx.out_shape(0)?);
    let strides = broadcast_strides(&from, to);
    // Axes at the end that are not repeated are moved as one run.
    let same = from.iter().rev().zip(to.iter().rev()).take_while(|(from, to)| from == to).count();
    let outer = to.len() - same;
    let len = count(to.part(outer..)?);
    let starts = offsets(to.part(..outer)?, strides.part(..outer)?);
    arrange(cx, 0, starts.map(|from| Run::Copy { input: 0, from, len }))
}

/// How often each axis is repeated. Before version 6 that is one axis, and both numbers have the
/// type of the input.
fn repeats(call: &Call<'_>) -> Result<Vec<usize>> {
    let rank = call.rank(0)?;
    if call.version() < 6 {
        let number =
            |i| for_type!(call.dtype(i)?, numbers, T => Ok(call.scalar::<T>(i)?.to_i128()));
        let integer = |i| number(i).map(|number: i128| <i64 as Number>::from_i128(number));
        let (times, at) = (size(integer(1)?)?, axis(integer(2)?, rank)?);
        return Ok((0..rank).map(|i| if i == at { times } else { 1 }).collect());
    }
    let given = call.integers(1)?;
    if given.len() != rank {
        let reason = format!("{} repeats of a tensor with {rank} dimensions", given.len());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    given.iter().map(|times| size(*times)).collect()
}

fn tile_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (shape, repeats) = (call.shape(0)?, repeats(call)?);
    let dims = shape.iter().zip(&repeats).map(|(dim, times)| dim.saturating_mul(*times));
    Ok(vec![OutSpec::tensor(call.dtype(0)?, dims.collect::<Vec<_>>())])
}

fn tile(cx: &mut RunCx<'_>) -> Result<()> {
    let (from, to, repeats) = (cx.shape(0)?, cx.out_shape(0)?, repeats(cx)?);
    // The last axis that is repeated, with those behind it, is moved as one run.
    let repeated = repeats.iter().copied().enumerate().rfind(|(_, times)| *times != 1);
    let (last, times) = repeated.unwrap_or((0, 1)); // without one, everything is moved once
    let len = count(from.part(last..)?);
    let outer = from.iter().zip(to).zip(strides(&from)).take(last);
    let places: Vec<Vec<usize>> = match count(to) {
        0 => Vec::new(),
        _ => outer.map(|((from, to), by)| (0..*to).map(|i| i % from * by).collect()).collect(),
    };
    let run = |from| std::iter::repeat_n(Run::Copy { input: 0, from, len }, times);
    arrange(cx, 0, sums(&places).into_iter().flat_map(run))
}

fn where_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shapes = (0..3).map(|i| call.shape(i)).collect::<Result<Vec<_>>>()?;
    Ok(vec![OutSpec::tensor(call.dtype(1)?, broadcast(&shapes)?)])
}

fn where_(cx: &mut RunCx<'_>) -> Result<()> {
    let (condition, to) = (cx.input::<bool>(0)?, cx.out_shape(0)?);
    let strides = |i| Ok::<_, Error>(broadcast_strides(&cx.shape(i)?, to));
    let (of_c, of_x, of_y) = (strides(0)?, strides(1)?, strides(2)?);
    let places = offsets(to, &of_c).zip(offsets(to, &of_x)).zip(offsets(to, &of_y));
    let run = |((c, x), y)| {
        if condition.get(c) == Some(&true) { Run::one(1, x) } else { Run::one(2, y) }
    };
    arrange(cx, 0, places.map(run))
}

fn constant_of_shape_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let value = call.node().attributes.tensor("value")?;
    if let Some(value) = value.filter(|value| value.element_count() != 1) {
        let reason = format!("attribute `value` has {} elements, not one", value.element_count());
        return Err(Error::new(ErrorKind::InvalidModel, reason));
    }
    let shape = call.integers(0)?.iter().map(|dim| size(*dim)).collect::<Result<Vec<_>>>()?;
    Ok(vec![OutSpec::tensor(value.map_or(DataType::Float, |value| value.dtype()), shape)])
}

fn constant_of_shape(cx: &mut RunCx<'_>) -> Result<()> {
    let Some(value) = cx.node().attributes.tensor("value")? else {
        cx.out_bytes(0)?.fill(0);
        return Ok(());
    };
    if let Some([string]) = value.strings() {
        return cx.set_strings(0, vec![string.clone(); count(cx.out_shape(0)?)]);
    }
    if value.dtype().bit_width().is_some_and(|bits| bits < 8) {
        let codes = vec![*value.unpack()?.at(0)?; count(cx.out_shape(0)?)];
        return cx.set_codes(0, &codes);
    }
    let bytes = value.as_bytes().or_bug("a number without bytes")?;
    let output = cx.out_bytes(0)?;
    output.chunks_exact_mut(bytes.len().max(1)).for_each(|element| element.copy_from_slice(bytes));
    Ok(())
}
