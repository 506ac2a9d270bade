//! [`Initializer`]: the elements of one tensor, wherever they are.

use std::ffi::c_int;
use std::path::PathBuf;

use onnx_container::DataType;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use pyo3::{Borrowed, ffi};

use crate::bytes::{Bytes, Elements, buffer, packed};
use crate::error::OrRaise;
use crate::interrupt::detached;

/// The elements of one tensor: their type (the number in onnx.proto), dimensions and bytes. What
/// Python calls a tensor is a subclass, with a name.
#[derive(Debug)]
#[pyclass(frozen, subclass, module = "onnx_container._core")]
pub struct Initializer(pub onnx_container::Initializer);

/// Anything that can be weights, such as an array, as an initializer.
pub fn converted<'py>(source: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Initializer>> {
    let convert = source.py().import("onnx_container._convert")?.getattr("initializer")?;
    Ok(convert.call1((source,))?.cast_into()?)
}

impl Initializer {
    /// The codes of elements narrower than a byte, one in each byte, in its low bits.
    fn unpacked(&self, py: Python<'_>) -> PyResult<Bytes> {
        let codes = detached(py, || self.0.to_tensor()?.unpack())?;
        Ok(Bytes(codes.into()))
    }
}

#[pymethods]
impl Initializer {
    /// The elements of another initializer, or of anything else that can be weights; or, with a
    /// type and dimensions, those in the memory of `source`, packed and little-endian, which are
    /// not copied: bytes, or an array of that type. The name and the description are for the
    /// subclass.
    #[new]
    #[pyo3(signature = (source, dtype=None, dims=None, *, name=None, doc_string=None))]
    fn new(
        source: &Bound<'_, PyAny>,
        dtype: Option<i32>,
        dims: Option<Vec<i64>>,
        name: Option<&Bound<'_, PyAny>>,
        doc_string: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let _ = (name, doc_string);
        let (Some(dtype), Some(dims)) = (dtype, dims.clone()) else {
            if dtype.is_some() || dims.is_some() {
                let reason =
                    "Tensor() takes dtype and dims of packed bytes together, or none of them";
                return Err(PyTypeError::new_err(reason));
            }
            if let Ok(given) = source.cast::<Self>() {
                return Ok(Self(given.get().0.clone()));
            }
            return Ok(Self(converted(source)?.get().0.clone()));
        };
        let dtype = DataType::try_from(dtype).or_raise()?;
        let tensor = onnx_container::Tensor::new(dtype, dims, packed(source, dtype)?).or_raise()?;
        Ok(Self(tensor.into()))
    }

    /// The elements by the buffer protocol: read-only, with their shape, for the types that the
    /// protocol has. numpy asks for this first, and would take bytes without a type for the
    /// elements.
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(
        slf: Borrowed<'_, '_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (py, held) = (slf.py(), slf.get());
        let shown = Elements::new(held.0.dtype(), held.0.dims(), || held.bytes(py))?;
        // SAFETY: `view` comes from the interpreter.
        unsafe { Elements::__getbuffer__(Bound::new(py, shown)?.as_borrowed(), view, flags) }
    }

    /// Elements that `make` returns, as an object with the buffer protocol, each time they are
    /// needed.
    #[staticmethod]
    fn lazy(dtype: i32, dims: Vec<i64>, make: Py<PyAny>) -> PyResult<Self> {
        let dtype = DataType::try_from(dtype).or_raise()?;
        let make = move || {
            let made = Python::try_attach(|py| packed(&make.call0(py)?.into_bound(py), dtype));
            let ended = || onnx_container::Error::other("the interpreter has ended");
            made.ok_or_else(ended)?.map_err(onnx_container::Error::other)
        };
        Ok(Self(onnx_container::Initializer::lazy(dtype, dims, make).or_raise()?))
    }

    /// The elements of a TensorProto, given as its bytes. Those of a raw field are not copied.
    #[staticmethod]
    fn from_tensor_proto(message: &Bound<'_, PyAny>) -> PyResult<Self> {
        use onnx_container::proto::{Message, TensorProto};
        let proto = TensorProto::decode(&buffer(message)?).or_raise()?;
        Ok(Self(onnx_container::Initializer::try_from(proto).or_raise()?))
    }

    /// A tensor of strings.
    #[staticmethod]
    fn of_strings(dims: Vec<i64>, strings: Vec<Bound<'_, PyBytes>>) -> PyResult<Self> {
        let strings = strings.iter().map(|text| text.as_bytes().into()).collect();
        Ok(Self(onnx_container::Tensor::from_strings(dims, strings).or_raise()?.into()))
    }

    fn __repr__(&self) -> String {
        format!("<Initializer: {} {:?}>", self.0.dtype(), self.0.dims())
    }

    /// The element type, as the number in onnx.proto.
    #[getter]
    fn dtype(&self) -> i32 {
        self.0.dtype().number()
    }

    /// The dimensions.
    #[getter]
    fn dims<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.dims())
    }

    /// The length in bytes, packed; of strings, the sum of their lengths.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.byte_len()
    }

    /// Whether the elements are produced each time they are needed.
    #[getter]
    fn is_lazy(&self) -> bool {
        self.0.is_lazy()
    }

    /// The file that the elements are mapped from, and the first and last byte there; None where
    /// they are in memory.
    fn file_range(&self) -> Option<(PathBuf, u64, u64)> {
        let found = self.0.file_range()?;
        Some((found.path.to_owned(), found.range.start, found.range.end))
    }

    /// The packed little-endian bytes, shared where they are in memory or in a mapped file.
    pub(crate) fn bytes(&self, py: Python<'_>) -> PyResult<Bytes> {
        match self.0.is_lazy() || self.0.as_buffer().is_none() {
            true => Ok(Bytes(detached(py, || self.0.to_buffer())?)),
            false => Ok(Bytes(self.0.to_buffer().or_raise()?)),
        }
    }

    /// The elements of a tensor of strings; None for other types.
    fn strings<'py>(&self, py: Python<'py>) -> PyResult<Option<Vec<Bound<'py, PyBytes>>>> {
        let tensor = self.0.to_tensor().or_raise()?;
        Ok(tensor.strings().map(|all| all.iter().map(|text| PyBytes::new(py, text)).collect()))
    }

    /// What an array is made of: the number of the element type, the dimensions, and the elements
    /// in memory, those narrower than a byte in one each. None in place of strings, which are not
    /// in one piece.
    fn elements<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(i32, Bound<'py, PyTuple>, Option<Bytes>)> {
        let dtype = self.0.dtype();
        let bytes = match dtype.bit_width() {
            None => None,
            Some(..8) => Some(self.unpacked(py)?),
            Some(_) => Some(self.bytes(py)?),
        };
        Ok((dtype.number(), self.dims(py)?, bytes))
    }

    /// The elements as bytes of one each, packed as `dtype` asks for.
    #[staticmethod]
    fn pack(
        py: Python<'_>,
        dtype: i32,
        dims: Vec<i64>,
        codes: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let dtype = DataType::try_from(dtype).or_raise()?;
        let codes = buffer(codes)?;
        let packed = detached(py, || onnx_container::Tensor::pack(dtype, dims, &codes))?;
        Ok(Self(packed.into()))
    }
}
