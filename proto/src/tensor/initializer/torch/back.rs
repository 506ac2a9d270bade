//! Initializers as PyTorch tensors: by copy, or over a private map of the file that holds them.

#![allow(unsafe_code)] // `map_tch` asks its caller for a promise

use tch::{Device, Kind, Tensor};

use super::libtorch::{over_map, row_major};
use super::{TYPES, refused};
use crate::buffer::mmap::PrivateMap;
use crate::buffer::zeroed::in_memory;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::initializer::Initializer;

/// The number of bytes read at a time from an initializer without a buffer.
const CHUNK: usize = 1 << 20;

impl Initializer {
    /// The initializer as a PyTorch tensor on the CPU with memory of its own: a copy, also of an
    /// initializer that is a PyTorch tensor.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use ndarray::array;
    /// use onnx_container::Initializer;
    ///
    /// let weights = Initializer::from(array![[1.0_f32, 2.0], [3.0, 4.0]]);
    /// let tensor = weights.to_tch()?;
    /// assert_eq!(tensor.size(), [2, 2]);
    /// assert_eq!(tensor.double_value(&[1, 0]), 3.0);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] for the types that tch has no kind for: strings, unsigned integers
    /// of 16 bits and more, `FLOAT8E8M0`, and all that are narrower than a byte
    /// ([`to_tch_bytes`](Self::to_tch_bytes) returns these as bytes); also for a `BOOL` byte that
    /// is neither 0 nor 1, which libtorch could not read. [`ErrorKind::Shape`] when the dimensions
    /// overflow in libtorch.
    pub fn to_tch(&self) -> Result<Tensor> {
        let (_, kind) = kind_of(self.dtype())?;
        row_major(self.dims())?;
        self.check_bools()?;
        let bytes = self.to_tch_bytes()?;
        if self.byte_len() == 0 {
            return Tensor::f_empty(self.dims(), (kind, Device::Cpu)).map_err(refused);
        }
        let typed = bytes.f_view_dtype(kind).map_err(refused)?;
        typed.f_view(self.dims()).map_err(refused)
    }

    /// The packed little-endian bytes as a `Uint8` tensor of one dimension: a copy, for every type
    /// except strings.
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] for strings.
    pub fn to_tch_bytes(&self) -> Result<Tensor> {
        if let Some(bytes) = self.as_buffer() {
            return bytes_to_tch(&bytes);
        }
        let len = in_memory(self.byte_len())?;
        let size = number_of_bytes(len)?;
        let whole = Tensor::f_empty([size], (Kind::Uint8, Device::Cpu)).map_err(refused)?;
        let mut chunk = vec![0; len.min(CHUNK)];
        for start in (0..len).step_by(CHUNK) {
            chunk.truncate(len - start);
            self.read_at(start as u64, &mut chunk)?;
            let place = whole.f_narrow(0, number_of_bytes(start)?, number_of_bytes(chunk.len())?);
            let part = bytes_to_tch(&chunk)?;
            place.and_then(|mut place| place.f_copy_(&part)).map_err(refused)?;
        }
        Ok(whole)
    }

    /// The initializer as a PyTorch tensor over a private map of its file range: pages are read on
    /// first access (a `BOOL` tensor is read at once, to check that its bytes are 0 and 1), and a
    /// page that is written to is copied first. Writes change neither the file nor the container
    /// nor another tensor of the same range. The map lives as long as the tensor and its views,
    /// also after the container is dropped.
    ///
    /// # Safety
    /// For as long as the tensor, or any tensor that shares its storage, lives, no process may
    /// truncate the file (a later access would raise `SIGBUS`) or write to it (elements of the
    /// tensor would change). Replacing it by renaming another file over it is allowed.
    ///
    /// Nor may such a tensor be resized (`resize_`, an `out` of another shape): libtorch reports
    /// that its storage cannot grow, but leaves the tensor with the new size, and reading it then
    /// goes beyond the map.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when the initializer is not part of a mapped file (because it was
    /// read or inserted), its address is not aligned for its type, or this process has 49,152 maps
    /// of files already: [`to_tch`](Self::to_tch) copies such initializers. [`ErrorKind::Io`] or
    /// [`ErrorKind::MissingFile`] when the file cannot be opened or mapped again, or has been
    /// replaced since. The errors of [`to_tch`](Self::to_tch).
    pub unsafe fn map_tch(&self) -> Result<Tensor> {
        let (number, kind) = kind_of(self.dtype())?;
        row_major(self.dims())?;
        self.check_bools()?;
        if self.byte_len() == 0 {
            return self.to_tch();
        }
        let bytes = self.as_buffer().filter(|bytes| bytes.file_range().is_some());
        let bytes = bytes.ok_or_else(|| {
            let reason = "it does not lie in a mapped file: copy it by `to_tch`";
            Error::new(ErrorKind::Unsupported, reason)
        })?;
        // SAFETY: the caller makes this promise for as long as a tensor on the map lives.
        let map = unsafe { PrivateMap::new(&bytes) }?;
        if map.as_ptr().addr() % kind.elt_size_in_bytes() != 0 {
            let reason = format!(
                "{} elements at an odd place of the file: copy it by `to_tch`",
                self.dtype()
            );
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        over_map(map, self.dims(), number)
    }

    /// Checks that the bytes of a `BOOL` tensor are 0 or 1, because libtorch assumes it without a
    /// check.
    fn check_bools(&self) -> Result<()> {
        match self.dtype() {
            DataType::Bool => self.to_tensor()?.as_slice::<bool>().map(|_| ()),
            _ => Ok(()),
        }
    }
}

fn kind_of(dtype: DataType) -> Result<(i32, Kind)> {
    let found = TYPES.iter().find(|(_, onnx, _)| *onnx == dtype);
    found.and_then(|(number, _, kind)| Some((*number, (*kind)?))).ok_or_else(|| {
        let reason = format!("tch has no kind for {dtype}: take its bytes by `to_tch_bytes`");
        Error::new(ErrorKind::DataType, reason)
    })
}

/// `bytes` in the integer type that libtorch uses for lengths.
fn number_of_bytes(bytes: usize) -> Result<i64> {
    i64::try_from(bytes).map_err(|_| Error::new(ErrorKind::TooLarge, "does not fit a tensor"))
}

/// A copy of `bytes` with one dimension of their length: tch does not check dimensions against the
/// length.
fn bytes_to_tch(bytes: &[u8]) -> Result<Tensor> {
    Tensor::f_from_slice(bytes).map_err(refused)
}
