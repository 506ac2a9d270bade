//! Windows and filters for spectra:
//! [HannWindow](https://onnx.ai/onnx/operators/onnx__HannWindow.html),
//! [HammingWindow](https://onnx.ai/onnx/operators/onnx__HammingWindow.html),
//! [BlackmanWindow](https://onnx.ai/onnx/operators/onnx__BlackmanWindow.html) and
//! [MelWeightMatrix](https://onnx.ai/onnx/operators/onnx__MelWeightMatrix.html).
//!
//! All are computed as `f64` and rounded once to the type that the attribute `output_datatype`
//! names. The elements of a window of integers are those of one of FLOAT without their fractions,
//! as in the function bodies of the operators.

use onnx_container_proto::DataType;

use super::resize_scale::float;
use super::signal::length;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::{Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("HannWindow", infer, |cx| window(cx, [0.5, 0.5, 0.0])),
    Builtin::new("HammingWindow", infer, |cx| window(cx, [25.0 / 46.0, 21.0 / 46.0, 0.0])),
    Builtin::new("BlackmanWindow", infer, |cx| window(cx, [0.42, 0.5, 0.08])),
    Builtin::new("MelWeightMatrix", mel_infer, mel),
];

fn out_dtype(call: &Call<'_>) -> Result<DataType> {
    let number = i32::try_from(call.int_or("output_datatype", 1)?).ok();
    number.and_then(|number| DataType::try_from(number).ok()).ok_or_else(|| {
        Error::new(ErrorKind::InvalidModel, "attribute `output_datatype` is no element type")
    })
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(out_dtype(call)?, [length(call, 0)?])])
}

/// A constant minus a cosine plus a cosine of twice the frequency, with these factors.
fn window(cx: &mut RunCx<'_>, [constant, first, second]: [f64; 3]) -> Result<()> {
    let len = length(cx, 0)?;
    // Of a window of one element that is not periodic, the period is 0, and the element no number.
    let period = if cx.flag("periodic", true)? { len } else { len.saturating_sub(1) };
    let step = 2.0 * std::f64::consts::PI;
    let dtype = cx.out_dtype(0)?;
    for_type!(dtype, numbers, T => {
        for (i, y) in cx.output::<T>(0)?.iter_mut().enumerate() {
            let angle = step * float(i) / float(period);
            let value = constant - first * Real::cos(angle) + second * Real::cos(2.0 * angle);
            *y = match dtype.is_integer() {
                true => T::from_f64(f32::of(value).to_f64()),
                false => T::from_f64(value),
            };
        }
        Ok(())
    })
}

fn mel_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(out_dtype(call)?, [length(call, 1)? / 2 + 1, length(call, 0)?])])
}

/// The first bins of the filters: `bands` and two more, equally far apart on the mel scale.
fn mel_bins(cx: &RunCx<'_>, bands: usize) -> Result<Vec<f64>> {
    let (len, rate) = (length(cx, 1)?, length(cx, 2)?);
    let hertz =
        |i| for_type!(cx.dtype(i)?, floats, T => Ok::<_, Error>(cx.scalar::<T>(i)?.to_f64()));
    let of_ten = Real::ln(10.0_f64);
    let mel = |hertz: f64| 2595.0 * Real::ln_1p(hertz / 700.0) / of_ten;
    let (low, high) = (mel(hertz(3)?), mel(hertz(4)?));
    let step = (high - low) / (float(bands) + 2.0);
    let bin = |i: usize| {
        let hertz = 700.0 * Real::expm1((float(i) * step + low) / 2595.0 * of_ten);
        Real::floor((float(len) + 1.0) * hertz / float(rate))
    };
    let bins: Vec<f64> = (0..bands + 2).map(bin).collect();
    match bins.iter().find(|bin| !(0.0..9e15).contains(*bin)) {
        None => Ok(bins),
        Some(bin) => {
            let reason = format!("a filter that starts at bin {bin} of the spectrum");
            Err(Error::new(ErrorKind::Value, reason))
        }
    }
}

/// A column for each band: a triangle that rises from its first bin to the next band's and falls
/// again.
fn mel(cx: &mut RunCx<'_>) -> Result<()> {
    let bands = length(cx, 0)?;
    if cx.out_shape(0)?.last() == Some(&0) {
        return Ok(());
    }
    let bins = mel_bins(cx, bands)?;
    for_type!(cx.out_dtype(0)?, numbers, T => {
        for (j, row) in cx.output::<T>(0)?.chunks_exact_mut(bands).enumerate() {
            let place = float(j);
            for (y, bins) in row.iter_mut().zip(bins.windows(3)) {
                let [low, centre, high] = bins else {
                    return Err(Error::internal("a window of other than three bins"));
                };
                *y = T::from_f64(if place == *centre {
                    1.0
                } else if place > *centre && place < *high {
                    (high - place) / (high - centre)
                } else if place >= *low && place < *centre {
                    (place - low) / (centre - low)
                } else {
                    0.0
                });
            }
        }
        Ok(())
    })
}
