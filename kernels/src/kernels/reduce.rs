//! Reductions: sums, products, extremes and norms over axes.
//!
//! Every element is combined with the total that it belongs to, from the first element to the last,
//! so axes need not be moved before. Operator `ReduceSum` is specified at
//! <https://onnx.ai/onnx/operators/onnx__ReduceSum.html>, and the others likewise.

use onnx_container_proto::{DataType, Element};

use crate::error::Result;
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{axes, offsets};
use crate::numeric::{Number, Real, for_type, number};

/// A reduction of every number type: what the total starts with, how an element changes it, and,
/// where there is such a function, what becomes of it in the end. The expressions are generic over
/// [`Number`] and [`Real`]; the function of a total of integers is computed in 64 bits.
macro_rules! reduction {
    ($name:literal, $start:ident, |$total:ident, $x:ident| $step:expr) => {{
        fn step<N: Number>($total: N, $x: N) -> N {
            $step
        }
        Builtin::new($name, infer, |cx| {
            for_type!(cx.dtype(0)?, numbers, T => {
                let start = <<T as Number>::Sum as Number>::$start;
                let add = |total, x: T| step(total, Number::to_sum(x));
                reduce(cx, start, add, |total| <T as Number>::from_sum(total))
            })
        })
    }};
    ($name:literal, |$total:ident, $x:ident| $step:expr, $sum:ident => $finish:expr) => {{
        fn step<N: Number>($total: N, $x: N) -> N {
            $step
        }
        fn finish<R: Real>($sum: R) -> R {
            $finish
        }
        Builtin::new($name, infer, |cx| match cx.dtype(0)?.is_integer() {
            true => for_type!(cx.dtype(0)?, integers, T => {
                let add = |total, x: T| step(total, x);
                reduce(cx, 0, add, |total| <T as Number>::from_f64(finish(Number::to_f64(total))))
            }),
            false => for_type!(cx.dtype(0)?, floats, T => {
                let add = |total, x: T| step(total, Number::to_sum(x));
                reduce(cx, 0.0, add, |total| <T as Number>::from_sum(finish(total)))
            }),
        })
    }};
}

pub(super) const KERNELS: &[Builtin] = &[
    reduction!("ReduceSum", ZERO, |total, x| total.add(x)),
    reduction!("ReduceProd", ONE, |total, x| total.mul(x)),
    reduction!("ReduceL1", ZERO, |total, x| total.add(x.abs())),
    reduction!("ReduceSumSquare", ZERO, |total, x| total.add(x.mul(x))),
    reduction!("ReduceL2", |total, x| total.add(x.mul(x)), sum => sum.sqrt()),
    reduction!("ReduceLogSum", |total, x| total.add(x), sum => sum.ln()),
    Builtin::new("ReduceLogSumExp", infer, log_sum_exp),
    Builtin::new("ReduceMean", infer, mean),
    Builtin::new("ReduceMax", infer, max),
    Builtin::new("ReduceMin", infer, min),
];

