//! A part of a weight in the order in which a tensor has its elements.

use super::mapping::WeightPart;
use crate::buffers::in_memory;
use crate::dtype::element_count;
use crate::error::{Error, ErrorKind, Result};

/// Columns that are copied together, so that what is loaded for one row is still in the cache for
/// the next.
const TILE: usize = 64;

/// Elements of a weight, in row-major order of `dims`. All numbers count elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Strided {
    /// Adjacent axes that are one run are one axis, and no axis has one index. At least one.
    dims: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    /// How many elements the weight has.
    of: usize,
}

fn wrong(reason: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, reason)
}

fn sizes(dims: &[i64]) -> Result<Vec<usize>> {
    let sizes = dims.iter().map(|dim| usize::try_from(*dim)).collect::<Result<_, _>>();
    sizes.map_err(|_| wrong(format!("{dims:?} are no dimensions")))
}

fn count(dims: &[i64]) -> Result<usize> {
    in_memory(element_count(dims)?)
}

/// The strides of dimensions in row-major order.
fn row_major(dims: &[usize]) -> Vec<usize> {
    let mut stride = 1_usize;
    let mut strides: Vec<_> = Vec::with_capacity(dims.len());
    for dim in dims.iter().rev() {
        strides.push(stride);
        stride = stride.saturating_mul(*dim);
    }
    strides.reverse();
    strides
}

impl Strided {
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the slice or the shape does not fit the weight.
    pub(super) fn of(part: &WeightPart) -> Result<Self> {
        let of = count(&part.dims)?;
        let (mut dims, mut offset) = (part.dims.clone(), 0);
        let mut strides = row_major(&sizes(&dims)?);
        let mut is_run = true;
        if let Some(slice) = part.slice {
            let within = || wrong(format!("{slice:?} is not within {:?}", part.dims));
            let dim = dims.get_mut(slice.axis).ok_or_else(within)?;
            let end = slice.start.checked_add(slice.len);
            if slice.start < 0 || slice.len < 0 || end.is_none_or(|end| end > *dim) {
                return Err(within());
            }
            *dim = slice.len;
            let stride = strides.get(slice.axis).copied().unwrap_or_default();
            offset = usize::try_from(slice.start).unwrap_or_default().saturating_mul(stride);
            is_run = part.dims.iter().take(slice.axis).all(|dim| *dim == 1);
        }
        if part.shape != dims {
            if !is_run || count(&part.shape)? != count(&dims)? {
                return Err(wrong(format!("{dims:?} cannot have the shape {:?}", part.shape)));
            }
            strides = row_major(&sizes(&part.shape)?);
        }
        let shape = sizes(&part.shape)?;
        let mut sorted = part.permutation.clone();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..shape.len()) {
            return Err(wrong(format!(
                "{:?} is no order of {} axes",
                part.permutation,
                shape.len()
            )));
        }
        let axes = part
            .permutation
            .iter()
            .filter_map(|axis| Some((*shape.get(*axis)?, *strides.get(*axis)?)));
        Ok(Self::merged(axes, offset, of))
    }

    fn merged(axes: impl Iterator<Item = (usize, usize)>, offset: usize, of: usize) -> Self {
        let (mut dims, mut strides) = (Vec::<usize>::new(), Vec::<usize>::new());
        for (dim, stride) in axes.filter(|(dim, _)| *dim != 1) {
            match (dims.last_mut(), strides.last_mut()) {
                (Some(last), Some(step)) if *step == dim.saturating_mul(stride) => {
                    *last = last.saturating_mul(dim);
                    *step = stride;
                }
                _ => {
                    dims.push(dim);
                    strides.push(stride);
                }
            }
        }
        if dims.is_empty() {
            (dims, strides) = (vec![1], vec![1]);
        }
        Self { dims, strides, offset, of }
    }

    /// How many elements there are.
    pub(super) fn count(&self) -> usize {
        // The product of the others need not fit.
        if self.dims.contains(&0) { 0 } else { self.dims.iter().product() }
    }

    /// Where the elements begin, if they are one run.
    pub(super) fn run(&self) -> Option<usize> {
        (self.strides == [1]).then_some(self.offset)
    }

    /// Whether it is the whole weight in its order.
    pub(super) fn is_whole(&self) -> bool {
        self.run() == Some(0) && self.count() == self.of
    }

    /// Fills `out` with the elements from number `first` on, of `width` bytes each; `weight` has
    /// the bytes of the weight.
    pub(super) fn read(
        &self,
        weight: &[u8],
        width: usize,
        first: usize,
        out: &mut [u8],
    ) -> Result<()> {
        match width {
            1 => self.copy::<1>(weight, first, out),
            2 => self.copy::<2>(weight, first, out),
            4 => self.copy::<4>(weight, first, out),
            8 => self.copy::<8>(weight, first, out),
            _ => None,
        }
        .ok_or_else(|| Error::internal("elements of a weight are beyond its end"))
    }

    fn copy<const W: usize>(&self, weight: &[u8], mut first: usize, out: &mut [u8]) -> Option<()> {
        let (last, step) = (*self.dims.last()?, *self.strides.last()?);
        let rows = self.dims.iter().rev().nth(1).copied().unwrap_or(1);
        let (mut out, _) = out.as_chunks_mut::<W>();
        let (weight, _) = weight.as_chunks::<W>();
        while !out.is_empty() {
            let (row, column) = (first.checked_div(last)?, first.checked_rem(last)?);
            let whole = out.len() / last;
            // Whole rows of one plane, or what is left of one row.
            let (lines, len) = match column == 0 && whole > 0 {
                true => (whole.min(rows - row % rows), last),
                false => (1, (last - column).min(out.len())),
            };
            let (now, later) = out.split_at_mut(lines * len);
            let start = self.start(row)? + column * step;
            let down = self.strides.iter().rev().nth(1).copied().unwrap_or_default();
            tiles(weight, (start, step, down), len, now)?;
            (first, out) = (first + lines * len, later);
        }
        Some(())
    }

    /// Where row number `row` begins: a row is all indices of the last axis.
    fn start(&self, mut row: usize) -> Option<usize> {
        let mut at = self.offset;
        for (dim, stride) in self.dims.iter().zip(&self.strides).rev().skip(1) {
            at += row.checked_rem(*dim)? * stride;
            row /= dim;
        }
        Some(at)
    }
}

