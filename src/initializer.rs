//! What can stand for a large initializer: an array, a message, a tensor, a PyTorch tensor.
//!
//! A container holds weights as their producer has them, and a save asks all of them the same few
//! things: type, dimensions, length, and bytes by range. [`Initializer`] is that question. Nothing
//! is converted before it has to be: an array in row-major order is read from its own memory.

#[cfg(feature = "tch")]
pub mod torch;

use ndarray::{ArrayBase, Data, Dimension};

use crate::buffer::{Buffer, BufferMut};
use crate::dtype::{DataType, Element};
use crate::error::{Error, ErrorKind, Result};
use crate::external_data;
use crate::placement::Alignment;
use crate::proto::TensorProto;
use crate::tensor::{Tensor, little_endian};

/// A large initializer, held in whatever form it came.
///
/// ```
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
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Initializer {
    /// An `ndarray` array of any [`Element`] type, kept with its memory.
    Array(ArrayInitializer),
    /// A message that holds its elements itself.
    Proto(ProtoInitializer),
    /// Bytes or strings with a type and dimensions.
    Tensor(Tensor),
    /// A PyTorch tensor, kept with its memory.
    #[cfg(feature = "tch")]
    Torch(torch::TorchInitializer),
}

/// Where the elements come from.
enum Source<'a> {
    Tensor(&'a Tensor),
    #[cfg(feature = "tch")]
    Torch(&'a torch::TorchInitializer),
}

/// An `ndarray` array as an initializer; see [`Initializer::from`].
#[derive(Debug, Clone)]
pub struct ArrayInitializer {
    tensor: Tensor,
}

/// A `TensorProto` as an initializer: imported once, its other fields kept.
#[derive(Debug, Clone)]
pub struct ProtoInitializer {
    proto: Box<TensorProto>,
    tensor: Tensor,
}

impl ProtoInitializer {
    /// The message as it was given, without its elements: they moved to the tensor.
    pub fn proto(&self) -> &TensorProto {
        &self.proto
    }
}

impl Initializer {
    /// The element type.
    pub fn dtype(&self) -> DataType {
        match self.source() {
            Source::Tensor(tensor) => tensor.dtype(),
            #[cfg(feature = "tch")]
            Source::Torch(tensor) => tensor.dtype(),
        }
    }

    /// The dimensions, none of them negative; empty for a scalar.
    pub fn dims(&self) -> &[i64] {
        match self.source() {
            Source::Tensor(tensor) => tensor.dims(),
            #[cfg(feature = "tch")]
            Source::Torch(tensor) => tensor.dims(),
        }
    }

    /// The length of the elements in bytes; of strings, the sum of their lengths.
    pub fn byte_len(&self) -> u64 {
        match self.source() {
            Source::Tensor(tensor) => tensor.byte_len() as u64,
            #[cfg(feature = "tch")]
            Source::Torch(tensor) => tensor.byte_len() as u64,
        }
    }

    /// Fills `out` with the packed little-endian bytes from `offset` (bytes) on.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] when there are not that many bytes, [`ErrorKind::DataType`] for
    /// strings.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let done = match self.source() {
            Source::Tensor(tensor) => {
                let bytes = tensor.as_bytes().ok_or_else(strings_have_no_bytes)?;
                read_slice(bytes, start, out)
            }
            #[cfg(feature = "tch")]
            Source::Torch(tensor) => tensor.read_at(start, out)?,
        };
        if done {
            return Ok(());
        }
        let (wanted, len) = (out.len(), self.byte_len());
        let reason = format!("{wanted} bytes are not within the {len} bytes of the initializer");
        Err(Error::new(ErrorKind::OutOfBounds, reason).with_offset(offset))
    }

    /// The packed little-endian bytes, where they lie in memory (or in a mapped file) as such and
    /// stay as they are; otherwise [`read_at`](Self::read_at) reads them in parts.
    pub fn as_buffer(&self) -> Option<Buffer> {
        match self.source() {
            Source::Tensor(tensor) => tensor.buffer().cloned(),
            #[cfg(feature = "tch")]
            Source::Torch(_) => None,
        }
    }

    /// As [`as_buffer`](Self::as_buffer), with a copy where that has nothing to lend.
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] for strings, and what a source gives that fails to be read.
    pub fn to_buffer(&self) -> Result<Buffer> {
        if let Some(bytes) = self.as_buffer() {
            return Ok(bytes);
        }
        let len = usize::try_from(self.byte_len());
        let len = len.map_err(|_| Error::new(ErrorKind::TooLarge, "does not fit memory"))?;
        let mut copy = BufferMut::zeroed(len, Alignment::CACHE_LINE)?;
        self.read_at(0, &mut copy)?;
        Ok(copy.freeze())
    }

    /// The initializer as a tensor, without a copy where [`as_buffer`](Self::as_buffer) lends its
    /// bytes.
    ///
    /// # Errors
    /// None for arrays, messages and tensors; other sources may fail to be read.
    pub fn to_tensor(&self) -> Result<Tensor> {
        match self.source() {
            Source::Tensor(tensor) => Ok(tensor.clone()),
            #[cfg(feature = "tch")]
            Source::Torch(tensor) => Tensor::new(tensor.dtype(), tensor.dims(), self.to_buffer()?),
        }
    }

    /// The same bytes as another type, which they have to be as many as.
    pub(crate) fn retyped(&self, dtype: DataType, dims: &[i64]) -> Result<Self> {
        match self.source() {
            Source::Tensor(_) => Ok(Tensor::new(dtype, dims, self.to_buffer()?)?.into()),
            #[cfg(feature = "tch")]
            Source::Torch(tensor) => Ok(Self::Torch(tensor.retyped(dtype, dims.to_vec())?)),
        }
    }

    /// Where the bytes lie, when they lie in one piece of memory: initializers whose ranges overlap
    /// share these bytes.
    pub(crate) fn address(&self) -> Option<u64> {
        match self.source() {
            Source::Tensor(tensor) => {
                let bytes = tensor.as_bytes().filter(|bytes| !bytes.is_empty())?;
                u64::try_from(bytes.as_ptr().addr()).ok()
            }
            #[cfg(feature = "tch")]
            Source::Torch(tensor) => tensor.address(),
        }
    }

    fn source(&self) -> Source<'_> {
        match self {
            Self::Array(ArrayInitializer { tensor })
            | Self::Proto(ProtoInitializer { tensor, .. })
            | Self::Tensor(tensor) => Source::Tensor(tensor),
            #[cfg(feature = "tch")]
            Self::Torch(tensor) => Source::Torch(tensor),
        }
    }
}

