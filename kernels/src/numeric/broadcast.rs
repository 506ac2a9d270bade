//! Shapes and indices that families of kernels have in common: broadcasting, axes, strides.
//!
//! [Broadcasting](https://github.com/onnx/onnx/blob/main/docs/Broadcasting.md) aligns shapes at
//! their last dimension and repeats dimensions of 1. Nothing here reads elements.

use crate::error::{Error, ErrorKind, Result};

/// The shape to which all of `shapes` broadcast.
///
/// # Errors
/// [`ErrorKind::Shape`] when two dimensions differ and none of them is 1.
pub(crate) fn broadcast(shapes: &[Vec<usize>]) -> Result<Vec<usize>> {
    let rank = shapes.iter().map(Vec::len).fold(0, usize::max);
    let mut result = vec![1; rank];
    for shape in shapes {
        for (dim, size) in result.iter_mut().rev().zip(shape.iter().rev()) {
            match (*dim, *size) {
                (1, size) => *dim = size,
                (dim, size) if size == 1 || size == dim => {}
                _ => {
                    let reason = format!("the shapes {shapes:?} do not broadcast");
                    return Err(Error::new(ErrorKind::Shape, reason));
                }
            }
        }
    }
    Ok(result)
}

/// The number of elements; `usize::MAX` for more than that, which no memory has.
pub fn count(shape: &[usize]) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    shape.iter().fold(1, |count: usize, dim| count.saturating_mul(*dim))
}

/// How many of `len` elements each of `parts` equal parts has: none where there are no parts, which
/// then have no elements either.
pub(crate) fn each_of(len: usize, parts: usize) -> usize {
    len.checked_div(parts).unwrap_or(0)
}

/// The number as a length; `usize::MAX` for a larger one, which no memory has, and for a negative
/// one.
pub fn saturated(number: impl TryInto<usize>) -> usize {
    number.try_into().unwrap_or(usize::MAX)
}

/// How far apart, in elements, neighbours in each dimension of a contiguous tensor are.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut stride = 1_usize;
    let mut strides = Vec::with_capacity(shape.len());
    for dim in shape.iter().rev() {
        strides.push(stride);
        stride = stride.saturating_mul(*dim);
    }
    strides.reverse();
    strides
}

/// The strides of a tensor of `shape` seen as one of shape `to`, to which it broadcasts: 0 where a
/// dimension is repeated.
pub(crate) fn broadcast_strides(shape: &[usize], to: &[usize]) -> Vec<usize> {
    let missing = to.len().saturating_sub(shape.len());
    let own = shape.iter().zip(strides(shape)).zip(to.iter().skip(missing));
    let own = own.map(|((dim, stride), to)| if *dim == 1 && *to != 1 { 0 } else { stride });
    std::iter::repeat_n(0, missing).chain(own).collect()
}

/// For each element of a tensor of `shape` in row-major order, the sum of its indices times
/// `strides`: where the element is in a tensor with these strides.
pub(crate) fn offsets<'a>(
    shape: &'a [usize],
    strides: &'a [usize],
) -> impl Iterator<Item = usize> + 'a {
    let mut index = vec![0; shape.len()];
    let mut at = 0_usize;
    (0..count(shape)).map(move |_| {
        let here = at;
        for ((index, dim), stride) in index.iter_mut().zip(shape).zip(strides).rev() {
            *index += 1;
            at += stride;
            if *index < *dim {
                break;
            }
            at -= *index * stride;
            *index = 0;
        }
        here
    })
}

/// The axis from 0 that `axis` means for `rank` dimensions: from the end where it is negative.
///
/// # Errors
/// [`ErrorKind::Value`] when there is no such axis.
pub fn axis(axis: i64, rank: usize) -> Result<usize> {
    let from_end = usize::try_from(axis.unsigned_abs()).ok();
    let index = match axis {
        0.. => from_end,
        _ => from_end.and_then(|back| rank.checked_sub(back)),
    };
    index.filter(|index| *index < rank).ok_or_else(|| {
        Error::new(ErrorKind::Value, format!("axis {axis} of a tensor with {rank} dimensions"))
    })
}

/// As [`axis`], for many; sorted and without repetition.
///
/// # Errors
/// As [`axis`].
pub(crate) fn axes(axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut axes = axes.iter().map(|a| axis(*a, rank)).collect::<Result<Vec<_>>>()?;
    axes.sort_unstable();
    axes.dedup();
    Ok(axes)
}

/// The index from 0 that `index` means among `len` elements: from the end where it is negative.
///
/// # Errors
/// [`ErrorKind::Value`] when there is no such element.
pub(crate) fn index(index: i64, len: usize) -> Result<usize> {
    let reason = || Error::new(ErrorKind::Value, format!("index {index} among {len} elements"));
    axis(index, len).map_err(|_| reason())
}

/// A dimension from a tensor of dimensions.
///
/// # Errors
/// [`ErrorKind::Value`] when it is negative.
pub fn size(dim: i64) -> Result<usize> {
    usize::try_from(dim)
        .map_err(|_| Error::new(ErrorKind::Value, format!("a dimension of {dim} elements")))
}

/// `shape` as three: the product of the dimensions before `axis`, that dimension, and the product
/// of those behind it. An element (o, i, n) is at `(o * dim + i) * inner + n`. A dimension that is
/// not there has one element.
pub fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    let outer = shape.get(..axis).map_or(1, count);
    let inner = shape.get(axis + 1..).map_or(1, count);
    (outer, shape.get(axis).copied().unwrap_or(1), inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_broadcast_from_the_last_dimension() {
        let cases = [
            (vec![vec![2, 3], vec![3]], Some(vec![2, 3])),
            (vec![vec![2, 1], vec![1, 3], vec![]], Some(vec![2, 3])),
            (vec![vec![0], vec![1]], Some(vec![0])),
            (vec![vec![2], vec![3]], None),
            (vec![vec![0], vec![3]], None),
        ];
        for (shapes, expected) in cases {
            assert_eq!(broadcast(&shapes).ok(), expected, "{shapes:?}");
        }
    }

    #[test]
    fn offsets_walk_any_strides() {
        let strides = broadcast_strides(&[2, 1], &[3, 2, 2]);
        assert_eq!(strides, [0, 1, 0]);
        let offsets: Vec<_> = offsets(&[3, 2, 2], &strides).collect();
        assert_eq!(offsets, [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1]);
        assert_eq!(super::offsets(&[], &[]).collect::<Vec<_>>(), [0]);
        assert_eq!(super::offsets(&[2, 0], &[1, 1]).count(), 0);
    }

    #[test]
    fn axes_count_from_both_ends() {
        assert_eq!((axis(-1, 3).unwrap(), axis(2, 3).unwrap()), (2, 2));
        for wrong in [3, -4, i64::MIN, i64::MAX] {
            assert_eq!(axis(wrong, 3).unwrap_err().kind(), ErrorKind::Value);
        }
        assert_eq!(axis(0, 0).unwrap_err().kind(), ErrorKind::Value);
    }
}
