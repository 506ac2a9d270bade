//! One step of an optimizer: Adagrad, Adam and Momentum of the domain `ai.onnx.preview.training`.
//!
//! Operator `Adam` is specified at
//! <https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adam.html>, and the others likewise.
//! The inputs are a learning rate, a count of updates, and groups of tensors: all tensors, all
//! gradients, and what the optimizer keeps of each.

use onnx_container_proto::DataType;

use super::words::one_of;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::{Real, not_taken};

const DOMAIN: &str = "ai.onnx.preview.training";

/// Runs `$step::<T>` for the type of the tensors, FLOAT or DOUBLE.
macro_rules! optimizer {
    ($name:literal, $infer:ident, $step:ident) => {
        Builtin::new($name, $infer, |cx| match cx.dtype(2)? {
            DataType::Float => $step::<f32>(cx),
            DataType::Double => $step::<f64>(cx),
            other => Err(not_taken(other)),
        })
        .domain(DOMAIN)
    };
}

pub(super) const KERNELS: &[Builtin] = &[
    optimizer!("Adagrad", infer_three, adagrad),
    optimizer!("Momentum", momentum_infer, momentum),
    optimizer!("Adam", infer_four, adam),
];

fn infer_three(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    infer(call, 3)
}

fn momentum_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    one_of(call, "mode", &["standard", "nesterov"])?;
    infer(call, 3)
}

fn infer_four(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    infer(call, 4)
}

/// The tensors, and what is kept of each: every group of inputs but the gradients.
fn infer(call: &Call<'_>, groups: usize) -> Result<Vec<OutSpec>> {
    let tensors = tensors(call, groups)?;
    let first = 2..2 + tensors;
    let kept = 2 + 2 * tensors..2 + groups * tensors;
    let spec = |i| Ok(OutSpec::tensor(call.dtype(i)?, call.shape(i)?));
    first.chain(kept).map(spec).collect()
}

/// How many tensors are optimized.
fn tensors(call: &Call<'_>, groups: usize) -> Result<usize> {
    let inputs = call.input_count().saturating_sub(2);
    for i in 2..call.input_count() {
        let first = 2 + (i - 2) % (inputs / groups).max(1);
        let alike = call.dtype(i)? == call.dtype(2)? && call.shape(i)? == call.shape(first)?;
        if !inputs.is_multiple_of(groups) || !alike {
            let reason = format!("input {i} and the tensor to optimize are not alike");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
    }
    Ok(inputs / groups)
}

/// The learning rate, and the number of updates before.
fn rate_and_count<R: Real>(cx: &RunCx<'_>) -> Result<(R, i64)> {
    let rate = match cx.dtype(0)? {
        DataType::Double => cx.scalar::<f64>(0)?,
        _ => f64::from(cx.scalar::<f32>(0)?),
    };
    Ok((R::of(rate), cx.scalar(1)?))
}

fn attribute<R: Real>(cx: &RunCx<'_>, name: &str, default: f32) -> Result<R> {
    Ok(R::of(f64::from(cx.float_or(name, default)?)))
}

/// Calls `step` with each element of each tensor, of its gradient and of the `K` that are kept of
/// it. It gives the new element, and what is kept of it now.
fn each<R: Real, const K: usize>(
    cx: &mut RunCx<'_>,
    step: impl Fn(R, R, [R; K]) -> (R, [R; K]),
) -> Result<()> {
    let tensors = tensors(cx, K + 2)?;
    for t in 0..tensors {
        let (tensor, gradient) = (cx.input::<R>(2 + t)?, cx.input::<R>(2 + tensors + t)?);
        let kept: [Result<&[R]>; K] =
            std::array::from_fn(|k| cx.input::<R>(2 + (k + 2) * tensors + t));
        let mut results: Vec<Vec<R>> = vec![Vec::with_capacity(tensor.len()); K + 1];
        let kept = kept.into_iter().collect::<Result<Vec<_>>>()?;
        for (i, (x, g)) in tensor.iter().zip(gradient).enumerate() {
            let old = std::array::from_fn(|k| kept.debug_at(k, &[]).debug_at(i, R::ZERO));
            let (x, new) = step(*x, *g, old);
            let all = std::iter::once(x).chain(new);
            results.iter_mut().zip(all).for_each(|(results, x)| results.push(x));
        }
        for (k, result) in results.iter().enumerate() {
            if let Some(output) = cx.output_if::<R>(k * tensors + t)? {
                output.copy_from_slice(result);
            }
        }
    }
    Ok(())
}

fn adagrad<R: Real>(cx: &mut RunCx<'_>) -> Result<()> {
    let (rate, count) = rate_and_count::<R>(cx)?;
    let decay = attribute::<R>(cx, "decay_factor", 0.0)?;
    let norm = attribute::<R>(cx, "norm_coefficient", 0.0)?;
    let epsilon = attribute::<R>(cx, "epsilon", 1e-6)?;
    let rate = rate / (R::ONE + R::from_i128(count.into()) * decay);
    each(cx, |x, gradient, [squares]: [R; 1]| {
        let gradient = norm * x + gradient;
        let squares = squares + gradient * gradient;
        (x - rate * gradient / (squares.sqrt() + epsilon), [squares])
    })
}

fn momentum<R: Real>(cx: &mut RunCx<'_>) -> Result<()> {
    let (rate, count) = rate_and_count::<R>(cx)?;
    let (alpha, beta) = (attribute::<R>(cx, "alpha", 0.0)?, attribute::<R>(cx, "beta", 0.0)?);
    let norm = attribute::<R>(cx, "norm_coefficient", 0.0)?;
    let beta = if count > 0 { beta } else { R::ONE };
    let nesterov = cx.str_or("mode", "")? == "nesterov";
    each(cx, |x, gradient, [velocity]: [R; 1]| {
        let gradient = norm * x + gradient;
        let velocity = alpha * velocity + beta * gradient;
        let direction = if nesterov { gradient + alpha * velocity } else { velocity };
        (x - rate * direction, [velocity])
    })
}

fn adam<R: Real>(cx: &mut RunCx<'_>) -> Result<()> {
    let (rate, count) = rate_and_count::<R>(cx)?;
    let (alpha, beta) = (attribute::<R>(cx, "alpha", 0.9)?, attribute::<R>(cx, "beta", 0.999)?);
    let epsilon = attribute::<R>(cx, "epsilon", 1e-6)?;
    let norm = attribute::<R>(cx, "norm_coefficient", 0.0)?;
    let norm_post = attribute::<R>(cx, "norm_coefficient_post", 0.0)?;
    let power = |base: R| Real::pow(base, R::from_i128(count.into()));
    let corrected = rate * (R::ONE - power(beta)).sqrt() / (R::ONE - power(alpha));
    let rate = if count > 0 { corrected } else { rate };
    each(cx, |x, gradient, [mean, squares]: [R; 2]| {
        let gradient = norm * x + gradient;
        let mean = alpha * mean + (R::ONE - alpha) * gradient;
        let squares = beta * squares + (R::ONE - beta) * gradient * gradient;
        let moved = x - rate * mean / (squares.sqrt() + epsilon);
        ((R::ONE - norm_post) * moved, [mean, squares])
    })
}
