//! [`Initializer`]: the weights of one tensor, whatever produces them.
//!
//! A container holds weights in the form that their producer has, and a save reads all of them
//! through type, dimensions, length, and bytes by range. An initializer is a [source](WeightSource)
//! of weights whose length was checked once against its type and dimensions, so that later code can
//! rely on it. Elements are converted only where it is necessary: an array in row-major order is
//! read from its own memory.

#[cfg(feature = "tch")]
pub mod torch;

mod declared;
mod lazy;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ndarray::{ArrayBase, Data, Dimension};

use crate::buffer::{Buffer, FileRange};
use crate::dtype::{DataType, Element};
use crate::error::{Error, ErrorKind, Result};
use crate::proto::TensorProto;
use crate::tensor::initializer::declared::Declared;
use crate::tensor::source::{self, WeightSource, out_of_bounds};
use crate::tensor::{Tensor, little_endian};
use crate::util::cancel;

/// The weights of one tensor: type, dimensions, and where the elements come from.
///
/// Arrays, messages, tensors and PyTorch tensors convert; [`from_source`](Self::from_source) takes
/// anything else. Cloning copies no element, and clones are one weight: a save writes them once.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use ndarray::array;
/// use onnx_container::{DataType, Initializer};
///
/// let weights = Initializer::from(array![[1.0_f32, 2.0], [3.0, 4.0]]);
/// assert_eq!(weights.dtype(), DataType::Float);
/// assert_eq!(weights.dims(), [2, 2]);
///
/// let mut last = [0; 4];
/// weights.read_at(12, &mut last)?;
/// assert_eq!(f32::from_le_bytes(last), 4.0);
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Clone)]
pub struct Initializer(Held);

#[derive(Clone)]
enum Held {
    /// Bytes or strings, also those of an array or a message.
    Tensor(Tensor),
    #[cfg(feature = "tch")]
    Torch(torch::TorchInitializer),
    Source(Shared),
    Declared(Declared),
}

/// A source that may be shared, with the type, dimensions and length that it had when it was
/// checked.
#[derive(Clone)]
struct Shared {
    dtype: DataType,
    dims: Arc<[i64]>,
    len: u64,
    source: Arc<dyn WeightSource>,
}

/// Where the bytes of an initializer are: in memory, or in a source that has no address there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Identifies the source; `None` for memory.
    source: Option<usize>,
    /// The first byte.
    start: u64,
}

impl Address {
    fn in_memory(address: usize) -> Option<Self> {
        Some(Self { source: None, start: u64::try_from(address).ok()? })
    }

    /// The source's identity, and the first byte there.
    pub fn parts(self) -> (Option<usize>, u64) {
        (self.source, self.start)
    }

    /// The place `bytes` after this one.
    pub fn plus(self, bytes: u64) -> Self {
        Self { start: self.start.saturating_add(bytes), ..self }
    }

    /// The distance in bytes from `other` to this address; `None` when `other` comes after it, or
    /// belongs to another source.
    pub fn bytes_after(self, other: Self) -> Option<u64> {
        self.start.checked_sub(other.start).filter(|_| self.source == other.source)
    }
}

impl Initializer {
    /// An initializer that reads from `source` when its bytes are needed. The length is checked
    /// against type and dimensions now.
    ///
    /// [`WeightSource`] has an example.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when a dimension is negative or overflows, or when the source's length
    /// is not the one that its type and dimensions require; [`ErrorKind::DataType`] for strings and
    /// the undefined type.
    pub fn from_source(source: impl WeightSource + 'static) -> Result<Self> {
        Self::from_shared(Arc::new(source))
    }

