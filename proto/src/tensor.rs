//! Tensors: an element type, dimensions and the elements, with typed views of them.
//!
//! Weights come from messages, external files and arrays; after import all of them are packed
//! little-endian bytes in a shared [`Buffer`], or strings. The length of a [`Tensor`]'s data is
//! checked against its shape when it is made, and not again. A view borrows where alignment and
//! byte order allow it and is an error where they do not; only calls that are documented to copy do
//! so.
//!
//! The packing of narrow elements is in `packed`, the fields of `TensorProto` are in `import`.

pub(crate) mod initializer;
pub(crate) mod rounding;
pub(crate) mod source;

mod floats;
mod import;
mod packed;
mod storage;

use std::borrow::Cow;

use ndarray::{ArrayD, ArrayViewD};

use crate::buffer::Buffer;
use crate::buffer::zeroed::in_memory;
use crate::dtype::{DataType, Element};
use crate::error::{Error, ErrorKind, Result};
use crate::proto::TensorProto;
use packed::Width;
use storage::Storage;

pub(crate) use storage::little_endian;

/// A tensor whose number of bytes (or strings) matches its element type and dimensions.
///
/// Cloning copies no elements. Equality compares types, dimensions and bytes, so two NaNs with the
/// same bits are equal and 0.0 differs from -0.0.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::{Buffer, DataType, Tensor};
///
/// let bytes = Buffer::from(vec![1_u8, 2, 3, 4, 5, 6]);
/// let tensor = Tensor::new(DataType::Uint8, [2, 3], bytes)?;
/// assert_eq!(tensor.as_slice::<u8>()?, [1, 2, 3, 4, 5, 6]);
/// assert_eq!(tensor.view::<u8>()?[[1, 0]], 4);
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    dtype: DataType,
    dims: Vec<i64>,
    storage: Storage,
}

impl Tensor {
    /// A tensor of `bytes`: row-major, little-endian, narrow elements packed, as in `raw_data`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when a dimension is negative, when the shape overflows, or when the
    /// length of `bytes` is not exactly what type and dimensions need; [`ErrorKind::DataType`] for
    /// strings and the undefined type.
    pub fn new(dtype: DataType, dims: impl Into<Vec<i64>>, bytes: Buffer) -> Result<Self> {
        let dims = dims.into();
        import::check_byte_len(dtype, &dims, &bytes)?;
        check_shape_fits(&dims)?;
        Ok(Self { dtype, dims, storage: Storage::Bytes(bytes) })
    }

    /// A tensor of `strings` in row-major order, usually UTF-8.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when a dimension is negative, when the shape overflows, or when the
    /// number of strings is not exactly what the dimensions need.
    pub fn from_strings(dims: impl Into<Vec<i64>>, strings: Vec<Buffer>) -> Result<Self> {
        let dims = dims.into();
        import::check_string_count(&dims, &strings)?;
        check_shape_fits(&dims)?;
        Ok(Self { dtype: DataType::String, dims, storage: Storage::Strings(strings.into()) })
    }

