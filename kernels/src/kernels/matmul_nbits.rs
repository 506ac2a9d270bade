//! MatMulNBits: a product with a matrix of codes of 2, 4 or 8 bits, which have scales by blocks.
//!
//! See <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. A few rows of
//! the codes at a time become numbers of 32 bits, and enter a product that has the order of sums of
//! MatMul; the product of one row is computed in `one_row`. The product is rounded once, with its
//! bias. So the result is that of a MatMul with the dequantized matrix; `accuracy_level` allows for
//! less, and is not needed.

mod one_row;
mod weights;

use onnx_container_proto::DataType;
use pulp::Arch;

use self::one_row::OneRow;
use self::weights::{Sizes, Weights};
use super::normalization::reals;
use crate::error::Result;
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::each_of;
use crate::numeric::gemm::{Matrix, gemm};
use crate::numeric::profile::Profile;
use crate::numeric::{Float, for_type};

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::of_onnxruntime("MatMulNBits", infer, |cx| run(cx, Profile::Strict))];
pub(super) const FAST: &[Builtin] =
    &[Builtin::of_onnxruntime("MatMulNBits", infer, |cx| run(cx, Profile::Fast))];

/// How many rows of codes are dequantized at a time: so few that their numbers stay in the caches.
const ROWS: usize = 24;

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
    if m == 1 && weights.groups.is_none() {
        let mut sums = vec![0.0; sizes.n];
        let (fused, sums_of_row) = (profile == Profile::Fast, sums.as_mut_slice());
        Arch::new().dispatch(OneRow { fused, weights: &weights, a: &a, sums: sums_of_row });
        write(y, &sums, &bias);
        return Ok(());
    }
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
            write(y.part_mut(first..first + rows)?, sums, bias);
        }
    }
    Ok(())
}

/// Writes the sums with their bias.
fn write<T: Float>(y: &mut [T], sums: &[f32], bias: &[f32]) {
    let all = y.iter_mut().zip(sums).zip(bias);
    all.for_each(|((y, sum), bias)| *y = T::from_f64(f64::from(sum + bias)));
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
