//! PyTorch tensors as initializers, and initializers as PyTorch tensors.
//!
//! A tensor is converted to the form of ONNX bytes (on the CPU, dense, row-major, no lazy
//! conjugation) and then read from its own memory. Safe code can write to that memory through
//! another handle, so it is read by copy, a piece at a time, and never borrowed as a slice or a
//! [`Buffer`](crate::Buffer). The calls that need unsafe code are in `libtorch`, the conversion to
//! PyTorch tensors is in `back`.
//!
//! # Threads and writes
//!
//! A tensor that is written to while it is saved yields torn bytes: some old, some new. A storage
//! that is resized between two reads is read at its new address. *Resizing* it on another thread
//! during a read is a data race between two calls of tch, which its safe interface does not rule
//! out.

mod back;
mod libtorch;

use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;

use tch::nn::VarStore;
use tch::{CModule, Device, TchError, Tensor};

use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::initializer::{Held, Initializer};
use crate::tensor::source::{WeightSource, out_of_bounds};
use libtorch::Memory;

/// A PyTorch tensor as an initializer: read from its own memory where that is dense and in
/// row-major order, from one copy of it otherwise.
///
/// Cloning shares the memory, and so do two initializers made from tensors on one storage: a save
/// writes such bytes once.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::{DataType, Initializer};
///
/// let weights = tch::Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0]).reshape([2, 2]);
/// let weights = Initializer::try_from(&weights.tr())?; // transposed: copied once
/// assert_eq!((weights.dtype(), weights.dims()), (DataType::Float, &[2, 2][..]));
///
/// let mut second = [0; 4];
/// weights.read_at(4, &mut second)?;
/// assert_eq!(f32::from_le_bytes(second), 3.0);
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TorchInitializer {
    dtype: DataType,
    dims: Vec<i64>,
    memory: Arc<Memory>,
}

