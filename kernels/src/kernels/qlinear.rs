//! Operators of onnxruntime on quantized numbers, one element or one line at a time: QLinearAdd,
//! QLinearMul, QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax, QLinearWhere, QLinearConcat.
//!
//! Each operator is specified at
//! <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. Numbers are
//! dequantized to 32 bits, computed there, and quantized to the nearest code, ties to even. What
//! depends on one code alone is a table of all codes.

use onnx_container_proto::{DataType, Element};

use super::activation::sigmoid;
use super::elementwise::same;
use super::loops::zip_with;
use super::movement::joined;
use super::softmax::softmax;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::{Exact, OrBug};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::narrow::values;
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{around, axis, broadcast, broadcast_strides, offsets};
use crate::numeric::lines::lines;
use crate::numeric::nan::OneNan;
use crate::numeric::{Number, Real, not_taken};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::of_onnxruntime("QLinearAdd", infer_pairs, |cx| pairs(cx, |a, b| a + b)),
    Builtin::of_onnxruntime("QLinearMul", infer_pairs, |cx| pairs(cx, |a, b| a * b)),
    Builtin::of_onnxruntime("QLinearSigmoid", same, |cx| by_table(cx, sigmoid)),
    Builtin::of_onnxruntime("QLinearLeakyRelu", same, leaky_relu),
    Builtin::of_onnxruntime("QLinearSoftmax", same, quantized_softmax),
    Builtin::of_onnxruntime("QLinearWhere", infer_where, choose),
    Builtin::of_onnxruntime("QLinearConcat", infer_concat, concat),
];

/// Runs `$body` with `$Q` as the type of codes of `DataType` `$dtype`.
macro_rules! for_codes {
    ($dtype:expr, $Q:ident => $body:expr) => {
        match $dtype {
            DataType::Uint8 => {
                type $Q = u8;
                $body
            }
            DataType::Int8 => {
                type $Q = i8;
                $body
            }
            other => Err(not_taken(other)),
        }
    };
}
pub(super) use for_codes;

/// A type of codes.
pub(super) trait Code: Number + Element + OneNan {
    /// The code whose bits are `byte`.
    fn from_byte(byte: u8) -> Self;
}

impl Code for u8 {
    fn from_byte(byte: u8) -> Self {
        byte
    }
}

impl Code for i8 {
    fn from_byte(byte: u8) -> Self {
        byte.cast_signed()
    }
}

/// The scale and the zero point of a tensor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Linear {
    scale: f32,
    zero: f32,
}

impl Linear {
    /// Those of inputs `scale` and `zero`, of which the second may be left out.
    pub(super) fn new(call: &Call<'_>, scale: usize, zero: usize) -> Result<Self> {
        let of_scale = call.scalar::<f32>(scale)?;
        let of_zero = if call.has_input(zero) { values(call, zero)? } else { vec![0.0] };
        match *of_zero.as_slice() {
            [of_zero] => Ok(Self { scale: of_scale, zero: f32::of(of_zero) }),
            _ => {
                let reason = format!("input {zero} has {} elements, not one", of_zero.len());
                Err(Error::new(ErrorKind::Shape, reason))
            }
        }
    }

    /// The number of a code.
    pub(super) fn number(self, code: impl Number) -> f32 {
        (f32::of(code.to_f64()) - self.zero) * self.scale
    }

    /// The nearest code of a number.
    pub(super) fn code<Q: Number>(self, number: f32) -> Q {
        Q::from_f64(f64::from((number / self.scale).round_even()) + f64::from(self.zero))
    }
}

/// For each byte that stands for a code, the byte of the code that it becomes.
fn table<Q: Code>(from: Linear, to: Linear, f: impl Fn(f32) -> f32) -> [u8; 256] {
    let mut table = [0; 256];
    for (place, byte) in table.iter_mut().zip(0..=u8::MAX) {
        let code: Q = to.code(f(from.number(Q::from_byte(byte))));
        // One byte, whether it has a sign or not.
        *place = i128::to_le_bytes(code.to_i128())[0];
    }
    table
}

/// The codes of input `i` as `table` has them.
fn mapped(call: &Call<'_>, i: usize, table: &[u8; 256]) -> Result<Vec<u8>> {
    call.bytes(i)?.iter().map(|byte| table.at(usize::from(*byte)).copied()).collect()
}

/// `f` of each number of input 0, whose scales are inputs 1 and 3.
fn by_table(cx: &mut RunCx<'_>, f: impl Fn(f32) -> f32) -> Result<()> {
    let (from, to) = (Linear::new(cx, 1, 2)?, Linear::new(cx, 3, 4)?);
    let table = for_codes!(cx.dtype(0)?, Q => Ok(table::<Q>(from, to, f)))?;
    let codes = mapped(cx, 0, &table)?;
    cx.out_bytes(0)?.copy_from_slice(&codes);
    Ok(())
}

fn leaky_relu(cx: &mut RunCx<'_>) -> Result<()> {
    let alpha = cx.float_or("alpha", 0.01)?;
    by_table(cx, |x| if x < 0.0 { alpha * x } else { x })
}

