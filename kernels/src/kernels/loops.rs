//! Loops over elements: of one input, of two or more that broadcast.
//!
//! An operator is compiled once for each type, so what is compiled with it is one loop over slices
//! and nothing else. Where the slices are is found here, once for each type: neighbouring
//! dimensions are joined to rows as long as possible, and where an input repeats one element along
//! the rows, the loop sees a slice of its copies. What is written has one NaN.

use std::iter::repeat_n;
use std::ops::Range;

use onnx_container_proto::{DataType, Element};
use pulp::Arch;

use crate::error::{Error, Result};
use crate::exact::{Exact, OrBug};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{broadcast_strides, count, offsets};
use crate::numeric::nan::OneNan;

/// The most copies of an element that a loop sees at a time.
const COPIES: usize = 512;

/// `f` of each element of input 0.
pub(super) fn map<A: Element, B: OneNan>(cx: &mut RunCx<'_>, f: impl Fn(A) -> B) -> Result<()> {
    over(cx, &|y, x| {
        looped::<A, B>(
            #[inline(always)]
            || {
                for (y, x) in y.iter_mut().zip(x) {
                    *y = f(*x).one_nan();
                }
            },
        );
    })
}

/// Runs a loop over elements of these types, over FLOAT16 and BFLOAT16 in the widest vectors of the
/// processor: what converts them are some ten operations on integers, which other elements do not
/// need.
#[inline(always)]
fn looped<A: Element, B: Element>(each: impl FnOnce()) {
    const fn is_half(dtype: DataType) -> bool {
        matches!(dtype, DataType::Float16 | DataType::Bfloat16)
    }
    if const { is_half(A::DTYPE) || is_half(B::DTYPE) } {
        Arch::new().dispatch(each);
    } else {
        each();
    }
}

/// Calls `row` with output 0 and input 0.
fn over<A: Element, B: Element>(cx: &mut RunCx<'_>, row: &dyn Fn(&mut [B], &[A])) -> Result<()> {
    let (input, output) = (cx.input::<A>(0)?, cx.output::<B>(0)?);
    row(output, input);
    Ok(())
}

/// `f` of each pair of elements of inputs 0 and 1, which broadcast and are seen in these `shapes`.
pub(super) fn zip<A: Element, B: Element, C: OneNan>(
    cx: &mut RunCx<'_>,
    shapes: &[Vec<usize>],
    f: impl Fn(A, B) -> C,
) -> Result<()> {
    over_pairs(cx, shapes, &|y, a, b| {
        looped::<A, C>(
            #[inline(always)]
            || pairs(y, a, b, &f),
        );
    })
}

#[inline(always)]
fn pairs<A: Copy, B: Copy, C: OneNan>(y: &mut [C], a: &[A], b: &[B], f: impl Fn(A, B) -> C) {
    for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
        *y = f(*a, *b).one_nan();
    }
}

type Pairs<'f, A, B, C> = &'f dyn Fn(&mut [C], &[A], &[B]);

fn over_pairs<A: Element, B: Element, C: Element>(
    cx: &mut RunCx<'_>,
    shapes: &[Vec<usize>],
    row: Pairs<'_, A, B, C>,
) -> Result<()> {
    let (a, b) = (cx.input::<A>(0)?, cx.input::<B>(1)?);
    let rows = Rows::new(cx.out_shape(0)?, shapes);
    slices(&rows, a, b, cx.output::<C>(0)?, row)
}

/// As [`zip`], of input 0 and of `second`, which stands for input 1.
pub(super) fn zip_with<A: Element, B: Copy, C: OneNan>(
    cx: &mut RunCx<'_>,
    shapes: &[Vec<usize>],
    second: &[B],
    f: impl Fn(A, B) -> C,
) -> Result<()> {
    let rows = Rows::new(cx.out_shape(0)?, shapes);
    let (a, y) = (cx.input::<A>(0)?, cx.output::<C>(0)?);
    slices(&rows, a, second, y, &|y, a, b| pairs(y, a, b, &f))
}