    /// As [`from_source`](Self::from_source), for a source that the caller keeps too. Initializers
    /// of one shared source are one weight, as clones of an initializer are.
    ///
    /// # Errors
    /// Those of [`from_source`](Self::from_source).
    pub fn from_shared(source: Arc<dyn WeightSource>) -> Result<Self> {
        let (dtype, dims): (_, Arc<[i64]>) = (source.dtype(), source.dims().into());
        let len = dtype.byte_len(&dims)?;
        let found = source.byte_len();
        if found != len {
            return Err(wrong_len(dtype, &dims, len, found));
        }
        Ok(Self(Held::Source(Shared { dtype, dims, len, source })))
    }

    /// An initializer of `dtype` and `dims` without elements: what a plan needs of weights that
    /// another process writes.
    ///
    /// `Container::prepare` of `onnx-container` gives it a place in a file. Reading it is an error,
    /// so a save refuses it before it writes.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::{DataType, ErrorKind, Initializer};
    ///
    /// let weight = Initializer::declared(DataType::Float16, [4096, 4096])?;
    /// assert_eq!(weight.byte_len(), 32 << 20);
    /// assert!(weight.is_declared());
    /// assert_eq!(weight.to_tensor().unwrap_err().kind(), ErrorKind::MissingHandle);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when a dimension is negative or overflows, [`ErrorKind::DataType`] for
    /// strings and the undefined type.
    pub fn declared(dtype: DataType, dims: impl Into<Vec<i64>>) -> Result<Self> {
        Declared::new(dtype, dims.into()).map(|declared| Self(Held::Declared(declared)))
    }

    /// Whether this is [`declared`](Self::declared): it has no elements.
    pub fn is_declared(&self) -> bool {
        matches!(self.0, Held::Declared(_))
    }

    /// The element type.
    pub fn dtype(&self) -> DataType {
        match &self.0 {
            Held::Source(shared) => shared.dtype,
            _ => self.source().dtype(),
        }
    }

    /// The dimensions, none of them negative; empty for a scalar.
    pub fn dims(&self) -> &[i64] {
        match &self.0 {
            Held::Source(shared) => &shared.dims,
            _ => self.source().dims(),
        }
    }

    /// The length of the elements in bytes; of strings, the sum of their lengths.
    pub fn byte_len(&self) -> u64 {
        match &self.0 {
            // The length that was checked when the tensor was made, which may differ from the
            // current one.
            Held::Tensor(tensor) => tensor.byte_len() as u64,
            #[cfg(feature = "tch")]
            Held::Torch(tensor) => tensor.byte_len(),
            Held::Source(shared) => shared.len,
            Held::Declared(declared) => declared.len,
        }
    }