    /// A tensor of elements narrower than a byte, from their `codes`: one per byte, in the low
    /// bits. [`unpack`](Self::unpack) is the inverse.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::{DataType, Tensor};
    ///
    /// let tensor = Tensor::pack(DataType::Uint4, [3], &[1, 2, 15])?;
    /// assert_eq!(tensor.as_bytes(), Some(&[0x21, 0x0f][..]));
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] when the type is not narrower than a byte,
    /// [`ErrorKind::InvalidArgument`] when a code has bits above the type's width, and the errors
    /// of [`new`](Self::new) for the shape.
    pub fn pack(dtype: DataType, dims: impl Into<Vec<i64>>, codes: &[u8]) -> Result<Self> {
        let width = narrow_width(dtype)?;
        if let Some(index) = codes.iter().position(|code| *code > width.mask()) {
            let reason = format!("code {index} has more than the {} bits of {dtype}", width.bits());
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let dims = dims.into();
        import::check_count(&dims, codes.len(), "codes")?;
        Self::new(dtype, dims, Buffer::from(width.pack(codes)))
    }

    /// The external tensor `proto` with its `bytes`, which hold exactly its elements in the form of
    /// [`new`](Self::new). The location in `proto` is not read.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and [`ErrorKind::InvalidModel`] when `proto` also holds
    /// elements inline, [`ErrorKind::Unsupported`] when it is a segment of a larger tensor.
    pub fn from_external(proto: &TensorProto, bytes: Buffer) -> Result<Self> {
        import::external_data_type(proto)
            .and_then(|dtype| Self::new(dtype, proto.dims.as_slice(), bytes))
            .map_err(|error| import::name_tensor(error, proto))
    }

    /// The element type.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// The dimensions, none of them negative; empty for a scalar.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The dimensions as the `usize`s of `ndarray`.
    pub fn shape(&self) -> Vec<usize> {
        // No conversion fails: dimensions are checked when the tensor is made.
        self.dims.iter().map(|dim| usize::try_from(*dim).unwrap_or_default()).collect()
    }

    /// The number of elements: 1 for a scalar.
    pub fn element_count(&self) -> usize {
        self.shape().iter().product()
    }

    /// The length of the elements in bytes; of strings, the sum of their lengths.
    pub fn byte_len(&self) -> usize {
        match &self.storage {
            // The length that was checked, even if the owner of the bytes has changed it since.
            Storage::Bytes(bytes) => bytes.span(),
            Storage::Strings(strings) => strings.iter().map(|string| string.len()).sum(),
        }
    }

    /// The packed little-endian bytes; `None` for strings.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.buffer().map(|buffer| &**buffer)
    }

    /// The packed little-endian bytes as a buffer that can be shared; `None` for strings.
    pub fn buffer(&self) -> Option<&Buffer> {
        match &self.storage {
            Storage::Bytes(bytes) => Some(bytes),
            Storage::Strings(_) => None,
        }
    }

    /// The strings; `None` for every other type.
    pub fn strings(&self) -> Option<&[Buffer]> {
        match &self.storage {
            Storage::Bytes(_) => None,
            Storage::Strings(strings) => Some(strings),
        }
    }

    /// The elements, borrowed. Where this cannot borrow, [`to_slice`](Self::to_slice) copies.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::{Buffer, DataType, Tensor};
    ///
    /// let tensor = Tensor::new(DataType::Bool, [2], Buffer::from(vec![1_u8, 2]))?;
    /// let error = tensor.as_slice::<bool>().unwrap_err();
    /// assert_eq!(error.to_string(), "byte 1 of the BOOL elements is 2, neither 0 nor 1");
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] when the element type is not that of `T` or a byte is not a valid
    /// `bool`, [`ErrorKind::Unsupported`] when the bytes are not aligned for `T` or the host is
    /// big-endian.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        let bytes = self.bytes_of::<T>()?;
        match borrow_elements(bytes) {
            Borrowed::Elements(elements) => Ok(elements),
            Borrowed::Invalid => Err(invalid_element(self.dtype, bytes)),
            Borrowed::Unaligned => {
                let reason = format!(
                    "the {} elements are not aligned to {} bytes and cannot be borrowed: to_slice \
                     and to_array copy",
                    self.dtype,
                    align_of::<T>(),
                );
                Err(Error::new(ErrorKind::Unsupported, reason))
            }
            Borrowed::ForeignOrder => {
                let reason = "little-endian elements cannot be borrowed on a big-endian host";
                Err(Error::new(ErrorKind::Unsupported, reason))
            }
        }
    }

    /// The elements, borrowed where alignment and byte order of the host allow it, else copied
    /// once.
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] when the element type is not that of `T` or a byte is not a valid
    /// `bool`.
    pub fn to_slice<T: Element>(&self) -> Result<Cow<'_, [T]>> {
        let bytes = self.bytes_of::<T>()?;
        if let Borrowed::Elements(elements) = borrow_elements(bytes) {
            return Ok(Cow::Borrowed(elements));
        }
        storage::copy_elements(bytes)
            .map(Cow::Owned)
            .ok_or_else(|| invalid_element(self.dtype, bytes))
    }

    /// The elements as an array that borrows them.
    ///
    /// # Errors
    /// Those of [`as_slice`](Self::as_slice).
    pub fn view<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        ArrayViewD::from_shape(self.shape(), self.as_slice()?).map_err(|e| self.shape_error(&e))
    }

    /// The elements as an owned array: always a copy.
    ///
    /// # Errors
    /// Those of [`to_slice`](Self::to_slice).
    pub fn to_array<T: Element>(&self) -> Result<ArrayD<T>> {
        let elements = self.to_slice()?.into_owned();
        ArrayD::from_shape_vec(self.shape(), elements).map_err(|e| self.shape_error(&e))
    }

    /// The codes of elements narrower than a byte, one per byte in its low bits, in row-major
    /// order.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::{Buffer, DataType, Tensor};
    ///
    /// let tensor = Tensor::new(DataType::Int4, [3], Buffer::from(vec![0x21_u8, 0x0f]))?;
    /// assert_eq!(tensor.unpack()?, [1, 2, 15]);
    /// assert_eq!(tensor.unpack_signed()?, [1, 2, -1]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] when the type is not narrower than a byte.
    pub fn unpack(&self) -> Result<Vec<u8>> {
        let width = narrow_width(self.dtype)?;
        let bytes =
            self.as_bytes().ok_or_else(|| Error::internal("a narrow tensor has no bytes"))?;
        Ok(width.unpack(bytes, self.element_count()))
    }

    /// The values of an `INT4` or `INT2` tensor, in row-major order.
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] for every other type.
    pub fn unpack_signed(&self) -> Result<Vec<i8>> {
        if !matches!(self.dtype, DataType::Int4 | DataType::Int2) {
            let reason = format!("{} elements are not narrow signed integers", self.dtype);
            return Err(Error::new(ErrorKind::DataType, reason));
        }
        Ok(narrow_width(self.dtype)?.sign_extend(self.unpack()?))
    }

    /// Whether the bits after the last element are zero, as the specification requires. Always true
    /// for types of whole bytes. Import keeps bits that are not zero, and reading elements ignores
    /// them.
    pub fn padding_is_zero(&self) -> bool {
        match (Width::of(self.dtype), self.as_bytes()) {
            (Some(width), Some(bytes)) => width.padding_is_zero(bytes, self.element_count()),
            _ => true,
        }
    }

    /// The tensor as a message called `name`: its bytes become `raw_data` without a copy, strings
    /// become `string_data`.
    #[must_use]
    pub fn to_proto(&self, name: &str) -> TensorProto {
        import::to_proto(self.dtype, &self.dims, &self.storage, name)
    }

    /// A tensor whose shape is known to match `bytes`.
    pub(crate) fn of_array(dtype: DataType, dims: Vec<i64>, bytes: Buffer) -> Self {
        debug_assert!(import::check_byte_len(dtype, &dims, &bytes).is_ok());
        Self { dtype, dims, storage: Storage::Bytes(bytes) }
    }

    /// The bytes, if the element type is that of `T`.
    fn bytes_of<T: Element>(&self) -> Result<&[u8]> {
        self.as_bytes().filter(|_| self.dtype == T::DTYPE).ok_or_else(|| {
            let reason = format!("the elements are {}, not {}", self.dtype, T::DTYPE);
            Error::new(ErrorKind::DataType, reason)
        })
    }

    fn shape_error(&self, error: &ndarray::ShapeError) -> Error {
        Error::new(ErrorKind::Shape, format!("shape {:?}: {error}", self.dims))
    }
}

