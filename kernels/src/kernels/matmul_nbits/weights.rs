//! The matrix of a MatMulNBits: its sizes, held to the inputs, and its codes with what makes them
//! numbers.

use onnx_container_proto::DataType;

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::call::Call;
use crate::kernel::run_cx::RunCx;
use crate::kernels::normalization::reals;
use crate::kernels::packed_codes::{check_bits, check_block, code, code_at, middle};
use crate::numeric::broadcast::{count, index, size};

/// The sizes of the matrix: `n` rows of `k` codes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) bits: usize,
    /// The codes that share a scale.
    pub(super) block: usize,
    /// How many blocks a row has; the last one may have codes that are not used.
    pub(super) blocks: usize,
    /// Whether the matrix is left out: all products with it are 0.
    pub(super) is_omitted: bool,
}

impl Sizes {
    pub(super) fn new(call: &Call<'_>) -> Result<Self> {
        let (n, k) = (size(call.int("N")?)?, size(call.int("K")?)?);
        let (bits, block) = (size(call.int_or("bits", 4)?)?, size(call.int("block_size")?)?);
        if n == 0 || k == 0 {
            let reason = format!("a matrix of {n} x {k} codes has no blocks");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
        check_bits(call, bits)?;
        check_block(block)?;
        if call.int_or("weight_prepacked", 0)? != 0 {
            return Err(call.no_kernel("`weight_prepacked`, whose layout belongs to a device"));
        }
        let mut sizes = Self { n, k, bits, block, blocks: k.div_ceil(block), is_omitted: false };
        sizes.is_omitted = sizes.is_omitted(&call.shape(1)?);
        if call.has_input(4) && !sizes.is_omitted {
            check_groups(call, bits)?;
        }
        sizes.check(call)?;
        Ok(sizes)
    }

    /// Whether codes of shape `shape` leave the matrix out: a dimension or several are 0.
    fn is_omitted(&self, shape: &[usize]) -> bool {
        let needed = [self.n, self.blocks, self.block / 8 * self.bits];
        let mut dims = shape.iter().zip(needed);
        shape.len() == 3 && shape.contains(&0) && dims.all(|(dim, it)| *dim == 0 || *dim == it)
    }

    /// The bytes of the codes of a row.
    pub(super) fn row(&self) -> usize {
        self.blocks.saturating_mul(self.block / 8 * self.bits)
    }

    /// The bytes of the zero points of a row, if they are packed as the codes are.
    fn zeros(&self) -> usize {
        self.blocks.saturating_mul(self.bits).div_ceil(8)
    }

    /// Whether the inputs have as many elements as they need.
    fn check(&self, call: &Call<'_>) -> Result<()> {
        if call.shape(0)?.last() != Some(&self.k) {
            let reason = format!("A of shape {:?} has no rows of K = {}", call.shape(0)?, self.k);
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        let by_block = self.n.saturating_mul(self.blocks);
        let of_zeros = match call.has_input(3) && call.dtype(3)? == DataType::Uint8 {
            true => self.n.saturating_mul(self.zeros()),
            false => by_block,
        };
        let lengths = [
            (1, "B", self.n.saturating_mul(self.row())),
            (2, "scales", by_block),
            (3, "zero_points", of_zeros),
            (5, "bias", self.n),
        ];
        // Of a matrix that is left out nothing is read.
        let is_read = |i| call.has_input(i) && (i == 5 || !self.is_omitted);
        for (i, name, needed) in lengths.into_iter().filter(|(i, ..)| is_read(*i)) {
            let found = count(&call.shape(i)?);
            if found != needed {
                let reason = format!("input {i} (`{name}`) has {found} elements, not {needed}");
                return Err(Error::new(ErrorKind::Shape, reason));
            }
        }
        if is_read(4) && count(&call.shape(4)?) < self.k {
            let reason = format!("input 4 (`g_idx`) has less than K = {} elements", self.k);
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        Ok(())
    }
}

/// Refuses groups where the result would not be that of onnxruntime on the CPU, which leaves out
/// packed zero points, and takes codes of other widths for those of 4 bits or refuses them.
fn check_groups(call: &Call<'_>, bits: usize) -> Result<()> {
    if bits != 4 {
        return Err(call.no_kernel(&format!("`g_idx` and `bits` {bits}, only with 4")));
    }
    if call.has_input(3) && call.dtype(3)? == DataType::Uint8 {
        return Err(call.no_kernel("`g_idx` and packed zero points"));
    }
    Ok(())
}

/// The codes with what makes them numbers.
pub(super) struct Weights<'a> {
    pub(super) sizes: Sizes,
    pub(super) codes: &'a [u8],
    pub(super) scales: Vec<f32>,
    /// One for each scale, or one for all.
    pub(super) zeros: Vec<f32>,
    /// The block whose scale each code of a row has, where that is not the block it lies in.
    pub(super) groups: Option<Vec<usize>>,
}

impl<'a> Weights<'a> {
    pub(super) fn new(cx: &RunCx<'a>, sizes: Sizes) -> Result<Self> {
        let groups = match cx.has_input(4) {
            true => Some(groups(cx, sizes)?),
            false => None,
        };
        let (codes, scales) = (cx.input::<u8>(1)?, reals(cx, 2)?);
        Ok(Self { sizes, codes, scales, zeros: zeros(cx, sizes)?, groups })
    }

    /// Writes the numbers of the row `n`.
    pub(super) fn row(&self, n: usize, numbers: &mut [f32]) -> Result<()> {
        let Sizes { bits, block, blocks, .. } = self.sizes;
        let len = self.sizes.row();
        let codes = self.codes.part(n * len..(n + 1) * len)?;
        let scales = self.scales.part(n * blocks..(n + 1) * blocks)?;
        let zeros = match self.zeros.as_slice() {
            one @ [_] => one,
            zeros => zeros.part(n * blocks..(n + 1) * blocks)?,
        };
        if let Some(groups) = &self.groups {
            return by_group(codes, (scales, zeros), bits, groups, numbers);
        }
        let parameters = scales.iter().zip(zeros.iter().cycle());
        let parts = codes.chunks_exact(block / 8 * bits).zip(numbers.chunks_mut(block));
        for ((codes, numbers), (scale, zero)) in parts.zip(parameters) {
            match bits {
                2 => dequantize::<2, 4>(codes, *scale, *zero, numbers),
                4 => dequantize::<4, 2>(codes, *scale, *zero, numbers),
                _ => dequantize::<8, 1>(codes, *scale, *zero, numbers),
            }
        }
        Ok(())
    }
}

/// The numbers of a block, of `EACH` codes in a byte.
#[inline(always)]
fn dequantize<const BITS: usize, const EACH: usize>(
    codes: &[u8],
    scale: f32,
    zero: f32,
    numbers: &mut [f32],
) {
    let number = |byte: u8, i: usize| (f32::from(code::<BITS>(byte, i)) - zero) * scale;
    let (whole, rest) = numbers.as_chunks_mut::<EACH>();
    let mut codes = codes.iter();
    for (numbers, byte) in whole.iter_mut().zip(&mut codes) {
        *numbers = std::array::from_fn(|i| number(*byte, i));
    }
    if let Some(byte) = codes.next() {
        rest.iter_mut().enumerate().for_each(|(i, x)| *x = number(*byte, i));
    }
}

/// The numbers of a row of which each code has the scale and zero point of its group.
fn by_group(
    codes: &[u8],
    (scales, zeros): (&[f32], &[f32]),
    bits: usize,
    groups: &[usize],
    numbers: &mut [f32],
) -> Result<()> {
    for (k, (number, group)) in numbers.iter_mut().zip(groups).enumerate() {
        let zero = zeros.at(if zeros.len() == 1 { 0 } else { *group })?;
        *number = (f32::from(code_at(codes, bits, k)?) - zero) * scales.at(*group)?;
    }
    Ok(())
}

/// The elements of `g_idx`, each the number of a block.
fn groups(cx: &RunCx<'_>, sizes: Sizes) -> Result<Vec<usize>> {
    let groups = cx.input::<i32>(4)?.iter().take(sizes.k);
    groups.map(|group| index(i64::from(*group), sizes.blocks)).collect()
}

/// The zero points: one for each scale, or one for all, which is the middle of the codes.
fn zeros(cx: &RunCx<'_>, sizes: Sizes) -> Result<Vec<f32>> {
    if !cx.has_input(3) {
        return Ok(vec![middle(sizes.bits)]);
    }
    if cx.dtype(3)? != DataType::Uint8 {
        return reals(cx, 3);
    }
    let rows = cx.input::<u8>(3)?.chunks_exact(sizes.zeros().max(1));
    let each = |row| (0..sizes.blocks).map(move |at| code_at(row, sizes.bits, at).map(f32::from));
    rows.flat_map(each).collect()
}
