//! How the axes of a Resize or Upsample are scaled, by the inputs and attributes of all its
//! versions.

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::call::Call;
use crate::numeric::broadcast::{axis, size};
use crate::numeric::{Number, Real, for_type, larger, smaller};

/// One axis: its lengths, the factor between them, and the part of the input that is taken.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) factor: f64,
    start: f64,
    end: f64,
}

/// A length as a float.
#[allow(clippy::cast_precision_loss, reason = "lengths of axes are small")]
pub(super) fn float(len: usize) -> f64 {
    len as f64
}

/// The integer part of `value`, a length.
fn length(value: f64) -> Result<usize> {
    usize::try_from(<u64 as Number>::from_f64(value))
        .ok()
        .filter(|_| (0.0..9e15).contains(&value))
        .ok_or_else(|| Error::new(ErrorKind::Value, format!("an axis scaled to {value} elements")))
}

impl Scale {
    /// The index of the last input.
    pub(super) fn last(&self) -> f64 {
        float(self.input) - 1.0
    }

    /// The input at `index`, or the first or last one.
    pub(super) fn clamp(&self, index: f64) -> usize {
        // An index that is no length is far behind the last input.
        length(larger(index, 0.0)).unwrap_or(usize::MAX).min(self.input.saturating_sub(1))
    }

    /// Whether the axis stays as it is.
    #[allow(clippy::float_cmp, reason = "other factors than exactly 1 have to be computed")]
    pub(super) fn is_same(&self) -> bool {
        let whole = self.start == 0.0 && self.end == 1.0;
        self.input == self.output && self.factor == 1.0 && whole
    }

    /// Where `output` is among the inputs, by the attribute `coordinate_transformation_mode`.
    pub(super) fn place(&self, output: usize, mode: &str) -> Result<f64> {
        let (x, len, factor) = (float(output), float(self.input), self.factor);
        // The length may be a fraction where it comes from a factor.
        let resized = factor * len;
        let half_pixel = (x + 0.5) / factor - 0.5;
        Ok(match mode {
            "half_pixel" => half_pixel,
            "asymmetric" => x / factor,
            "tf_half_pixel_for_nn" => (x + 0.5) / factor,
            "align_corners" if resized == 1.0 => 0.0,
            "align_corners" => x * (len - 1.0) / (resized - 1.0),
            "pytorch_half_pixel" if self.output > 1 => half_pixel,
            "pytorch_half_pixel" => 0.0,
            "half_pixel_symmetric" => {
                let adjustment = float(self.output) / resized;
                len / 2.0 * (1.0 - adjustment) + half_pixel
            }
            "tf_crop_and_resize" if self.output > 1 => {
                let step = (self.end - self.start) * (len - 1.0) / (float(self.output) - 1.0);
                self.start * (len - 1.0) + x * step
            }
            "tf_crop_and_resize" => 0.5 * (self.start + self.end) * (len - 1.0),
            other => {
                let reason = format!("there is no coordinate_transformation_mode `{other}`");
                return Err(Error::new(ErrorKind::InvalidModel, reason));
            }
        })
    }
}

/// Every axis of input 0.
pub(super) fn scales(call: &Call<'_>) -> Result<Vec<Scale>> {
    let shape = call.shape(0)?;
    let axes = match call.ints("axes")? {
        Some(axes) => axes.iter().map(|i| axis(*i, shape.len())).collect::<Result<_>>()?,
        None => (0..shape.len()).collect::<Vec<_>>(),
    };
    let mut scales: Vec<_> = shape
        .iter()
        .map(|len| Scale { input: *len, output: *len, factor: 1.0, start: 0.0, end: 1.0 })
        .collect();
    if call.str_or("coordinate_transformation_mode", "")? == "tf_crop_and_resize" {
        crop(call, &axes, &mut scales)?;
    }
    match (sizes(call)?, factors(call)?) {
        (Some(sizes), _) if sizes.len() == axes.len() => {
            let keep = call.str_or("keep_aspect_ratio_policy", "stretch")?;
            resize(keep, &axes, &sizes, &mut scales)?;
        }
        (None, Some(factors)) if factors.len() == axes.len() => {
            for (at, factor) in axes.iter().zip(factors) {
                let scale = scales.at_mut(*at)?;
                scale.factor = factor;
                let part = scale.end - scale.start;
                scale.output = length(Real::floor(float(scale.input) * part * factor))?;
            }
        }
        (sizes, factors) => {
            let given = sizes.map_or_else(|| factors.map_or(0, |f| f.len()), |s| s.len());
            let reason = format!("{given} scales or sizes for {} axes", axes.len());
            return Err(Error::new(ErrorKind::Shape, reason));
        }
    }
    let possible = |s: &Scale| s.output == 0 || (s.input > 0 && s.factor > 0.0);
    match scales.iter().find(|scale| !possible(scale)) {
        None => Ok(scales),
        Some(Scale { input, output, factor, .. }) => {
            let reason = format!("an axis of {input} elements scaled by {factor} to {output}");
            Err(Error::new(ErrorKind::Value, reason))
        }
    }
}