impl TryFrom<&TensorProto> for Tensor {
    type Error = Error;

    /// The tensor in `proto`, from whichever field holds its elements. `raw_data` is shared, and so
    /// are `float_data` and `double_data` if the message holds them in one packed record; the other
    /// fields are narrowed and packed into new memory.
    ///
    /// Of an entry of `int32_data` or `uint64_data` for a narrower type, the low bits are the
    /// element, as for `onnx.numpy_helper`. Signed and unsigned entries are accepted (255 and -1
    /// are the same `INT8`); an entry that needs more bits is an error. A `BOOL` entry that is not
    /// 0 is true. A field that is present and empty is treated as absent.
    ///
    /// # Errors
    /// [`ErrorKind::MissingHandle`] when the elements are external, [`ErrorKind::Unsupported`] for
    /// a segment, [`ErrorKind::DataType`] when the type is undefined or unknown, or the elements
    /// are in a field of another type, [`ErrorKind::InvalidModel`] when they are in two fields or
    /// an entry does not fit, [`ErrorKind::Shape`] when dimensions are impossible or disagree with
    /// the number of elements, [`ErrorKind::Decode`] when a packed field is malformed.
    fn try_from(proto: &TensorProto) -> Result<Self> {
        let (dtype, storage) =
            import::import(proto).map_err(|error| import::name_tensor(error, proto))?;
        check_shape_fits(&proto.dims)?;
        Ok(Self { dtype, dims: proto.dims.clone(), storage })
    }
}

