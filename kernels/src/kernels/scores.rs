//! Rows of features, scores of classes or targets, and labels: what the operators of `ai.onnx.ml`
//! that predict have in common.
//!
//! ONNX leaves open what becomes of a single score, and its reference differs from onnxruntime, for
//! which converters write these models. Here it is as in onnxruntime.

use std::borrow::Cow;

use onnx_container_proto::{Buffer, DataType};

use super::activation::sigmoid;
use super::words;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::{Number, Real, for_type};

pub(super) fn invalid(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidModel, reason)
}

/// Whether attribute `name` has as many elements as it has to.
pub(super) fn check_len(name: &str, found: usize, needed: Option<usize>) -> Result<()> {
    match needed {
        Some(needed) if found == needed => Ok(()),
        Some(needed) => Err(invalid(format!("`{name}` has {found} elements, not {needed}"))),
        None => Err(invalid(format!("`{name}` would have too many elements"))),
    }
}

/// The rows of input 0 and the features of each: a matrix, or a vector, which is one row.
pub(super) fn sizes(call: &Call<'_>) -> Result<[usize; 2]> {
    match *call.shape(0)? {
        [features] => Ok([1, features]),
        [rows, features] => Ok([rows, features]),
        ref other => {
            let reason = format!("the input is of shape {other:?}, not a matrix");
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

/// The elements of input 0 in FLOAT.
pub(super) fn as_floats<'a>(call: &Call<'a>) -> Result<Cow<'a, [f32]>> {
    if call.dtype(0)? == DataType::Float {
        return Ok(Cow::Borrowed(call.input(0)?));
    }
    for_type!(call.dtype(0)?, numbers, T => {
        let elements = call.input::<T>(0)?.iter().map(|x| f32::of(x.to_odd_f64()));
        Ok(Cow::Owned(elements.collect()))
    })
}

/// Row `i` of `elements`.
pub(super) fn row<T>(elements: &[T], i: usize, len: usize) -> Result<&[T]> {
    let end = i.saturating_add(1).saturating_mul(len);
    elements.part(i.saturating_mul(len)..end)
}

/// The sum of the products, from the first to the last.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b)
}

/// What becomes of the scores of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transform {
    None,
    Softmax,
    Logistic,
    SoftmaxZero,
    Probit,
}

/// In the order of their numbers in TreeEnsemble.
pub(super) const TRANSFORMS: [(&str, Transform); 5] = [
    ("NONE", Transform::None),
    ("SOFTMAX", Transform::Softmax),
    ("LOGISTIC", Transform::Logistic),
    ("SOFTMAX_ZERO", Transform::SoftmaxZero),
    ("PROBIT", Transform::Probit),
];

/// What the score of one of two classes says of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Other {
    /// It has what is left to 1.
    Rest,
    /// It has the negative score.
    Negative,
}

impl Transform {
    /// The transform that attribute `post_transform` names.
    pub(super) fn of(call: &Call<'_>) -> Result<Self> {
        words::meaning_of(call, "post_transform", &TRANSFORMS, Self::None)
    }

    /// Transforms the scores of a row. In onnxruntime a single one is transformed by PROBIT alone.
    pub(super) fn apply<R: Real>(self, scores: &mut [R]) {
        match self {
            Self::Probit => scores.iter_mut().for_each(|x| *x = probit(*x)),
            _ if scores.len() < 2 => {}
            Self::None => {}
            Self::Softmax => softmax(scores),
            Self::SoftmaxZero => softmax_zero(scores),
            Self::Logistic => scores.iter_mut().for_each(|x| *x = sigmoid(*x)),
        }
    }

    /// The transformed scores of two classes, of which one has a score. In onnxruntime they go
    /// where the other class comes first, PROBIT leaves the second place as it was, here 0, and
    /// SOFTMAX does nothing.
    pub(super) fn both<R: Real>(self, score: R, other: Other) -> [R; 2] {
        match (self, other) {
            (Self::Probit, _) => [probit(score), R::ZERO],
            (Self::Logistic, _) => [sigmoid(-score), sigmoid(score)],
            (_, Other::Rest) => [R::ONE - score, score],
            (_, Other::Negative) => [-score, score],
        }
    }
}

fn highest<R: Real>(scores: &[R]) -> R {
    scores.iter().fold(R::LOWEST, |max, x| if *x > max { *x } else { max })
}

fn softmax<R: Real>(scores: &mut [R]) {
    let highest = highest(scores);
    let mut total = R::ZERO;
    for x in scores.iter_mut() {
        *x = (*x - highest).exp();
        total += *x;
    }
    scores.iter_mut().for_each(|x| *x = *x / total);
}

