//! Support vector machines:
//! [SVMClassifier](https://onnx.ai/onnx/operators/onnx_aionnxml_SVMClassifier.html) and
//! [SVMRegressor](https://onnx.ai/onnx/operators/onnx_aionnxml_SVMRegressor.html).
//!
//! Both are computed in FLOAT, and without support vectors they are linear. A classifier with
//! support vectors decides between each pair of classes, and the class with the most of these
//! decisions is that of the row.

mod coupling;

use onnx_container_proto::DataType;

use self::coupling::couple;
use super::scores::{
    Classes, Label, Other, Transform, as_floats, check_len, dot, first_highest, invalid, row, sizes,
};
use super::words::meaning_of;
use crate::error::Result;
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::Real;
use crate::numeric::broadcast::size;

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("SVMClassifier", infer_classifier, classify).domain("ai.onnx.ml"),
    Builtin::new("SVMRegressor", infer_regressor, regress).domain("ai.onnx.ml"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Linear,
    Poly,
    Rbf,
    Sigmoid,
}

const KINDS: [(&str, Kind); 4] = [
    ("LINEAR", Kind::Linear),
    ("POLY", Kind::Poly),
    ("RBF", Kind::Rbf),
    ("SIGMOID", Kind::Sigmoid),
];

/// How alike two rows of features are.
#[derive(Debug, Clone, Copy)]
struct Likeness {
    kind: Kind,
    gamma: f32,
    coef0: f32,
    degree: f32,
}

impl Likeness {
    fn of(call: &Call<'_>) -> Result<Self> {
        let kind = meaning_of(call, "kernel_type", &KINDS, Kind::Linear)?;
        let parameters = call.node().attributes.floats_or("kernel_params", &[])?;
        match *parameters {
            [gamma, coef0, degree] => Ok(Self { kind, gamma, coef0, degree }),
            [] if kind == Kind::Linear => Ok(Self { kind, gamma: 0.0, coef0: 0.0, degree: 0.0 }),
            _ => {
                let found = parameters.len();
                let reason =
                    format!("`kernel_params` has {found} elements, not gamma, coef0 and degree");
                Err(invalid(reason))
            }
        }
    }

    fn of_rows(self, a: &[f32], b: &[f32]) -> f32 {
        let scaled = || self.gamma * dot(a, b) + self.coef0;
        match self.kind {
            Kind::Linear => dot(a, b),
            Kind::Poly => self.power(scaled()),
            Kind::Sigmoid => Real::tanh(scaled()),
            Kind::Rbf => {
                let apart = a.iter().zip(b).map(|(a, b)| a - b);
                let sum = apart.fold(0.0, |sum, apart| sum + apart * apart);
                Real::exp(-self.gamma * sum)
            }
        }
    }

    fn power(self, x: f32) -> f32 {
        match self.degree {
            2.0 => x * x,
            3.0 => x * x * x,
            degree => Real::pow(x, degree),
        }
    }
}

/// The support vectors, all of one length.
#[derive(Debug, Clone, Copy)]
struct Vectors<'a> {
    elements: &'a [f32],
    count: usize,
    features: usize,
    likeness: Likeness,
}

impl<'a> Vectors<'a> {
    fn of(call: &Call<'a>, count: usize, features: usize) -> Result<Self> {
        let elements = call.node().attributes.floats_or("support_vectors", &[])?;
        check_len("support_vectors", elements.len(), count.checked_mul(features))?;
        Ok(Self { elements, count, features, likeness: Likeness::of(call)? })
    }

    /// How alike `features` and each support vector are.
    fn alike(&self, features: &[f32]) -> Result<Vec<f32>> {
        let vector = |i| row(self.elements, i, self.features);
        (0..self.count).map(|i| Ok(self.likeness.of_rows(features, vector(i)?))).collect()
    }
}

fn floats<'a>(call: &Call<'a>, name: &str) -> Result<&'a [f32]> {
    call.node().attributes.floats_or(name, &[])
}

/// The first element of `rho`, which is added to every score that is not that of a pair.
fn offset(call: &Call<'_>) -> Result<f32> {
    let rho = floats(call, "rho")?.first().copied();
    rho.ok_or_else(|| invalid("`rho` has no elements"))
}

/// A regressor.
struct Regressor<'a> {
    /// `None` for a linear one.
    vectors: Option<Vectors<'a>>,
    coefficients: &'a [f32],
    offset: f32,
    is_one_class: bool,
}

impl<'a> Regressor<'a> {
    fn of(call: &Call<'a>) -> Result<Self> {
        let [_, features] = sizes(call)?;
        // One score is what onnxruntime does not transform here at all; the word has to be one.
        Transform::of(call)?;
        let count = size(call.int_or("n_supports", 0)?)
            .map_err(|_| invalid("`n_supports`, the number of vectors, is negative"))?;
        let vectors = Vectors::of(call, count, features)?;
        let coefficients = floats(call, "coefficients")?;
        let needed = if count > 0 { count } else { features };
        check_len("coefficients", coefficients.len(), Some(needed))?;
        check_len("rho", floats(call, "rho")?.len(), Some(1))?;
        Ok(Self {
            vectors: (count > 0).then_some(vectors),
            coefficients,
            offset: offset(call)?,
            is_one_class: call.flag("one_class", false)?,
        })
    }

