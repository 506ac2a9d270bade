//! [Unique](https://onnx.ai/onnx/operators/onnx__Unique.html): the distinct elements or slices, the
//! index of the first of each, the number of the distinct one that each element is, and how often
//! each occurs.
//!
//! Slices are ordered as their elements from first to last. NaN is equal to itself and behind all
//! others.

use std::cmp::Ordering;

use onnx_container_proto::{DataType, Element};

use crate::error::{Error, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{around, axis, count};
use crate::numeric::for_type;

pub(super) const KERNELS: &[Builtin] = &[Builtin::new("Unique", infer, unique)];

/// What is found: for each unique slice the index of its first one and the number of equal ones,
/// and for each slice which unique one it is.
struct Found {
    first: Vec<usize>,
    counts: Vec<usize>,
    inverse: Vec<usize>,
}

/// The axis; `None` where the elements are taken one by one.
fn along(call: &Call<'_>) -> Result<Option<usize>> {
    let given = call.node().attributes.int("axis")?;
    given.map(|at| axis(at, call.rank(0)?)).transpose()
}

/// Slices, elements of each before and behind the axis: (outer, dim, inner).
fn layout(call: &Call<'_>) -> Result<(usize, usize, usize)> {
    let shape = call.shape(0)?;
    Ok(along(call)?.map_or((1, count(&shape), 1), |at| around(&shape, at)))
}

fn found(call: &Call<'_>) -> Result<Found> {
    match call.dtype(0)? {
        DataType::String => group(call, call.strings(0)?, |a, b| a.as_ref().cmp(b.as_ref()), 1),
        DataType::Complex64 => group(call, parts::<f32>(call)?, compare, 2),
        DataType::Complex128 => group(call, parts::<f64>(call)?, compare, 2),
        dtype => for_type!(dtype, elements, T => group(call, call.input::<T>(0)?, compare, 1)),
    }
}

/// The real and imaginary parts of complex numbers, in turn.
fn parts<'a, T: Element>(call: &Call<'a>) -> Result<&'a [T]> {
    let bytes = call.bytes(0)?;
    if bytes.is_empty() {
        Ok(&[])
    } else {
        bytemuck::checked::try_cast_slice(bytes).map_err(Error::internal)
    }
}

#[allow(clippy::eq_op, reason = "what is not equal to itself is NaN")]
fn compare<T: PartialOrd>(a: &T, b: &T) -> Ordering {
    a.partial_cmp(b).unwrap_or_else(|| (a != a).cmp(&(b != b)))
}

/// Groups the slices of `elements`, which have `width` numbers for each element.
fn group<T>(
    call: &Call<'_>,
    elements: &[T],
    compare: impl Fn(&T, &T) -> Ordering,
    width: usize,
) -> Result<Found> {
    let (outer, dim, inner) = layout(call)?;
    let inner = inner.saturating_mul(width);
    let outer = if elements.is_empty() { 0 } else { outer };
    let part = |o: usize, i: usize| {
        let from = (o * dim + i) * inner;
        elements.debug_part(from..from + inner)
    };
    let ordering = |a: usize, b: usize| {
        // Slices without a difference are equal.
        let pairs = (0..outer).flat_map(|o| part(o, a).iter().zip(part(o, b)));
        pairs.map(|(a, b)| compare(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    // Of slices without elements there is one, however many there are.
    let slices = if elements.is_empty() { dim.min(1) } else { dim };
    let mut order: Vec<usize> = (0..slices).collect();
    order.sort_by(|a, b| ordering(*a, *b)); // stable: the first of equal ones stays in front
    let groups: Vec<&[usize]> = order.chunk_by(|a, b| ordering(*a, *b).is_eq()).collect();
    numbered(groups, slices, call.flag("sorted", true)?)
}

/// The groups in the order of their slices, or of the first slice of each.
fn numbered(mut groups: Vec<&[usize]>, slices: usize, is_sorted: bool) -> Result<Found> {
    if !is_sorted {
        groups.sort_by_key(|group| group.first().copied());
    }
    let mut inverse = vec![0; slices];
    for (number, group) in groups.iter().enumerate() {
        for slice in *group {
            *inverse.at_mut(*slice)? = number;
        }
    }
    let first = groups.iter().filter_map(|group| group.first().copied()).collect();
    Ok(Found { first, counts: groups.iter().map(|group| group.len()).collect(), inverse })
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let found = found(call)?;
    let unique = found.first.len();
    let mut shape = call.shape(0)?;
    match along(call)?.and_then(|at| shape.get_mut(at)) {
        Some(dim) => *dim = unique,
        None => shape = vec![unique],
    }
    let integers = |len| OutSpec::tensor(DataType::Int64, [len]);
    let y = OutSpec::tensor(call.dtype(0)?, shape);
    Ok(vec![y, integers(unique), integers(found.inverse.len()), integers(unique)])
}

fn unique(cx: &mut RunCx<'_>) -> Result<()> {
    let found = found(cx)?;
    for (j, numbers) in [(1, &found.first), (2, &found.inverse), (3, &found.counts)] {
        let output = cx.output_if::<i64>(j)?.into_iter().flatten();
        for (to, number) in output.zip(numbers) {
            *to = i64::try_from(*number).map_err(Error::internal)?;
        }
    }
    if !cx.has_output(0) {
        return Ok(());
    }
    let (outer, dim, len) = layout(cx)?;
    let row = |o: usize| {
        let first = found.first.iter();
        first.map(move |i| Run::Copy { input: 0, from: (o * dim + i) * len, len })
    };
    arrange(cx, 0, (0..outer).flat_map(row))
}
