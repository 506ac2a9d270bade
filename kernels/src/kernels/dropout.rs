//! Dropout: the input as it is, or, in training, without elements that are drawn at random.
//!
//! See <https://onnx.ai/onnx/operators/onnx__Dropout.html>. A node without `seed` is drawn with
//! seed 0, so that a run can be repeated.

use onnx_container_proto::DataType;

use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::narrow::{RoundMode, Rounding, codes, decode, set_codes, values};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::count;
use crate::numeric::random::Twister;
use crate::numeric::{Float, Number, for_type};

pub(super) const KERNELS: &[Builtin] = &[Builtin::new("Dropout", infer, dropout)];

/// The output and the mask, which has the type of the input before version 10.
fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (dtype, shape) = (call.dtype(0)?, call.shape(0)?);
    let mask = if call.version() < 10 { dtype } else { DataType::Bool };
    Ok(vec![OutSpec::tensor(dtype, shape.clone()), OutSpec::tensor(mask, shape)])
}

/// The probability of an element to be left out; 0 outside of training. It is an attribute before
/// version 12, and an input later.
fn probability(call: &Call<'_>) -> Result<f64> {
    let ratio = match call.version() {
        ..7 if call.flag("is_test", false)? => 0.0,
        ..7 => f64::from(call.float_or("ratio", 0.5)?),
        7..12 => 0.0,
        _ if !call.has_input(2) || !call.scalar::<bool>(2)? => 0.0,
        _ if !call.has_input(1) => 0.5,
        _ => match *values(call, 1)? {
            [ratio] => ratio,
            ref ratios => {
                let reason = format!("input 1 has {} elements, not one", ratios.len());
                return Err(Error::new(ErrorKind::Shape, reason));
            }
        },
    };
    if (0.0..1.0).contains(&ratio) {
        Ok(ratio)
    } else {
        Err(Error::new(ErrorKind::Value, format!("a ratio of {ratio} is not from 0 to below 1")))
    }
}

fn dropout(cx: &mut RunCx<'_>) -> Result<()> {
    let (probability, elements) = (probability(cx)?, count(&cx.shape(0)?));
    if probability > 0.0 {
        let seed = cx.int_or("seed", 0)?;
        let [a, b, c, d, ..] = seed.to_le_bytes();
        let mut twister = Twister::new(u32::from_le_bytes([a, b, c, d]));
        let kept: Vec<_> = (0..elements).map(|_| twister.uniform() >= probability).collect();
        match decode(cx.dtype(0)?) {
            Some(decode) => drop_codes(cx, &kept, probability, decode)?,
            None => {
                for_type!(cx.dtype(0)?, floats, T => drop_out::<T>(cx, &kept, probability))?;
            }
        }
        return mask(cx, kept.into_iter());
    }
    if cx.has_output(0) {
        arrange(cx, 0, [Run::Copy { input: 0, from: 0, len: elements }])?;
    }
    mask(cx, std::iter::repeat_n(true, elements))
}

/// The kept elements are scaled up, so that the expected sum stays the same.
fn drop_out<T: Float>(cx: &mut RunCx<'_>, kept: &[bool], probability: f64) -> Result<()> {
    let scale = <T::Real as Number>::from_f64(1.0 / (1.0 - probability));
    let input = cx.input::<T>(0)?;
    let Some(output) = cx.output_if::<T>(0)? else { return Ok(()) };
    for ((y, x), kept) in output.iter_mut().zip(input).zip(kept) {
        *y = if *kept { x.map(|x| x * scale) } else { T::ZERO };
    }
    Ok(())
}

/// As [`drop_out`], of floats of 8 bits.
fn drop_codes(
    cx: &mut RunCx<'_>,
    kept: &[bool],
    probability: f64,
    decode: fn(u8) -> f32,
) -> Result<()> {
    let rounding = Rounding { saturate: true, mode: RoundMode::Nearest };
    let (encode, scale) = (rounding.encode(cx.dtype(0)?)?, 1.0 / (1.0 - probability));
    let codes = codes(cx, 0)?;
    let scaled = codes
        .iter()
        .zip(kept)
        .map(|(code, kept)| encode(if *kept { f64::from(decode(*code)) * scale } else { 0.0 }));
    let scaled: Vec<_> = scaled.collect();
    if cx.has_output(0) { set_codes(cx, 0, scaled.into_iter()) } else { Ok(()) }
}

/// Output 1, where it is asked for: true, or 1, for each element that is kept.
fn mask(cx: &mut RunCx<'_>, kept: impl Iterator<Item = bool>) -> Result<()> {
    if !cx.has_output(1) {
        return Ok(());
    }
    if cx.out_dtype(1)? == DataType::Bool {
        cx.output::<bool>(1)?.iter_mut().zip(kept).for_each(|(y, kept)| *y = kept);
        return Ok(());
    }
    for_type!(cx.out_dtype(1)?, floats, T => {
        let output = cx.output::<T>(1)?;
        output.iter_mut().zip(kept).for_each(|(y, kept)| *y = if kept { T::ONE } else { T::ZERO });
        Ok(())
    })
}
