//! Normalization of rows by operators of onnxruntime: SkipLayerNormalization,
//! SkipSimplifiedLayerNormalization, and SimplifiedLayerNormalization, which is in the domain of
//! ONNX although ONNX has no such operator.
//!
//! Each operator is specified at
//! <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. A row is computed
//! in 32 bits, or in DOUBLE, and each output is rounded once.

use onnx_container_proto::DataType;

use super::normalization::{inverse, moments, reals};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{axis, count};
use crate::numeric::{Float, Number, Real, for_type, number};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::of_onnxruntime(
        "SkipLayerNormalization",
        |call| infer(call, &LAYER),
        |cx| for_type!(cx.dtype(0)?, floats, T => run::<T>(cx, &LAYER)),
    ),
    Builtin::of_onnxruntime(
        "SkipSimplifiedLayerNormalization",
        |call| infer(call, &ROOT),
        |cx| for_type!(cx.dtype(0)?, floats, T => run::<T>(cx, &ROOT)),
    ),
    Builtin::new(
        "SimplifiedLayerNormalization",
        infer_simplified,
        |cx| for_type!(cx.dtype(0)?, floats, T => run::<T>(cx, &SIMPLIFIED)),
    ),
];

/// What the operators differ in: the number of each input, and of each output behind the first.
#[derive(Debug)]
struct Form {
    skip: Option<usize>,
    gamma: usize,
    beta: Option<usize>,
    bias: Option<usize>,
    /// Whether the mean is subtracted.
    is_centred: bool,
    epsilon: f32,
    /// The outputs for the mean, the inverse of the deviation, and the sum.
    mean: Option<usize>,
    inverse: usize,
    sum: Option<usize>,
}

const LAYER: Form = Form {
    skip: Some(1),
    gamma: 2,
    beta: Some(3),
    bias: Some(4),
    is_centred: true,
    epsilon: 1e-12,
    mean: Some(1),
    inverse: 2,
    sum: Some(3),
};
const ROOT: Form = Form { beta: None, bias: Some(3), is_centred: false, ..LAYER };
const SIMPLIFIED: Form = Form {
    skip: None,
    gamma: 1,
    bias: None,
    epsilon: 1e-5,
    mean: None,
    inverse: 1,
    sum: None,
    ..ROOT
};

/// The number of the axis at which rows begin, and how many elements a row has.
fn row_shape(call: &Call<'_>) -> Result<(usize, usize)> {
    let shape = call.shape(0)?;
    let at = axis(call.int_or("axis", -1)?, shape.len())?;
    Ok((at, count(shape.part(at..)?)))
}

/// The shape of what there is one of for each row.
fn shape_of_rows(call: &Call<'_>) -> Result<Vec<usize>> {
    let (at, _) = row_shape(call)?;
    let dims = call.shape(0)?.into_iter().enumerate();
    Ok(dims.map(|(i, dim)| if i < at { dim } else { 1 }).collect())
}

