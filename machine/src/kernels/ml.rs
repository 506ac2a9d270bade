//! Operators of the domain `ai.onnx.ml` on one feature at a time.
//!
//! Operator `Binarizer` is specified at <https://onnx.ai/onnx/operators/onnx_aionnxml_Binarizer.html>, and the
//! others likewise. Encoders of labels are in `label_encoder`, trees in `tree`.

use onnx_container::{DataType, Element};

use super::elementwise::same;
use super::loops::map;
use crate::arrange::{Run, arrange};
use crate::call::{Call, OutSpec, RunCx};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::numeric::{Number, Real, for_type};

const DOMAIN: &str = "ai.onnx.ml";

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("ArrayFeatureExtractor", infer_features, extract_features).domain(DOMAIN),
    Builtin::new("Binarizer", same, binarize).domain(DOMAIN),
    Builtin::new("Imputer", same, impute).domain(DOMAIN),
    Builtin::new("Normalizer", float, normalize).domain(DOMAIN),
    Builtin::new("Scaler", float, scale).domain(DOMAIN),
];

/// A FLOAT output with the shape of input 0.
fn float(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(DataType::Float, call.shape(0)?)])
}

/// The last dimension is replaced by the number of indices; a vector becomes a row.
fn infer_features(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (shape, indices) = (call.shape(0)?, crate::broadcast::count(&call.shape(1)?));
    let rows = match shape.split_last() {
        None => return Err(Error::new(ErrorKind::Shape, "a scalar has no features")),
        Some((_, [])) => vec![1],
        Some((_, rows)) => rows.to_vec(),
    };
    Ok(vec![OutSpec::tensor(call.dtype(0)?, [rows, vec![indices]].concat())])
}

fn extract_features(cx: &mut RunCx<'_>) -> Result<()> {
    let shape = cx.shape(0)?;
    let (features, rows) =
        shape.split_last().map_or((1, 1), |(f, rows)| (*f, rows.iter().product()));
    let index = |index: &i64| crate::broadcast::index(*index, features);
    let indices = cx.integers(1)?.iter().map(index).collect::<Result<Vec<_>>>()?;
    let row = |row: usize| indices.iter().map(move |i| Run::one(0, row * features + i));
    arrange(cx, 0, (0..rows).flat_map(row))
}

/// 1 for what is above the threshold, else 0.
fn binarize(cx: &mut RunCx<'_>) -> Result<()> {
    let threshold = f64::from(cx.float_or("threshold", 0.0)?);
    for_type!(cx.dtype(0)?, numbers, T => {
        // An integer that is rounded to the threshold may still be above it.
        let above = |x: T| x.to_f64() > threshold
            || (x.to_f64() == threshold && x.to_i128() > threshold.to_i128());
        map(cx, |x: T| if above(x) { T::ONE } else { T::ZERO })
    })
}

/// Replaces one value by others: one, or one for each feature.
fn impute(cx: &mut RunCx<'_>) -> Result<()> {
    let attributes = &cx.node().attributes;
    let (floats, ints) =
        (attributes.floats("imputed_value_floats")?, attributes.ints("imputed_value_int64s")?);
    let replaced_float = f64::from(cx.float_or("replaced_value_float", 0.0)?);
    let replaced_int = cx.int_or("replaced_value_int64", 0)?;
    let features = cx.shape(0)?.last().copied().unwrap_or(1);
    for_type!(cx.dtype(0)?, numbers, T => {
        let imputed: Vec<T> = match (floats, ints) {
            (Some(floats), _) => floats.iter().map(|x| T::from_f64(f64::from(*x))).collect(),
            (_, ints) => ints.unwrap_or_default().iter().map(|x| T::from_i128(i128::from(*x))).collect(),
        };
        let replaced = match T::DTYPE.is_integer() {
            true => T::from_i128(i128::from(replaced_int)),
            false => T::from_f64(replaced_float),
        };
        per_feature(imputed.len(), features, "imputed values")?;
        let pairs = cx.input::<T>(0)?.iter().zip(imputed.iter().cycle());
        for (y, (x, value)) in cx.output::<T>(0)?.iter_mut().zip(pairs) {
            let hit = *x == replaced || (x.is_nan() && replaced.is_nan());
            *y = if hit { *value } else { *x };
        }
        Ok(())
    })
}

/// There is one of something, or one for each feature.
fn per_feature(len: usize, features: usize, what: &str) -> Result<()> {
    if len == 1 || len == features {
        return Ok(());
    }
    let reason = format!("there are {len} {what} for {features} features");
    Err(Error::new(ErrorKind::InvalidModel, reason))
}

/// `(x - offset) * scale`
fn scale(cx: &mut RunCx<'_>) -> Result<()> {
    let attributes = &cx.node().attributes;
    let offsets = attributes.floats("offset")?.unwrap_or(&[0.0]);
    let scales = attributes.floats("scale")?.unwrap_or(&[1.0]);
    let features = cx.shape(0)?.last().copied().unwrap_or(1);
    per_feature(offsets.len(), features, "offsets")?;
    per_feature(scales.len(), features, "scales")?;
    for_type!(cx.dtype(0)?, numbers, T => {
        let parameters = offsets.iter().cycle().zip(scales.iter().cycle());
        let pairs = cx.input::<T>(0)?.iter().zip(parameters);
        for (y, (x, (offset, scale))) in cx.output::<f32>(0)?.iter_mut().zip(pairs) {
            *y = (f32::of(x.to_f64()) - offset) * scale;
        }
        Ok(())
    })
}

/// Divides every row by its largest value, by the sum of its absolute values, or by its Euclidean
/// length.
fn normalize(cx: &mut RunCx<'_>) -> Result<()> {
    let divisor: fn(&[f32]) -> f32 = match cx.str_or("norm", "MAX")? {
        "MAX" => |row| row.iter().fold(f32::LOWEST, |max, x| if *x > max { *x } else { max }),
        "L1" => |row| row.iter().fold(0.0, |sum, x| sum + x.abs()),
        "L2" => |row| Real::sqrt(row.iter().fold(0.0_f32, |sum, x| sum + x * x)),
        other => {
            let reason = format!("the norm `{other}` is not MAX, L1 or L2");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
    };
    let features = cx.shape(0)?.last().copied().unwrap_or(1).max(1);
    for_type!(cx.dtype(0)?, numbers, T => {
        let (input, output) = (cx.input::<T>(0)?, cx.output::<f32>(0)?);
        output.iter_mut().zip(input).for_each(|(y, x)| *y = f32::of(x.to_f64()));
        for row in output.chunks_mut(features) {
            let divisor = divisor(row);
            if divisor != 0.0 {
                row.iter_mut().for_each(|y| *y /= divisor);
            }
        }
        Ok(())
    })
}
