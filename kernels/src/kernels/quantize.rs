//! Linear quantization: [QuantizeLinear](https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html),
//! [DequantizeLinear](https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html) and
//! [DynamicQuantizeLinear](https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html).
//!
//! A quotient is computed in the type of the scale, or of attribute `precision`, and rounded to the
//! nearest integer, ties to even. A product is computed in `f32` and rounded once to the type of
//! the output.

use half::{bf16, f16};
use onnx_container_proto::{DataType, Element};

use super::cast::dtype_of;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::narrow::{self, Rounding, bounds, codes, decode};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{around, axis, count, size};
use crate::numeric::{Number, Real, for_type, not_taken};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("QuantizeLinear", infer_quantize, quantize),
    Builtin::new("DequantizeLinear", infer_dequantize, dequantize),
    Builtin::new("DynamicQuantizeLinear", infer_dynamic, dynamic),
];

/// Which scale and zero point every element of input 0 has.
///
/// The elements are rows of `len`. All elements of a row share one parameter, or element n has the
/// n-th parameter of those that begin at the row's first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grain {
    len: usize,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One parameter for the tensor.
    Tensor,
    /// One parameter for each index of the axis, which has this length.
    Axis(usize),
    /// One parameter for each `block` neighbouring indices of the axis, whose length is `dim`.
    Blocks { block: usize, dim: usize },
}

impl Grain {
    /// The grain, from the shapes of inputs 0 and 1 and the attributes.
    fn of(call: &Call<'_>) -> Result<Self> {
        let (shape, scale) = (call.shape(0)?, call.shape(1)?);
        if call.has_input(2) && count(&call.shape(2)?) != count(&scale) {
            return Err(misfit("there are more or fewer zero points than scales"));
        }
        if count(&scale) == 1 {
            return Ok(Self { len: count(&shape).max(1), kind: Kind::Tensor });
        }
        let axis = axis(call.int_or("axis", 1)?, shape.len())?;
        let (_, dim, inner) = around(&shape, axis);
        let block = size(call.int_or("block_size", 0)?)?;
        let mut blocked = shape.clone();
        blocked.iter_mut().skip(axis).take(1).for_each(|dim| *dim = dim.div_ceil(block.max(1)));
        let kind = match scale.as_slice() {
            [scales] if block == 0 && *scales == dim => Kind::Axis(dim),
            scales if block > 0 && scales == blocked => Kind::Blocks { block, dim },
            _ => {
                let reason = format!(
                    "the shape {scale:?} of the scales does not fit {shape:?} at axis {axis} in blocks of {block}"
                );
                return Err(misfit(&reason));
            }
        };
        Ok(Self { len: inner.max(1), kind })
    }

    /// The parameters of row `row`.
    fn parameters<'p>(&self, all: &'p [Parameter], row: usize) -> Result<Row<'p>> {
        let one = |at: usize| Ok(Row::One(*all.at(at)?));
        match self.kind {
            Kind::Tensor => one(0),
            Kind::Axis(dim) => one(row % dim.max(1)),
            Kind::Blocks { block, dim } => {
                let (outer, index) = (row / dim.max(1), row % dim.max(1));
                let start = (outer * dim.div_ceil(block.max(1)) + index / block.max(1)) * self.len;
                Ok(Row::Each(all.part(start..start + self.len)?))
            }
        }
    }

    /// `f` of every element of `input` and its parameter, written to `output`.
    fn apply<A: Copy, B>(
        &self,
        all: &[Parameter],
        input: &[A],
        output: &mut [B],
        f: impl Fn(A, Parameter) -> B,
    ) -> Result<()> {
        let rows = input.chunks(self.len).zip(output.chunks_mut(self.len)).enumerate();
        for (row, (input, output)) in rows {
            let pairs = output.iter_mut().zip(input);
            match self.parameters(all, row)? {
                Row::One(parameter) => pairs.for_each(|(y, x)| *y = f(*x, parameter)),
                Row::Each(each) => {
                    pairs.zip(each).for_each(|((y, x), parameter)| *y = f(*x, *parameter));
                }
            }
        }
        Ok(())
    }
}

