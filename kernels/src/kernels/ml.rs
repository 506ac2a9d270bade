//! Operators of the domain `ai.onnx.ml` on one feature at a time.
//!
//! Operator `Binarizer` is specified at
//! <https://onnx.ai/onnx/operators/onnx_aionnxml_Binarizer.html>, and the others likewise. Encoders
//! of labels are in `label_encoder`, categories in `category`, what predicts in `linear`, `svm` and
//! `tree`.

use onnx_container_proto::{DataType, Element};

use super::elementwise::same;
use super::loops::map;
use super::scores::{check_len, invalid};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::{Number, Real, for_type};

const DOMAIN: &str = "ai.onnx.ml";

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("ArrayFeatureExtractor", infer_features, extract_features).domain(DOMAIN),
    Builtin::new("Binarizer", same, binarize).domain(DOMAIN),
    Builtin::new("FeatureVectorizer", infer_vectors, vectorize).domain(DOMAIN),
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
    let (shape, indices) = (call.shape(0)?, crate::numeric::broadcast::count(&call.shape(1)?));
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
    let index = |index: &i64| crate::numeric::broadcast::index(*index, features);
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

/// What FeatureVectorizer takes of each input: the rows, and the elements of a row that there are
/// and that there have to be.
fn parts(call: &Call<'_>) -> Result<(usize, Vec<[usize; 2]>)> {
    let wanted = call.ints_or("inputdimensions", &[])?;
    check_len("inputdimensions", wanted.len(), Some(call.input_count()))?;
    let (mut rows, mut parts) = (None, Vec::with_capacity(wanted.len()));
    for (i, wanted) in wanted.iter().enumerate() {
        let wanted = usize::try_from(*wanted)
            .map_err(|_| invalid("an element of `inputdimensions` is negative"))?;
        let (here, len) = match &*call.shape(i)? {
            [] => return Err(Error::new(ErrorKind::Shape, format!("input {i} is a scalar"))),
            [len] => (1, *len),
            [rows, others @ ..] => (*rows, crate::numeric::broadcast::count(others)),
        };
        let rows = *rows.get_or_insert(here);
        if rows != here {
            let reason = format!("input {i} has {here} rows, input 0 has {rows}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        parts.push([len, wanted]);
    }
    Ok((rows.unwrap_or(0), parts)) // without inputs there are no rows
}

fn infer_vectors(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (rows, parts) = parts(call)?;
    let columns = parts.iter().try_fold(0_usize, |sum, [_, wanted]| sum.checked_add(*wanted));
    let columns = columns.ok_or_else(|| invalid("the sum of `inputdimensions` is too large"))?;
    Ok(vec![OutSpec::tensor(DataType::Float, [rows, columns])])
}

/// The features of all inputs side by side: of each as many as there have to be, with zeros behind
/// those that there are.
fn vectorize(cx: &mut RunCx<'_>) -> Result<()> {
    let (_, parts) = parts(cx)?;
    let columns: usize = *cx.out_shape(0)?.at(1)?;
    let output = cx.output::<f32>(0)?;
    output.fill(0.0);
    let mut before = 0;
    for (i, [len, wanted]) in parts.into_iter().enumerate() {
        for_type!(cx.dtype(i)?, numbers, T => {
            let input = cx.input::<T>(i)?;
            let rows = output.chunks_mut(columns.max(1)).zip(input.chunks(len.max(1)));
            for (to, from) in rows {
                let to = to.part_mut(before..before + wanted)?;
                to.iter_mut().zip(from).for_each(|(y, x)| *y = f32::of(x.to_odd_f64()));
            }
            Ok(())
        })?;
        before += wanted;
    }
    Ok(())
}

/// Replaces one value by others: one, or one for each feature.
fn impute(cx: &mut RunCx<'_>) -> Result<()> {
    let attributes = &cx.node().attributes;
    let floats = attributes.floats_or("imputed_value_floats", &[])?;
    let ints = attributes.ints_or("imputed_value_int64s", &[])?;
    let replaced_float = f64::from(cx.float_or("replaced_value_float", 0.0)?);
    let replaced_int = cx.int_or("replaced_value_int64", 0)?;
    let features = features(cx)?;
    for_type!(cx.dtype(0)?, numbers, T => {
        // Both kinds may be there: integers take integers, floats take floats.
        let of_floats = || floats.iter().map(|x| T::from_f64(f64::from(*x))).collect();
        let of_ints = || ints.iter().map(|x| T::from_i128(i128::from(*x))).collect();
        let takes_ints = floats.is_empty() || (T::DTYPE.is_integer() && !ints.is_empty());
        let imputed: Vec<T> = if takes_ints { of_ints() } else { of_floats() };
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

/// The number of features of a row of input 0; a scalar is one.
fn features(call: &Call<'_>) -> Result<usize> {
    Ok(call.shape(0)?.last().copied().unwrap_or(1))
}

/// There is one of something, or one for each feature.
fn per_feature(len: usize, features: usize, what: &str) -> Result<()> {
    if len == 1 || len == features {
        return Ok(());
    }
    Err(invalid(format!("there are {len} {what} for {features} features")))
}

/// `(x - offset) * scale`, of DOUBLE in DOUBLE and of all else in FLOAT.
fn scale(cx: &mut RunCx<'_>) -> Result<()> {
    let attributes = &cx.node().attributes;
    let offsets = attributes.floats_or("offset", &[0.0])?;
    let scales = attributes.floats_or("scale", &[1.0])?;
    let features = features(cx)?;
    per_feature(offsets.len(), features, "offsets")?;
    per_feature(scales.len(), features, "scales")?;
    for_type!(cx.dtype(0)?, numbers, T => {
        let parameters = offsets.iter().cycle().zip(scales.iter().cycle());
        let pairs = cx.input::<T>(0)?.iter().zip(parameters);
        let is_wide = T::DTYPE == DataType::Double;
        for (y, (x, (offset, scale))) in cx.output::<f32>(0)?.iter_mut().zip(pairs) {
            *y = if is_wide {
                f32::of((x.to_f64() - f64::from(*offset)) * f64::from(*scale))
            } else {
                (f32::of(x.to_odd_f64()) - offset) * scale
            };
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
    let features = features(cx)?.max(1);
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
