//! A part of a tensor that one writer has: where its bytes go, and whether all parts make the
//! tensor.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};

/// A box of consecutive indices of every axis of a tensor, in elements.
///
/// ```
/// use onnx_container::job::TensorSlice;
///
/// // Rows 2 and 3 of a matrix of 5 columns.
/// let slice = TensorSlice::new([2, 0], [2, 5]);
/// assert_eq!(slice.elements(), Some(10));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSlice {
    /// The first index of every axis.
    pub offsets: Vec<u64>,
    /// How many indices of every axis.
    pub shape: Vec<u64>,
}

impl TensorSlice {
    /// The slice of `shape` that begins at `offsets`.
    pub fn new(offsets: impl Into<Vec<u64>>, shape: impl Into<Vec<u64>>) -> Self {
        Self { offsets: offsets.into(), shape: shape.into() }
    }

    /// All of a tensor of these dimensions.
    pub(super) fn whole(dims: &[u64]) -> Self {
        Self { offsets: vec![0; dims.len()], shape: dims.to_vec() }
    }

    /// The number of elements; `None` where it is over 2^64.
    pub fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1_u64, |count, length| count.checked_mul(*length))
    }

    /// The indices of every axis.
    fn axes(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let axes = self.offsets.iter().zip(&self.shape);
        axes.map(|(start, length)| *start..start.saturating_add(*length))
    }

    /// Refuses a slice that is not within a tensor of these dimensions.
    pub(super) fn check(&self, dims: &[u64]) -> Result<()> {
        let has_axes = self.offsets.len() == dims.len() && self.shape.len() == dims.len();
        let is_inside =
            |(slice, length): (Range<u64>, &u64)| slice.end <= *length && slice.end >= slice.start;
        let lengths = self.offsets.iter().zip(&self.shape);
        let has_ends = lengths.clone().all(|(start, length)| start.checked_add(*length).is_some());
        if has_axes && has_ends && self.axes().zip(dims).all(is_inside) {
            return Ok(());
        }
        let Self { offsets, shape } = self;
        let reason = format!("the slice {offsets:?} of shape {shape:?} is not within {dims:?}");
        Err(Error::new(ErrorKind::OutOfBounds, reason))
    }

    /// Whether an element is in both slices of one tensor.
    fn meets(&self, other: &Self) -> bool {
        self.axes().zip(other.axes()).all(|(a, b)| a.start.max(b.start) < a.end.min(b.end))
    }
}

/// The runs of bytes that a slice of a tensor has in the tensor's bytes.
pub(super) struct Runs {
    /// How many elements one run has.
    elements: u64,
    /// The axes that are not in one run: their lengths in the slice, and the distance between two
    /// of their indices in elements.
    outer: Vec<(u64, u64)>,
    /// The first element.
    first: u64,
    /// How many runs there are.
    count: u64,
    /// How many elements the tensor has.
    whole: u64,
    dtype: DataType,
}

impl Runs {
    /// Those of `slice`, which is within a tensor of this type and these dimensions.
    pub(super) fn of(slice: &TensorSlice, dtype: DataType, dims: &[u64]) -> Result<Self> {
        slice.check(dims)?;
        let too_many = || Error::new(ErrorKind::TooLarge, "a tensor of 2^64 elements");
        let (mut stride, mut elements, mut is_one_run) = (1_u64, 1_u64, true);
        let (mut outer, mut first, mut count) = (Vec::new(), 0_u64, 1_u64);
        let axes = dims.iter().zip(slice.offsets.iter().zip(&slice.shape));
        for (length, (start, taken)) in axes.rev() {
            if is_one_run {
                elements = elements.checked_mul(*taken).ok_or_else(too_many)?;
            } else {
                outer.push((*taken, stride));
                count = count.checked_mul(*taken).ok_or_else(too_many)?;
            }
            // What is left of an axis that is not taken whole separates the runs.
            is_one_run = is_one_run && taken == length;
            let offset = start.checked_mul(stride).ok_or_else(too_many)?;
            first = first.checked_add(offset).ok_or_else(too_many)?;
            stride = stride.checked_mul(*length).ok_or_else(too_many)?;
        }
        if elements == 0 {
            count = 0;
        }
        outer.reverse();
        let runs = Self { elements, outer, first, count, whole: stride, dtype };
        if count > 0 && runs.has_parts_of_bytes() {
            let reason = format!(
                "{dtype} elements share bytes, and the slice begins or ends within one: write the \
                 tensor whole, or cut it where bytes end"
            );
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        Ok(runs)
    }

    /// Whether a run begins or ends within a byte.
    fn has_parts_of_bytes(&self) -> bool {
        let bits = self.bits();
        let is_cut = |elements: u64| !elements.wrapping_mul(bits).is_multiple_of(8);
        let outer_is_cut =
            || self.outer.iter().any(|(taken, stride)| *taken > 1 && is_cut(*stride));
        // The last byte of the tensor may have bits to spare.
        let ends_it = self.count == 1 && self.first.saturating_add(self.elements) == self.whole;
        is_cut(self.first) || is_cut(self.elements) && !ends_it || outer_is_cut()
    }

    fn bits(&self) -> u64 {
        u64::from(self.dtype.bit_width().unwrap_or_default())
    }

    /// The length of every run in bytes.
    pub(super) fn byte_len(&self) -> u64 {
        self.elements.saturating_mul(self.bits()).div_ceil(8)
    }

    /// The length of all runs in bytes.
    pub(super) fn total(&self) -> u64 {
        self.byte_len().saturating_mul(self.count)
    }

    /// The offset of every run from the tensor's first byte, in bytes, in row-major order.
    pub(super) fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.count).map(|number| {
            let (mut rest, mut element) = (number, self.first);
            for (taken, stride) in self.outer.iter().rev() {
                let taken = (*taken).max(1);
                element = element.saturating_add((rest % taken).saturating_mul(*stride));
                rest /= taken;
            }
            element.saturating_mul(self.bits()) / 8
        })
    }
}

