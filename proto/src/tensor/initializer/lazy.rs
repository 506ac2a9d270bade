//! Lazy initializers: a closure produces the elements when they are needed.
//!
//! A model that is generated, decrypted or converted tensor by tensor need not be in memory as a
//! whole. A save calls the closure once for all tensors of the weight, on one of a few threads, and
//! drops the elements as soon as they are written; `save` bounds how many bytes are produced ahead
//! of the writer.

use super::Initializer;
use crate::buffer::Buffer;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::source::{WeightSource, copy_from};

/// A type, dimensions, and a closure that produces the elements.
struct Lazy<F> {
    dtype: DataType,
    dims: Vec<i64>,
    len: u64,
    make: F,
}

impl Initializer {
    /// An initializer of `dtype` and `dims` whose elements `make` returns when they are needed:
    /// packed little-endian bytes in row-major order, as in `raw_data`.
    ///
    /// A save calls `make` once, several such closures at a time, ahead of the writer and in the
    /// order in which the bytes are written; `SaveOptions::max_bytes_in_flight` bounds the bytes
    /// that are produced and not yet written. Clones of the initializer are one weight. Every other
    /// access to the elements ([`read_at`](Self::read_at), [`to_buffer`](Self::to_buffer), tensors
    /// that a save puts into the model file) calls `make` each time, so it has to return the same
    /// bytes each time.
    ///
    /// A closure that fails, panics or returns another number of bytes causes an error that names
    /// the tensor.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::{DataType, Initializer};
    ///
    /// let ones = Initializer::lazy(DataType::Float, [1024, 1024], || {
    ///     Ok(1.0_f32.to_le_bytes().repeat(1024 * 1024)) // made while they are read, dropped then
    /// })?;
    /// assert_eq!(ones.byte_len(), 4 << 20);
    /// let mut last = [0; 4];
    /// ones.read_at(ones.byte_len() - 4, &mut last)?;
    /// assert_eq!(f32::from_le_bytes(last), 1.0);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when a dimension is negative or overflows, [`ErrorKind::DataType`] for
    /// strings and the undefined type.
    pub fn lazy<B: Into<Buffer>>(
        dtype: DataType,
        dims: impl Into<Vec<i64>>,
        make: impl Fn() -> Result<B> + Send + Sync + 'static,
    ) -> Result<Self> {
        let dims = dims.into();
        let len = dtype.byte_len(&dims)?;
        Self::from_source(Lazy { dtype, dims, len, make })
    }
}

impl<B: Into<Buffer>, F: Fn() -> Result<B> + Send + Sync> WeightSource for Lazy<F> {
    fn dtype(&self) -> DataType {
        self.dtype
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        copy_from(&self.to_buffer()?, offset, out)
    }

    fn is_lazy(&self) -> bool {
        true
    }

    fn to_buffer(&self) -> Result<Buffer> {
        let bytes: Buffer = (self.make)()?.into();
        let (found, len) = (bytes.len(), self.len);
        if found as u64 == len {
            return Ok(bytes);
        }
        let reason = format!("its closure made {found} bytes, {len} are needed");
        Err(Error::new(ErrorKind::Shape, reason))
    }
}