    /// Fills `out` with the packed little-endian bytes from `offset` (bytes) on.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] when there are not that many bytes, [`ErrorKind::DataType`] for
    /// strings, and the errors of the source.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let len = self.byte_len();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > len) {
            return Err(out_of_bounds(offset, out.len(), len));
        }
        self.check_len(self.source().byte_len())?;
        caught(|| self.source().read_at(offset, out))
    }

    /// Fills `out` with the first bytes, in pieces, so that the call can be cancelled; what is
    /// produced all at once in one.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    #[doc(hidden)]
    pub fn read_into(&self, out: &mut [u8]) -> Result<()> {
        const PIECE: usize = 4 << 20;
        let piece = if self.is_lazy() { usize::MAX } else { PIECE.max(self.preferred_read()) };
        out.chunks_mut(piece).enumerate().try_for_each(|(number, part)| {
            cancel::check()?;
            self.read_at((number as u64).saturating_mul(piece as u64), part)
        })
    }

    /// The packed little-endian bytes, if they are in memory (or in a mapped file) in this form and
    /// do not change. Where this returns `None`, [`read_at`](Self::read_at) reads them in parts.
    pub fn as_buffer(&self) -> Option<Buffer> {
        let bytes = self.source().as_buffer()?;
        Some(bytes).filter(|bytes| bytes.len() as u64 == self.byte_len())
    }

    /// The file and the byte range in it that hold exactly these bytes, if they are in a mapped
    /// file or the source has such a range.
    pub fn file_range(&self) -> Option<FileRange<'_>> {
        self.source().file_range()
    }

    /// Whether the elements are produced all at once, and only when they are needed; see
    /// [`lazy`](Self::lazy) and [`WeightSource::is_lazy`].
    pub fn is_lazy(&self) -> bool {
        self.source().is_lazy()
    }

    /// How many bytes one read of the source reads best; see [`WeightSource::preferred_read`].
    pub fn preferred_read(&self) -> usize {
        source::preferred_read(self.source())
    }

    /// As [`as_buffer`](Self::as_buffer), with a copy where that returns `None`.
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] for strings, and the errors of the source.
    pub fn to_buffer(&self) -> Result<Buffer> {
        let bytes = caught(|| self.source().to_buffer())?;
        self.check_len(bytes.len() as u64)?;
        Ok(bytes)
    }

    /// The initializer as a tensor, without a copy where [`as_buffer`](Self::as_buffer) returns its
    /// bytes.
    ///
    /// # Errors
    /// None for arrays, messages and tensors; other sources may fail to be read.
    pub fn to_tensor(&self) -> Result<Tensor> {
        match &self.0 {
            Held::Tensor(tensor) => Ok(tensor.clone()),
            _ => Tensor::new(self.dtype(), self.dims(), self.to_buffer()?),
        }
    }

    /// The same bytes as another type; the lengths must match.
    #[doc(hidden)]
    pub fn retyped(&self, dtype: DataType, dims: &[i64]) -> Result<Self> {
        let held = match &self.0 {
            Held::Tensor(_) => Held::Tensor(Tensor::new(dtype, dims, self.to_buffer()?)?),
            #[cfg(feature = "tch")]
            Held::Torch(tensor) => Held::Torch(tensor.retyped(dtype, dims.to_vec())?),
            Held::Source(shared) => {
                self.check_retyped(dtype, dims)?;
                Held::Source(Shared { dtype, dims: dims.into(), ..shared.clone() })
            }
            Held::Declared(_) => {
                self.check_retyped(dtype, dims)?;
                return Self::declared(dtype, dims);
            }
        };
        Ok(Self(held))
    }

    /// Fails unless elements of this type and shape have as many bytes.
    fn check_retyped(&self, dtype: DataType, dims: &[i64]) -> Result<()> {
        let (len, found) = (dtype.byte_len(dims)?, self.byte_len());
        if len == found { Ok(()) } else { Err(wrong_len(dtype, dims, len, found)) }
    }

    /// Where the bytes are: initializers whose ranges overlap share these bytes. `None` when there
    /// are no bytes, or when their address is not known.
    #[doc(hidden)]
    pub fn address(&self) -> Option<Address> {
        match &self.0 {
            Held::Tensor(tensor) => {
                let bytes = tensor.as_bytes().filter(|bytes| !bytes.is_empty())?;
                Address::in_memory(bytes.as_ptr().addr())
            }
            #[cfg(feature = "tch")]
            Held::Torch(tensor) => Address::in_memory(tensor.address()?),
            // The source's buffer or file range is not used: it may hold other bytes by now.
            Held::Source(shared) => {
                let own = || (Arc::as_ptr(&shared.source).addr(), 0);
                let (source, start) = shared.source.place().unwrap_or_else(own);
                (shared.len > 0).then_some(Address { source: Some(source), start })
            }
            Held::Declared(_) => None,
        }
    }

    fn source(&self) -> &dyn WeightSource {
        match &self.0 {
            Held::Tensor(tensor) => tensor,
            #[cfg(feature = "tch")]
            Held::Torch(tensor) => tensor,
            Held::Source(shared) => &*shared.source,
            Held::Declared(declared) => declared,
        }
    }

    /// Fails unless the source still has the length that was checked.
    fn check_len(&self, now: u64) -> Result<()> {
        let len = self.byte_len();
        let change = match now.cmp(&len) {
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Less => "shorter",
            std::cmp::Ordering::Greater => "longer",
        };
        let reason = format!("became {change} while it was in use: {now} bytes, {len} were there");
        Err(Error::new(ErrorKind::OutOfBounds, reason))
    }
}