fn slices<A: Copy, B: Copy, C>(
    rows: &Rows,
    a: &[A],
    b: &[B],
    y: &mut [C],
    row: Pairs<'_, A, B, C>,
) -> Result<()> {
    let (mut copies_of_a, mut copies_of_b) = (Vec::new(), Vec::new());
    rows.each(&mut |part, starts| {
        let [i, j] = starts else { return Err(Error::internal("not two operands")) };
        let a = part.of(a, *i, &mut copies_of_a)?;
        let b = part.of(b, *j, &mut copies_of_b)?;
        row(y.part_mut(part.output.clone())?, a, b);
        Ok(())
    })
}

/// All inputs, which broadcast, combined by `f` from the first to the last; the output.
pub(super) fn fold<'a, T: OneNan>(
    cx: &mut RunCx<'a>,
    shapes: &[Vec<usize>],
    f: impl Fn(T, T) -> T,
) -> Result<&'a mut [T]> {
    over_all(cx, shapes, &|y, x| {
        looped::<T, T>(
            #[inline(always)]
            || {
                for (y, x) in y.iter_mut().zip(x) {
                    *y = f(*y, *x).one_nan();
                }
            },
        );
    })
}

fn over_all<'a, T: OneNan>(
    cx: &mut RunCx<'a>,
    shapes: &[Vec<usize>],
    row: &dyn Fn(&mut [T], &[T]),
) -> Result<&'a mut [T]> {
    let (shape, output) = (cx.out_shape(0)?, cx.output::<T>(0)?);
    let mut copies = Vec::new();
    for (i, of_input) in shapes.iter().enumerate() {
        let (input, rows) = (cx.input::<T>(i)?, Rows::new(shape, std::slice::from_ref(of_input)));
        rows.each(&mut |part, starts| {
            let [start] = starts else { return Err(Error::internal("not one operand")) };
            let y = output.part_mut(part.output.clone())?;
            let x = part.of(input, *start, &mut copies)?;
            match i {
                0 => y.iter_mut().zip(x).for_each(|(y, x)| *y = x.one_nan()),
                _ => row(y, x),
            }
            Ok(())
        })?;
    }
    Ok(output)
}

/// An output as rows, along which each operand has neighbouring elements or repeats one.
#[derive(Debug)]
struct Rows {
    /// The dimensions around the rows.
    outer: Vec<usize>,
    len: usize,
    operands: Vec<Strides>,
}

/// How far apart the elements of an operand are.
#[derive(Debug)]
struct Strides {
    outer: Vec<usize>,
    repeats: bool,
}

/// A row, or a part of it.
#[derive(Debug)]
struct Part {
    output: Range<usize>,
}

/// Where an operand's elements of a part start, and whether there is only one.
#[derive(Debug, Clone, Copy)]
struct Start {
    at: usize,
    repeats: bool,
}

impl Part {
    /// The elements from `start` on, as many as the part has; `copies` is where repeated ones lie.
    fn of<'x, T: Copy>(
        &self,
        elements: &'x [T],
        start: Start,
        copies: &'x mut Vec<T>,
    ) -> Result<&'x [T]> {
        if start.repeats && self.output.len() > 1 {
            copies.clear();
            copies.extend(repeat_n(*elements.at(start.at)?, self.output.len()));
            return Ok(copies);
        }
        elements.part(start.at..start.at + self.output.len())
    }
}

