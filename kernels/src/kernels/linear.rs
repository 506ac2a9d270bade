//! Linear models:
//! [LinearClassifier](https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html) and
//! [LinearRegressor](https://onnx.ai/onnx/operators/onnx_aionnxml_LinearRegressor.html).
//!
//! The score of a class or target is the sum of the products of features and coefficients, from the
//! first to the last, and then its intercept, in FLOAT whatever the features are.

use onnx_container_proto::DataType;

use super::scores::{
    Classes, Label, Other, Transform, as_floats, check_len, dot, first_highest, invalid, row, sizes,
};
use crate::error::Result;
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{each_of, size};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("LinearClassifier", infer_classifier, classify).domain("ai.onnx.ml"),
    Builtin::new("LinearRegressor", infer_regressor, regress).domain("ai.onnx.ml"),
];

/// What the scores of a row are made with.
struct Linear<'a> {
    features: usize,
    /// How many scores a row has.
    scores: usize,
    coefficients: &'a [f32],
    /// None, or one for each score.
    intercepts: &'a [f32],
    transform: Transform,
}

impl<'a> Linear<'a> {
    fn of(call: &Call<'a>, scores: usize, features: usize) -> Result<Self> {
        let attributes = &call.node().attributes;
        let coefficients = attributes.floats_or("coefficients", &[])?;
        let intercepts = attributes.floats_or("intercepts", &[])?;
        check_len("coefficients", coefficients.len(), scores.checked_mul(features))?;
        if !intercepts.is_empty() {
            check_len("intercepts", intercepts.len(), Some(scores))?;
        }
        let transform = Transform::of(call)?;
        Ok(Self { features, scores, coefficients, intercepts, transform })
    }

    fn scores(&self, features: &[f32]) -> Result<Vec<f32>> {
        let score = |i| {
            let sum = dot(features, row(self.coefficients, i, self.features)?);
            Ok(if self.intercepts.is_empty() { sum } else { sum + self.intercepts.at(i)? })
        };
        (0..self.scores).map(score).collect()
    }
}

/// The labels, and the model, which has a score for each, or one for two or none.
fn classifier<'a>(call: &Call<'a>) -> Result<(Classes<'a>, Linear<'a>)> {
    let [_, features] = sizes(call)?;
    let classes = Classes::of(call, "classlabels_strings", "classlabels_ints")?;
    let attributes = &call.node().attributes;
    let coefficients = attributes.floats_or("coefficients", &[])?.len();
    let scores = match attributes.floats("intercepts")? {
        None | Some([]) => each_of(coefficients, features),
        Some(intercepts) => intercepts.len(),
    };
    let linear = Linear::of(call, scores, features)?;
    let fits = match scores {
        0 => false,
        1 => matches!(classes.len(), 0 | 2),
        scores => scores == classes.len(),
    };
    if !fits {
        let labels = classes.len();
        return Err(invalid(format!("there are {labels} class labels for {scores} scores")));
    }
    Ok((classes, linear))
}

fn infer_classifier(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (classes, linear) = classifier(call)?;
    let [rows, _] = sizes(call)?;
    Ok(classes.specs(rows, linear.scores.max(classes.len())))
}

fn classify(cx: &mut RunCx<'_>) -> Result<()> {
    let [rows, features] = sizes(cx)?;
    let (classes, linear) = classifier(cx)?;
    let (input, mut output) = (as_floats(cx)?, cx.output_if::<f32>(1)?.into_iter().flatten());
    let mut labels = Vec::with_capacity(rows);
    for i in 0..rows {
        let mut scores = linear.scores(row(&input, i, features)?)?;
        labels.push(match (&*scores, classes.len()) {
            ([score], 0) => Label::Is(*score > 0.0),
            ([score], _) => Label::Class(usize::from(*score > 0.0)),
            (scores, _) => Label::Class(first_highest(scores)),
        });
        match (&*scores, classes.len()) {
            ([score], 2) => scores = linear.transform.both(*score, Other::Rest).to_vec(),
            _ => linear.transform.apply(&mut scores),
        }
        // The scores end first, so that no place is passed over.
        scores.into_iter().zip(output.by_ref()).for_each(|(score, y)| *y = score);
    }
    classes.write(cx, &labels)
}

fn regressor<'a>(call: &Call<'a>) -> Result<Linear<'a>> {
    let [_, features] = sizes(call)?;
    let targets = size(call.int_or("targets", 1)?)
        .map_err(|_| invalid("`targets`, the number of targets, is negative"))?;
    Linear::of(call, targets, features)
}

fn infer_regressor(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let [rows, _] = sizes(call)?;
    Ok(vec![OutSpec::tensor(DataType::Float, [rows, regressor(call)?.scores])])
}

fn regress(cx: &mut RunCx<'_>) -> Result<()> {
    let [rows, features] = sizes(cx)?;
    let linear = regressor(cx)?;
    let (input, mut output) = (as_floats(cx)?, cx.output::<f32>(0)?.iter_mut());
    for i in 0..rows {
        let mut scores = linear.scores(row(&input, i, features)?)?;
        linear.transform.apply(&mut scores);
        // The scores end first, so that no place is passed over.
        scores.into_iter().zip(output.by_ref()).for_each(|(score, y)| *y = score);
    }
    Ok(())
}