/// The result of borrowing bytes as elements.
enum Borrowed<'a, T> {
    Elements(&'a [T]),
    Unaligned,
    Invalid,
    ForeignOrder,
}

/// Refuses dimensions that do not fit `usize`, or whose product does not: those of zero aside, so
/// that each of the others fits.
fn check_shape_fits(dims: &[i64]) -> Result<()> {
    let sizes = dims.iter().map(|dim| u64::try_from(*dim).unwrap_or_default().max(1));
    in_memory(sizes.fold(1, u64::saturating_mul)).map(drop)
}

fn borrow_elements<T: Element>(bytes: &[u8]) -> Borrowed<'_, T> {
    use bytemuck::checked::{CheckedCastError, try_cast_slice};

    if bytes.is_empty() {
        return Borrowed::Elements(&[]); // an empty slice may have any address
    }
    if cfg!(target_endian = "big") && T::SCALAR_BYTES > 1 {
        return Borrowed::ForeignOrder;
    }
    match try_cast_slice(bytes) {
        Ok(elements) => Borrowed::Elements(elements),
        Err(CheckedCastError::InvalidBitPattern) => Borrowed::Invalid,
        // The length was checked when the tensor was made, so only the address can be wrong.
        Err(CheckedCastError::PodCastError(_)) => Borrowed::Unaligned,
    }
}

/// The error of the first byte that is not a `bool`, the only type with invalid bytes.
fn invalid_element(dtype: DataType, bytes: &[u8]) -> Error {
    let found = bytes.iter().enumerate().find(|(_, byte)| **byte > 1);
    let (index, byte) = found.unwrap_or((0, &0));
    let reason = format!("byte {index} of the {dtype} elements is {byte}, neither 0 nor 1");
    Error::new(ErrorKind::DataType, reason)
}