/// Takes the part of each axis that the input `roi` names, as starts and then ends from 0 to 1.
fn crop(call: &Call<'_>, axes: &[usize], scales: &mut [Scale]) -> Result<()> {
    let roi: Vec<f64> = for_type!(call.dtype(1)?, floats, T => {
        Ok::<_, Error>(call.input::<T>(1)?.iter().map(|x| x.to_f64()).collect())
    })?;
    if roi.len() != 2 * axes.len() {
        let reason = format!("{} starts and ends for {} axes", roi.len(), axes.len());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let (starts, ends) = roi.split_at(axes.len());
    for ((at, start), end) in axes.iter().zip(starts).zip(ends) {
        let scale = scales.at_mut(*at)?;
        (scale.start, scale.end) = (*start, *end);
    }
    Ok(())
}

/// The lengths that are wanted, of input 3.
fn sizes(call: &Call<'_>) -> Result<Option<Vec<usize>>> {
    if call.version() < 11 || !call.has_input(3) {
        return Ok(None);
    }
    let sizes = call.integers(3)?.iter().map(|dim| size(*dim)).collect::<Result<Vec<_>>>()?;
    Ok(Some(sizes).filter(|sizes| !sizes.is_empty()))
}

/// The factors: of input 2, of input 1 before version 11, or attributes before version 9.
fn factors(call: &Call<'_>) -> Result<Option<Vec<f64>>> {
    let attributes = &call.node().attributes;
    let factors: Vec<f32> = if let Some(scales) = attributes.floats("scales")? {
        scales.to_vec()
    } else if let Some(height) = attributes.float("height_scale")? {
        vec![1.0, 1.0, height, call.float_or("width_scale", 1.0)?]
    } else {
        let i = if call.version() < 11 { 1 } else { 2 };
        call.input_or::<f32>(i, &[])?.to_vec()
    };
    Ok((!factors.is_empty()).then(|| factors.into_iter().map(f64::from).collect()))
}

/// Scales `axes` to `sizes`, or all by one factor, so that no axis is larger, or none is smaller,
/// than its size.
fn resize(keep: &str, axes: &[usize], sizes: &[usize], scales: &mut [Scale]) -> Result<()> {
    for (at, size) in axes.iter().zip(sizes) {
        let scale = scales.at_mut(*at)?;
        (scale.output, scale.factor) = (*size, float(*size) / float(scale.input));
        if *size == scale.input {
            scale.factor = 1.0;
        }
    }
    let factors = axes.iter().map(|at| Ok(scales.at(*at)?.factor));
    let factors = factors.collect::<Result<Vec<_>>>()?.into_iter();
    let factor = match keep {
        "stretch" => return Ok(()),
        "not_larger" => factors.fold(f64::INFINITY, smaller),
        "not_smaller" => factors.fold(0.0, larger),
        other => {
            let reason = format!("there is no keep_aspect_ratio_policy `{other}`");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
    };
    for at in axes {
        let scale = scales.at_mut(*at)?;
        scale.output = length(Real::floor(factor * float(scale.input) + 0.5))?;
        scale.factor = factor;
    }
    Ok(())
}
