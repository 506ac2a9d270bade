//! MatMulNBits: a product with a matrix of codes of 2, 4 or 8 bits, which have scales by blocks.
//!
//! See <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. A few rows of
//! the codes at a time become numbers of 32 bits, and enter a product that has the order of sums of
//! MatMul. The product is rounded once, with its bias. So the result is that of a MatMul with the
//! dequantized matrix; `accuracy_level` allows for less, and is not needed.

use onnx_container_proto::DataType;
use pulp::Arch;

use super::normalization::reals;
use super::packed_codes::{check_bits, check_block, code, code_at, middle};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{count, each_of, index, size};
use crate::numeric::gemm::{Matrix, gemm};
use crate::numeric::profile::Profile;
use crate::numeric::{Float, for_type};

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::of_onnxruntime("MatMulNBits", infer, |cx| run(cx, Profile::Strict))];
pub(super) const FAST: &[Builtin] =
    &[Builtin::of_onnxruntime("MatMulNBits", infer, |cx| run(cx, Profile::Fast))];

/// How many rows of codes are dequantized at a time: so few that their numbers stay in the caches.
const ROWS: usize = 24;

/// The sizes of the matrix: `n` rows of `k` codes.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    n: usize,
    k: usize,
    bits: usize,
    /// The codes that share a scale.
    block: usize,
    /// How many blocks a row has; the last one may have codes that are not used.
    blocks: usize,
    /// Whether the matrix is left out: all products with it are 0.
    is_omitted: bool,
}

impl Sizes {
    fn new(call: &Call<'_>) -> Result<Self> {
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
    fn row(&self) -> usize {
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

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (sizes, dtype) = (Sizes::new(call)?, call.dtype(0)?);
    let of_zeros = if call.has_input(3) { call.dtype(3)? } else { dtype };
    if of_zeros != DataType::Uint8 && of_zeros != dtype {
        return Err(call.wrong_type(3, &format!("{of_zeros}, not UINT8 or {dtype}")));
    }
    let mut shape = call.shape(0)?;
    shape.pop();
    shape.push(sizes.n);
    Ok(vec![OutSpec::tensor(dtype, shape)])
}

/// The codes with what makes them numbers.
struct Weights<'a> {
    sizes: Sizes,
    codes: &'a [u8],
    scales: Vec<f32>,
    /// One for each scale, or one for all.
    zeros: Vec<f32>,
    /// The block whose scale each code of a row has, where that is not the block it lies in.
    groups: Option<Vec<usize>>,
}

impl<'a> Weights<'a> {
    fn new(cx: &RunCx<'a>, sizes: Sizes) -> Result<Self> {
        let groups = match cx.has_input(4) {
            true => Some(groups(cx, sizes)?),
            false => None,
        };
        let (codes, scales) = (cx.input::<u8>(1)?, reals(cx, 2)?);
        Ok(Self { sizes, codes, scales, zeros: zeros(cx, sizes)?, groups })
    }

    /// Writes the numbers of the row `n`.
    fn row(&self, n: usize, numbers: &mut [f32]) -> Result<()> {
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

fn run(cx: &mut RunCx<'_>, profile: Profile) -> Result<()> {
    for_type!(cx.dtype(0)?, floats, T => compute::<T>(cx, profile))
}

fn compute<T: Float>(cx: &mut RunCx<'_>, profile: Profile) -> Result<()> {
    let sizes = Sizes::new(cx)?;
    let bias = if cx.has_input(5) { reals::<f32>(cx, 5)? } else { vec![0.0; sizes.n] };
    if sizes.is_omitted {
        let rows = cx.output::<T>(0)?.chunks_exact_mut(sizes.n);
        rows.flat_map(|y| y.iter_mut().zip(&bias)).for_each(|(y, x)| *y = T::from_f64((*x).into()));
        return Ok(());
    }
    let weights = Weights::new(cx, sizes)?;
    let a = reals::<f32>(cx, 0)?;
    let y = cx.output::<T>(0)?;
    let m = each_of(y.len(), sizes.n);
    let a = Matrix::new(&a, m, sizes.k)?;
    let mut room = vec![0.0; ROWS.min(sizes.n) * sizes.k];
    for first in (0..sizes.n).step_by(ROWS) {
        let rows = ROWS.min(sizes.n - first);
        let numbers = room.part_mut(..rows * sizes.k)?;
        fill(&weights, first, numbers)?;
        let mut sums = vec![0.0; m * rows];
        gemm(profile, a, &Matrix::new(numbers, rows, sizes.k)?.transposed(), &mut sums)?;
        let bias = bias.part(first..first + rows)?;
        for (sums, y) in sums.chunks_exact(rows).zip(y.chunks_exact_mut(sizes.n)) {
            let y = y.part_mut(first..first + rows)?;
            y.iter_mut().zip(sums).zip(bias).for_each(|((y, sum), bias)| {
                *y = T::from_f64(f64::from(sum + bias));
            });
        }
    }
    Ok(())
}

/// Writes the numbers of the rows from `first` on, in the widest vectors of the processor.
fn fill(weights: &Weights<'_>, first: usize, numbers: &mut [f32]) -> Result<()> {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let rows = numbers.chunks_exact_mut(weights.sizes.k.max(1));
            (first..).zip(rows).try_for_each(|(n, row)| weights.row(n, row))
        },
    )
}
