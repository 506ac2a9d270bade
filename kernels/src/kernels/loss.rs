//! Losses: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.
//!
//! Operator `NegativeLogLikelihoodLoss` is specified at
//! <https://onnx.ai/onnx/operators/onnx__NegativeLogLikelihoodLoss.html>, and the others likewise.

use super::normalization::reals;
use super::softmax::log_softmax;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::around;
use crate::numeric::lines::lines;
use crate::numeric::{Float, Number, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new(
        "NegativeLogLikelihoodLoss",
        infer,
        |cx| for_type!(cx.dtype(0)?, floats, T => negative_log_likelihood::<T>(cx)),
    ),
    Builtin::new(
        "SoftmaxCrossEntropyLoss",
        infer,
        |cx| for_type!(cx.dtype(0)?, floats, T => softmax_cross_entropy::<T>(cx)),
    ),
];

/// What becomes of the losses of all labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reduction {
    None,
    Sum,
    /// The sum, divided by the sum of the weights.
    Mean,
}

fn reduction(call: &Call<'_>) -> Result<Reduction> {
    match call.str_or("reduction", "mean")? {
        "none" => Ok(Reduction::None),
        "sum" => Ok(Reduction::Sum),
        "mean" => Ok(Reduction::Mean),
        other => {
            let reason = format!("the reduction `{other}` is not none, sum or mean");
            Err(Error::new(ErrorKind::InvalidModel, reason))
        }
    }
}

/// The loss, and the logarithms of the probabilities, which SoftmaxCrossEntropyLoss may give.
fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (dtype, scores, labels) = (call.dtype(0)?, call.shape(0)?, call.shape(1)?);
    let expected = match scores.as_slice() {
        [batch, _, rest @ ..] => Some([&[*batch], rest].concat()),
        _ => None,
    };
    if expected.as_ref() != Some(&labels) {
        let reason = format!("labels of shape {labels:?} for scores of shape {scores:?}");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let shape = if reduction(call)? == Reduction::None { labels } else { Vec::new() };
    Ok(vec![OutSpec::tensor(dtype, shape), OutSpec::tensor(dtype, scores)])
}

fn negative_log_likelihood<T: Float>(cx: &mut RunCx<'_>) -> Result<()> {
    let logarithms: Vec<_> = cx.input::<T>(0)?.iter().map(|x| x.widen()).collect();
    losses::<T>(cx, &logarithms)
}

fn softmax_cross_entropy<T: Float>(cx: &mut RunCx<'_>) -> Result<()> {
    let (_, classes, inner) = around(&cx.shape(0)?, 1);
    let scores: Vec<_> = cx.input::<T>(0)?.iter().map(|x| x.widen()).collect();
    let mut logarithms = scores.clone();
    lines((&scores, classes), (&mut logarithms, classes), inner, |_, line| log_softmax(line));
    if let Some(output) = cx.output_if::<T>(1)? {
        output.iter_mut().zip(&logarithms).for_each(|(y, x)| *y = T::round_from(*x));
    }
    losses::<T>(cx, &logarithms)
}

/// For each label, minus the logarithm of its probability, multiplied by the weight of its class.
/// Labels that are `ignore_index` have weight 0.
fn losses<T: Float>(cx: &mut RunCx<'_>, logarithms: &[T::Real]) -> Result<()> {
    let (_, classes, inner) = around(&cx.shape(0)?, 1);
    let (zero, one) = (<T::Real as Number>::ZERO, <T::Real as Number>::ONE);
    let (labels, ignored) = (cx.integers(1)?, cx.node().attributes.int("ignore_index")?);
    let weights = if cx.has_input(2) { reals(cx, 2)? } else { vec![one; classes] };
    let at = |i: usize, label: i64| {
        let (n, d) = (i.checked_div(inner)?, i.checked_rem(inner)?);
        let class = usize::try_from(label).ok().filter(|class| *class < classes)?;
        let x = logarithms.get((n * classes + class) * inner + d)?;
        Some((*x, *weights.get(class)?))
    };
    let loss = |(i, label): (usize, &i64)| {
        if Some(*label) == ignored {
            return Ok((zero, zero));
        }
        let (x, weight) = at(i, *label).ok_or_else(|| {
            let reason = format!("label {label} among {classes} classes");
            Error::new(ErrorKind::Value, reason)
        })?;
        Ok((-x * weight, weight))
    };
    let losses = labels.iter().enumerate().map(loss).collect::<Result<Vec<_>>>()?;
    let Some(output) = cx.output_if::<T>(0)? else { return Ok(()) };
    let add =
        |(sum, weights), (loss, weight): &(T::Real, T::Real)| (sum + *loss, weights + *weight);
    let (sum, weights) = losses.iter().fold((zero, zero), add);
    match reduction(cx)? {
        Reduction::None => {
            output.iter_mut().zip(&losses).for_each(|(y, (loss, _))| *y = T::round_from(*loss));
        }
        Reduction::Sum => output.fill(T::round_from(sum)),
        Reduction::Mean => output.fill(T::round_from(sum / weights)),
    }
    Ok(())
}