/// The parameters of a row.
enum Row<'p> {
    One(Parameter),
    Each(&'p [Parameter]),
}

/// A scale and its zero point.
#[derive(Debug, Clone, Copy)]
struct Parameter {
    scale: f32,
    zero: f64,
}

/// The scales of input 1 with the zero points of input 2, which may be left out.
fn parameters(call: &Call<'_>) -> Result<Vec<Parameter>> {
    let scales = narrow::values(call, 1)?;
    let zeros = if call.has_input(2) { narrow::values(call, 2)? } else { vec![0.0; scales.len()] };
    let pairs = scales.iter().zip(zeros);
    Ok(pairs.map(|(scale, zero)| Parameter { scale: f32::of(*scale), zero }).collect())
}

fn misfit(reason: &str) -> Error {
    Error::new(ErrorKind::Shape, reason)
}

/// The element type of attribute `name`; `None` where it is not set.
fn dtype_if(call: &Call<'_>, name: &str) -> Result<Option<DataType>> {
    if call.int_or(name, 0)? == 0 { Ok(None) } else { dtype_of(call, name).map(Some) }
}

fn infer_quantize(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    dtype_if(call, "precision")?;
    Grain::of(call)?;
    let asked = dtype_if(call, "output_dtype")?;
    let of_zero = if call.has_input(2) { Some(call.dtype(2)?) } else { None };
    if let (Some(asked), Some(of_zero)) = (asked, of_zero)
        && asked != of_zero
    {
        let reason = format!("output_dtype is {asked}, but the zero point is {of_zero}");
        return Err(Error::new(ErrorKind::Type, reason));
    }
    // ONNX has UINT8 where nothing states the type.
    let dtype = of_zero.or(asked).unwrap_or(DataType::Uint8);
    Ok(vec![OutSpec::tensor(dtype, call.shape(0)?)])
}

fn quantize(cx: &mut RunCx<'_>) -> Result<()> {
    let (grain, all, quotients) = (Grain::of(cx)?, parameters(cx)?, quotients(cx)?);
    let dtype = cx.out_dtype(0)?;
    let rounded = |x: f32, p: Parameter| f64::from(x.round_even()) + p.zero;
    macro_rules! integers {
        ($type:ty) => {{
            let output = cx.output::<$type>(0)?;
            grain.apply(&all, &quotients, output, |x, p| <$type>::from_f64(rounded(x, p)))
        }};
    }
    match dtype {
        DataType::Uint8 => integers!(u8),
        DataType::Int8 => integers!(i8),
        DataType::Uint16 => integers!(u16),
        DataType::Int16 => integers!(i16),
        _ => {
            let encode = Rounding::of(cx)?.encode(dtype)?;
            let mut codes = vec![0_u8; quotients.len()];
            match bounds(dtype) {
                Some((low, high)) => grain.apply(&all, &quotients, &mut codes, |x, p| {
                    encode(rounded(x, p).clamp(f64::from(low), f64::from(high)))
                }),
                None => {
                    grain.apply(&all, &quotients, &mut codes, |x, p| encode(f64::from(x) + p.zero))
                }
            }?;
            narrow::set_codes(cx, 0, codes.into_iter())
        }
    }
}

/// Every element of input 0, divided by its scale. The types in which they are computed are no
/// wider than `f32`.
fn quotients(cx: &RunCx<'_>) -> Result<Vec<f32>> {
    let precision = match dtype_if(cx, "precision")? {
        Some(precision) => precision,
        None => cx.dtype(1)?,
    };
    macro_rules! of {
        ($($dtype:ident $type:ty),*) => {
            match cx.dtype(0)? {
                $(DataType::$dtype => match precision {
                    DataType::Float16 => quotients_in::<$type, f16>(cx),
                    DataType::Bfloat16 => quotients_in::<$type, bf16>(cx),
                    _ => quotients_in::<$type, f32>(cx),
                },)*
                other => Err(not_taken(other)),
            }
        };
    }
    of!(Float f32, Float16 f16, Bfloat16 bf16, Int32 i32)
}

