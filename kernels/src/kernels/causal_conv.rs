//! [CausalConvWithState](https://onnx.ai/onnx/operators/onnx__CausalConvWithState.html): each
//! channel of a signal is filtered by its present and past elements, of which the last ones are
//! kept for the next call.

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::{Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] = &[Builtin::new("CausalConvWithState", infer, run)];

/// The batch, the channels, the length of the signal, and the taps of the filter.
fn sizes(call: &Call<'_>) -> Result<[usize; 4]> {
    let (signal, weights) = (call.shape(0)?, call.shape(1)?);
    let ([batch, channels, len], [filters, 1, taps]) = (signal.as_slice(), weights.as_slice())
    else {
        return Err(mismatch(&signal, &weights));
    };
    let bias_fits = !call.has_input(2) || call.shape(2)? == [*channels];
    let past = taps.checked_sub(1).ok_or_else(|| mismatch(&signal, &weights))?;
    let past_fits = !call.has_input(3) || call.shape(3)? == [*batch, *channels, past];
    if filters != channels || !bias_fits || !past_fits {
        return Err(mismatch(&signal, &weights));
    }
    Ok([*batch, *channels, *len, *taps])
}

fn mismatch(signal: &[usize], weights: &[usize]) -> Error {
    let reason = format!(
        "a signal of shape {signal:?} and weights of {weights:?} with this bias or past state"
    );
    Error::new(ErrorKind::Shape, reason)
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let ([batch, channels, len, taps], dtype) = (sizes(call)?, call.dtype(0)?);
    let shapes = [[batch, channels, len], [batch, channels, taps - 1]];
    Ok(shapes.map(|shape| OutSpec::tensor(dtype, shape)).to_vec())
}

fn run(cx: &mut RunCx<'_>) -> Result<()> {
    let [batch, channels, len, taps] = sizes(cx)?;
    let swish = match cx.str_or("activation", "none")? {
        "none" => false,
        "silu" | "swish" => true,
        other => {
            let reason = format!("there is no activation `{other}`");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
    };
    for_type!(cx.dtype(0)?, floats, T => {
        let (x, w) = (cx.input::<T>(0)?, cx.input::<T>(1)?);
        let (bias, past) = (cx.input_if::<T>(2)?, cx.input_if::<T>(3)?);
        let (y, mut state) = (cx.output::<T>(0)?, cx.output_if::<T>(1)?);
        for plane in 0..batch * channels {
            let channel = plane % channels.max(1);
            // The signal with what came before it.
            let mut line = vec![T::ZERO; taps - 1];
            if let Some(past) = past {
                line.copy_from_slice(part(past, plane, taps - 1)?);
            }
            line.extend_from_slice(part(x, plane, len)?);
            let filter = part(w, channel, taps)?;
            let start = match bias {
                Some(bias) => bias.at(channel)?.to_sum(),
                None => Number::ZERO,
            };
            let y = y.part_mut(plane * len..(plane + 1) * len)?;
            for (y, window) in y.iter_mut().zip(line.windows(taps)) {
                let terms = window.iter().zip(filter).map(|(x, w)| (x.to_sum(), w.to_sum()));
                let sum = T::from_sum(terms.fold(start, |sum, (x, w)| sum.add(x.mul(w))));
                *y = if swish { T::from_sum(silu(sum.to_sum())) } else { sum };
            }
            if let Some(state) = &mut state {
                let kept = line.part(len..)?;
                let places = plane * kept.len()..(plane + 1) * kept.len();
                state.part_mut(places)?.copy_from_slice(kept);
            }
        }
        Ok(())
    })
}

/// Part `i` of `elements`, in parts of `len`.
fn part<T>(elements: &[T], i: usize, len: usize) -> Result<&[T]> {
    let part = elements.get(i * len..).and_then(|rest| rest.get(..len));
    part.ok_or_else(|| Error::internal("a channel outside of its tensor"))
}

fn silu<R: Real>(x: R) -> R {
    x / (R::ONE + (-x).exp())
}
