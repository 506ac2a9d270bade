//! TreeEnsembleClassifier: the class of each row, from what the leaves say of the classes.
//!
//! For up to two classes ONNX does not say what a score or a base value that is there for one of
//! them means. This is as in onnxruntime.

use super::forest::{self, Forest};
use super::{Aggregate, collect, elements, or_zero};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::call::Call;
use crate::kernel::run_cx::RunCx;
use crate::kernels::scores::{Classes, Label, Other, Transform, invalid, row, sizes};
use crate::numeric::Real;

/// Trees whose leaves have weights for classes.
pub(super) struct Classifier<'a> {
    pub(super) classes: Classes<'a>,
    forest: Forest,
    /// None, one for each class, or one for two classes.
    base: Vec<f64>,
    transform: Transform,
    /// Whether all weights are for one of two classes.
    is_binary: bool,
    /// What a score says of the other class.
    other: Other,
}

/// The scores of a row before they are transformed, and its label.
struct Decision<R> {
    scores: Scores<R>,
    label: Label,
}

enum Scores<R> {
    All(Vec<R>),
    /// One, which is that of two classes.
    Both(R),
    /// The first of two. The second has no score.
    First(R),
}

impl<'a> Classifier<'a> {
    pub(super) fn of(call: &Call<'a>) -> Result<Self> {
        let classes = Classes::of(call, "classlabels_strings", "classlabels_int64s")?;
        let (forest, base) =
            (Forest::of_leaves(call, "class")?, forest::floats(call, "base_values")?);
        let [_, features] = sizes(call)?;
        forest.check(features, classes.len())?;
        let is_for_two = classes.len() == 2 && base.len() == 1;
        if classes.len() == 0 || !(base.is_empty() || base.len() == classes.len() || is_for_two) {
            let (labels, base) = (classes.len(), base.len());
            return Err(invalid(format!("there are {labels} class labels for {base} base values")));
        }
        let mut weighted: Vec<_> = forest.weights().map(|(class, _)| *class).collect();
        weighted.sort_unstable();
        weighted.dedup();
        let is_negative = forest.weights().any(|(_, weight)| *weight < 0.0);
        Ok(Self {
            is_binary: classes.len() == 2 && weighted.len() == 1,
            other: if is_negative { Other::Negative } else { Other::Rest },
            transform: Transform::of(call)?,
            classes,
            forest,
            base,
        })
    }

    pub(super) fn classify<R: Real>(&self, cx: &mut RunCx<'_>) -> Result<()> {
        let [rows, features] = sizes(cx)?;
        let input = elements::<R>(cx)?;
        let mut output = cx.output_if::<f32>(1)?.into_iter().flatten();
        let mut sums: Vec<Option<R>> = vec![None; self.classes.len()];
        let mut labels = Vec::with_capacity(rows);
        for i in 0..rows {
            collect(&self.forest, row(&input, i, features)?, Aggregate::Sum, &mut sums)?;
            let Decision { scores, label } = self.decide(&sums)?;
            labels.push(label);
            // The scores end first, so that no place is passed over.
            let scores = self.transformed(scores).into_iter();
            scores.zip(output.by_ref()).for_each(|(score, y)| *y = f32::of(score.to_f64()));
        }
        self.classes.write(cx, &labels)
    }

    fn decide<R: Real>(&self, sums: &[Option<R>]) -> Result<Decision<R>> {
        match *sums {
            [sum] => {
                let score = or_zero(self.with_base(sum, 0));
                Ok(Decision { scores: Scores::All(vec![score]), label: self.label(score) })
            }
            [first, second] => Ok(self.of_two(first, second)),
            _ => self.of_many(sums),
        }
    }

    /// The class with the highest score has the row; one without a weight or a base value has none.
    fn of_many<R: Real>(&self, sums: &[Option<R>]) -> Result<Decision<R>> {
        let sums: Vec<_> =
            sums.iter().enumerate().map(|(i, sum)| self.with_base(*sum, i)).collect();
        let mut best: Option<(usize, R)> = None;
        for (i, score) in sums.iter().enumerate().filter_map(|(i, sum)| Some((i, (*sum)?))) {
            if best.is_none_or(|(_, highest)| score > highest) {
                best = Some((i, score));
            }
        }
        let best = best.ok_or_else(|| {
            Error::new(ErrorKind::Value, "the leaves of a row have no weight for any class")
        })?;
        let scores = sums.into_iter().map(or_zero).collect();
        Ok(Decision { scores: Scores::All(scores), label: Label::Class(best.0) })
    }

    /// A class without a weight has the score 0, whatever its base value.
    fn of_two<R: Real>(&self, first: Option<R>, second: Option<R>) -> Decision<R> {
        let base = |i| self.base.get(i).map_or(R::ZERO, |base| R::of(*base));
        let score = first.map_or(R::ZERO, |a| a + base(0));
        match (self.base.len(), second) {
            // What the leaves say of the second class is not used, nor is the first base value.
            (2, Some(_)) => {
                let second = base(1) + or_zero(first);
                let first = first.map_or(R::ZERO, |_| -second);
                Decision { scores: Scores::All(vec![first, second]), label: self.label(second) }
            }
            (2, None) => {
                let scores = Scores::All(vec![score, R::ZERO]);
                Decision { scores, label: self.label(score) }
            }
            (_, Some(second)) => {
                let scores = Scores::All(vec![score, second]);
                Decision { scores, label: self.label(second) }
            }
            (len, None) => {
                let is_both = self.is_binary || len == 0;
                let scores = if is_both { Scores::Both(score) } else { Scores::First(score) };
                Decision { scores, label: self.label(score) }
            }
        }
    }

    fn with_base<R: Real>(&self, sum: Option<R>, i: usize) -> Option<R> {
        let base = self.base.get(i).map(|base| R::of(*base));
        match (sum, base) {
            (Some(sum), Some(base)) => Some(sum + base),
            (sum, base) => sum.or(base),
        }
    }

    /// The label of a row whose score is that of the second class: the number 1 or 0 where both
    /// classes have weights.
    fn label<R: Real>(&self, score: R) -> Label {
        let least = if self.other == Other::Rest { R::of(0.5) } else { R::ZERO };
        match self.is_binary {
            true => Label::Class(usize::from(score > least)),
            false => Label::Is(score > R::ZERO),
        }
    }

    fn transformed<R: Real>(&self, scores: Scores<R>) -> Vec<R> {
        match scores {
            Scores::All(mut scores) => {
                self.transform.apply(&mut scores);
                scores
            }
            Scores::Both(score) => {
                let other = if self.is_binary { self.other } else { Other::Negative };
                self.transform.both(score, other).to_vec()
            }
            // onnxruntime leaves the place of the second as it was, which is 0 here.
            Scores::First(score) => {
                let mut scores = [score];
                self.transform.apply(&mut scores);
                vec![scores[0], R::ZERO]
            }
        }
    }
}