fn narrow_width(dtype: DataType) -> Result<Width> {
    Width::of(dtype).ok_or_else(|| {
        let reason = format!("{dtype} elements are not narrower than a byte");
        Error::new(ErrorKind::DataType, reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: DataType, dims: &[i64], bytes: &[u8]) -> Tensor {
        Tensor::new(dtype, dims, Buffer::from(bytes)).unwrap()
    }

    /// `bytes` at an odd address.
    #[cfg(target_endian = "little")]
    fn unaligned(bytes: &[u8]) -> Buffer {
        let memory = crate::BufferMut::zeroed(bytes.len() + 1, crate::Alignment::CACHE_LINE);
        let mut memory = memory.unwrap();
        memory[1..].copy_from_slice(bytes);
        memory.freeze().slice(1..).unwrap()
    }

    #[test]
    fn dimensions_that_do_not_fit_memory_are_refused() {
        let tensor = Tensor::new(DataType::Uint8, [1 << 40, 0], Buffer::default());
        match usize::try_from(1_u64 << 40) {
            Ok(dim) => assert_eq!(tensor.unwrap().shape(), [dim, 0]),
            Err(_) => assert_eq!(tensor.unwrap_err().kind(), ErrorKind::TooLarge),
        }
    }

    #[test]
    fn a_length_that_does_not_match_the_shape_is_refused() {
        let cases: &[(DataType, &[i64], usize, ErrorKind)] = &[
            (DataType::Float, &[2], 4, ErrorKind::Shape),
            (DataType::Float, &[], 0, ErrorKind::Shape),
            (DataType::Int4, &[3], 3, ErrorKind::Shape),
            (DataType::Float, &[1 << 40], 0, ErrorKind::Shape),
            (DataType::Float, &[-1], 0, ErrorKind::Shape),
            (DataType::String, &[1], 1, ErrorKind::DataType),
            (DataType::Undefined, &[1], 1, ErrorKind::DataType),
        ];
        for (dtype, dims, len, kind) in cases {
            let error = Tensor::new(*dtype, *dims, Buffer::from(vec![0; *len])).unwrap_err();
            assert_eq!(error.kind(), *kind, "{error}");
        }
        let error = Tensor::new(DataType::Float, [2], Buffer::default()).unwrap_err();
        assert_eq!(error.to_string(), "shape [2] of FLOAT needs 8 bytes, there are 0");
        let error = Tensor::from_strings([2], vec![Buffer::default()]).unwrap_err();
        assert_eq!(error.to_string(), "shape [2] needs 2 strings, there are 1");
    }

    #[test]
    fn scalars_have_one_element_and_empty_tensors_none() {
        let scalar = tensor(DataType::Double, &[], &1.5_f64.to_le_bytes());
        assert_eq!((scalar.element_count(), scalar.byte_len()), (1, 8));
        assert_eq!(scalar.to_array::<f64>().unwrap().first(), Some(&1.5));
        let empty = tensor(DataType::Double, &[2, 0], &[]);
        assert_eq!((empty.element_count(), empty.byte_len()), (0, 0));
        assert!(empty.as_slice::<f64>().unwrap().is_empty());
        assert_eq!(empty.view::<f64>().unwrap().shape(), [2, 0]);
    }

    #[test]
    fn elements_of_another_type_are_not_borrowed() {
        let ints = tensor(DataType::Int32, &[1], &[0; 4]);
        let error = ints.as_slice::<f32>().unwrap_err();
        assert_eq!(error.to_string(), "the elements are INT32, not FLOAT");
        assert_eq!(ints.unpack().unwrap_err().kind(), ErrorKind::DataType);
        let strings = Tensor::from_strings([], vec![Buffer::from(&b"a"[..])]).unwrap();
        assert_eq!(strings.to_slice::<u8>().unwrap_err().kind(), ErrorKind::DataType);
        assert_eq!((strings.byte_len(), strings.as_bytes()), (1, None));
        let codes = tensor(DataType::Uint4, &[1], &[1]);
        assert_eq!(codes.unpack_signed().unwrap_err().kind(), ErrorKind::DataType);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn unaligned_elements_are_copied_not_borrowed() {
        use half::f16;

        let bytes: Vec<u8> = [1.0_f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let tensor = Tensor::new(DataType::Float, [2], unaligned(&bytes)).unwrap();
        let error = tensor.as_slice::<f32>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(matches!(tensor.to_slice::<f32>().unwrap(), Cow::Owned(x) if x == [1.0, 2.0]));
        assert_eq!(tensor.to_array::<f32>().unwrap()[[1]], 2.0);
        let tensor = Tensor::new(DataType::Float16, [1], unaligned(&[0, 0x3c])).unwrap();
        assert!(matches!(tensor.to_slice::<f16>().unwrap(), Cow::Owned(x) if x == [f16::ONE]));
    }

    #[test]
    fn bytes_that_are_not_bools_are_not_borrowed() {
        let good = tensor(DataType::Bool, &[2], &[1, 0]);
        assert_eq!(good.as_slice::<bool>().unwrap(), [true, false]);
        let bad = tensor(DataType::Bool, &[2], &[1, 7]);
        for error in [bad.as_slice::<bool>().unwrap_err(), bad.to_slice::<bool>().unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::DataType);
            assert!(error.reason().contains("byte 1 of the BOOL elements is 7"), "{error}");
        }
        assert_eq!(bad.as_bytes(), Some(&[1, 7][..]));
    }

    #[test]
    fn codes_are_packed_and_checked() {
        let tensor = Tensor::pack(DataType::Float6E2M3, [3], &[63, 0, 63]).unwrap();
        assert_eq!(tensor.as_bytes(), Some(&[0x3f, 0xf0, 0x03][..]));
        assert!(tensor.padding_is_zero());
        let cases: &[(DataType, i64, &[u8], ErrorKind)] = &[
            (DataType::Uint4, 1, &[16], ErrorKind::InvalidArgument),
            (DataType::Uint4, 2, &[1], ErrorKind::Shape),
            (DataType::Uint4, 1, &[1, 0], ErrorKind::Shape),
            (DataType::Uint8, 1, &[1], ErrorKind::DataType),
        ];
        for (dtype, dim, codes, kind) in cases {
            let error = Tensor::pack(*dtype, [*dim], codes).unwrap_err();
            assert_eq!(error.kind(), *kind, "{error}");
        }
    }
}
