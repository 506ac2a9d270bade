//! [`WeightSource`]: the trait of everything that can be the weights of a tensor.
//!
//! A container holds weights as their producer has them: an array, a mapped file, a PyTorch tensor,
//! or something that this crate knows nothing of. Each of them has a type, dimensions, a length,
//! and bytes that can be read by range. A source may also offer its bytes in one piece, or the file
//! range that holds them, which saves a copy. `initializer` checks the length against type and
//! dimensions; reading ahead and writing are left to `save`.

use crate::buffer::alignment::Alignment;
use crate::buffer::zeroed::in_memory;
use crate::buffer::{Buffer, BufferMut, FileRange};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::Tensor;

/// Where the elements of one tensor come from.
///
/// Implement this for weights that are neither an array nor a plain range of a file: encrypted,
/// compressed, remote, generated. [`Initializer::from_source`](crate::Initializer::from_source)
/// makes an initializer of it, which supports all that others do: saves in every layout, embedding,
/// exports and checks, with progress, cancelling and errors that name the tensor.
///
/// The methods return the same values as long as the source is in use, and several threads may call
/// them at once. A source that returns fewer or more bytes than [`byte_len`](Self::byte_len) makes
/// a save fail, and no file is published.
///
/// Strings have no bytes to read, so a source is not of [`DataType::String`].
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::{DataType, Error, ErrorKind, Initializer, Result, WeightSource};
///
/// /// FLOAT elements whose bytes are stored with every bit flipped.
/// struct Flipped {
///     dims: [i64; 2],
///     stored: Vec<u8>,
/// }
///
/// impl WeightSource for Flipped {
///     fn dtype(&self) -> DataType {
///         DataType::Float
///     }
///
///     fn dims(&self) -> &[i64] {
///         &self.dims
///     }
///
///     fn byte_len(&self) -> u64 {
///         self.stored.len() as u64
///     }
///
///     fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
///         let start = offset as usize;
///         let part = self.stored.get(start..start + out.len());
///         let part = part.ok_or_else(|| Error::new(ErrorKind::OutOfBounds, "beyond the end"))?;
///         out.iter_mut().zip(part).for_each(|(out, stored)| *out = !stored);
///         Ok(())
///     }
/// }
///
/// let stored = [1.0_f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).map(|byte| !byte).collect();
/// let weight = Initializer::from_source(Flipped { dims: [1, 2], stored })?;
///
/// let tensor = weight.to_tensor()?;
/// assert_eq!(tensor.as_slice::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
pub trait WeightSource: Send + Sync {
    /// The element type.
    fn dtype(&self) -> DataType;

    /// The dimensions, none of them negative; empty for a scalar.
    fn dims(&self) -> &[i64];

    /// The length of the elements in bytes, as it is now: what [`dtype`](Self::dtype) and
    /// [`dims`](Self::dims) ask for. A source with another length is refused.
    fn byte_len(&self) -> u64;

    /// Fills `out` with the elements' bytes from `offset` (bytes) on: row-major, little-endian,
    /// elements narrower than a byte packed from the low bits on, as in `raw_data`.
    ///
    /// This crate reads only ranges within [`byte_len`](Self::byte_len). A save to weights files
    /// reads at most [`preferred_read`](Self::preferred_read) bytes at a time, from several
    /// threads, mostly in ascending order; what needs the weight in one piece (a weight in the
    /// model file, [`to_buffer`](Self::to_buffer)) reads all of it at once.
    ///
    /// # Errors
    /// Whatever keeps the bytes from being read: an `io::Error` converts by `?`, [`Error::other`]
    /// makes an error of any other. `out` may then hold anything.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// The elements' bytes, where they are in memory (or in a mapped file) in one piece and do not
    /// change. They are then not copied. Default: `None`.
    fn as_buffer(&self) -> Option<Buffer> {
        None
    }

