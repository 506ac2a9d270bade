//! Stores the elements of a tensor, and converts between typed memory and little-endian bytes.
//!
//! ONNX bytes are little-endian, and so is nearly every host: there the memory of typed values is
//! used as bytes and nothing is copied. On a big-endian host the bytes of each scalar are reversed
//! in a copy. Shapes are left to the other files.

use std::sync::Arc;

use bytemuck::Pod;

use crate::buffer::alignment::Alignment;
use crate::buffer::{Buffer, BufferMut};
use crate::dtype::Element;
use crate::error::{Error, Result};

/// The elements of a tensor, in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Storage {
    /// Packed little-endian elements.
    Bytes(Buffer),
    /// Strings, whose lengths differ.
    Strings(Arc<[Buffer]>),
}

/// Typed values whose memory a [`Buffer`] shares as bytes.
struct Values<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Values<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// `values` as little-endian bytes, without a copy on a little-endian host.
pub(crate) fn values_to_buffer<T: Element>(values: Vec<T>) -> Buffer {
    little_endian::<T>(Buffer::from_owner(Values(values)))
}

/// From this many bytes on, mapped memory is used instead of the heap: it can have huge pages.
const MAPPED: usize = 4 << 20;

/// Allocates `count` zeroed values for `fill` to write. Returns them as little-endian bytes, with
/// what `fill` returns.
pub(crate) fn filled<T: Element + Pod, R>(
    count: usize,
    fill: impl FnOnce(&mut [T]) -> Result<R>,
) -> Result<(Buffer, R)> {
    let len = count.saturating_mul(size_of::<T>());
    if len < MAPPED {
        let mut values = vec![T::zeroed(); count];
        let result = fill(&mut values)?;
        return Ok((values_to_buffer(values), result));
    }
    let mut memory = BufferMut::zeroed(len, Alignment::CACHE_LINE)?;
    let slots = bytemuck::try_cast_slice_mut(&mut memory);
    // No `T` needs more alignment, and the length is a multiple of its size.
    let slots =
        slots.map_err(|_| Error::internal("memory of a cache line's alignment is unaligned"))?;
    let result = fill(slots)?;
    Ok((little_endian::<T>(memory.freeze()), result))
}

/// The memory of `T`s as little-endian bytes: the same buffer on a little-endian host.
pub(crate) fn little_endian<T: Element>(memory: Buffer) -> Buffer {
    if cfg!(target_endian = "little") || T::SCALAR_BYTES == 1 {
        return memory;
    }
    let mut bytes = memory.to_vec();
    reverse_scalars(&mut bytes, T::SCALAR_BYTES);
    Buffer::from(bytes)
}

/// A copy of the elements in little-endian `bytes`; `None` if a bit pattern is not a `T`.
///
/// `T` has no default to fill a vector with, and unaligned bytes cannot be cast to `T`s, so they
/// are copied through a small aligned block that stays in the cache.
pub(crate) fn copy_elements<T: Element>(bytes: &[u8]) -> Option<Vec<T>> {
    let mut block = [0_u128; 512];
    let block: &mut [u8] = bytemuck::cast_slice_mut(&mut block);
    let mut elements = Vec::with_capacity(bytes.len() / size_of::<T>());
    for part in bytes.chunks(block.len()) {
        let aligned = block.get_mut(..part.len())?;
        aligned.copy_from_slice(part);
        if cfg!(target_endian = "big") {
            reverse_scalars(aligned, T::SCALAR_BYTES);
        }
        elements.extend_from_slice(bytemuck::checked::try_cast_slice(aligned).ok()?);
    }
    Some(elements)
}

/// Reverses the byte order of every scalar of `width` bytes.
fn reverse_scalars(bytes: &mut [u8], width: usize) {
    if width > 1 {
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use super::*;

    #[test]
    fn scalars_are_reversed_one_by_one() {
        let cases: &[(usize, &[u8], &[u8])] = &[
            (1, &[1, 2], &[1, 2]),
            (2, &[1, 2, 3, 4], &[2, 1, 4, 3]),
            (4, &[1, 2, 3, 4, 5, 6, 7, 8], &[4, 3, 2, 1, 8, 7, 6, 5]),
        ];
        for (width, memory, bytes) in cases {
            let mut reversed = memory.to_vec();
            reverse_scalars(&mut reversed, *width);
            assert_eq!(reversed, *bytes);
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn values_become_bytes_without_a_copy() {
        let values = vec![1.0_f32, -2.0];
        let address = values.as_ptr().addr();
        let buffer = values_to_buffer(values);
        assert_eq!(buffer.as_ptr().addr(), address);
        assert_eq!(*buffer, [0, 0, 128, 63, 0, 0, 0, 192]);
    }

    #[test]
    fn unaligned_elements_are_copied() {
        let values: Vec<Complex<f64>> =
            (0..2000).map(|i| Complex::new(f64::from(i), 0.5)).collect();
        let mut bytes = vec![0];
        bytes.extend_from_slice(&values_to_buffer(values.clone()));
        assert_eq!(copy_elements::<Complex<f64>>(&bytes[1..]).unwrap(), values);
        assert!(copy_elements::<u32>(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_byte_that_is_no_bool_is_refused() {
        assert_eq!(copy_elements::<bool>(&[0, 1]), Some(vec![false, true]));
        assert_eq!(copy_elements::<bool>(&[0, 2]), None);
    }
}