fn quotients_in<S: Number, P: Number>(cx: &RunCx<'_>) -> Result<Vec<f32>> {
    let (grain, all, input) = (Grain::of(cx)?, parameters(cx)?, cx.input::<S>(0)?);
    let mut quotients = vec![0.0; input.len()];
    grain.apply(&all, input, &mut quotients, |x, p| {
        let scale = P::from_f64(f64::from(p.scale));
        f32::of(P::from_f64(x.to_f64()).div(scale).to_f64())
    })?;
    Ok(quotients)
}

fn infer_dequantize(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Grain::of(call)?;
    let dtype = match dtype_if(call, "output_dtype")? {
        Some(asked) => asked,
        None => call.dtype(1)?,
    };
    Ok(vec![OutSpec::tensor(dtype, call.shape(0)?)])
}

fn dequantize(cx: &mut RunCx<'_>) -> Result<()> {
    let from = cx.dtype(0)?;
    for_type!(cx.out_dtype(0)?, floats, O => match decode(from) {
        Some(decode) => {
            let codes = codes(cx, 0)?;
            dequantize_as::<u8, O>(cx, &codes, |code| f64::from(decode(code)))
        }
        None => for_type!(from, integers, S => {
            dequantize_as::<S, O>(cx, cx.input(0)?, Number::to_f64)
        }),
    })
}

fn dequantize_as<S: Copy, O: Number>(
    cx: &mut RunCx<'_>,
    input: &[S],
    value: impl Fn(S) -> f64,
) -> Result<()> {
    let (grain, all, output) = (Grain::of(cx)?, parameters(cx)?, cx.output::<O>(0)?);
    grain.apply(&all, input, output, |x, p| {
        O::from_f64(f64::from(f32::of(value(x) - p.zero) * p.scale))
    })
}

fn infer_dynamic(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let scalar = |dtype| OutSpec::tensor(dtype, []);
    let quantized = OutSpec::tensor(DataType::Uint8, call.shape(0)?);
    Ok(vec![quantized, scalar(DataType::Float), scalar(DataType::Uint8)])
}

fn dynamic(cx: &mut RunCx<'_>) -> Result<()> {
    let input = cx.input::<f32>(0)?;
    let (scale, zero) = range(input);
    if let Some(output) = cx.output_if::<u8>(0)? {
        output.iter_mut().zip(input).for_each(|(y, x)| *y = to_byte(*x, scale, zero));
    }
    fill_if(cx, 1, scale)?;
    fill_if(cx, 2, zero)
}

fn fill_if<T: Element>(cx: &mut RunCx<'_>, j: usize, value: T) -> Result<()> {
    cx.output_if::<T>(j)?.into_iter().for_each(|output| output.fill(value));
    Ok(())
}

/// The scale and zero point with which the numbers of a byte cover the range of `values` and 0.
pub(super) fn range(values: &[f32]) -> (f32, u8) {
    let high = values.iter().fold(0.0_f32, |high, x| if *x > high { *x } else { high });
    let low = values.iter().fold(0.0_f32, |low, x| if *x < low { *x } else { low });
    let scale = if high == low { 1.0 / 255.0 } else { (high - low) / 255.0 };
    let zero = (-low / scale).clamp(0.0, 255.0).round_even();
    (scale, u8::from_f64(f64::from(zero)))
}

/// `x` quantized to a byte.
pub(super) fn to_byte(x: f32, scale: f32, zero: u8) -> u8 {
    u8::from_f64(f64::from((x / scale).round_even()) + f64::from(zero))
}