/// The shape to which inputs 0 and 3 broadcast.
fn infer_pairs(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shape = broadcast(&[call.shape(0)?, call.shape(3)?])?;
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

/// `f` of each pair of numbers of inputs 0 and 3.
fn pairs(cx: &mut RunCx<'_>, f: impl Fn(f32, f32) -> f32) -> Result<()> {
    let (of_a, of_b) = (Linear::new(cx, 1, 2)?, Linear::new(cx, 4, 5)?);
    let (to, shapes) = (Linear::new(cx, 6, 7)?, [cx.shape(0)?, cx.shape(3)?]);
    for_codes!(cx.dtype(0)?, Q => {
        let second = cx.input::<Q>(3)?;
        zip_with(cx, &shapes, second, |a: Q, b: Q| -> Q {
            to.code(f(of_a.number(a), of_b.number(b)))
        })
    })
}

/// Attribute `opset` is the version of Softmax that is meant: before 13, a line is all elements
/// from `axis` on.
fn quantized_softmax(cx: &mut RunCx<'_>) -> Result<()> {
    let (from, to) = (Linear::new(cx, 1, 2)?, Linear::new(cx, 3, 4)?);
    let shape = cx.shape(0)?;
    let at = axis(cx.int_or("axis", -1)?, shape.len())?;
    let (_, dim, inner) = around(&shape, at);
    let (dim, inner) = if cx.int("opset")? < 13 { (dim * inner, 1) } else { (dim, inner) };
    for_codes!(cx.dtype(0)?, Q => {
        let (x, y) = (cx.input::<Q>(0)?, cx.output::<Q>(0)?);
        let mut row = Vec::with_capacity(dim);
        lines((x, dim), (y, dim), inner, |x, y| {
            row.clear();
            row.extend(x.iter().map(|x| from.number(*x)));
            softmax(&mut row);
            y.iter_mut().zip(&row).for_each(|(y, x)| *y = to.code(*x));
        });
        Ok(())
    })
}

/// The shapes of the condition and of the two tensors.
fn shapes_of_where(call: &Call<'_>) -> Result<[Vec<usize>; 3]> {
    Ok([call.shape(0)?, call.shape(1)?, call.shape(4)?])
}

fn infer_where(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(call.dtype(1)?, broadcast(&shapes_of_where(call)?)?)])
}

fn choose(cx: &mut RunCx<'_>) -> Result<()> {
    let (of_x, of_y) = (Linear::new(cx, 2, 3)?, Linear::new(cx, 5, 6)?);
    let to = Linear::new(cx, 7, 8)?;
    let tables = |from| for_codes!(cx.dtype(1)?, Q => Ok(table::<Q>(from, to, |x| x)));
    let (x, y) = (mapped(cx, 1, &tables(of_x)?)?, mapped(cx, 4, &tables(of_y)?)?);
    let condition = cx.input::<bool>(0)?;
    let shape = cx.out_shape(0)?;
    let [c, i, j] = shapes_of_where(cx)?.map(|own| broadcast_strides(&own, shape));
    let places = offsets(shape, &c).zip(offsets(shape, &i)).zip(offsets(shape, &j));
    for (byte, ((c, i), j)) in cx.out_bytes(0)?.iter_mut().zip(places) {
        *byte = if *condition.at(c)? { *x.at(i)? } else { *y.at(j)? };
    }
    Ok(())
}

/// The numbers of the inputs that are tensors to concatenate: each has a scale and a zero point
/// behind it.
fn tensors(call: &Call<'_>) -> Result<Vec<usize>> {
    let inputs = call.input_count();
    if inputs < 5 || inputs % 3 != 2 {
        let reason = format!("{inputs} inputs are not a scale, a zero point and tensors with both");
        return Err(Error::new(ErrorKind::InvalidModel, reason));
    }
    Ok((2..inputs).step_by(3).collect())
}

fn infer_concat(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (tensors, dtype) = (tensors(call)?, call.dtype(1)?);
    for i in &tensors {
        if call.dtype(*i)? != dtype || call.dtype(i + 2)? != dtype {
            let reason = format!("the tensor or zero point behind input {i} is not of {dtype}");
            return Err(Error::new(ErrorKind::Type, reason));
        }
    }
    let shapes = tensors.iter().map(|i| call.shape(*i)).collect::<Result<Vec<_>>>()?;
    let at = axis(call.int("axis")?, shapes.first().map_or(0, Vec::len))?;
    Ok(vec![OutSpec::tensor(dtype, joined(&shapes, at)?)])
}

/// Each tensor with the scale of the result, one block around the axis after the other.
fn concat(cx: &mut RunCx<'_>) -> Result<()> {
    let (to, dtype) = (Linear::new(cx, 0, 1)?, cx.dtype(1)?);
    let mut parts = Vec::new();
    for i in tensors(cx)? {
        let (from, shape) = (Linear::new(cx, i + 1, i + 2)?, cx.shape(i)?);
        let (_, dim, inner) = around(&shape, axis(cx.int("axis")?, shape.len())?);
        let table = for_codes!(dtype, Q => Ok(table::<Q>(from, to, |x| x)))?;
        parts.push((mapped(cx, i, &table)?, dim * inner));
    }
    let mut blocks: Vec<_> =
        parts.iter().map(|(codes, len)| (codes.chunks_exact((*len).max(1)), *len)).collect();
    let mut output = cx.out_bytes(0)?;
    while !output.is_empty() {
        for (block, len) in blocks.iter_mut().filter(|(_, len)| *len > 0) {
            let (target, rest) = output.split_at_mut(*len);
            target.copy_from_slice(block.next().or_bug("too few blocks")?);
            output = rest;
        }
    }
    Ok(())
}
