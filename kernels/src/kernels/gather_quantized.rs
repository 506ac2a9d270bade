//! GatherBlockQuantized: rows of a quantized table, dequantized.
//!
//! See <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. Codes of less
//! than a byte may be packed in UINT8, along the last dimension: then the table has more columns
//! than its tensor. Only what is gathered is read.

use onnx_container_proto::DataType;

use super::packed_codes::{check_bits, check_block, code_at, middle};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::narrow::decode;
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{around, axis, index, size, strides};
use crate::numeric::{Float, Number, for_type};

pub(super) const KERNELS: &[Builtin] = &[Builtin::of_onnxruntime(
    "GatherBlockQuantized",
    infer,
    |cx| for_type!(cx.dtype(2)?, floats, T => gather::<T>(cx)),
)];

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
        check_bits(call, bits)?;
        if let (DataType::Uint8, Some(last)) = (dtype, shape.last_mut()) {
            *last = last.saturating_mul(8 / bits);
        }
        let gathered = axis(call.int_or("gather_axis", 0)?, shape.len())?;
        let quantized = axis(call.int_or("quantize_axis", 1)?, shape.len())?;
        let mut block = size(call.int_or("block_size", 128)?)?;
        if block == 0 && !dtype.is_integer() {
            block = (*shape.at(quantized)?).max(1);
        } else {
            check_block(block)?;
        }
        let table = Self { dtype, bits, shape, gathered, quantized, block };
        table.check(call)?;
        Ok(table)
    }

    /// The shape of the blocks, each of which has a scale.
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
        let wrong = |i, name: &str, found: &[usize], needed: &[usize]| {
            let reason = format!("input {i} (`{name}`) has shape {found:?}, not {needed:?}");
            Error::new(ErrorKind::Shape, reason)
        };
        let (scales, blocks) = (call.shape(2)?, self.blocks());
        if !self.fits(&scales, &blocks) {
            return Err(wrong(2, "scales", &scales, &blocks));
        }
        if !call.has_input(3) {
            return Ok(());
        }
        let (zeros, needed) = (call.shape(3)?, self.zeros());
        if !self.dtype.is_integer() {
            return Err(call.no_kernel(&format!("zero points for codes of {}", self.dtype)));
        }
        if zeros != needed { Err(wrong(3, "zero_points", &zeros, &needed)) } else { Ok(()) }
    }

    /// Whether scales of shape `scales` serve these blocks. Those of floats are broadcast.
    fn fits(&self, scales: &[usize], blocks: &[usize]) -> bool {
        let is_broadcast = |i, dim| dim == 1 && i != self.quantized && !self.dtype.is_integer();
        let mut dims = scales.iter().zip(blocks).enumerate();
        scales.len() == blocks.len() && dims.all(|(i, (a, b))| a == b || is_broadcast(i, *a))
    }

    /// The zero point where there is no input for it.
    fn default_zero(&self) -> f32 {
        if self.dtype == DataType::Uint8 { middle(self.bits) } else { 0.0 }
    }

    /// What lies in steps of these `strides` for each block: the place of what belongs to the block
    /// of code `at`.
    fn place(&self, mut at: usize, strides: &[usize]) -> usize {
        let mut place = 0;
        for (i, (dim, stride)) in self.shape.iter().zip(strides).enumerate().rev() {
            let coordinate = at % dim.max(&1);
            at /= dim.max(&1);
            place +=
                stride * if i == self.quantized { coordinate / self.block } else { coordinate };
        }
        place
    }

    /// How many codes from `at` on follow one another in the last dimension, and in one block if
    /// the blocks are along that dimension.
    fn run(&self, at: usize) -> usize {
        let last = self.shape.last().map_or(1, |last| (*last).max(1));
        let column = at % last;
        match self.is_quantized_along_last() {
            true => (last - column).min(self.block - column % self.block),
            false => last - column,
        }
    }

    fn is_quantized_along_last(&self) -> bool {
        self.quantized + 1 == self.shape.len()
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

/// A table with what makes its codes numbers.
struct Source<'a, T> {
    table: Table,
    codes: &'a [u8],
    /// The numbers of the codes, without zero points.
    numbers: [f32; 256],
    scales: &'a [T],
    scale_strides: Vec<usize>,
    zeros: Option<&'a [u8]>,
    /// In codes: a row of packed ones begins with a byte.
    zero_strides: Vec<usize>,
}

