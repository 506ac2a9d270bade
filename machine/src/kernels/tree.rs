//! Ensembles of decision trees:
//! [TreeEnsemble](https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html) and
//! [TreeEnsembleRegressor](https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleRegressor.html).
//!
//! Both are read into one [`Forest`]. Features are compared as `f64`, which is exact; the weights of leaves are
//! added in the order of the trees.

mod forest;

use onnx_container::DataType;

use self::forest::Forest;
use crate::broadcast::size;
use crate::call::{Call, OutSpec, RunCx};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::numeric::{Float, Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("TreeEnsemble", infer, ensemble).domain("ai.onnx.ml"),
    Builtin::new("TreeEnsembleRegressor", infer_regressor, regressor).domain("ai.onnx.ml"),
];

/// What becomes of the weights that a row of input collects for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Average,
    Sum,
    Min,
    Max,
}

/// What becomes of the sums of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transform {
    None,
    Softmax,
    Logistic,
    SoftmaxZero,
    Probit,
}

const AGGREGATES: [(&str, Aggregate); 4] = [
    ("AVERAGE", Aggregate::Average),
    ("SUM", Aggregate::Sum),
    ("MIN", Aggregate::Min),
    ("MAX", Aggregate::Max),
];

const TRANSFORMS: [(&str, Transform); 5] = [
    ("NONE", Transform::None),
    ("SOFTMAX", Transform::Softmax),
    ("LOGISTIC", Transform::Logistic),
    ("SOFTMAX_ZERO", Transform::SoftmaxZero),
    ("PROBIT", Transform::Probit),
];

/// The entry of `names` that attribute `name` has: a number in TreeEnsemble, a string in the older operators.
fn choice<V: Copy>(call: &Call<'_>, name: &str, names: &[(&str, V)], default: usize) -> Result<V> {
    let by_number = call.node().op_type == "TreeEnsemble";
    let index = if by_number {
        let default = i64::try_from(default).map_err(Error::internal)?;
        usize::try_from(call.int_or(name, default)?).ok()
    } else {
        let default = names.get(default).map_or("", |(known, _)| *known);
        let asked = call.str_or(name, default)?;
        names.iter().position(|(known, _)| *known == asked)
    };
    index.and_then(|index| names.get(index)).map(|(_, value)| *value).ok_or_else(|| {
        Error::new(ErrorKind::InvalidModel, format!("the value of attribute `{name}` is not known"))
    })
}

/// The rows and features of the input, and the number of targets.
fn sizes(call: &Call<'_>) -> Result<[usize; 3]> {
    match *call.shape(0)? {
        [rows, features] => Ok([rows, features, size(call.int_or("n_targets", 0)?)?]),
        _ => Err(Error::new(ErrorKind::Shape, "the input is not a matrix")),
    }
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let [rows, _, targets] = sizes(call)?;
    Ok(vec![OutSpec::tensor(call.dtype(0)?, [rows, targets])])
}

fn infer_regressor(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let [rows, _, targets] = sizes(call)?;
    Ok(vec![OutSpec::tensor(DataType::Float, [rows, targets])])
}

fn ensemble(cx: &mut RunCx<'_>) -> Result<()> {
    let forest = Forest::of_ensemble(cx)?;
    for_type!(cx.dtype(0)?, floats, T => predict::<T, T>(cx, &forest, &[]))
}

fn regressor(cx: &mut RunCx<'_>) -> Result<()> {
    let forest = Forest::of_targets(cx)?;
    let base = forest::floats(cx, "base_values")?;
    for_type!(cx.dtype(0)?, numbers, T => predict::<T, f32>(cx, &forest, &base))
}

fn predict<T: Number, O: Float>(cx: &mut RunCx<'_>, forest: &Forest, base: &[f64]) -> Result<()> {
    let [rows, features, targets] = sizes(cx)?;
    forest.check_targets(targets)?;
    let aggregate = choice(cx, "aggregate_function", &AGGREGATES, 1)?;
    let transform = choice(cx, "post_transform", &TRANSFORMS, 0)?;
    let (input, output) = (cx.input::<T>(0)?, cx.output::<O>(0)?);
    let mut row = vec![0.0; features];
    for i in 0..rows {
        let from = input.get(i * features..(i + 1) * features).unwrap_or_default();
        row.iter_mut().zip(from).for_each(|(to, x)| *to = x.to_f64());
        let mut sums = collect::<O::Real>(forest, &row, targets, aggregate)?;
        for (sum, base) in sums.iter_mut().zip(base) {
            *sum += O::Real::of(*base);
        }
        transform.apply(&mut sums);
        let to = output.get_mut(i * targets..(i + 1) * targets).unwrap_or_default();
        to.iter_mut().zip(sums).for_each(|(y, sum)| *y = O::round_from(sum));
    }
    Ok(())
}

/// What one row of features collects, for every target.
fn collect<R: Real>(
    forest: &Forest,
    row: &[f64],
    targets: usize,
    aggregate: Aggregate,
) -> Result<Vec<R>> {
    let mut sums: Vec<Option<R>> = vec![None; targets];
    let trees = R::of(forest.trees() as f64);
    for leaf in forest.leaves(row) {
        for (target, weight) in leaf? {
            let sum = sums.get_mut(*target).ok_or_else(|| {
                let reason = format!("a leaf belongs to target {target} of {targets}");
                Error::new(ErrorKind::InvalidModel, reason)
            })?;
            let weight = R::of(*weight);
            let term = if aggregate == Aggregate::Average { weight / trees } else { weight };
            *sum = Some(match (*sum, aggregate) {
                (None, _) => term,
                (Some(sum), Aggregate::Average | Aggregate::Sum) => sum + term,
                (Some(sum), Aggregate::Min) => {
                    if term < sum {
                        term
                    } else {
                        sum
                    }
                }
                (Some(sum), Aggregate::Max) => {
                    if term > sum {
                        term
                    } else {
                        sum
                    }
                }
            });
        }
    }
    Ok(sums.into_iter().map(|sum| sum.unwrap_or(R::ZERO)).collect())
}

impl Transform {
    fn apply<R: Real>(self, sums: &mut [R]) {
        match self {
            Self::None => {}
            Self::Softmax => softmax(sums, |_| true),
            // What is zero stays zero.
            Self::SoftmaxZero => softmax(sums, |x| x != R::ZERO),
            Self::Logistic => {
                sums.iter_mut().for_each(|x| *x = super::activation::sigmoid(*x));
            }
            Self::Probit => sums.iter_mut().for_each(|x| *x = probit(*x)),
        }
    }
}

fn softmax<R: Real>(sums: &mut [R], takes_part: impl Fn(R) -> bool) {
    let highest = sums.iter().fold(R::LOWEST, |max, x| if *x > max { *x } else { max });
    let mut total = R::ZERO;
    for x in sums.iter_mut().filter(|x| takes_part(**x)) {
        *x = (*x - highest).exp();
        total += *x;
    }
    let parts = sums.iter_mut().filter(|x| takes_part(**x));
    parts.for_each(|x| *x = *x / total);
}

/// The quantile function of the normal distribution, with Winitzki's approximation of the inverse of erf.
fn probit<R: Real>(p: R) -> R {
    let x = p + p - R::ONE;
    let ln = ((R::ONE - x) * (R::ONE + x)).ln();
    let a = R::of(0.147);
    let v = R::of(2.0 / std::f64::consts::PI) / a + ln / R::of(2.0);
    let root = ((v * v - ln / a).sqrt() - v).sqrt();
    R::of(2.0).sqrt() * if x < R::ZERO { -root } else { root }
}