/// Refuses slices that are not together a tensor of these dimensions, each element once.
///
/// The slices are disjoint and have as many elements as the tensor: then they cover it. Two slices
/// are compared only where they meet on one axis, the one on which the fewest do, so that ranks
/// that share a tensor by rows or by columns cost no more than a sort.
pub(super) fn check_cover(slices: &mut [&TensorSlice], dims: &[u64]) -> Result<()> {
    for slice in slices.iter() {
        slice.check(dims)?;
    }
    let too_many = || Error::new(ErrorKind::TooLarge, "a tensor of 2^64 elements");
    let whole = TensorSlice::whole(dims).elements().ok_or_else(too_many)?;
    if let Some((one, other)) = meeting(slices, dims.len()) {
        let reason = format!(
            "elements were written twice: {:?} of shape {:?} and {:?} of shape {:?}",
            one.offsets, one.shape, other.offsets, other.shape
        );
        return Err(Error::new(ErrorKind::InvalidArgument, reason));
    }
    let written = slices.iter().try_fold(0_u64, |sum, slice| sum.checked_add(slice.elements()?));
    let written = written.ok_or_else(too_many)?;
    if written == whole {
        return Ok(());
    }
    let reason = format!("{written} of its {whole} elements are written");
    Err(Error::new(ErrorKind::MissingTensor, reason))
}