impl Rows {
    /// The rows of an output of `shape`, to which operands of these `shapes` broadcast.
    fn new(shape: &[usize], shapes: &[Vec<usize>]) -> Self {
        let strides: Vec<_> = shapes.iter().map(|own| broadcast_strides(own, shape)).collect();
        let of = |i: usize| strides.iter().map(move |all| all.debug_at(i, 0));
        // From the last dimension on, each with the strides of the operands.
        let mut joined: Vec<(usize, Vec<usize>)> = Vec::new();
        for (i, dim) in shape.iter().enumerate().rev().filter(|(_, dim)| **dim != 1) {
            match joined.last_mut() {
                Some((len, last)) if of(i).eq(last.iter().map(|by| by.saturating_mul(*len))) => {
                    *len = len.saturating_mul(*dim);
                }
                _ => joined.push((*dim, of(i).collect())),
            }
        }
        joined.reverse();
        // Without a dimension of more than one element there is one element.
        let (len, inner) = joined.pop().unwrap_or((1, vec![1; shapes.len()]));
        let outer = |i: usize| joined.iter().filter_map(|(_, by)| by.get(i).copied()).collect();
        let operand = |(i, by): (usize, usize)| Strides { outer: outer(i), repeats: by == 0 };
        let operands = inner.into_iter().enumerate().map(operand).collect();
        Self { outer: joined.iter().map(|(dim, _)| *dim).collect(), len, operands }
    }

    /// Calls `f` with each part, and where it starts in the operands.
    fn each(&self, f: &mut dyn FnMut(&Part, &[Start]) -> Result<()>) -> Result<()> {
        let mut walks: Vec<_> =
            self.operands.iter().map(|operand| offsets(&self.outer, &operand.outer)).collect();
        let repeats = self.operands.iter().any(|operand| operand.repeats);
        let longest = if repeats { self.len.min(COPIES) } else { self.len }.max(1);
        let mut starts = Vec::with_capacity(walks.len());
        for row in 0..count(&self.outer) {
            starts.clear();
            for (walk, operand) in walks.iter_mut().zip(&self.operands) {
                let at = walk.next().or_bug("an operand with fewer rows than the output")?;
                starts.push(Start { at, repeats: operand.repeats });
            }
            for from in (0..self.len).step_by(longest) {
                let (first, len) = (row * self.len + from, longest.min(self.len - from));
                f(&Part { output: first..first + len }, &starts)?;
                let apart = starts.iter_mut().filter(|start| !start.repeats);
                apart.for_each(|start| start.at += len);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each element of the output, where those are that it is computed from.
    fn defined(shape: &[usize], shapes: &[Vec<usize>]) -> Vec<(usize, usize)> {
        let walk = |i: usize| {
            let strides = broadcast_strides(&shapes[i], shape);
            offsets(shape, &strides).collect::<Vec<_>>()
        };
        walk(0).into_iter().zip(walk(1)).collect()
    }

    #[test]
    fn every_broadcast_pairs_the_elements_of_the_definition() {
        let cases: &[(&[usize], &[usize], &[usize])] = &[
            (&[], &[], &[]),
            (&[2, 3], &[2, 3], &[2, 3]),
            (&[2, 3], &[2, 3], &[]),
            (&[2, 3], &[1], &[2, 3]),
            (&[2, 3, 4], &[2, 1, 4], &[3, 1]),
            (&[2, 3, 4], &[3, 1], &[2, 3, 4]),
            (&[2, 3, 4], &[2, 3, 4], &[4]),
            (&[2, 1, 3, 1, 2], &[2, 1, 1, 1, 1], &[1, 1, 3, 1, 2]),
            (&[3, 1200], &[3, 1], &[1200]),
            (&[1200, 2], &[1, 2], &[1200, 1]),
            (&[2, 0, 3], &[1, 3], &[2, 0, 1]),
            (&[1, 1], &[1], &[1, 1]),
        ];
        for (shape, a, b) in cases {
            let shapes = [a.to_vec(), b.to_vec()];
            let elements = |shape: &[usize]| (0..count(shape)).collect::<Vec<_>>();
            let mut found = vec![(9, 9); count(shape)];
            slices(
                &Rows::new(shape, &shapes),
                &elements(a),
                &elements(b),
                &mut found,
                &|y, a, b| {
                    y.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (a, b))| *y = (*a, *b));
                },
            )
            .unwrap();
            assert_eq!(found, defined(shape, &shapes), "{shape:?} of {a:?} and {b:?}");
        }
    }
}
