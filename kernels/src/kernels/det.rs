//! Det: the determinant of each matrix in the last two dimensions.
//!
//! See <https://onnx.ai/onnx/operators/onnx__Det.html>. Gaussian elimination, with the highest
//! pivot of a column.

use crate::error::{Error, ErrorKind, Result};
use crate::exact::{Exact, OrBug};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::{Float, Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::new("Det", infer, |cx| for_type!(cx.dtype(0)?, floats, T => determinants::<T>(cx)))];

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    match call.shape(0)?.as_slice() {
        [outer @ .., rows, columns] if rows == columns => {
            Ok(vec![OutSpec::tensor(call.dtype(0)?, outer)])
        }
        shape => {
            let reason = format!("a tensor of shape {shape:?} has no square matrices");
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

fn determinants<T: Float>(cx: &mut RunCx<'_>) -> Result<()> {
    let size = *cx.shape(0)?.last().or_bug("a matrix without dimensions")?;
    let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    output.fill(T::ONE); // of matrices without elements
    for (y, matrix) in output.iter_mut().zip(input.chunks_exact(size.saturating_mul(size).max(1))) {
        let rows = matrix.chunks_exact(size.max(1));
        let rows = rows.map(|row| row.iter().map(|x| x.widen()).collect()).collect();
        *y = T::round_from(determinant(rows));
    }
    Ok(())
}

/// The product of the pivots. Each step takes out the row with the highest first element, and the
/// first element of every other row.
fn determinant<R: Real>(mut rows: Vec<Vec<R>>) -> R {
    let mut product = R::ONE;
    let first = |row: &Vec<R>| row.debug_at(0, R::ZERO);
    while !rows.is_empty() {
        let higher = |best: usize, i: usize| {
            let abs = |i: usize| rows.get(i).map_or(R::ZERO, |row| Number::abs(first(row)));
            if abs(i) > abs(best) { i } else { best }
        };
        let at = (0..rows.len()).fold(0, higher);
        rows.swap(0, at);
        let pivot_row = rows.remove(0);
        let pivot = first(&pivot_row);
        product = product * if at == 0 { pivot } else { -pivot };
        for row in &mut rows {
            let factor = if pivot == R::ZERO { R::ZERO } else { first(row) / pivot };
            let rest = row.iter().zip(&pivot_row).skip(1);
            *row = rest.map(|(x, top)| *x - factor * *top).collect();
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_change_places_change_the_sign() {
        assert_eq!(determinant(vec![vec![0.0_f32, 1.0], vec![1.0, 0.0]]), -1.0);
        assert_eq!(determinant(vec![vec![0.0_f64, 2.0], vec![0.0, 3.0]]), 0.0);
        assert_eq!(determinant::<f32>(Vec::new()), 1.0);
    }
}