    /// The file, and the range in it that holds exactly the elements' bytes, where there is one.
    ///
    /// This is where [`read_at`](Self::read_at) reads from: a save can copy the range without
    /// passing the bytes through this process. Default: `None`.
    fn file_range(&self) -> Option<FileRange<'_>> {
        None
    }

    /// Whether the elements are produced all at once, when they are needed.
    ///
    /// A save then does not read them in parts: it calls [`to_buffer`](Self::to_buffer) once, on
    /// one of a few threads, shortly before they are written, and drops the buffer as soon as they
    /// are; `SaveOptions::max_bytes_in_flight` bounds how many bytes are in memory at a time.
    /// [`Initializer::lazy`](crate::Initializer::lazy) makes such a source of a closure. Default:
    /// false.
    fn is_lazy(&self) -> bool {
        false
    }

    /// How many bytes one call of [`read_at`](Self::read_at) reads best. Default: 1 MiB; less than
    /// 64 KiB counts as that.
    ///
    /// A save reads so many bytes at a time where there is no [`as_buffer`](Self::as_buffer),
    /// within `SaveOptions::max_bytes_in_flight`. More than the default says that each call takes
    /// long, however little it reads, as a request to an object store does: a save then makes
    /// several calls at once, ahead of the writer.
    fn preferred_read(&self) -> usize {
        PREFERRED_READ
    }

    /// Which bytes these are, for sources that are ranges of one file: a number that identifies the
    /// file, and the first byte there. Sources whose ranges overlap share these bytes.
    #[doc(hidden)] // the number is an address: for `FilePart` of the library
    fn place(&self) -> Option<(usize, u64)> {
        None
    }

    /// All bytes in one piece: those of [`as_buffer`](Self::as_buffer), otherwise a copy.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at); [`ErrorKind::TooLarge`] or [`ErrorKind::Io`] when the
    /// memory cannot be allocated.
    fn to_buffer(&self) -> Result<Buffer> {
        if let Some(bytes) = self.as_buffer() {
            return Ok(bytes);
        }
        let len = in_memory(self.byte_len())?;
        let mut copy = BufferMut::zeroed(len, Alignment::CACHE_LINE)?;
        self.read_at(0, &mut copy)?;
        Ok(copy.freeze())
    }
}

/// The default of [`WeightSource::preferred_read`] in bytes.
pub const PREFERRED_READ: usize = 1 << 20;

/// The least that a source may prefer in bytes.
const LEAST_READ: usize = 64 << 10;

/// How many bytes one read of `source` reads best.
pub(crate) fn preferred_read(source: &dyn WeightSource) -> usize {
    source.preferred_read().max(LEAST_READ)
}

impl WeightSource for Tensor {
    fn dtype(&self) -> DataType {
        self.dtype()
    }

    fn dims(&self) -> &[i64] {
        self.dims()
    }

    /// The current length: the owner of the bytes may have released some.
    fn byte_len(&self) -> u64 {
        self.as_bytes().map_or(self.byte_len(), <[u8]>::len) as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let bytes = self.as_bytes().ok_or_else(strings_have_no_bytes)?;
        copy_from(bytes, offset, out)
    }

    fn as_buffer(&self) -> Option<Buffer> {
        self.buffer().cloned()
    }

    fn file_range(&self) -> Option<FileRange<'_>> {
        self.buffer()?.file_range()
    }

    fn to_buffer(&self) -> Result<Buffer> {
        self.as_buffer().ok_or_else(strings_have_no_bytes)
    }
}

fn strings_have_no_bytes() -> Error {
    Error::new(ErrorKind::DataType, "STRING elements have no bytes to read")
}

/// Copies the bytes from `offset` on.
pub(crate) fn copy_from(bytes: &[u8], offset: u64, out: &mut [u8]) -> Result<()> {
    let start = usize::try_from(offset).ok();
    let range = start.and_then(|start| Some(start..start.checked_add(out.len())?));
    let part = range.and_then(|range| bytes.get(range));
    let part = part.ok_or_else(|| out_of_bounds(offset, out.len(), bytes.len() as u64))?;
    out.copy_from_slice(part);
    Ok(())
}

/// The error for `wanted` bytes from `offset` on that are not within `len` bytes.
pub(crate) fn out_of_bounds(offset: u64, wanted: usize, len: u64) -> Error {
    let reason = format!("{wanted} bytes are not within the {len} bytes of the initializer");
    Error::new(ErrorKind::OutOfBounds, reason).with_offset(offset)
}