/// Two of `slices` that have an element in common.
fn meeting<'s>(
    slices: &mut [&'s TensorSlice],
    rank: usize,
) -> Option<(&'s TensorSlice, &'s TensorSlice)> {
    let start = |slice: &TensorSlice, axis: usize| slice.offsets.get(axis).copied();
    let distinct = |axis: usize| {
        let mut starts: Vec<_> = slices.iter().map(|slice| start(slice, axis)).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.len()
    };
    if rank == 0 {
        return slices.first().copied().zip(slices.get(1).copied());
    }
    let axis = (0..rank).max_by_key(|axis| distinct(*axis)).unwrap_or_default();
    slices.sort_by_key(|slice| start(slice, axis));
    // Those before the next one that reach beyond its start.
    let mut open: Vec<&TensorSlice> = Vec::new();
    for slice in slices.iter().copied() {
        let begins = start(slice, axis);
        open.retain(|other| other.axes().nth(axis).map(|axis| axis.end) > begins);
        let met = open.iter().copied().find(|other| other.meets(slice));
        if let Some(met) = met {
            return Some((met, slice));
        }
        if slice.elements() != Some(0) {
            open.push(slice);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The bytes of a slice by the definition: one element after the other.
    fn slow(slice: &TensorSlice, size: u64, dims: &[u64]) -> Vec<u64> {
        let mut bytes = Vec::new();
        for number in 0..slice.elements().unwrap() {
            let (mut rest, mut index) = (number, Vec::new());
            for (start, taken) in slice.offsets.iter().zip(&slice.shape).rev() {
                index.push(start + rest % taken);
                rest /= taken;
            }
            index.reverse();
            let element = index.iter().zip(dims).fold(0, |at, (i, length)| at * length + i);
            bytes.extend(element * size..(element + 1) * size);
        }
        bytes
    }

    fn fast(slice: &TensorSlice, dtype: DataType, dims: &[u64]) -> Vec<u64> {
        let runs = Runs::of(slice, dtype, dims).unwrap();
        let bytes: Vec<_> =
            runs.offsets().flat_map(|start| start..start + runs.byte_len()).collect();
        assert_eq!(bytes.len() as u64, runs.total());
        bytes
    }

    fn dims_and_slice() -> impl Strategy<Value = (Vec<u64>, TensorSlice)> {
        proptest::collection::vec((0_u64..5, 0_u64..5, 0_u64..4), 0..4).prop_map(|axes| {
            let dims = axes.iter().map(|(start, taken, rest)| start + taken + rest).collect();
            let offsets: Vec<_> = axes.iter().map(|axis| axis.0).collect();
            let shape: Vec<_> = axes.iter().map(|axis| axis.1).collect();
            (dims, TensorSlice::new(offsets, shape))
        })
    }

    proptest! {
        #[test]
        fn runs_are_the_bytes_of_the_slice((dims, slice) in dims_and_slice()) {
            prop_assert_eq!(fast(&slice, DataType::Float, &dims), slow(&slice, 4, &dims));
            prop_assert_eq!(fast(&slice, DataType::Int8, &dims), slow(&slice, 1, &dims));
        }

        #[test]
        fn runs_are_as_long_as_they_can_be((dims, slice) in dims_and_slice()) {
            let runs = Runs::of(&slice, DataType::Int8, &dims).unwrap();
            let offsets: Vec<_> = runs.offsets().collect();
            let touch = |pair: &[u64]| pair[0] + runs.byte_len() == pair[1];
            prop_assert!(!offsets.windows(2).any(touch));
        }

        /// A tensor cut along two axes, with one change: cover is what counting says.
        #[test]
        fn cover_is_each_element_once(
            rows in proptest::collection::vec(0_u64..3, 1..4),
            columns in proptest::collection::vec(0_u64..3, 1..4),
            change in 0..4,
            which in any::<prop::sample::Index>(),
        ) {
            let dims = [rows.iter().sum(), columns.iter().sum()];
            let mut slices = Vec::new();
            let mut row = 0;
            for height in &rows {
                let mut column = 0;
                for width in &columns {
                    slices.push(TensorSlice::new([row, column], [*height, *width]));
                    column += width;
                }
                row += height;
            }
            let index = which.index(slices.len());
            match change {
                0 => {}
                1 => drop(slices.remove(index)),
                2 => slices.push(slices[index].clone()),
                _ => slices[index].offsets[0] = 0,
            }
            let mut times = BTreeMap::new();
            for byte in slices.iter().flat_map(|slice| slow(slice, 1, &dims)) {
                *times.entry(byte).or_insert(0) += 1;
            }
            let is_covered = times.len() as u64 == dims[0] * dims[1]
                && times.values().all(|times| *times == 1);
            let mut slices: Vec<_> = slices.iter().collect();
            let covered = check_cover(&mut slices, &dims);
            prop_assert_eq!(covered.is_ok(), is_covered);
        }
    }

    #[test]
    fn what_is_not_within_the_tensor_is_refused() {
        for (offsets, shape) in [
            (vec![0], vec![3]),
            (vec![0, 0], vec![3, 5]),
            (vec![1, 0], vec![3, 4]),
            (vec![u64::MAX, 0], vec![1, 1]),
            (vec![0, 0, 0], vec![1, 1, 1]),
            (vec![0, 0], vec![1]),
        ] {
            let slice = TensorSlice::new(offsets, shape);
            let error = Runs::of(&slice, DataType::Float, &[3, 4]).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::OutOfBounds, "{slice:?}");
            let covered = check_cover(&mut [&slice], &[3, 4]).unwrap_err();
            assert_eq!(covered.kind(), ErrorKind::OutOfBounds);
        }
    }

    #[test]
    fn elements_that_share_bytes_are_cut_where_bytes_end() {
        for (dtype, dims, offsets, shape, may) in [
            (DataType::Int4, vec![3, 4], vec![1, 0], vec![1, 4], true),
            (DataType::Int4, vec![3, 4], vec![0, 2], vec![3, 2], true),
            (DataType::Int4, vec![3, 4], vec![0, 1], vec![3, 2], false),
            (DataType::Int4, vec![3, 3], vec![1, 0], vec![1, 3], false),
            (DataType::Int4, vec![3, 3], vec![0, 0], vec![3, 3], true),
            (DataType::Int4, vec![3, 3], vec![2, 0], vec![1, 3], true),
            (DataType::Int4, vec![5], vec![4], vec![1], true),
            (DataType::Int4, vec![5], vec![3], vec![2], false),
            (DataType::Uint2, vec![8], vec![4], vec![4], true),
            (DataType::Uint2, vec![8], vec![2], vec![4], false),
            // A slice in the middle that ends within a byte.
            (DataType::Int4, vec![6], vec![2], vec![1], false),
        ] {
            let slice = TensorSlice::new(offsets, shape);
            assert_eq!(Runs::of(&slice, dtype, &dims).is_ok(), may, "{dtype} {dims:?} {slice:?}");
        }
    }

    #[test]
    fn a_scalar_is_written_once() {
        let scalar = TensorSlice::new([], []);
        check_cover(&mut [&scalar], &[]).unwrap();
        assert!(check_cover(&mut [], &[]).is_err());
        let twice = check_cover(&mut [&scalar, &scalar], &[]).unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::InvalidArgument);
        check_cover(&mut [], &[0, 3]).unwrap();
    }
}