impl<'a, T: Float> Source<'a, T> {
    fn new(cx: &RunCx<'a>) -> Result<Self> {
        let table = Table::new(cx)?;
        let number = decode(table.dtype).unwrap_or(f32::from);
        let shape = cx.shape(2)?;
        let scale_strides = shape.iter().zip(strides(&shape));
        let mut zeros = table.zeros();
        if let (DataType::Uint8, Some(last)) = (table.dtype, zeros.last_mut()) {
            *last = last.saturating_mul(8 / table.bits);
        }
        Ok(Self {
            codes: cx.bytes(0)?,
            numbers: std::array::from_fn(|code| u8::try_from(code).map_or(0.0, number)),
            scales: cx.input::<T>(2)?,
            scale_strides: scale_strides.map(|(dim, by)| if *dim == 1 { 0 } else { by }).collect(),
            zeros: if cx.has_input(3) { Some(cx.bytes(3)?) } else { None },
            zero_strides: strides(&zeros),
            table,
        })
    }

    /// Writes the numbers of the codes from `at` on.
    fn write(&self, mut at: usize, mut y: &mut [T]) -> Result<()> {
        while !y.is_empty() {
            let len = self.table.run(at).min(y.len());
            let (now, rest) = std::mem::take(&mut y).split_at_mut(len);
            self.write_run(at, now)?;
            (at, y) = (at + len, rest);
        }
        Ok(())
    }

    /// Writes the numbers of a [run](Table::run) of codes from `at` on.
    fn write_run(&self, at: usize, y: &mut [T]) -> Result<()> {
        let scale = self.table.place(at, &self.scale_strides);
        let zero = self.table.place(at, &self.zero_strides);
        if self.table.is_quantized_along_last() {
            let (scale, zero) = (self.scale(scale)?, self.zero(zero)?);
            for (i, y) in y.iter_mut().enumerate() {
                *y = self.number(at + i, scale, zero)?;
            }
            return Ok(());
        }
        let step = self.scale_strides.last().copied().unwrap_or(0);
        for (i, y) in y.iter_mut().enumerate() {
            *y = self.number(at + i, self.scale(scale + i * step)?, self.zero(zero + i)?)?;
        }
        Ok(())
    }

    #[inline]
    fn number(&self, at: usize, scale: f32, zero: f32) -> Result<T> {
        let number = self.decoded(self.codes, at)?;
        Ok(T::from_f64(f64::from((number - zero) * scale)))
    }

    #[inline]
    fn decoded(&self, codes: &[u8], at: usize) -> Result<f32> {
        let code = code_at(codes, self.table.bits, at)?;
        self.numbers.at(usize::from(code)).copied()
    }

    fn scale(&self, at: usize) -> Result<f32> {
        Ok(f32::from_f64(self.scales.at(at)?.to_f64()))
    }

    fn zero(&self, at: usize) -> Result<f32> {
        self.zeros.map_or_else(|| Ok(self.table.default_zero()), |zeros| self.decoded(zeros, at))
    }
}

fn gather<T: Float>(cx: &mut RunCx<'_>) -> Result<()> {
    let source = Source::<T>::new(cx)?;
    let (outer, dim, inner) = around(&source.table.shape, source.table.gathered);
    // An index of no row has zeros.
    let indices: Vec<_> = cx.integers(1)?.iter().map(|i| index(*i, dim).ok()).collect();
    let rows =
        (0..outer).flat_map(|o| indices.iter().map(move |i| Some((o * dim + (*i)?) * inner)));
    let output = cx.output::<T>(0)?;
    debug_assert_eq!(output.len(), outer * indices.len() * inner);
    for (row, y) in rows.zip(output.chunks_exact_mut(inner.max(1))) {
        match row {
            Some(row) => source.write(row, y)?,
            None => y.fill(T::ZERO),
        }
    }
    Ok(())
}