fn infer(call: &Call<'_>, form: &Form) -> Result<Vec<OutSpec>> {
    let (dtype, shape, (_, len)) = (call.dtype(0)?, call.shape(0)?, row_shape(call)?);
    if shape.len() != 2 && shape.len() != 3 {
        let reason = format!("the input has {} dimensions, not 2 or 3", shape.len());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    check_skip(call, &shape)?;
    check_rows(call, form, len)?;
    let of_rows = OutSpec::tensor(DataType::Float, shape_of_rows(call)?);
    let whole = OutSpec::tensor(dtype, shape);
    Ok(vec![whole.clone(), of_rows.clone(), of_rows, whole])
}

/// Whether `skip` has the shape of the input, or that of one batch of it.
fn check_skip(call: &Call<'_>, shape: &[usize]) -> Result<()> {
    let skip = call.shape(1)?;
    let is_one_batch = match (shape, skip.as_slice()) {
        ([_, a, b], [1, c, d] | [c, d]) => (a, b) == (c, d),
        _ => false,
    };
    if skip == shape || is_one_batch {
        return Ok(());
    }
    let reason = format!("`skip` of shape {skip:?} does not fit an input of shape {shape:?}");
    Err(Error::new(ErrorKind::Shape, reason))
}

/// Whether the inputs with one element for each of a row have so many.
fn check_rows(call: &Call<'_>, form: &Form, len: usize) -> Result<()> {
    for i in [Some(form.gamma), form.beta, form.bias].into_iter().flatten() {
        let found = if call.has_input(i) { count(&call.shape(i)?) } else { len };
        if found != len {
            let reason = format!("input {i} has {found} elements, not {len}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
    }
    Ok(())
}

fn infer_simplified(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (dtype, (_, len)) = (call.dtype(0)?, row_shape(call)?);
    if call.dtype(1)? != dtype {
        let scale = call.dtype(1)?;
        return Err(call.no_kernel(&format!("a scale of {scale} and an input of {dtype}")));
    }
    let stash = call.int_or("stash_type", 1)?;
    if stash != i64::from(DataType::Float.number()) {
        return Err(call.no_kernel(&format!("`stash_type` {stash}, only with 1, which is FLOAT")));
    }
    check_rows(call, &SIMPLIFIED, len)?;
    let of_rows = OutSpec::tensor(DataType::Float, shape_of_rows(call)?);
    Ok(vec![OutSpec::tensor(dtype, call.shape(0)?), of_rows])
}

/// The elements of the optional input `i`; none where it is left out.
fn optional<R: Real>(cx: &RunCx<'_>, i: Option<usize>) -> Result<Vec<R>> {
    match i.filter(|i| cx.has_input(*i)) {
        Some(i) => reals(cx, i),
        None => Ok(Vec::new()),
    }
}

/// Adds as many elements as `other` has, which may be none.
fn add<R: Real>(row: &mut [R], other: impl Iterator<Item = R>) {
    row.iter_mut().zip(other).for_each(|(x, other)| *x += other);
}

fn run<T: Float>(cx: &mut RunCx<'_>, form: &Form) -> Result<()> {
    let len = row_shape(cx)?.1.max(1);
    let epsilon = <T::Real as Real>::of(f64::from(cx.float_or("epsilon", form.epsilon)?));
    let gamma = reals::<T::Real>(cx, form.gamma)?;
    let (beta, bias) = (optional::<T::Real>(cx, form.beta)?, optional::<T::Real>(cx, form.bias)?);
    let skip = form.skip.map_or(Ok(&[][..]), |i| cx.input::<T>(i))?;
    let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    let sums = output_if::<T>(cx, form.sum)?;
    let mut sums = sums.chunks_exact_mut(len);
    let mut skips = skip.chunks_exact(len).cycle();
    let mut statistics = Vec::new();
    let mut row = Vec::with_capacity(len);
    for (x, y) in input.chunks_exact(len).zip(output.chunks_exact_mut(len)) {
        row.clear();
        row.extend(x.iter().map(|x| x.widen()));
        add(&mut row, skips.next().into_iter().flatten().map(|x| x.widen()));
        add(&mut row, bias.iter().copied());
        if let Some(sum) = sums.next() {
            sum.iter_mut().zip(&row).for_each(|(sum, x)| *sum = T::round_from(*x));
        }
        statistics.push(normalize(&mut row, form.is_centred, epsilon));
        row.iter_mut().zip(&gamma).for_each(|(x, gamma)| *x = *x * *gamma);
        add(&mut row, beta.iter().copied());
        y.iter_mut().zip(&row).for_each(|(y, x)| *y = T::round_from(*x));
    }
    write(cx, form.mean, statistics.iter().map(|(mean, _)| *mean))?;
    write(cx, Some(form.inverse), statistics.iter().map(|(_, inverse)| *inverse))
}

/// Output `j`, without elements where the operator has none such or the node leaves it out.
fn output_if<'a, T: Float>(cx: &mut RunCx<'a>, j: Option<usize>) -> Result<&'a mut [T]> {
    j.map_or(Ok(&mut []), |j| cx.output_or_empty(j))
}

/// The row, divided by the root of its variance or of the mean of its squares; what was subtracted,
/// and by what the row was multiplied.
fn normalize<R: Real>(row: &mut [R], is_centred: bool, epsilon: R) -> (R, R) {
    let (mean, variance) = match is_centred {
        true => moments(row),
        false => {
            let squares = row.iter().fold(R::ZERO, |sum, x| sum + *x * *x);
            (R::ZERO, squares / number(row.len()))
        }
    };
    let inverse = inverse(variance, epsilon);
    row.iter_mut().for_each(|x| *x = (*x - mean) * inverse);
    (mean, inverse)
}

/// Writes output `j`, of FLOAT, if it is asked for.
fn write<R: Real>(
    cx: &mut RunCx<'_>,
    j: Option<usize>,
    values: impl Iterator<Item = R>,
) -> Result<()> {
    let output = output_if::<f32>(cx, j)?;
    output.iter_mut().zip(values).for_each(|(y, x)| *y = Number::from_f64(x.to_f64()));
    Ok(())
}
