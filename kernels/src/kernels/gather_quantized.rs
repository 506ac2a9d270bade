//! GatherBlockQuantized: rows of a quantized table, dequantized.
//!
//! See <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. Codes of less
//! than a byte may be packed in UINT8, along the last dimension: then the table has more columns
//! than its tensor. Only what is gathered is read.

use onnx_container_proto::DataType;

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::narrow::decode;
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{around, axis, count, index, size};
use crate::numeric::{Float, Number, for_type};

pub(super) const KERNELS: &[Builtin] = &[Builtin::new(
    "GatherBlockQuantized",
    infer,
    |cx| for_type!(cx.dtype(2)?, floats, T => gather::<T>(cx)),
)
.domain("com.microsoft")];

/// A table of codes, with a scale for each `block` of them along an axis.
struct Table {
    dtype: DataType,
    bits: usize,
    /// The shape in codes.
    shape: Vec<usize>,
    gathered: usize,
    /// The axis along which there are blocks, and the length of a block.
    quantized: usize,
    block: usize,
}

impl Table {
    fn new(call: &Call<'_>) -> Result<Self> {
        let (dtype, mut shape) = (call.dtype(0)?, call.shape(0)?);
        let stated = size(call.int_or("bits", 4)?)?;
        let bits = if dtype == DataType::Uint8 { stated } else { width(dtype)? };
        if !matches!(bits, 2 | 4 | 8) {
            return Err(call.no_kernel(&format!("`bits` {bits} of {dtype}")));
        }
        if let (DataType::Uint8, Some(last)) = (dtype, shape.last_mut()) {
            *last = last.saturating_mul(8 / bits);
        }
        let gathered = axis(call.int_or("gather_axis", 0)?, shape.len())?;
        let quantized = axis(call.int_or("quantize_axis", 1)?, shape.len())?;
        let block = size(call.int_or("block_size", 128)?)?;
        if block < 16 || !block.is_power_of_two() {
            let reason = format!("`block_size` is {block}, not a power of two from 16 on");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
        let table = Self { dtype, bits, shape, gathered, quantized, block };
        table.check(call)?;
        Ok(table)
    }

    /// The shape of the scales.
    fn blocks(&self) -> Vec<usize> {
        let dims = self.shape.iter().enumerate();
        dims.map(|(i, dim)| if i == self.quantized { dim.div_ceil(self.block) } else { *dim })
            .collect()
    }

    /// The shape of the zero points, which are packed as the codes are.
    fn zeros(&self) -> Vec<usize> {
        let mut shape = self.blocks();
        if let (DataType::Uint8, Some(last)) = (self.dtype, shape.last_mut()) {
            *last = last.saturating_mul(self.bits).div_ceil(8);
        }
        shape
    }

    /// Whether scales and zero points have the shapes that belong to the table.
    fn check(&self, call: &Call<'_>) -> Result<()> {
        let zeros = if call.has_input(3) { Some((3, "zero_points", self.zeros())) } else { None };
        for (i, name, needed) in [(2, "scales", self.blocks())].into_iter().chain(zeros) {
            if call.shape(i)? != needed {
                let found = call.shape(i)?;
                let reason = format!("input {i} (`{name}`) has shape {found:?}, not {needed:?}");
                return Err(Error::new(ErrorKind::Shape, reason));
            }
        }
        if call.has_input(3) && !self.dtype.is_integer() {
            return Err(call.no_kernel(&format!("zero points for codes of {}", self.dtype)));
        }
        Ok(())
    }

    /// The zero point where there is no input for it.
    fn default_zero(&self) -> f32 {
        if self.dtype == DataType::Uint8 { f32::from(1_u8 << (self.bits - 1)) } else { 0.0 }
    }

    /// The value of code `at` of `codes`, without its zero point.
    fn value(&self, codes: &[u8], at: usize) -> Result<f32> {
        let each = 8 / self.bits;
        let byte = codes.at(at / each)? >> (at % each * self.bits);
        let code = byte & (u8::MAX >> (8 - self.bits));
        Ok(decode(self.dtype).map_or(f32::from(code), |value| value(code)))
    }

    /// The number of the block of code `at`.
    fn block_of(&self, at: usize) -> usize {
        let (_, dim, inner) = around(&self.shape, self.quantized);
        let (dim, inner) = (dim.max(1), inner.max(1));
        let (row, place) = (at / inner, at % inner);
        let (outer, i) = (row / dim, row % dim);
        (outer * dim.div_ceil(self.block) + i / self.block) * inner + place
    }

    /// The place of the zero point of block `block`, in codes: rows in UINT8 begin with a byte.
    fn zero_at(&self, block: usize) -> usize {
        if self.dtype != DataType::Uint8 {
            return block;
        }
        let len = self.blocks().last().map_or(1, |len| (*len).max(1));
        block / len * len.next_multiple_of(8 / self.bits) + block % len
    }
}

/// The bits of an element.
fn width(dtype: DataType) -> Result<usize> {
    let bits = dtype.bit_width().map(usize::from);
    bits.ok_or_else(|| crate::numeric::not_taken(dtype))
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (table, indices) = (Table::new(call)?, call.shape(1)?);
    let (outer, rest) = (table.shape.part(..table.gathered)?, table.shape.part(table.gathered..)?);
    let shape = [outer, &indices, rest.part(1..)?].concat();
    Ok(vec![OutSpec::tensor(call.dtype(2)?, shape)])
}

fn gather<T: Float>(cx: &mut RunCx<'_>) -> Result<()> {
    let table = Table::new(cx)?;
    let (outer, dim, inner) = around(&table.shape, table.gathered);
    let indices = cx.integers(1)?.iter().map(|i| index(*i, dim)).collect::<Result<Vec<_>>>()?;
    let (codes, scales) = (cx.bytes(0)?, cx.input::<T>(2)?);
    let zeros = if cx.has_input(3) { Some(cx.bytes(3)?) } else { None };
    let rows = (0..outer).flat_map(|o| indices.iter().map(move |i| (o * dim + i) * inner));
    let output = cx.output::<T>(0)?;
    debug_assert_eq!(output.len(), outer * indices.len() * inner);
    for (row, y) in rows.zip(output.chunks_exact_mut(inner.max(1))) {
        for (at, y) in (row..).zip(y) {
            let block = table.block_of(at);
            let zero = match zeros {
                Some(zeros) => table.value(zeros, table.zero_at(block))?,
                None => table.default_zero(),
            };
            let scale = f32::from_f64(scales.at(block)?.to_f64());
            *y = T::from_f64(f64::from((table.value(codes, at)? - zero) * scale));
        }
    }
    debug_assert_eq!(count(&table.blocks()), scales.len());
    Ok(())
}