    fn score(&self, features: &[f32]) -> Result<f32> {
        let sum = match &self.vectors {
            Some(vectors) => dot(&vectors.alike(features)?, self.coefficients),
            None => dot(features, self.coefficients),
        };
        Ok(match (self.is_one_class, sum + self.offset) {
            (false, score) => score,
            (true, score) if score > 0.0 => 1.0,
            (true, _) => -1.0,
        })
    }
}

fn infer_regressor(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Regressor::of(call)?;
    let [rows, _] = sizes(call)?;
    Ok(vec![OutSpec::tensor(DataType::Float, [rows, 1])])
}

fn regress(cx: &mut RunCx<'_>) -> Result<()> {
    let [_, features] = sizes(cx)?;
    let (regressor, input) = (Regressor::of(cx)?, as_floats(cx)?);
    for (i, y) in cx.output::<f32>(0)?.iter_mut().enumerate() {
        *y = regressor.score(row(&input, i, features)?)?;
    }
    Ok(())
}

/// A classifier.
struct Classifier<'a> {
    classes: Classes<'a>,
    model: Model<'a>,
    coefficients: &'a [f32],
    /// `prob_a` and `prob_b` of each pair; empty where scores are not made probabilities.
    sigmoids: (&'a [f32], &'a [f32]),
    transform: Transform,
}

enum Model<'a> {
    /// A score for each class, to which all add the same.
    Linear { features: usize, offset: f32 },
    /// A score for each pair of classes, to which each adds its own.
    Pairs { vectors: Vectors<'a>, of_class: Vec<usize>, offsets: &'a [f32] },
}

/// The scores of a row and the class that it belongs to, before they are transformed.
struct Decision {
    scores: Vec<f32>,
    class: usize,
}

impl<'a> Classifier<'a> {
    fn of(call: &Call<'a>) -> Result<Self> {
        let [_, features] = sizes(call)?;
        let classes = Classes::of(call, "classlabels_strings", "classlabels_ints")?;
        if classes.len() == 0 {
            return Err(invalid("there are no class labels"));
        }
        let of_class = call.ints_or("vectors_per_class", &[])?;
        let of_class: Option<Vec<_>> = of_class.iter().map(|n| usize::try_from(*n).ok()).collect();
        let of_class = of_class.ok_or_else(|| invalid("`vectors_per_class` has a negative one"))?;
        let count = of_class.iter().try_fold(0_usize, |sum, n| sum.checked_add(*n));
        let count = count.ok_or_else(|| invalid("`vectors_per_class` has too many"))?;
        let vectors = Vectors::of(call, count, features)?;
        let coefficients = floats(call, "coefficients")?;
        let sigmoids = (floats(call, "prob_a")?, floats(call, "prob_b")?);
        check_len("prob_b", sigmoids.1.len(), Some(sigmoids.0.len()))?;
        let transform = Transform::of(call)?;
        let model = if count == 0 {
            check_len("coefficients", coefficients.len(), classes.len().checked_mul(features))?;
            Model::Linear { features, offset: offset(call)? }
        } else {
            let offsets = floats(call, "rho")?;
            check_pairs(&classes, &of_class, [coefficients, offsets, sigmoids.0])?;
            Model::Pairs { vectors, of_class, offsets }
        };
        Ok(Self { classes, model, coefficients, sigmoids, transform })
    }

    fn is_probable(&self) -> bool {
        !self.sigmoids.0.is_empty()
    }

    /// How many scores are written for a row.
    fn columns(&self) -> usize {
        let classes = self.classes.len();
        match self.model {
            Model::Pairs { .. } if classes > 2 && !self.is_probable() => pairs(classes),
            _ => classes,
        }
    }

    fn decide(&self, features: &[f32]) -> Result<Decision> {
        match &self.model {
            Model::Linear { features: len, offset } => {
                let score = |i| Ok(dot(features, row(self.coefficients, i, *len)?) + offset);
                let scores = (0..self.classes.len()).map(score).collect::<Result<Vec<_>>>()?;
                let class = self.class_of_linear(&scores)?;
                Ok(Decision { scores, class })
            }
            Model::Pairs { vectors, of_class, offsets } => {
                let alike = vectors.alike(features)?;
                let scores = self.of_pairs(&alike, of_class, offsets)?;
                let mut votes = vec![0_usize; of_class.len()];
                for ((i, j), score) in all_pairs(of_class.len()).zip(&scores) {
                    *votes.at_mut(if *score > 0.0 { i } else { j })? += 1;
                }
                Ok(Decision { scores, class: first_highest(&votes) })
            }
        }
    }

