//! Sequences: SequenceEmpty, SequenceConstruct, SequenceInsert, SequenceErase, SequenceAt,
//! SequenceLength, SplitToSequence, ConcatFromSequence.
//!
//! Operator `SequenceAt` is specified at <https://onnx.ai/onnx/operators/onnx__SequenceAt.html>,
//! and the others likewise. A sequence lies outside of M; a tensor that is put into a sequence is
//! copied, but the elements that two sequences share are not.

use onnx_container_proto::DataType;

use super::pattern::out_type_or;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::{Exact, OrBug};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::memory::elements::Elements;
use crate::numeric::broadcast::{around, axis, size};
use crate::value::{Type, Value};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("SequenceEmpty", empty_infer, empty),
    Builtin::new("SequenceConstruct", construct_infer, construct),
    Builtin::new("SequenceInsert", insert_infer, insert),
    Builtin::new("SequenceErase", same, erase),
    Builtin::new("SequenceAt", at_infer, at),
    Builtin::new("SequenceLength", |_| Ok(vec![OutSpec::tensor(DataType::Int64, [])]), length),
    Builtin::new("SplitToSequence", split_infer, split),
    Builtin::new("ConcatFromSequence", concat_infer, concat),
];

/// What is inferred for an output that is `value`.
pub(super) fn spec_of(value: &Value) -> OutSpec {
    match value {
        Value::Tensor(tensor) => OutSpec::tensor(tensor.dtype(), tensor.shape()),
        other => OutSpec::Outside(other.ty()),
    }
}

/// Writes `value` to output `j`, wherever it lies.
pub(super) fn give(cx: &mut RunCx<'_>, j: usize, value: &Value) -> Result<()> {
    match value {
        Value::Tensor(tensor) if tensor.dtype() != DataType::String => {
            let bytes = tensor.as_bytes().or_bug("numbers without bytes")?;
            let output = cx.out_bytes(j)?;
            if bytes.len() != output.len() {
                return Err(Error::internal("a value of another length than was inferred"));
            }
            output.copy_from_slice(bytes);
            Ok(())
        }
        other => cx.set(j, other.clone()),
    }
}

/// A sequence of tensors of type `dtype`.
fn of_tensors(dtype: DataType) -> OutSpec {
    OutSpec::Outside(Type::Sequence(Box::new(Type::Tensor(dtype))))
}

/// Input `i` as a sequence: the type of its elements, and the elements.
fn sequence<'a>(call: &Call<'a>, i: usize) -> Result<(&'a Type, &'a [Value])> {
    match call.outside(i)? {
        Value::Sequence(ty, values) => Ok((ty, values)),
        other => Err(call.wrong_type(i, &format!("{}, not a sequence", other.ty()))),
    }
}

/// The output has the type of input 0, a sequence.
fn same(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    match call.ty(0) {
        Some(ty @ Type::Sequence(_)) => Ok(vec![OutSpec::Outside(ty)]),
        Some(ty) => Err(call.wrong_type(0, &format!("{ty}, not a sequence"))),
        None => Err(Error::new(ErrorKind::Input, "input 0 is missing")),
    }
}

fn empty_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![of_tensors(out_type_or(call, DataType::Float)?)])
}

fn empty(cx: &mut RunCx<'_>) -> Result<()> {
    let element = Type::Tensor(out_type_or(cx, DataType::Float)?);
    cx.set(0, Value::Sequence(element, Vec::new()))
}

fn construct_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let dtype = call.dtype(0)?;
    match (1..call.input_count()).find(|i| call.dtype(*i).ok() != Some(dtype)) {
        Some(other) => {
            Err(call.wrong_type(other, &format!("not a tensor of {dtype}, as input 0 is")))
        }
        None => Ok(vec![of_tensors(dtype)]),
    }
}

fn construct(cx: &mut RunCx<'_>) -> Result<()> {
    let values = (0..cx.input_count()).map(|i| cx.to_value(i)).collect::<Result<_>>()?;
    cx.set(0, Value::Sequence(Type::Tensor(cx.dtype(0)?), values))
}

/// The position in input `i`, from 0 to below `places`; where there is none, the last place.
fn position(call: &Call<'_>, i: usize, len: usize, places: usize) -> Result<usize> {
    let outside = |at: &str| {
        let reason = format!("position {at} in a sequence of {len} elements");
        Error::new(ErrorKind::Value, reason)
    };
    if !call.has_input(i) {
        return places.checked_sub(1).ok_or_else(|| outside("at the end"));
    }
    let [at] = *call.integers(i)? else {
        return Err(Error::new(ErrorKind::Shape, "the position is not one integer"));
    };
    let back = usize::try_from(at.unsigned_abs()).ok();
    let from_start = if at < 0 { back.and_then(|back| len.checked_sub(back)) } else { back };
    from_start.filter(|at| *at < places).ok_or_else(|| outside(&at.to_string()))
}

fn insert_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    match (call.ty(0), call.ty(1)) {
        (Some(Type::Sequence(ty)), Some(new)) if *ty != new => {
            Err(call.wrong_type(1, &format!("{new}, the elements of the sequence are {ty}")))
        }
        _ => same(call),
    }
}

fn insert(cx: &mut RunCx<'_>) -> Result<()> {
    let (ty, values) = sequence(cx, 0)?;
    let at = position(cx, 2, values.len(), values.len() + 1)?;
    let new = cx.to_value(1)?;
    let mut inserted = values.to_vec();
    inserted.insert(at, new);
    cx.set(0, Value::Sequence(ty.clone(), inserted))
}

