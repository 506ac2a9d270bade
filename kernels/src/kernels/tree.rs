//! Ensembles of decision trees:
//! [TreeEnsemble](https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html),
//! [TreeEnsembleRegressor](https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleRegressor.html)
//! and
//! [TreeEnsembleClassifier](https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleClassifier.html).
//!
//! All are read into one [`Forest`]. The features of the older two are FLOAT, or DOUBLE where the
//! input is; the weights of leaves are added in this type too, in the order of the trees.

mod classes;
mod forest;

use onnx_container_proto::DataType;

use self::classes::Classifier;
use self::forest::Forest;
use super::scores::{TRANSFORMS, Transform, check_len, row, sizes};
use super::words::{meaning_of, numbered};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::size;
use crate::numeric::{Float, Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("TreeEnsemble", infer_ensemble, ensemble).domain("ai.onnx.ml"),
    Builtin::new("TreeEnsembleClassifier", infer_classifier, classify).domain("ai.onnx.ml"),
    Builtin::new("TreeEnsembleRegressor", infer_regressor, regress).domain("ai.onnx.ml"),
];

/// What becomes of the weights that a row of input collects for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Average,
    Sum,
    Min,
    Max,
}

/// In the order of their numbers in TreeEnsemble.
const AGGREGATES: [(&str, Aggregate); 4] = [
    ("AVERAGE", Aggregate::Average),
    ("SUM", Aggregate::Sum),
    ("MIN", Aggregate::Min),
    ("MAX", Aggregate::Max),
];

/// Trees whose leaves have weights for targets, and what becomes of these.
struct Regressor {
    forest: Forest,
    targets: usize,
    /// None, or one for each target.
    base: Vec<f64>,
    aggregate: Aggregate,
    transform: Transform,
}

impl Regressor {
    /// That of a TreeEnsemble. Its numbers are those of ONNX; in onnxruntime 1 is LOGISTIC and 2
    /// SOFTMAX.
    fn of_ensemble(call: &Call<'_>) -> Result<Self> {
        Self {
            forest: Forest::of_ensemble(call)?,
            targets: targets(call)?,
            base: Vec::new(),
            aggregate: numbered(call, "aggregate_function", &AGGREGATES, Aggregate::Sum)?,
            transform: numbered(call, "post_transform", &TRANSFORMS, Transform::None)?,
        }
        .checked(call)
    }

    /// That of a TreeEnsembleRegressor.
    fn of_targets(call: &Call<'_>) -> Result<Self> {
        let aggregate = meaning_of(call, "aggregate_function", &AGGREGATES, Aggregate::Sum)?;
        Self {
            forest: Forest::of_leaves(call, "target")?,
            targets: targets(call)?,
            base: forest::floats(call, "base_values")?,
            aggregate,
            transform: Transform::of(call)?,
        }
        .checked(call)
    }

    fn checked(self, call: &Call<'_>) -> Result<Self> {
        let [_, features] = sizes(call)?;
        self.forest.check(features, self.targets)?;
        if !self.base.is_empty() {
            check_len("base_values", self.base.len(), Some(self.targets))?;
        }
        Ok(self)
    }

    /// The outputs for every row of input 0, which are computed in `R`.
    #[allow(clippy::cast_precision_loss, reason = "a number of trees, by which is divided")]
    fn predict<R: Real, O: Number>(
        &self,
        cx: &mut RunCx<'_>,
        round: impl Fn(R) -> O,
    ) -> Result<()> {
        let [rows, features] = sizes(cx)?;
        let (input, mut output) = (elements::<R>(cx)?, cx.output::<O>(0)?.iter_mut());
        let trees = R::of(self.forest.trees() as f64);
        let mut sums = vec![None; self.targets];
        for i in 0..rows {
            collect(&self.forest, row(&input, i, features)?, self.aggregate, &mut sums)?;
            let score = |(j, sum): (usize, &Option<R>)| {
                // In onnxruntime one of several targets for which no leaf has a weight has no base
                // value either.
                let is_left_out = sum.is_none() && self.targets > 1;
                let sum = or_zero(*sum);
                let is_mean = self.aggregate == Aggregate::Average;
                let score = if is_mean { sum / trees } else { sum };
                let base = self.base.get(j).filter(|_| !is_left_out);
                base.map_or(score, |base| score + R::of(*base))
            };
            let mut scores: Vec<R> = sums.iter().enumerate().map(score).collect();
            self.transform.apply(&mut scores);
            // The scores end first, so that no place is passed over.
            scores.into_iter().zip(output.by_ref()).for_each(|(score, y)| *y = round(score));
        }
        Ok(())
    }
}