impl TorchInitializer {
    /// `tensor` with its own type and dimensions.
    ///
    /// Tensors on other devices are moved to the CPU; strided, transposed, expanded and lazily
    /// conjugated tensors are copied once; parameters that require gradients are read like any
    /// other tensor. `torch.float4_e2m1fn_x2` has two elements per item, so its last dimension
    /// doubles.
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] for types that ONNX does not have, such as quantized and 16-bit
    /// complex ones, [`ErrorKind::Shape`] for a `float4_e2m1fn_x2` whose items are not contiguous
    /// in the last dimension, such as a transposed one, [`ErrorKind::Unsupported`] for undefined,
    /// sparse and opaque tensors, for tensors without data (of the meta device), and for what
    /// libtorch itself refuses.
    pub fn new(tensor: &Tensor) -> Result<Self> {
        if cfg!(target_endian = "big") {
            let reason = "tensors of a big-endian libtorch are not read";
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        let dense = dense(tensor)?;
        let number = libtorch::scalar_type(&dense)?;
        let dims = libtorch::dims(&dense);
        let mut dims =
            dims.map_err(|error| error.because("not one shape, as of a nested tensor"))?;
        let dtype = match number {
            FLOAT4_X2 => {
                check_pairs(&dims, &libtorch::strides(tensor)?)?;
                two_an_item(&mut dims)?
            }
            _ => dtype_of(number)?,
        };
        let memory = Arc::new(Memory::new(&dense, dtype.byte_len(&dims)?)?);
        Ok(Self { dtype, dims, memory })
    }

    /// A `Uint8` tensor of any shape as the bytes of a tensor of `dtype` and `dims`, in the form of
    /// `raw_data`: little-endian, in row-major order, and packed from the low bits on where
    /// elements are narrower than a byte. This is for types that torch does not have, such as
    /// `INT4`.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::{DataType, Initializer, torch::TorchInitializer};
    ///
    /// let bytes = tch::Tensor::from_slice(&[0x21_u8, 0x03]);
    /// let weights = TorchInitializer::packed(&bytes, DataType::Int4, [3])?;
    /// assert_eq!(Initializer::from(weights).to_tensor()?.unpack()?, [1, 2, 3]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`new`](Self::new); [`ErrorKind::DataType`] when the tensor is not `Uint8` or
    /// `dtype` has no fixed width; [`ErrorKind::Shape`] when the number of bytes is not that of
    /// `dtype` and `dims`.
    pub fn packed(tensor: &Tensor, dtype: DataType, dims: impl Into<Vec<i64>>) -> Result<Self> {
        let bytes = Self::new(tensor)?;
        if bytes.dtype != DataType::Uint8 {
            let reason = format!("packed bytes are UINT8, the tensor is {}", bytes.dtype);
            return Err(Error::new(ErrorKind::DataType, reason));
        }
        bytes.retyped(dtype, dims.into())
    }

    /// The same bytes as another type.
    pub(crate) fn retyped(&self, dtype: DataType, dims: Vec<i64>) -> Result<Self> {
        let (expected, found) = (dtype.byte_len(&dims)?, self.memory.len());
        if usize::try_from(expected) != Ok(found) {
            let reason =
                format!("shape {dims:?} of {dtype} needs {expected} bytes, there are {found}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        Ok(Self { dtype, dims, memory: self.memory.clone() })
    }

    /// The element type.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// The dimensions; empty for a scalar.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The length of the elements in bytes.
    pub(crate) fn byte_len(&self) -> u64 {
        self.memory.len() as u64
    }

    /// The current address of the elements.
    pub(crate) fn address(&self) -> Option<usize> {
        self.memory.address()
    }
}

impl WeightSource for TorchInitializer {
    fn dtype(&self) -> DataType {
        self.dtype
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        self.byte_len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let is_within = match usize::try_from(offset) {
            Ok(start) => self.memory.read_at(start, out)?,
            Err(_) => false,
        };
        let beyond = || out_of_bounds(offset, out.len(), self.byte_len());
        if is_within { Ok(()) } else { Err(beyond()) }
    }
}

impl From<TorchInitializer> for Initializer {
    fn from(tensor: TorchInitializer) -> Self {
        Self(Held::Torch(tensor))
    }
}

impl TryFrom<&Tensor> for Initializer {
    type Error = Error;

    /// As [`TorchInitializer::new`].
    fn try_from(tensor: &Tensor) -> Result<Self> {
        TorchInitializer::new(tensor).map(Self::from)
    }
}

impl TryFrom<Tensor> for Initializer {
    type Error = Error;

    /// As [`TorchInitializer::new`].
    fn try_from(tensor: Tensor) -> Result<Self> {
        Self::try_from(&tensor)
    }
}

/// The variables of `store` by their names (`fc1.weight`), sorted; also those that are not trained,
/// such as the running mean of a batch norm. None of them is copied.
///
/// # Errors
/// One error for all variables that cannot be initializers; see [`TorchInitializer::new`].
pub fn variables(store: &VarStore) -> Result<Vec<(String, Initializer)>> {
    named(store.variables())
}

/// The parameters of `module` by their names (`fc1.weight`), sorted. None of them is copied.
///
/// tch does not list a module's *buffers*, such as the running mean of a batch norm;
/// [`script_file`] does.
///
/// # Errors
/// One error for all parameters that cannot be initializers; see [`TorchInitializer::new`].
pub fn named_parameters(module: &CModule) -> Result<Vec<(String, Initializer)>> {
    named(module.named_parameters().map_err(refused)?)
}

/// The parameters and buffers of the TorchScript module in the file `path` (what
/// `torch.jit.ScriptModule.save` or [`CModule::save`] wrote) by their names, sorted.
///
/// libtorch reads the file into memory once; nothing is copied after that. Such a file contains
/// code, and libtorch is not safe against hostile files: load only files that you trust.
///
/// # Errors
/// [`ErrorKind::UnsafePath`] when it is not a regular file, [`ErrorKind::Unsupported`] with
/// libtorch's message for a file that it cannot load; one error for all tensors that cannot be
/// initializers, see [`TorchInitializer::new`].
pub fn script_file(path: impl AsRef<Path>) -> Result<Vec<(String, Initializer)>> {
    let path = path.as_ref();
    let named_file = || {
        let text = path.to_str().and_then(|path| CString::new(path).ok());
        let text = text
            .ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "libtorch takes no such path"))?;
        // The type is checked before the file is opened: opening a FIFO would wait for its writer.
        let meta = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
        if !meta.is_file() {
            return Err(Error::new(ErrorKind::UnsafePath, "not a regular file"));
        }
        libtorch::script_tensors(&text)
    };
    named(named_file().map_err(|error| error.with_path(path))?)
}

fn named(
    tensors: impl IntoIterator<Item = (String, Tensor)>,
) -> Result<Vec<(String, Initializer)>> {
    let (mut initializers, mut errors) = (Vec::new(), Vec::new());
    for (name, tensor) in tensors {
        match Initializer::try_from(tensor) {
            Ok(initializer) => initializers.push((name, initializer)),
            Err(error) => errors.push((name.clone(), error.with_tensor(name))),
        }
    }
    initializers.sort_by(|(a, _), (b, _)| a.cmp(b));
    errors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let errors = errors.into_iter().map(|(_, error)| error);
    Error::join(errors).map_or(Ok(initializers), Err)
}

/// `tensor` on the CPU, dense, in row-major order, without lazy operations; the same memory where
/// it has that form already.
fn dense(tensor: &Tensor) -> Result<Tensor> {
    if !tensor.defined() {
        return Err(Error::new(ErrorKind::Unsupported, "the tensor is undefined"));
    }
    if !libtorch::is_strided(tensor)? {
        let reason = "the tensor is sparse or opaque: make it dense first (`to_dense`)";
        return Err(Error::new(ErrorKind::Unsupported, reason));
    }
    refuse_quantized(libtorch::scalar_type(tensor)?)?;
    let dense = match libtorch::is_on_cpu(tensor)? {
        true => tensor.shallow_clone(),
        false => tensor.f_to(Device::Cpu).map_err(refused)?,
    };
    if dense.f_internal_is_zerotensor().map_err(refused)? {
        return dense.f_zeros_like().map_err(refused);
    }
    let resolved = dense.f_resolve_conj().and_then(|dense| dense.f_resolve_neg());
    resolved.and_then(|dense| dense.f_contiguous()).map_err(refused)
}