fn erase(cx: &mut RunCx<'_>) -> Result<()> {
    let (ty, values) = sequence(cx, 0)?;
    let at = position(cx, 1, values.len(), values.len())?;
    let mut left = values.to_vec();
    left.remove(at);
    cx.set(0, Value::Sequence(ty.clone(), left))
}

fn element<'a>(call: &Call<'a>) -> Result<&'a Value> {
    let (_, values) = sequence(call, 0)?;
    let at = position(call, 1, values.len(), values.len())?;
    values.get(at).ok_or_else(|| Error::internal("a position outside of its sequence"))
}

fn at_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![spec_of(element(call)?)])
}

fn at(cx: &mut RunCx<'_>) -> Result<()> {
    give(cx, 0, element(cx)?)
}

fn length(cx: &mut RunCx<'_>) -> Result<()> {
    let len = i64::try_from(sequence(cx, 0)?.1.len()).map_err(Error::internal)?;
    cx.output::<i64>(0)?.fill(len);
    Ok(())
}

fn split_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![of_tensors(call.dtype(0)?)])
}

/// The lengths of the parts of `dim` elements: input 1 is one length for all, or a list.
fn lengths(call: &Call<'_>, dim: usize) -> Result<Vec<usize>> {
    let given = if call.has_input(1) { call.integers(1)? } else { vec![1] };
    let given = given.iter().map(|len| size(*len)).collect::<Result<Vec<_>>>()?;
    if call.has_input(1) && call.rank(1)? > 0 {
        if given.iter().fold(0, |sum: usize, len| sum.saturating_add(*len)) == dim {
            return Ok(given);
        }
        let reason = format!("the parts {given:?} are not the {dim} elements of the axis");
        return Err(Error::new(ErrorKind::Value, reason));
    }
    match given.as_slice() {
        [len] if *len > 0 => {
            Ok((0..dim.div_ceil(*len)).map(|i| (*len).min(dim - i * len)).collect())
        }
        _ => Err(Error::new(ErrorKind::Value, format!("a length of {given:?} elements"))),
    }
}

fn split(cx: &mut RunCx<'_>) -> Result<()> {
    let mut shape = cx.shape(0)?;
    let at = axis(cx.int_or("axis", 0)?, shape.len())?;
    let dim = *shape.at(at)?;
    let lengths = lengths(cx, dim)?;
    let is_dropped = !cx.flag("keepdims", true)? && !cx.has_input(1);
    let dtype = cx.dtype(0)?;
    let bytes = cx.bytes(0).map_or(0, <[u8]>::len);
    cx.check_sequence(lengths.len(), shape.len(), bytes)?;
    let whole = Elements::of(cx.to_value(0)?.tensor()?)?;
    let (outer, _, inner) = if shape.contains(&0) { (0, 0, 0) } else { around(&shape, at) };
    let mut values = Vec::with_capacity(lengths.len());
    let mut start = 0;
    for len in lengths {
        let mut part = whole.none();
        for o in 0..outer {
            part.extend(&whole, (o * dim + start) * inner, len * inner)?;
        }
        start += len;
        *shape.at_mut(at)? = len;
        let mut of_part = shape.clone();
        if is_dropped {
            of_part.remove(at);
        }
        values.push(part.into_value(dtype, &of_part)?);
    }
    cx.set(0, Value::Sequence(Type::Tensor(dtype), values))
}

/// The shape of every element of the sequence with the new axis in it, and that axis.
fn concat_shapes(call: &Call<'_>) -> Result<(Vec<Vec<usize>>, usize)> {
    let (_, values) = sequence(call, 0)?;
    let shapes = values.iter().map(|value| Ok(value.tensor()?.shape()));
    let mut shapes = shapes.collect::<Result<Vec<_>>>()?;
    let Some(first) = shapes.first() else {
        return Err(Error::new(ErrorKind::Value, "the sequence has no elements"));
    };
    let is_new = call.flag("new_axis", false)?;
    let at = axis(call.int("axis")?, first.len() + usize::from(is_new))?;
    if is_new {
        shapes.iter_mut().for_each(|shape| shape.insert(at.min(shape.len()), 1));
    }
    Ok((shapes, at))
}

fn concat_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (ty, _) = sequence(call, 0)?;
    let Type::Tensor(dtype) = ty else {
        return Err(call.wrong_type(0, &format!("a sequence of {ty}, not of tensors")));
    };
    let (shapes, at) = concat_shapes(call)?;
    Ok(vec![OutSpec::tensor(*dtype, super::movement::joined(&shapes, at)?)])
}

fn concat(cx: &mut RunCx<'_>) -> Result<()> {
    let (dtype, shape) = (cx.out_dtype(0)?, cx.out_shape(0)?);
    let (shapes, at) = concat_shapes(cx)?;
    let sources = sequence(cx, 0)?
        .1
        .iter()
        .map(|value| Elements::of(value.tensor()?))
        .collect::<Result<Vec<_>>>()?;
    let outer = if shape.contains(&0) { 0 } else { around(shape, at).0 };
    let Some(mut joined) = sources.first().map(Elements::none) else { return Ok(()) };
    for o in 0..outer {
        for (source, shape) in sources.iter().zip(&shapes) {
            let (_, dim, inner) = around(shape, at);
            joined.extend(source, o * dim * inner, dim * inner)?;
        }
    }
    give(cx, 0, &joined.into_value(dtype, shape)?)
}
