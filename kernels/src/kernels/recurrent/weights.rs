//! The weights W and R of recurrent layers, for products with the input and the state.

use super::super::quantize::{range, to_byte};
use super::{Layer, part, wide};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::call::Call;
use crate::kernel::narrow::values;
use crate::numeric::broadcast::each_of;
use crate::numeric::gemm::{Matrix, gemm};
use crate::numeric::profile::Profile;
use crate::numeric::{Float, Number, Real};

/// The weights of one direction, for vectors of `depth` elements.
pub(super) enum Weights<R> {
    /// A matrix of `depth` columns.
    Floats { depth: usize, elements: Vec<R> },
    /// A matrix of `depth` rows: integers without their zero points, and the scale of every column.
    Integers { depth: usize, elements: Vec<i32>, scales: Vec<f32> },
}

impl<R: Real> Weights<R> {
    /// Those in input `i`.
    pub(super) fn of<T: Float<Real = R>>(
        call: &Call<'_>,
        layer: &Layer,
        i: usize,
        depth: usize,
        direction: usize,
    ) -> Result<Self> {
        let len = call.shape(i)?.iter().skip(1).product();
        if layer.quantized {
            return Self::integers(call, i, depth, direction);
        }
        Ok(Self::Floats { depth, elements: part(&wide::<T>(call, i)?, direction, len)?.to_vec() })
    }

    /// Scales and zero points of input 1 are inputs 8 and 9, and those of input 2 are inputs 10
    /// and 11.
    fn integers(call: &Call<'_>, i: usize, depth: usize, direction: usize) -> Result<Self> {
        let &[directions, _, columns] = &*call.shape(i)? else {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("input {i} has not three dimensions"),
            ));
        };
        let each = |from: usize| -> Result<Vec<f64>> {
            let all = values(call, from)?;
            match part(&all, direction, each_of(all.len(), directions))? {
                [one] => Ok(vec![*one; columns]),
                each if each.len() == columns => Ok(each.to_vec()),
                each => {
                    let reason =
                        format!("input {from} has {} elements, not 1 or {columns}", each.len());
                    Err(Error::new(ErrorKind::Shape, reason))
                }
            }
        };
        let (scales, zeros) = (each(6 + 2 * i)?, each(7 + 2 * i)?);
        let all = values(call, i)?;
        let elements = part(&all, direction, depth * columns)?;
        let elements = elements.iter().zip(zeros.iter().cycle()).map(|(x, zero)| x - zero);
        let scales = scales.into_iter().map(f32::of).collect();
        Ok(Self::Integers {
            depth,
            elements: elements.map(<i32 as Number>::from_f64).collect(),
            scales,
        })
    }

    /// Adds the product of the vectors in `x` with the weights to `result`.
    pub(super) fn add_product(&self, x: &[R], result: &mut [R]) -> Result<()> {
        match self {
            Self::Floats { depth, elements } => add(x, elements, *depth, result),
            Self::Integers { depth, elements, scales } => {
                let x: Vec<f32> = x.iter().map(|x| f32::of(x.to_f64())).collect();
                let columns = scales.len();
                let Some(rows) = result.len().checked_div(columns) else { return Ok(()) };
                let (scale, zero) = range(&x);
                let bytes = x.iter().map(|x| i32::from(to_byte(*x, scale, zero)) - i32::from(zero));
                let (bytes, mut sums) = (bytes.collect::<Vec<_>>(), vec![0; result.len()]);
                let matrix = Matrix::new(elements.as_slice(), *depth, columns)?;
                gemm(Profile::Strict, Matrix::new(&bytes, rows, *depth)?, &matrix, &mut sums)?;
                for ((y, sum), of_column) in result.iter_mut().zip(&sums).zip(scales.iter().cycle())
                {
                    let product = f32::of(f64::from(*sum)) * (scale * of_column);
                    *y += R::of(f64::from(product));
                }
                Ok(())
            }
        }
    }

    /// The first `at` rows, and the others.
    pub(super) fn split(self, at: usize) -> Result<(Self, Self)> {
        match self {
            Self::Floats { depth, mut elements } => {
                let rest = elements.split_off((at * depth).min(elements.len()));
                Ok((Self::Floats { depth, elements }, Self::Floats { depth, elements: rest }))
            }
            Self::Integers { .. } => Err(Error::internal("the gates of integers are not split")),
        }
    }
}

/// Adds the product of `x` and the transpose of `elements`, of which `depth` is the number of
/// columns.
fn add<R: Real>(x: &[R], elements: &[R], depth: usize, result: &mut [R]) -> Result<()> {
    let (Some(rows), Some(columns)) =
        (x.len().checked_div(depth), elements.len().checked_div(depth))
    else {
        return Ok(());
    };
    gemm(
        Profile::Strict,
        Matrix::new(x, rows, depth)?,
        &Matrix::new(elements, columns, depth)?.transposed(),
        result,
    )
}
