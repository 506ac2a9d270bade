//! Operators along one axis: ArgMax, ArgMin, TopK, CumSum, CumProd.
//!
//! Operator `TopK` is specified at <https://onnx.ai/onnx/operators/onnx__TopK.html>, and the others
//! likewise.

use std::cmp::Ordering;

use onnx_container_proto::DataType;

use super::elementwise::same;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{around, axis, size};
use crate::numeric::lines::lines;
use crate::numeric::{Number, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new(
        "ArgMax",
        arg_infer,
        |cx| for_type!(cx.dtype(0)?, numbers, T => arg(cx, |a: T, b: T| order(a, b))),
    ),
    Builtin::new(
        "ArgMin",
        arg_infer,
        |cx| for_type!(cx.dtype(0)?, numbers, T => arg(cx, |a: T, b: T| falling(a, b))),
    ),
    Builtin::new("TopK", top_k_infer, top_k),
    Builtin::new("CumSum", same, |cx| {
        for_type!(cx.dtype(0)?, numbers, T => {
            cumulate::<T>(cx, <<T as Number>::Sum as Number>::ZERO, Number::add)
        })
    }),
    Builtin::new("CumProd", same, |cx| {
        for_type!(cx.dtype(0)?, numbers, T => {
            cumulate::<T>(cx, <<T as Number>::Sum as Number>::ONE, Number::mul)
        })
    }),
];

/// The order of numbers; what is not a number is above all.
fn order<T: Number>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// The order from the highest number to the lowest; what is not a number is still above all.
fn falling<T: Number>(a: T, b: T) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// The axis of the operator, its length, and how far apart the elements along it are.
fn line(call: &Call<'_>, at: i64) -> Result<(usize, usize, usize)> {
    let shape = call.shape(0)?;
    let at = axis(at, shape.len())?;
    let (_, dim, inner) = around(&shape, at);
    Ok((at, dim, inner))
}

fn arg_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let mut shape = call.shape(0)?;
    let (at, dim, _) = line(call, call.int_or("axis", 0)?)?;
    if dim == 0 {
        let reason = format!("axis {at} of the shape {shape:?} has no elements");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    match call.flag("keepdims", true)? {
        true => *shape.at_mut(at)? = 1,
        false => drop(shape.remove(at)),
    }
    Ok(vec![OutSpec::tensor(DataType::Int64, shape)])
}

/// The index of the greatest element by `order`; of equal ones the first, or the last if the node
/// asks for it.
fn arg<T: Number>(cx: &mut RunCx<'_>, order: impl Fn(T, T) -> Ordering) -> Result<()> {
    let (_, dim, inner) = line(cx, cx.int_or("axis", 0)?)?;
    let replaces = match cx.flag("select_last_index", false)? {
        true => |found: Ordering| found != Ordering::Less,
        false => |found: Ordering| found == Ordering::Greater,
    };
    let (input, output) = (cx.input::<T>(0)?, cx.output::<i64>(0)?);
    lines((input, dim), (output, 1), inner, |x, y| {
        let best = (0_i64..)
            .zip(x)
            .reduce(|best, next| if replaces(order(*next.1, *best.1)) { next } else { best });
        y.iter_mut().zip(best).for_each(|(y, (i, _))| *y = i);
    });
    Ok(())
}

/// How many elements are taken along the axis: an attribute before version 10, an input from then
/// on.
fn taken(call: &Call<'_>) -> Result<usize> {
    let (at, dim, _) = line(call, call.int_or("axis", -1)?)?;
    let k = size(if call.version() < 10 { call.int("k")? } else { call.scalar(1)? })?;
    if k > dim {
        let reason = format!("{k} of the {dim} elements along axis {at}");
        return Err(Error::new(ErrorKind::Value, reason));
    }
    Ok(k)
}

fn top_k_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (mut shape, k) = (call.shape(0)?, taken(call)?);
    let (at, _, _) = line(call, call.int_or("axis", -1)?)?;
    *shape.at_mut(at)? = k;
    let values = OutSpec::tensor(call.dtype(0)?, shape.clone());
    Ok(vec![values, OutSpec::tensor(DataType::Int64, shape)])
}

fn top_k(cx: &mut RunCx<'_>) -> Result<()> {
    let largest = cx.flag("largest", true)?;
    for_type!(cx.dtype(0)?, numbers, T => match largest {
        true => top_k_by(cx, |a: T, b: T| order(b, a)),
        false => top_k_by(cx, |a: T, b: T| order(a, b)),
    })
}

/// The first elements in `order`; of equal ones, that with the lower index is first.
fn top_k_by<T: Number>(cx: &mut RunCx<'_>, order: impl Fn(T, T) -> Ordering) -> Result<()> {
    let (_, dim, inner) = line(cx, cx.int_or("axis", -1)?)?;
    let (k, input) = (taken(cx)?, cx.input::<T>(0)?);
    let mut found = vec![(T::ZERO, 0_i64); cx.out_shape(0)?.iter().product()];
    let mut all = Vec::with_capacity(dim);
    let by = |a: &(T, i64), b: &(T, i64)| order(a.0, b.0).then(a.1.cmp(&b.1));
    lines((input, dim), (&mut found, k), inner, |x, y| {
        all.clear();
        all.extend(x.iter().copied().zip(0_i64..));
        if k < dim {
            all.select_nth_unstable_by(k, by);
            all.truncate(k);
        }
        all.sort_unstable_by(by);
        y.copy_from_slice(&all);
    });
    if let Some(values) = cx.output_if::<T>(0)? {
        values.iter_mut().zip(&found).for_each(|(y, (value, _))| *y = *value);
    }
    if let Some(indices) = cx.output_if::<i64>(1)? {
        indices.iter_mut().zip(&found).for_each(|(y, (_, index))| *y = *index);
    }
    Ok(())
}

/// Each element combined with all before it: from the end if `reverse`, without itself if
/// `exclusive`.
fn cumulate<T: Number>(
    cx: &mut RunCx<'_>,
    start: T::Sum,
    step: fn(T::Sum, T::Sum) -> T::Sum,
) -> Result<()> {
    let at = cx.integers(1)?;
    let [at] = at.as_slice() else {
        return Err(Error::new(ErrorKind::Shape, format!("{} axes, not one", at.len())));
    };
    let (_, dim, inner) = line(cx, *at)?;
    let (exclusive, reverse) = (cx.flag("exclusive", false)?, cx.flag("reverse", false)?);
    let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    lines((input, dim), (output, dim), inner, |x, y| {
        let mut total = start;
        let mut next = |(y, x): (&mut T, &T)| {
            let before = total;
            total = step(total, x.to_sum());
            *y = T::from_sum(if exclusive { before } else { total });
        };
        let pairs = y.iter_mut().zip(x);
        if reverse { pairs.rev().for_each(&mut next) } else { pairs.for_each(&mut next) }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_is_above_all() {
        assert_eq!(order(f32::NAN, f32::INFINITY), Ordering::Greater);
        assert_eq!(falling(f32::NAN, f32::NEG_INFINITY), Ordering::Greater);
        assert_eq!(order(1.0, f32::NAN), Ordering::Less);
        assert_eq!(order(f32::NAN, f32::NAN), Ordering::Equal);
        assert_eq!((order(1, 2), falling(1, 2)), (Ordering::Less, Ordering::Greater));
    }
}