fn targets(call: &Call<'_>) -> Result<usize> {
    size(call.int_or("n_targets", 0)?).map_err(|_| {
        let reason = "`n_targets`, the number of targets, is negative";
        Error::new(ErrorKind::InvalidModel, reason)
    })
}

/// The elements of input 0 in `R`.
fn elements<R: Real>(call: &Call<'_>) -> Result<Vec<f64>> {
    for_type!(call.dtype(0)?, numbers, T => {
        // What is no DOUBLE becomes FLOAT in onnxruntime, integers of 64 bits too.
        let widened = |x: &T| R::of(x.to_odd_f64()).to_f64();
        Ok(call.input::<T>(0)?.iter().map(widened).collect())
    })
}

fn infer_ensemble(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let ([rows, _], regressor) = (sizes(call)?, Regressor::of_ensemble(call)?);
    Ok(vec![OutSpec::tensor(call.dtype(0)?, [rows, regressor.targets])])
}

fn ensemble(cx: &mut RunCx<'_>) -> Result<()> {
    let regressor = Regressor::of_ensemble(cx)?;
    for_type!(cx.dtype(0)?, floats, T => {
        regressor.predict::<<T as Float>::Real, T>(cx, T::round_from)
    })
}

fn infer_regressor(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let ([rows, _], regressor) = (sizes(call)?, Regressor::of_targets(call)?);
    Ok(vec![OutSpec::tensor(DataType::Float, [rows, regressor.targets])])
}

fn regress(cx: &mut RunCx<'_>) -> Result<()> {
    let regressor = Regressor::of_targets(cx)?;
    match cx.dtype(0)? {
        DataType::Double => regressor.predict::<f64, f32>(cx, f32::of),
        _ => regressor.predict::<f32, f32>(cx, |score| score),
    }
}

fn infer_classifier(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let ([rows, _], classifier) = (sizes(call)?, Classifier::of(call)?);
    Ok(classifier.classes.specs(rows, classifier.classes.len()))
}

fn classify(cx: &mut RunCx<'_>) -> Result<()> {
    let classifier = Classifier::of(cx)?;
    match cx.dtype(0)? {
        DataType::Double => classifier.classify::<f64>(cx),
        _ => classifier.classify::<f32>(cx),
    }
}

/// The sum for a target; 0 where no leaf has a weight for it.
fn or_zero<R: Real>(sum: Option<R>) -> R {
    sum.unwrap_or(R::ZERO)
}

/// What one row of features collects, for every target; `None` where no leaf has a weight for it.
///
/// Where there is one target, onnxruntime leaves out all but the first of several weights of a leaf
/// for it; here all count, as ONNX says.
fn collect<R: Real>(
    forest: &Forest,
    features: &[f64],
    aggregate: Aggregate,
    sums: &mut [Option<R>],
) -> Result<()> {
    sums.fill(None);
    for leaf in forest.leaves(features) {
        for (target, weight) in leaf? {
            let Some(sum) = sums.get_mut(*target) else {
                return Err(Error::internal("a target that was not checked"));
            };
            let weight = R::of(*weight);
            *sum = Some(match (*sum, aggregate) {
                (None, _) => weight,
                (Some(sum), Aggregate::Average | Aggregate::Sum) => sum + weight,
                (Some(sum), Aggregate::Min) => {
                    if weight < sum {
                        weight
                    } else {
                        sum
                    }
                }
                (Some(sum), Aggregate::Max) => {
                    if weight > sum {
                        weight
                    } else {
                        sum
                    }
                }
            });
        }
    }
    Ok(())
}