/// Copies rows of `len` elements: from `start`, `step` elements from one to the next, `down` from
/// row to row.
fn tiles<const W: usize>(
    weight: &[[u8; W]],
    (start, step, down): (usize, usize, usize),
    len: usize,
    out: &mut [[u8; W]],
) -> Option<()> {
    let width = if step == 1 { len } else { TILE };
    for column in (0..len).step_by(width.max(1)) {
        for (row, line) in out.chunks_exact_mut(len).enumerate() {
            let end = len.min(column + width);
            let line = line.get_mut(column..end)?;
            let at = start + row * down + column * step;
            if step == 1 {
                line.copy_from_slice(weight.get(at..at + line.len())?);
                continue;
            }
            let from = weight.get(at..)?.iter().step_by(step.max(1));
            if line.len() > from.len() {
                return None;
            }
            line.iter_mut().zip(from).for_each(|(out, element)| *out = *element);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::mapping::WeightSlice;
    use super::*;

    /// Dimensions, slice, shape and permutation.
    type Case = (&'static [i64], Option<WeightSlice>, &'static [i64], &'static [usize]);

    /// The elements one by one, by their indices.
    fn expected(part: &WeightPart) -> Vec<u8> {
        let dims: Vec<_> = sizes(&part.dims).unwrap();
        let mut elements: Vec<u8> = (0..=u8::MAX).take(dims.iter().product()).collect();
        if let Some(slice) = part.slice {
            let inner: usize = dims[slice.axis + 1..].iter().product();
            let [start, len] = [slice.start, slice.len].map(|n| usize::try_from(n).unwrap());
            let rows = elements.chunks(dims[slice.axis] * inner);
            elements =
                rows.flat_map(|row| row[start * inner..(start + len) * inner].to_vec()).collect();
        }
        let shape = sizes(&part.shape).unwrap();
        let strides = row_major(&shape);
        let permuted: Vec<_> = part.permutation.iter().map(|axis| shape[*axis]).collect();
        let place = row_major(&permuted);
        let element = |n: usize| {
            let index = place.iter().zip(&permuted).map(|(stride, dim)| n / stride % dim);
            let at: usize =
                index.zip(&part.permutation).map(|(index, axis)| index * strides[*axis]).sum();
            elements[at]
        };
        (0..elements.len()).map(element).collect()
    }

    #[test]
    fn any_range_of_any_view_is_read_as_by_its_indices() {
        let slice = |axis, start, len| Some(WeightSlice { axis, start, len });
        let cases: Vec<Case> = vec![
            (&[6, 5], None, &[6, 5], &[0, 1]),
            (&[6, 5], None, &[6, 5], &[1, 0]),
            (&[6, 5], None, &[2, 3, 5], &[1, 0, 2]),
            (&[2, 3, 4, 5], None, &[2, 3, 4, 5], &[3, 1, 0, 2]),
            (&[2, 3, 4, 5], None, &[2, 3, 4, 5], &[2, 3, 1, 0]),
            (&[6, 5], slice(0, 2, 3), &[3, 5], &[1, 0]),
            (&[6, 5], slice(0, 2, 2), &[5, 2], &[1, 0]),
            (&[6, 5], slice(1, 1, 3), &[6, 3], &[0, 1]),
            (&[6, 5], slice(1, 1, 3), &[6, 3], &[1, 0]),
            (&[1, 100, 1], None, &[100], &[0]),
            (&[100, 2], None, &[100, 2], &[1, 0]),
            (&[2, 100], None, &[2, 100], &[1, 0]),
            (&[], None, &[], &[]),
        ];
        for (dims, slice, shape, permutation) in cases {
            let part = WeightPart {
                weight: "w".into(),
                dims: dims.to_vec(),
                slice,
                shape: shape.to_vec(),
                permutation: permutation.to_vec(),
            };
            let (strided, expected) = (Strided::of(&part).unwrap(), expected(&part));
            assert_eq!(strided.count(), expected.len());
            let count = count(dims).unwrap();
            let bytes: Vec<u8> = (0..=u8::MAX).take(count).collect();
            for first in 0..expected.len() {
                for end in first..=expected.len() {
                    let mut out = vec![0; end - first];
                    strided.read(&bytes, 1, first, &mut out).unwrap();
                    assert_eq!(out, expected[first..end], "{part:?} {first}..{end}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_a_weight_is_refused() {
        let slice = |axis, start, len| Some(WeightSlice { axis, start, len });
        let cases: Vec<Case> = vec![
            (&[6, 5], None, &[6, 4], &[0, 1]),
            (&[6, 5], None, &[6, -5], &[0, 1]),
            (&[-1], None, &[-1], &[0]),
            (&[6, 5], None, &[6, 5], &[0, 0]),
            (&[6, 5], None, &[6, 5], &[0]),
            (&[6, 5], None, &[6, 5], &[0, 2]),
            (&[6, 5], slice(2, 0, 1), &[6, 5], &[0, 1]),
            (&[6, 5], slice(0, 4, 3), &[3, 5], &[0, 1]),
            (&[6, 5], slice(0, -1, 3), &[3, 5], &[0, 1]),
            (&[6, 5], slice(0, i64::MAX, i64::MAX), &[3, 5], &[0, 1]),
            (&[6, 4], slice(1, 0, 2), &[12], &[0]),
        ];
        for (dims, slice, shape, permutation) in cases {
            let part = WeightPart {
                weight: "w".into(),
                dims: dims.to_vec(),
                slice,
                shape: shape.to_vec(),
                permutation: permutation.to_vec(),
            };
            assert!(Strided::of(&part).is_err(), "{part:?}");
        }
    }
}