    /// The class with the highest score. In onnxruntime the second of two also has a row of which
    /// any score is above zero or, where no coefficient is negative, from 0.5 on.
    fn class_of_linear(&self, scores: &[f32]) -> Result<usize> {
        let best = first_highest(scores);
        let highest = *scores.at(best)?;
        let all_positive = self.coefficients.iter().all(|x| *x >= 0.0);
        let is_second = if all_positive { highest >= 0.5 } else { highest > 0.0 };
        Ok(if self.classes.len() == 2 && !self.is_probable() && is_second { 1 } else { best })
    }

    /// The score of each pair of classes, of which the first has those above zero. Products are
    /// added in DOUBLE.
    fn of_pairs(&self, alike: &[f32], of_class: &[usize], offsets: &[f32]) -> Result<Vec<f32>> {
        let mut parts = Vec::with_capacity(of_class.len());
        let mut next = 0_usize;
        for count in of_class {
            let start = next;
            next = next.saturating_add(*count);
            parts.push(start..next);
        }
        // Of the coefficients of a vector, one for each other class, number `other`.
        let add = |sum: f64, class: usize, other: usize| {
            let part = parts.at(class)?;
            let vectors = alike.part(part.clone())?;
            let own = row(self.coefficients, other, alike.len())?.part(part.clone())?;
            let pairs = own.iter().zip(vectors);
            Ok::<_, crate::error::Error>(
                pairs.fold(sum, |sum, (c, alike)| sum + f64::from(c * alike)),
            )
        };
        let score = |((i, j), offset): ((usize, usize), &f32)| {
            let sum = add(add(0.0, i, j - 1)?, j, i)? + f64::from(*offset);
            Ok(f32::of(sum))
        };
        all_pairs(of_class.len()).zip(offsets).map(score).collect()
    }

    /// What is written for a row with these scores.
    fn written(&self, mut scores: Vec<f32>) -> Result<Vec<f32>> {
        if let (Model::Pairs { .. }, true) = (&self.model, self.is_probable()) {
            scores = self.probabilities(&scores)?;
        } else if let (Model::Pairs { .. }, [score]) = (&self.model, &*scores) {
            let is_plain = self.transform == Transform::None;
            let other = if is_plain { Other::Negative } else { Other::Rest };
            return Ok(self.transform.both(*score, other).to_vec());
        }
        self.transform.apply(&mut scores);
        Ok(scores)
    }

    /// The probability of each class, from those that the sigmoid of each pair gives its first one.
    fn probabilities(&self, scores: &[f32]) -> Result<Vec<f32>> {
        let (a, b) = self.sigmoids;
        let first = scores.iter().zip(a.iter().zip(b)).map(|(score, (a, b))| {
            let p = 1.0 - super::activation::sigmoid(score * a + b);
            p.clamp(1e-7, 1.0 - 1e-7)
        });
        couple(self.classes.len(), all_pairs(self.classes.len()).zip(first))
    }
}

/// How many pairs there are of so many classes.
fn pairs(classes: usize) -> usize {
    classes.saturating_mul(classes.saturating_sub(1)) / 2
}

/// The pairs of so many classes: (0, 1), (0, 2), .., (1, 2), ..
fn all_pairs(classes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..classes).flat_map(move |i| (i + 1..classes).map(move |j| (i, j)))
}

/// Whether there are attributes for each pair of classes.
fn check_pairs(
    classes: &Classes<'_>,
    of_class: &[usize],
    [coefficients, offsets, sigmoids]: [&[f32]; 3],
) -> Result<()> {
    if classes.len() < 2 {
        return Err(invalid("there is one class label, and support vectors decide between two"));
    }
    check_len("vectors_per_class", of_class.len(), Some(classes.len()))?;
    let (vectors, others) = (of_class.iter().sum::<usize>(), classes.len() - 1);
    check_len("coefficients", coefficients.len(), vectors.checked_mul(others))?;
    let pairs = pairs(classes.len());
    check_len("rho", offsets.len(), Some(pairs))?;
    if !sigmoids.is_empty() {
        check_len("prob_a", sigmoids.len(), Some(pairs))?;
    }
    Ok(())
}

fn infer_classifier(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let classifier = Classifier::of(call)?;
    let [rows, _] = sizes(call)?;
    Ok(classifier.classes.specs(rows, classifier.columns()))
}

fn classify(cx: &mut RunCx<'_>) -> Result<()> {
    let [rows, features] = sizes(cx)?;
    let classifier = Classifier::of(cx)?;
    let (input, mut output) = (as_floats(cx)?, cx.output_if::<f32>(1)?.into_iter().flatten());
    let mut labels = Vec::with_capacity(rows);
    for i in 0..rows {
        let Decision { scores, class } = classifier.decide(row(&input, i, features)?)?;
        labels.push(Label::Class(class));
        let written = classifier.written(scores)?;
        // The scores end first, so that no place is passed over.
        written.into_iter().zip(output.by_ref()).for_each(|(score, y)| *y = score);
    }
    classifier.classes.write(cx, &labels)
}