/// A score of zero stays zero. In onnxruntime one within 1e-7 of it is nearly zero, and has no part
/// in the sum.
fn softmax_zero<R: Real>(scores: &mut [R]) {
    let (highest, nearly) = (highest(scores), R::of(1e-7));
    let (mut total, scale) = (R::ZERO, (-highest).exp());
    for x in scores.iter_mut() {
        if *x > nearly || *x < -nearly {
            *x = (*x - highest).exp();
            total += *x;
        } else {
            *x = *x * scale;
        }
    }
    scores.iter_mut().for_each(|x| *x = *x / total);
}

/// The quantile function of the normal distribution, with Winitzki's approximation of the inverse
/// of erf. It is computed in FLOAT, as in onnxruntime, because around 0.5 the roundings are most of
/// what is left.
fn probit<R: Real>(p: R) -> R {
    const A: f32 = 0.147;
    let x = 2.0 * f32::of(p.to_f64()) - 1.0;
    let ln = Real::ln((1.0 - x) * (1.0 + x));
    let v = 2.0 / (std::f32::consts::PI * A) + 0.5 * ln;
    let root = Real::sqrt(Real::sqrt(v * v - 1.0 / A * ln) - v);
    R::of(f64::from(std::f32::consts::SQRT_2 * if x < 0.0 { -root } else { root }))
}

/// The labels of classes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Classes<'a> {
    Strings(&'a [Vec<u8>]),
    Ints(&'a [i64]),
}

/// What a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// The class at this place.
    Class(usize),
    /// The number 1 or 0, whatever the labels are.
    Is(bool),
}

impl<'a> Classes<'a> {
    /// Those of the two attributes, of which one may have any.
    pub(super) fn of(call: &Call<'a>, strings: &str, ints: &str) -> Result<Self> {
        let of_strings = call.node().attributes.strings_or(strings, &[])?;
        let of_ints = call.ints_or(ints, &[])?;
        match (of_strings, of_ints) {
            ([], ints) => Ok(Self::Ints(ints)),
            (strings, []) => Ok(Self::Strings(strings)),
            _ => {
                let reason = format!("`{strings}` and `{ints}` have labels, and one may");
                Err(invalid(reason))
            }
        }
    }

    pub(super) fn len(self) -> usize {
        match self {
            Self::Strings(strings) => strings.len(),
            Self::Ints(ints) => ints.len(),
        }
    }

    /// The label of each of `rows` rows, and `columns` scores of each.
    pub(super) fn specs(self, rows: usize, columns: usize) -> Vec<OutSpec> {
        let scores = OutSpec::tensor(DataType::Float, [rows, columns]);
        vec![OutSpec::tensor(self.dtype(), [rows]), scores]
    }

    pub(super) fn dtype(self) -> DataType {
        match self {
            Self::Strings(_) => DataType::String,
            Self::Ints(_) => DataType::Int64,
        }
    }

    /// Writes the labels to output 0.
    pub(super) fn write(self, cx: &mut RunCx<'_>, labels: &[Label]) -> Result<()> {
        if !cx.has_output(0) {
            return Ok(());
        }
        match self {
            Self::Strings(strings) => {
                let texts: Vec<_> = strings.iter().map(|s| Buffer::from(s.clone())).collect();
                let text = |label: &Label| {
                    let place = match *label {
                        Label::Class(place) => place,
                        Label::Is(yes) => usize::from(yes),
                    };
                    texts.get(place).cloned().ok_or_else(|| no_label(place, texts.len()))
                };
                cx.set_strings(0, labels.iter().map(text).collect::<Result<_>>()?)
            }
            Self::Ints(ints) => {
                for (y, label) in cx.output::<i64>(0)?.iter_mut().zip(labels) {
                    *y = match *label {
                        Label::Class(place) => {
                            let label = ints.get(place).copied();
                            label.ok_or_else(|| no_label(place, ints.len()))?
                        }
                        Label::Is(yes) => i64::from(yes),
                    };
                }
                Ok(())
            }
        }
    }
}

fn no_label(place: usize, labels: usize) -> Error {
    Error::new(ErrorKind::Value, format!("a row belongs to class {place}, of {labels} labels"))
}

/// The place of the first highest score; 0 where there is none.
pub(super) fn first_highest<T: PartialOrd + Copy>(scores: &[T]) -> usize {
    let mut best: Option<(usize, T)> = None;
    for (i, score) in scores.iter().enumerate() {
        if best.is_none_or(|(_, highest)| *score > highest) {
            best = Some((i, *score));
        }
    }
    best.map_or(0, |(i, _)| i)
}