impl fmt::Debug for Initializer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initializer")
            .field("dtype", &self.dtype())
            .field("dims", &self.dims())
            .finish_non_exhaustive()
    }
}

/// The result of `read`, or an error if it panics: it may run the caller's code on a thread that
/// has other work to do.
fn caught<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    // `AssertUnwindSafe`: after a panic the source is only called again, as it may be after an
    // error.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(Error::other(format!("the source panicked: {}", text.unwrap_or("no message"))))
    })
}

fn wrong_len(dtype: DataType, dims: &[i64], expected: u64, found: u64) -> Error {
    let reason = format!("shape {dims:?} of {dtype} needs {expected} bytes, there are {found}");
    Error::new(ErrorKind::Shape, reason)
}

impl From<Tensor> for Initializer {
    fn from(tensor: Tensor) -> Self {
        Self(Held::Tensor(tensor))
    }
}

impl<T: Element> From<Vec<T>> for Initializer {
    /// A tensor of one dimension, which keeps the vector's memory.
    fn from(elements: Vec<T>) -> Self {
        Tensor::from(elements).into()
    }
}

impl TryFrom<TensorProto> for Initializer {
    type Error = Error;

    /// Imports the elements of `proto` as [`Tensor::try_from`] does. Its other fields are not kept.
    fn try_from(proto: TensorProto) -> Result<Self> {
        Tensor::try_from(&proto).map(Self::from)
    }
}

impl<S, D> From<ArrayBase<S, D>> for Initializer
where
    S: Data<Elem: Element> + Send + Sync + 'static,
    D: Dimension + 'static,
{
    /// Keeps `array`, owned or shared, and reads it from its own memory. An array that is not in
    /// row-major order (transposed, strided, reversed, broadcast) is copied into that order once.
    fn from(array: ArrayBase<S, D>) -> Self {
        // No dimension of an array exceeds `isize::MAX`.
        let dims = array.shape().iter().map(|dim| i64::try_from(*dim).unwrap_or(i64::MAX));
        let dims = dims.collect();
        let len = array.len() * size_of::<S::Elem>();
        let memory = match array.is_standard_layout() {
            true => Buffer::from_owner(Rows(array)),
            false => Buffer::from_owner(Rows(array.as_standard_layout().into_owned())),
        };
        assert_eq!(memory.len(), len, "an array in row-major order is one slice");
        let bytes = little_endian::<S::Elem>(memory);
        Self::from(Tensor::of_array(S::Elem::DTYPE, dims, bytes))
    }
}

/// An array in row-major order, shown as the bytes of its memory.
struct Rows<S: Data, D>(ArrayBase<S, D>);

impl<S: Data<Elem: Element>, D: Dimension> AsRef<[u8]> for Rows<S, D> {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice().map(bytemuck::cast_slice).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use ndarray::{Array, Array2, ArrayD, ArrayView1, ShapeBuilder, array, s};
    use num_complex::Complex;

    use super::*;