/// For each axis, whether it is reduced. Without axes all are, or none with `noop_with_empty_axes`.
fn reduced(call: &Call<'_>) -> Result<Vec<bool>> {
    let rank = call.rank(0)?;
    let given = call.ints_or_input_or_empty("axes", 1)?;
    let chosen = axes(&given, rank)?;
    let all = given.is_empty() && !call.flag("noop_with_empty_axes", false)?;
    Ok((0..rank).map(|i| all || chosen.contains(&i)).collect())
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let keep = call.flag("keepdims", true)?;
    let (shape, reduced) = (call.shape(0)?, reduced(call)?);
    let dims = shape.iter().zip(&reduced).filter(|(_, gone)| keep || !**gone);
    let shape: Vec<_> = dims.map(|(dim, gone)| if *gone { 1 } else { *dim }).collect();
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

/// The two innermost loops of a reduction.
trait Combine<T, A> {
    /// Combines all elements of `row` with one total.
    fn all(&self, total: &mut A, row: &[T]);
    /// Combines each element of `row` with a total of its own.
    fn each(&self, totals: &mut [A], row: &[T]);
}

struct Step<F>(F);

impl<T: Copy, A: Copy, F: Fn(A, T) -> A> Combine<T, A> for Step<F> {
    fn all(&self, total: &mut A, row: &[T]) {
        let mut all = *total;
        for x in row {
            all = self.0(all, *x);
        }
        *total = all;
    }

    fn each(&self, totals: &mut [A], row: &[T]) {
        for (total, x) in totals.iter_mut().zip(row) {
            *total = self.0(*total, *x);
        }
    }
}

/// The dimensions of a tensor, each with whether it is reduced. Neighbours that are treated alike
/// are one.
pub(super) struct Dims(Vec<(usize, bool)>);

impl Dims {
    pub(super) fn new(shape: &[usize], reduced: &[bool]) -> Self {
        let mut merged: Vec<(usize, bool)> = Vec::new();
        for (dim, is_reduced) in shape.iter().zip(reduced) {
            match merged.last_mut() {
                Some((len, before)) if before == is_reduced => *len = len.saturating_mul(*dim),
                _ => merged.push((*dim, *is_reduced)),
            }
        }
        Self(merged)
    }

    /// How many elements each total has.
    pub(super) fn terms(&self) -> usize {
        let reduced = self.0.iter().filter(|(_, is_reduced)| *is_reduced);
        reduced.fold(1, |terms, (dim, _)| terms.saturating_mul(*dim))
    }

    /// The lengths of dimensions, and how far apart the totals of neighbours in each are.
    fn walk(dims: &[(usize, bool)]) -> (Vec<usize>, Vec<usize>) {
        let mut stride = 1_usize;
        let mut strides = Vec::with_capacity(dims.len());
        for (dim, is_reduced) in dims.iter().rev() {
            strides.push(if *is_reduced { 0 } else { stride });
            stride = stride.saturating_mul(if *is_reduced { 1 } else { *dim });
        }
        strides.reverse();
        (dims.iter().map(|(dim, _)| *dim).collect(), strides)
    }

    /// Combines the elements with their totals, by `step`, from the first to the last.
    pub(super) fn fold<T: Copy, A: Copy>(
        &self,
        elements: &[T],
        totals: &mut [A],
        step: impl Fn(A, T) -> A,
    ) {
        self.rows(elements, totals, &Step(step));
    }

    /// The loop of [`fold`](Self::fold), once for each type.
    fn rows<T, A>(&self, elements: &[T], totals: &mut [A], step: &dyn Combine<T, A>) {
        let Some(((len, is_reduced), _)) = self.0.split_last() else {
            step.each(totals, elements);
            return;
        };
        let (mut shape, mut strides) = Self::walk(&self.0);
        shape.pop();
        strides.pop();
        for (row, at) in elements.chunks_exact((*len).max(1)).zip(offsets(&shape, &strides)) {
            let targets = totals.debug_part_mut(at..);
            match (targets, is_reduced) {
                ([total, ..], true) => step.all(total, row),
                (targets, _) => step.each(targets, row),
            }
        }
    }

    /// Calls `f` with each element and its total.
    pub(super) fn each<T, A: Copy>(
        &self,
        elements: &mut [T],
        totals: &[A],
        f: impl Fn(&mut T, A),
    ) -> Result<()> {
        let (shape, strides) = Self::walk(&self.0);
        for (element, at) in elements.iter_mut().zip(offsets(&shape, &strides)) {
            f(element, *totals.at(at)?);
        }
        Ok(())
    }
}

/// Every total of input 0: it begins as `start`, `step` combines each element with it, and `finish`
/// is applied in the end.
fn reduce<T: Element, A: Copy>(
    cx: &mut RunCx<'_>,
    start: A,
    step: impl Fn(A, T) -> A,
    finish: impl Fn(A) -> T,
) -> Result<()> {
    reduce_by(cx, start, &Step(step), &finish)
}

/// [`reduce`], once for each type.
fn reduce_by<T: Element, A: Copy>(
    cx: &mut RunCx<'_>,
    start: A,
    step: &dyn Combine<T, A>,
    finish: &dyn Fn(A) -> T,
) -> Result<()> {
    let dims = Dims::new(&cx.shape(0)?, &reduced(cx)?);
    let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    let mut totals = vec![start; output.len()];
    dims.rows(input, &mut totals, step);
    for (y, total) in output.iter_mut().zip(totals) {
        *y = finish(total);
    }
    Ok(())
}

/// The sum divided by the number of elements; that of integers is computed in 64-bit floats and
/// rounded towards zero.
fn mean(cx: &mut RunCx<'_>) -> Result<()> {
    let terms = Dims::new(&cx.shape(0)?, &reduced(cx)?).terms();
    if cx.dtype(0)?.is_integer() {
        return for_type!(cx.dtype(0)?, integers, T => {
            let add = |sum, x: T| sum + Number::to_f64(x);
            reduce(cx, 0.0, add, |sum: f64| <T as Number>::from_f64(sum / number::<f64>(terms)))
        });
    }
    for_type!(cx.dtype(0)?, floats, T => {
        let by = number::<<T as Number>::Sum>(terms);
        let add = |sum, x: T| sum + Number::to_sum(x);
        reduce(cx, 0.0, add, |sum| <T as Number>::from_sum(sum / by))
    })
}

fn max(cx: &mut RunCx<'_>) -> Result<()> {
    if cx.dtype(0)? == DataType::Bool {
        return reduce(cx, false, |any, x: bool| any | x, |any| any);
    }
    for_type!(cx.dtype(0)?, numbers, T => reduce(cx, T::LOWEST, higher::<T>, |max| max))
}

fn min(cx: &mut RunCx<'_>) -> Result<()> {
    if cx.dtype(0)? == DataType::Bool {
        return reduce(cx, true, |all, x: bool| all & x, |all| all);
    }
    for_type!(cx.dtype(0)?, numbers, T => reduce(cx, T::HIGHEST, lower::<T>, |min| min))
}

/// The higher of two; what is not a number is higher than all.
pub(super) fn higher<T: Number>(a: T, b: T) -> T {
    if a.is_nan() || a > b { a } else { b }
}

/// The lower of two; what is not a number is lower than all.
pub(super) fn lower<T: Number>(a: T, b: T) -> T {
    if a.is_nan() || a < b { a } else { b }
}

/// `log(sum(exp(x - max))) + max`, so that no exponential is infinite.
fn log_sum_exp(cx: &mut RunCx<'_>) -> Result<()> {
    if cx.dtype(0)?.is_integer() {
        return for_type!(cx.dtype(0)?, integers, T => {
            log_sum_exp_of(cx, |x: T| Number::to_f64(x), <T as Number>::from_f64)
        });
    }
    for_type!(cx.dtype(0)?, floats, T => {
        log_sum_exp_of(cx, |x: T| Number::to_sum(x), <T as Number>::from_sum)
    })
}

fn log_sum_exp_of<T: Element, R: Real>(
    cx: &mut RunCx<'_>,
    widen: impl Fn(T) -> R,
    round: impl Fn(R) -> T,
) -> Result<()> {
    let dims = Dims::new(&cx.shape(0)?, &reduced(cx)?);
    let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    let mut totals = vec![(R::LOWEST, R::ZERO); output.len()];
    dims.fold(input, &mut totals, |(max, sum), x| (higher(max, widen(x)), sum));
    let finite = |max: R| if max == R::LOWEST || max == R::HIGHEST { R::ZERO } else { max };
    totals.iter_mut().for_each(|(max, _)| *max = finite(*max));
    dims.fold(input, &mut totals, |(max, sum), x| (max, sum + (widen(x) - max).exp()));
    output.iter_mut().zip(totals).for_each(|(y, (max, sum))| *y = round(sum.ln() + max));
    Ok(())
}