fn refused(error: TchError) -> Error {
    match error {
        TchError::Torch(text) => libtorch::failure(&text),
        error => libtorch::failure(&error.to_string()),
    }
}

/// `torch.float4_e2m1fn_x2`: a byte with two elements, the first in its low bits.
const FLOAT4_X2: i32 = 45;

/// Refuses a view whose last dimension is not the one along which elements were packed: the two
/// elements of an item would become neighbours in another dimension.
fn check_pairs(dims: &[i64], strides: &[i64]) -> Result<()> {
    let has_items = !dims.contains(&0);
    if !has_items || strides.last().is_none_or(|stride| *stride == 1) {
        return Ok(());
    }
    let reason = "two elements are an item of float4_e2m1fn_x2, and the items do not lie one after \
                  another in the last dimension, as in a transposed tensor: convert it before it is \
                  transposed";
    Err(Error::new(ErrorKind::Shape, reason))
}

fn two_an_item(dims: &mut [i64]) -> Result<DataType> {
    let doubled = dims.last_mut().and_then(|last| {
        *last = last.checked_mul(2)?;
        Some(DataType::Float4E2M1)
    });
    doubled.ok_or_else(|| {
        Error::new(ErrorKind::Shape, "a scalar of float4_e2m1fn_x2 has two elements")
    })
}

/// For each number of a `c10::ScalarType`, the ONNX type, and tch's kind if tch has one.
const TYPES: &[(i32, DataType, Option<tch::Kind>)] = {
    use tch::Kind;
    &[
        (0, DataType::Uint8, Some(Kind::Uint8)),
        (1, DataType::Int8, Some(Kind::Int8)),
        (2, DataType::Int16, Some(Kind::Int16)),
        (3, DataType::Int32, Some(Kind::Int)),
        (4, DataType::Int64, Some(Kind::Int64)),
        (5, DataType::Float16, Some(Kind::Half)),
        (6, DataType::Float, Some(Kind::Float)),
        (7, DataType::Double, Some(Kind::Double)),
        (9, DataType::Complex64, Some(Kind::ComplexFloat)),
        (10, DataType::Complex128, Some(Kind::ComplexDouble)),
        (11, DataType::Bool, Some(Kind::Bool)),
        (15, DataType::Bfloat16, Some(Kind::BFloat16)),
        (23, DataType::Float8E5M2, Some(Kind::Float8e5m2)),
        (24, DataType::Float8E4M3Fn, Some(Kind::Float8e4m3fn)),
        (25, DataType::Float8E5M2Fnuz, Some(Kind::Float8e5m2fnuz)),
        (26, DataType::Float8E4M3Fnuz, Some(Kind::Float8e4m3fnuz)),
        (27, DataType::Uint16, None),
        (28, DataType::Uint32, None),
        (29, DataType::Uint64, None),
        (44, DataType::Float8E8M0, None),
    ]
};

fn dtype_of(number: i32) -> Result<DataType> {
    let found = TYPES.iter().find(|(torch, ..)| *torch == number);
    found.map(|(_, dtype, _)| *dtype).ok_or_else(|| {
        let reason = match number {
            8 => "ONNX has no 16-bit complex type: take `view_as_real`".to_owned(),
            30..=43 => "torch's integers narrower than a byte are not packed: take a UINT8 tensor \
                        of packed bytes by `TorchInitializer::packed`"
                .to_owned(),
            _ => format!("ONNX has no type for torch's scalar type {number}"),
        };
        Error::new(ErrorKind::DataType, reason)
    })
}

/// Refuses quantized tensors: they have strides, but their scale is not part of their bytes.
fn refuse_quantized(number: i32) -> Result<()> {
    if !matches!(number, 12..=14 | 16 | 17) {
        return Ok(());
    }
    let reason = "a quantized tensor has a scale besides its elements: take `int_repr`";
    Err(Error::new(ErrorKind::DataType, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_lie_in_the_last_dimension() {
        let cases: &[(&[i64], &[i64], bool)] = &[
            (&[2, 24], &[24, 1], true),
            // Some rows of a longer matrix, and a scalar, which has no pair.
            (&[2, 24], &[48, 1], true),
            (&[], &[], true),
            (&[0, 24], &[1, 48], true),
            // Transposed, also where libtorch calls it contiguous; every second item; one item
            // broadcast.
            (&[24, 2], &[1, 24], false),
            (&[24, 1], &[1, 24], false),
            (&[2, 12], &[24, 2], false),
            (&[2, 24], &[1, 0], false),
        ];
        for (dims, strides, fits) in cases {
            assert_eq!(check_pairs(dims, strides).is_ok(), *fits, "{dims:?} by {strides:?}");
        }
    }
}