    fn bytes(initializer: &Initializer) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(initializer.byte_len()).unwrap()];
        initializer.read_at(0, &mut bytes).unwrap();
        assert_eq!(initializer.as_buffer().unwrap(), Buffer::from(bytes.clone()));
        bytes
    }

    fn round_trip<T: Element + PartialEq + std::fmt::Debug>(values: Vec<T>) {
        let array = Array::from_vec(values.clone());
        let initializer = Initializer::from(array.clone());
        assert_eq!(initializer.dtype(), T::DTYPE);
        assert_eq!(initializer.byte_len(), (values.len() * size_of::<T>()) as u64);
        let tensor = initializer.to_tensor().unwrap();
        assert_eq!(tensor.to_array::<T>().unwrap(), array.into_dyn());
        let again = Tensor::new(T::DTYPE, tensor.dims(), Buffer::from(bytes(&initializer)));
        assert_eq!(again.unwrap(), tensor);
    }

    #[test]
    fn every_element_type_is_an_array() {
        round_trip(vec![1.5_f32, f32::MIN]);
        round_trip(vec![1.5_f64, f64::INFINITY]);
        round_trip(vec![f16::from_f32(0.5), f16::MAX]);
        round_trip(vec![bf16::from_f32(0.5), bf16::MAX]);
        round_trip(vec![u8::MAX, 0]);
        round_trip(vec![u16::MAX, 1]);
        round_trip(vec![u32::MAX, 1]);
        round_trip(vec![u64::MAX, 1]);
        round_trip(vec![i8::MIN, 1]);
        round_trip(vec![i16::MIN, 1]);
        round_trip(vec![i32::MIN, 1]);
        round_trip(vec![i64::MIN, 1]);
        round_trip(vec![true, false]);
        round_trip(vec![Complex::new(1.0_f32, -2.0)]);
        round_trip(vec![Complex::new(1.0_f64, -2.0)]);
    }

    #[test]
    fn bytes_are_little_endian() {
        assert_eq!(bytes(&Initializer::from(array![0x0102_u16, 0x0304])), [2, 1, 4, 3]);
        let complex = Initializer::from(array![Complex::new(1.0_f32, -2.0)]);
        assert_eq!(bytes(&complex), [0, 0, 128, 63, 0, 0, 0, 192]);
    }

    #[test]
    fn row_major_memory_is_not_copied() {
        let owned = Array2::<f32>::ones((3, 4));
        let address = owned.as_ptr().addr();
        let initializer = Initializer::from(owned);
        if cfg!(target_endian = "little") {
            assert_eq!(initializer.as_buffer().unwrap().as_ptr().addr(), address);
        }

        let shared = Array2::<f32>::ones((3, 4)).into_shared();
        let address = shared.as_ptr().addr();
        let tail = shared.slice_move(s![1.., ..]);
        let initializer = Initializer::from(tail.clone());
        if cfg!(target_endian = "little") {
            assert_eq!(initializer.as_buffer().unwrap().as_ptr().addr(), address + 16);
        }
        assert_eq!(initializer.dims(), [2, 4]);

        static WEIGHTS: [i8; 3] = [1, 2, 3];
        let fixed = Initializer::from(ArrayView1::from(&WEIGHTS));
        assert_eq!(fixed.as_buffer().unwrap().as_ptr().addr(), WEIGHTS.as_ptr().addr());
    }

    #[test]
    fn every_layout_is_read_in_row_major_order() {
        let base = array![[1_u8, 2, 3], [4, 5, 6]];
        let cases: Vec<(ArrayD<u8>, &[u8])> = vec![
            (base.clone().reversed_axes().into_dyn(), &[1, 4, 2, 5, 3, 6]),
            (base.clone().slice_move(s![.., ..;-1]).into_dyn(), &[3, 2, 1, 6, 5, 4]),
            (base.clone().slice_move(s![.., ..;2]).into_dyn(), &[1, 3, 4, 6]),
            (base.clone().slice_move(s![1, ..]).into_dyn(), &[4, 5, 6]),
            (base.clone().slice_move(s![1, 1]).into_dyn(), &[5]),
            (base.slice_move(s![0..0, ..]).into_dyn(), &[]),
        ];
        for (array, expected) in cases {
            let shape = array.shape().to_vec();
            let initializer = Initializer::from(array);
            assert_eq!(bytes(&initializer), expected);
            assert_eq!(initializer.to_tensor().unwrap().shape(), shape);
        }
        static ONE: [u8; 1] = [7];
        let repeated = ArrayView1::from_shape(3.strides(0), &ONE).unwrap();
        assert_eq!(bytes(&Initializer::from(repeated)), [7, 7, 7]);
    }

    #[test]
    fn messages_are_imported() {
        let mut proto = TensorProto {
            dims: vec![2],
            data_type: Some(DataType::Int8.number()),
            name: Some("w".into()),
            ..TensorProto::default()
        };
        *proto.int32_data = vec![-1, 2].into();
        let initializer = Initializer::try_from(proto.clone()).unwrap();
        assert_eq!(bytes(&initializer), [255, 2]);

        proto.dims = vec![3];
        let error = Initializer::try_from(proto).unwrap_err();
        assert_eq!((error.kind(), error.tensor()), (ErrorKind::Shape, Some("w")));
    }

    #[test]
    fn reads_stay_inside() {
        let initializer = Initializer::from(array![1_u8, 2, 3]);
        let mut one = [0];
        initializer.read_at(2, &mut one).unwrap();
        assert_eq!(one, [3]);
        initializer.read_at(3, &mut []).unwrap();
        for offset in [3, 4, u64::MAX] {
            let error = initializer.read_at(offset, &mut one).unwrap_err();
            assert_eq!((error.kind(), error.offset()), (ErrorKind::OutOfBounds, Some(offset)));
        }
        let strings = Tensor::from_strings([1], vec![Buffer::from(&b"a"[..])]).unwrap();
        let strings = Initializer::from(strings);
        assert_eq!(strings.byte_len(), 1);
        assert!(strings.as_buffer().is_none());
        assert_eq!(strings.read_at(0, &mut one).unwrap_err().kind(), ErrorKind::DataType);
    }

    #[test]
    fn initializers_cross_threads() {
        fn crosses<T: Send + Sync + 'static>() {}
        crosses::<Initializer>();
    }

    #[test]
    fn what_is_declared_has_a_length_and_no_elements() {
        for (dtype, dims, len) in [
            (DataType::Float, vec![2, 3], 24),
            (DataType::Int4, vec![3], 2),
            (DataType::Bfloat16, vec![], 2),
            (DataType::Int8, vec![0, 5], 0),
        ] {
            let weight = Initializer::declared(dtype, dims.clone()).unwrap();
            assert_eq!((weight.dtype(), weight.dims()), (dtype, &dims[..]));
            assert_eq!(weight.byte_len(), len);
            assert!(weight.as_buffer().is_none() && weight.address().is_none());
            assert!(weight.clone().is_declared() && !weight.is_lazy());
            let errors = [weight.to_buffer().err(), weight.to_tensor().err()];
            let errors = errors.into_iter().chain([weight.read_at(0, &mut [0]).err()]);
            for error in errors.flatten() {
                let expected = [ErrorKind::MissingHandle, ErrorKind::OutOfBounds];
                assert!(expected.contains(&error.kind()), "{error}");
            }
        }
    }

    #[test]
    fn what_has_no_length_is_refused() {
        for (dtype, dims, kind) in [
            (DataType::Float, vec![-1], ErrorKind::Shape),
            (DataType::Float, vec![i64::MAX, 2], ErrorKind::Shape),
            (DataType::String, vec![1], ErrorKind::DataType),
        ] {
            assert_eq!(Initializer::declared(dtype, dims).unwrap_err().kind(), kind);
        }
    }

    #[test]
    fn another_type_of_the_same_length_stays_declared() {
        let weight = Initializer::declared(DataType::Float, [4]).unwrap();
        let other = weight.retyped(DataType::Int8, &[16]).unwrap();
        assert!(other.is_declared());
        assert_eq!((other.dtype(), other.dims()), (DataType::Int8, &[16][..]));
        assert_eq!(weight.retyped(DataType::Int8, &[4]).unwrap_err().kind(), ErrorKind::Shape);
    }
}