fn strings_have_no_bytes() -> Error {
    Error::new(ErrorKind::DataType, "STRING elements have no bytes to read")
}

/// Copies the bytes from `start` on; `false` when there are not that many.
fn read_slice(bytes: &[u8], start: usize, out: &mut [u8]) -> bool {
    let part = start.checked_add(out.len()).and_then(|end| bytes.get(start..end));
    part.map(|part| out.copy_from_slice(part)).is_some()
}

impl From<Tensor> for Initializer {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl TryFrom<TensorProto> for Initializer {
    type Error = Error;

    /// Imports the elements of `proto` as [`Tensor::try_from`] does. The other fields stay in
    /// [`ProtoInitializer::proto`].
    fn try_from(mut proto: TensorProto) -> Result<Self> {
        let tensor = Tensor::try_from(&proto)?;
        external_data::clear_values(&mut proto);
        Ok(Self::Proto(ProtoInitializer { proto: Box::new(proto), tensor }))
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
        let memory = match array.is_standard_layout() {
            true => Buffer::from_owner(Rows(array)),
            false => Buffer::from_owner(Rows(array.as_standard_layout().into_owned())),
        };
        let bytes = little_endian::<S::Elem>(memory);
        Self::Array(ArrayInitializer { tensor: Tensor::of_array(S::Elem::DTYPE, dims, bytes) })
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
    fn messages_are_imported_once() {
        let mut proto = TensorProto {
            dims: vec![2],
            data_type: Some(DataType::Int8.number()),
            name: Some("w".into()),
            ..TensorProto::default()
        };
        *proto.int32_data = vec![-1, 2].into();
        let initializer = Initializer::try_from(proto.clone()).unwrap();
        assert_eq!(bytes(&initializer), [255, 2]);
        let Initializer::Proto(kept) = initializer else { panic!("{initializer:?}") };
        assert!(kept.proto().int32_data.is_empty());
        assert_eq!(kept.proto().name, proto.name);

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
}
